"""Small fitted models that the tests of plots share; none may be changed."""

import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from sgpmic import SGPMIC, Start  # noqa: E402


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    rng = np.random.RandomState(0)
    rows = np.vstack(
        [rng.standard_normal((20, 3)) + np.array([8.0 * k, 0.0, 0.0]) for k in range(3)]
    )
    return pd.DataFrame(rows, columns=["tells", "noise", "more noise"])


@pytest.fixture(scope="session")
def unfitted() -> SGPMIC:
    return SGPMIC(
        3,
        n_inducing=10,
        committee=None,
        max_iter=3,
        tol=0.0,
        start=Start(n_init=2),
        random_state=0,
    )


@pytest.fixture(scope="session")
def model(frame: pd.DataFrame, unfitted: SGPMIC) -> SGPMIC:
    return quietly(unfitted, frame)


@pytest.fixture(scope="session")
def deep(frame: pd.DataFrame, unfitted: SGPMIC) -> SGPMIC:
    """Return a model of three latent dimensions."""
    return quietly(clone(unfitted).set_params(n_components=3, start__n_init=1), frame)


def quietly(model: SGPMIC, frame: pd.DataFrame) -> SGPMIC:
    with warnings.catch_warnings(action="ignore"):
        return clone(model).fit(frame)


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")
