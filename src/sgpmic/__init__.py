"""Joint clustering and nonlinear dimensionality reduction.

>>> from sgpmic import SGPMIC
>>> model = SGPMIC(n_clusters=3, n_components=2, random_state=0)
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.learning.em import Progress
    from sgpmic.learning.settings import EM, Committee, Computation, Start
    from sgpmic.tables.encoder import TableEncoder

__all__ = [
    "EM",
    "SGPMIC",
    "Committee",
    "Computation",
    "Progress",
    "Start",
    "TableEncoder",
    "__version__",
]

__version__ = "1.0.0rc1"

# Loading a cached executable makes XLA log pages of errors about tuning flags that no CPU has
# (jax-ml/jax#38445). JAX sets the same variable to 1: if it was imported first, they appear.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Lazy imports: importing JAX takes seconds, and `sgpmic --help` should not.
_PLACES = {
    "SGPMIC": "sgpmic.estimator",
    "Progress": "sgpmic.learning.em",
    "Start": "sgpmic.learning.settings",
    "EM": "sgpmic.learning.settings",
    "Committee": "sgpmic.learning.settings",
    "Computation": "sgpmic.learning.settings",
    "TableEncoder": "sgpmic.tables.encoder",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
