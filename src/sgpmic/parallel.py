"""Old name of :mod:`sgpmic.jobs`, kept for one release."""

from __future__ import annotations

from typing import Any

from sgpmic import jobs
from sgpmic.exceptions import warn_renamed

warn_renamed("sgpmic.parallel", "sgpmic.jobs")


def __getattr__(name: str) -> Any:
    # Including ``__path__``, so that ``sgpmic.parallel.on_ray`` can be imported.
    return getattr(jobs, name)
