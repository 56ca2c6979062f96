"""What a process of our own sets before JAX is imported. A library must not; a program may."""

from __future__ import annotations

import os


def prepare_process() -> None:
    """Keep XLA's chatter off the screen.

    Loading a compiled program makes it print errors about tuning flags that no processor has.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
