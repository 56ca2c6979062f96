"""Bad input works or raises one sentence that says what to do."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from tests.estimator.conftest import QUICK

from sgpmic import SGPMIC
from sgpmic.exceptions import DeadClusterWarning, JitterWarning, StartWarning
from sgpmic.kernels import RBF

Floats = NDArray[np.float64]
Fit = Callable[..., SGPMIC]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda Y: np.full_like(Y, np.nan), "without any value"),
        (lambda Y: np.where(np.eye(*Y.shape), np.inf, Y), "contains infinity"),
        (lambda Y: Y[:0], "0 sample"),
        (lambda Y: Y[:1], "1 sample"),
        (lambda Y: Y[:, :0], "0 feature"),
        (lambda Y: Y[:2], "n_clusters=3"),
        (lambda Y: Y[:, 0], "Expected 2D array"),
        (lambda Y: [["a", "b"], ["c", "d"], ["e", "f"]], "could not convert string to float"),
    ],
)
def test_unusable_tables(table: Floats, change: Callable[[Floats], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        SGPMIC(3).fit(change(table))


@pytest.mark.parametrize(
    ("parameters", "error", "word"),
    [
        ({"n_clusters": 0}, ValueError, "n_clusters"),
        ({"n_clusters": -2}, ValueError, "n_clusters"),
        ({"n_clusters": 2.5}, TypeError, "n_clusters"),
        ({"n_clusters": True}, TypeError, "n_clusters"),
        ({"n_components": 0}, ValueError, "n_components"),
        ({"n_components": 1.5}, ValueError, "n_components"),
        ({"n_components": "two"}, TypeError, "n_components"),
        ({"kernel": "rbff"}, ValueError, "rbf"),
        ({"kernel": 3}, TypeError, "kernel"),
        ({"kernel": RBF(gamma=[1.0, 2.0, 3.0])}, ValueError, "3 entries"),
        ({"mapping": "both"}, ValueError, "mapping"),
        ({"mapping": None}, TypeError, "mapping"),
        ({"covariance_type": "round"}, ValueError, "covariance_type"),
        ({"start__embedding": "tsne"}, ValueError, "embedding"),
        ({"start__embedding": np.zeros((3, 2))}, ValueError, "shape"),
        ({"start__memberships": np.zeros((3, 2))}, ValueError, "shape"),
        ({"n_inducing": 0}, ValueError, "n_inducing"),
        ({"start__n_init": 0}, ValueError, "n_init"),
        ({"max_iter": 0}, ValueError, "max_iter"),
        ({"tol": -1.0}, ValueError, "tol"),
        ({"tol": np.nan}, ValueError, "tol"),
        ({"em__prior_strength": -0.1}, ValueError, "prior_strength"),
        ({"em__covariance_floor": 0.0}, ValueError, "covariance_floor"),
        ({"computation__block_size": 0}, ValueError, "block_size"),
        ({"em__callbacks": ["print"]}, TypeError, "callbacks"),
        ({"em__callbacks": print}, TypeError, "callbacks"),
        ({"start__n_neighbors": 0}, ValueError, "n_neighbors"),
        ({"start__kernel_scale": 0.0}, ValueError, "kernel_scale"),
        ({"start__kernel_scale": "relative"}, ValueError, "data"),
        ({"start__kernel_scale": "data", "scale": "each"}, ValueError, "scale='one'"),
        ({"scale": "both"}, ValueError, "scale"),
        ({"start": None}, TypeError, "sgpmic.Start"),
        ({"start__kernel_scale": None}, TypeError, "kernel_scale"),
        ({"random_state": "seed"}, ValueError, "seed"),
    ],
)
def test_unusable_parameters(
    table: Floats, parameters: dict[str, Any], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        SGPMIC(3, committee=None).set_params(**parameters).fit(table)


def all_finite(model: SGPMIC, Y: Floats) -> bool:
    arrays = (
        model.embedding_,
        model.memberships_,
        model.covariances_,
        model.predict_proba(Y + 0.1),
        model.score_samples(Y + 0.1),
    )
    return all(np.isfinite(a).all() for a in arrays) and np.isfinite(model.lower_bound_)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda Y: Y[:, :1], id="one feature"),
        # As large as the table itself where that is no matter: nothing is compiled for them.
        pytest.param(
            lambda Y: np.column_stack([Y[:, :3], np.full(len(Y), 7.0)]), id="constant feature"
        ),
        pytest.param(lambda Y: np.concatenate([Y[::2], Y[::2]]), id="duplicate rows"),
        pytest.param(lambda Y: np.zeros_like(Y), id="all rows alike"),
        pytest.param(lambda Y: Y * 1e8, id="huge"),
        pytest.param(lambda Y: Y * 1e-8, id="tiny"),
        pytest.param(lambda Y: Y + 1e6, id="far from the origin"),
        pytest.param(lambda Y: Y[:4], id="four rows"),
        pytest.param(lambda Y: Y.round().astype(int), id="whole numbers"),
        pytest.param(lambda Y: Y.astype(np.float32), id="single precision"),
        pytest.param(lambda Y: Y.tolist(), id="lists"),
    ],
)
@pytest.mark.parametrize("mapping", ["shared", pytest.param("per_cluster", marks=pytest.mark.slow)])
def test_odd_tables_work(
    table: Floats, quick_fit: Fit, change: Callable[[Floats], Any], mapping: str
) -> None:
    Y = change(table)
    model = quick_fit(Y, mapping=mapping, n_inducing=4)  # as many as four rows can have
    assert all_finite(model, np.asarray(Y, dtype=float))
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1.0)


@pytest.mark.parametrize("factor", [1e-150, 1e150])
def test_data_at_the_ends_of_float64(table: Floats, factor: float) -> None:
    with pytest.raises(ValueError, match="near 1"):
        SGPMIC(3).fit(table * factor)


def test_a_cell_that_is_too_large_is_named(table: Floats) -> None:
    pandas = pytest.importorskip("pandas")
    Y = table.copy()
    Y[17, 1] = -1e150
    with pytest.raises(ValueError, match=r"Row 17 \(from 0\), column 1: -1e\+150 is too large"):
        SGPMIC(3).fit(Y)
    names = [f"feature {j}" for j in range(Y.shape[1])]
    with pytest.raises(ValueError, match=r"Row 17 \(from 0\), column 'feature 1':"):
        SGPMIC(3).fit(pandas.DataFrame(Y, columns=names))


def test_more_inducing_points_than_rows(table: Floats, quick_fit: Fit) -> None:
    # Ten, for which other tests compile as well.
    model = quick_fit(table[::6], n_inducing=1000)
    assert model.inducing_.shape == (10, 2)


@pytest.mark.slow
def test_more_components_than_features(table: Floats, quick_fit: Fit) -> None:
    model = quick_fit(table[:, :2], n_components=3)
    assert model.embedding_.shape == (60, 3)
    assert all_finite(model, table[:, :2])


@pytest.mark.slow
def test_share_of_variance_counts_components(table: Floats, quick_fit: Fit) -> None:
    from sklearn.decomposition import PCA

    for share in (0.5, 0.95):
        expected = PCA(share).fit(table).n_components_
        assert quick_fit(table, n_components=share).n_components_ == expected


def test_a_bound_that_still_rises_is_said(table: Floats) -> None:
    with pytest.warns(ConvergenceWarning, match=r"after 1 iteration: .*max_iter"):
        SGPMIC(3, tol=1e-12).set_params(**QUICK | {"max_iter": 1}).fit(table)


def test_a_dead_cluster_is_said(table: Floats) -> None:
    # A start that gives nothing to the third cluster, and no prior that could bring it to life.
    given = np.zeros((60, 3))
    given[:30, 0] = given[30:, 1] = 1.0
    parameters = {"mapping": "per_cluster", "start__memberships": given, "em__prior_strength": 0.0}
    with pytest.warns(DeadClusterWarning, match="n_init"):
        SGPMIC(3).set_params(**(QUICK | parameters)).fit(table)


def test_a_graph_in_pieces_is_said(table: Floats) -> None:
    with pytest.warns(StartWarning, match="connected components"):
        SGPMIC(3).set_params(**QUICK).fit(table)


def test_raised_jitter_is_said_if_it_matters(
    table: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Inducing points on top of each other, no white noise to tell them apart, no jitter to start.
    kernel = RBF(gamma=1e-9, white=0.0, bias=0.0)
    parameters = QUICK | {"kernel": kernel, "em__m_steps": 0, "em__jitter": 0.0}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = SGPMIC(3).set_params(**parameters).fit(table)
    assert JitterWarning not in {each.category for each in said}
    assert np.isfinite(model.lower_bound_)
    monkeypatch.setattr("sgpmic.learning.run._HARMLESS_JITTER", 0.0)
    with pytest.warns(JitterWarning, match="raised from 0"):
        SGPMIC(3).set_params(**parameters).fit(table)


def test_methods_before_fit_say_so(table: Floats) -> None:
    model = SGPMIC()
    for method in (model.predict, model.transform, model.score_samples, model.inverse_transform):
        with pytest.raises(NotFittedError):
            method(table)
    with pytest.raises(NotFittedError):
        model.sample()
    for write in (model.save, model.report):
        with pytest.raises(NotFittedError):
            write("nowhere")


def test_latent_points_of_the_wrong_width(fitted: SGPMIC) -> None:
    with pytest.raises(ValueError, match="2 dimensions"):
        fitted.inverse_transform(np.zeros((3, 5)))
