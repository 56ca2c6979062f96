"""Old name of :mod:`sgpmic.jobs`, kept for one release."""

from __future__ import annotations

import warnings
from typing import Any

from sgpmic import jobs

warnings.warn(
    "sgpmic.parallel is now sgpmic.jobs; the old name will be removed in the next release.",
    FutureWarning,
    stacklevel=2,
)


def __getattr__(name: str) -> Any:
    # Also ``__path__``, by which ``sgpmic.parallel.on_ray`` is found.
    return getattr(jobs, name)
