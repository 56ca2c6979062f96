"""The plotting methods: the right numbers on the right axes."""

import numpy as np
import pandas as pd
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

from sgpmic import SGPMIC, Start  # noqa: E402


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.RandomState(0)
    rows = np.vstack(
        [rng.standard_normal((20, 3)) + np.array([8.0 * k, 0.0, 0.0]) for k in range(3)]
    )
    return pd.DataFrame(rows, columns=["tells", "noise", "more noise"])


@pytest.fixture(scope="module")
def model(frame: pd.DataFrame) -> SGPMIC:
    return SGPMIC(
        3,
        n_inducing=10,
        committee=None,
        max_iter=3,
        tol=0.0,
        start=Start(n_init=2),
        random_state=0,
    ).fit(frame)


def test_the_embedding(model: SGPMIC) -> None:
    axes = model.plot_embedding(title="mine")
    points = np.vstack([np.asarray(c.get_offsets()) for c in axes.collections])
    np.testing.assert_allclose(
        points[np.lexsort(points.T)], model.embedding_[np.lexsort(model.embedding_.T)]
    )
    assert axes.get_title(loc="left") == "mine"


def test_the_bound(model: SGPMIC) -> None:
    axes = model.plot_bound()
    assert len(axes.get_lines()) == 2
    drawn = np.concatenate([line.get_ydata()[1::2] for line in axes.get_lines()])
    np.testing.assert_allclose(drawn, model.history_["bound"])
    labels = [line.get_label() for line in axes.get_lines()]
    assert sum("(kept)" in label for label in labels) == 1


def test_the_profiles(model: SGPMIC, frame: pd.DataFrame) -> None:
    axes = model.plot_profiles(n_features=2)
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names[0] == "tells", "the feature that sets the clusters apart comes first"
    assert len(names) == 2
    shown = np.asarray(axes.images[0].get_array())
    inside, outside = (frame["tells"][model.labels_ == 0], frame["tells"][model.labels_ != 0])
    spread = np.sqrt((len(inside) * inside.var(ddof=0) + len(outside) * outside.var(ddof=0)) / 58)
    assert shown[0, 0] == pytest.approx((inside.mean() - outside.mean()) / spread)
    given = np.asarray(model.plot_profiles(frame, n_features=2).images[0].get_array())
    np.testing.assert_allclose(given, shown)


def test_given_axes_are_drawn_on(model: SGPMIC) -> None:
    _, (first, second, third) = plt.subplots(1, 3)
    assert model.plot_embedding(axes=first) is first
    assert model.plot_bound(axes=second) is second
    assert model.plot_profiles(axes=third) is third


def test_a_model_that_is_not_fitted_says_so() -> None:
    for name in ("plot_embedding", "plot_bound", "plot_profiles"):
        with pytest.raises(NotFittedError):
            getattr(SGPMIC(), name)()
