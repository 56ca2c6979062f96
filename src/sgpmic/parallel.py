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
    # Including ``__path__``, so that ``sgpmic.parallel.on_ray`` can be imported.
    return getattr(jobs, name)
