"""Clustering and non-linear dimensionality reduction, learned together.

>>> from sgpmic import SGPMIC
>>> model = SGPMIC(n_clusters=3, n_components=2, random_state=0)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.fuzzy import FuzzyCMeans
    from sgpmic.learning.rounds import Progress

__all__ = ["SGPMIC", "FuzzyCMeans", "Progress", "__version__"]

__version__ = "0.1.0"

# Imported when first used: JAX takes seconds, and `sgpmic --help` should not.
_PLACES = {
    "SGPMIC": "sgpmic.estimator",
    "FuzzyCMeans": "sgpmic.fuzzy",
    "Progress": "sgpmic.learning.rounds",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
