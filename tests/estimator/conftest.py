"""Small problems that many tests share, so that they are compiled once."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sgpmic import SGPMIC

Floats = NDArray[np.float64]
#: Cheap settings; all tests with the same table shape share one compiled program.
QUICK: dict[str, Any] = {
    "committee": None,
    "n_inducing": 10,
    "max_iter": 3,
    "em__m_steps": 5,
    "random_state": 0,
}


@pytest.fixture(scope="session")
def table() -> Floats:
    """Return three blobs in four dimensions, 20 rows each, known order."""
    rng = np.random.default_rng(0)
    centers = np.array([[0, 0, 0, 0], [6, 0, 6, 0], [0, 7, 0, 7]])
    return np.concatenate([rng.normal(c, 1.0, size=(20, 4)) for c in centers])


@pytest.fixture
def quick_fit() -> Callable[..., SGPMIC]:
    """Return a function that fits with cheap settings and keeps warnings quiet."""

    def fit(Y: Any, n_clusters: int = 3, **parameters: Any) -> SGPMIC:
        with warnings.catch_warnings(action="ignore"):
            return SGPMIC(n_clusters).set_params(**(QUICK | parameters)).fit(Y)

    return fit


@pytest.fixture(scope="module")  # not of the session, which would begin without ``few_shapes``
def fitted(table: Floats) -> SGPMIC:
    """Return a model of ``table`` that tests must not change."""
    with warnings.catch_warnings(action="ignore"):
        return SGPMIC(3).set_params(**QUICK).fit(table)
