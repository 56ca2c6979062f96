"""Old name of :mod:`sgpmic.jobs`, kept for one release."""

from __future__ import annotations

import warnings
from typing import Any

from sgpmic import jobs

warnings.warn(
    "sgpmic.parallel is now sgpmic.jobs; the old name goes with the next release.",
    FutureWarning,
    stacklevel=2,
)

#: Modules of the folder, such as ``sgpmic.parallel.on_ray``.
__path__ = jobs.__path__


def __getattr__(name: str) -> Any:
    return getattr(jobs, name)
