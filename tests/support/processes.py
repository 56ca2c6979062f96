"""Variables for the processes that tests start."""

from __future__ import annotations

import os


def of_one_device() -> dict[str, str]:
    """Return this process's variables without its virtual devices.

    What the compiler is told stays the same: processes then share what they have compiled.
    """
    flags = os.environ.get("XLA_FLAGS", "").split()
    kept = [flag for flag in flags if "host_platform_device_count" not in flag]
    return {**os.environ, "XLA_FLAGS": " ".join(kept)}
