"""Fuzzy c-means: scikit-learn's conventions, a plain-loop implementation and hand cases."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.estimator_checks import parametrize_with_checks

from sgpmic.fuzzy import FuzzyCMeans

Floats = NDArray[np.float64]
IRIS = load_iris().data


@parametrize_with_checks([FuzzyCMeans(), FuzzyCMeans(n_clusters=2, fuzzifier=1.5, n_init=1)])
def test_sklearn_convention(estimator: FuzzyCMeans, check: Callable[[FuzzyCMeans], None]) -> None:
    check(estimator)


def plain_fuzzy_c_means(
    X: Floats, centers: Floats, m: float, rounds: int
) -> tuple[Floats, Floats, float]:
    """Bezdek's two equations, entry by entry, from given centres."""
    v = [list(centre) for centre in centers]
    n, d, k = len(X), X.shape[1], len(v)
    u = [[0.0] * k for _ in range(n)]
    for _ in range(rounds):
        for i in range(n):
            far = [sum((X[i, a] - v[j][a]) ** 2 for a in range(d)) ** 0.5 for j in range(k)]
            for j in range(k):
                u[i][j] = 1.0 / sum((far[j] / far[h]) ** (2.0 / (m - 1.0)) for h in range(k))
        for j in range(k):
            mass = sum(u[i][j] ** m for i in range(n))
            v[j] = [sum(u[i][j] ** m * X[i, a] for i in range(n)) / mass for a in range(d)]
    objective = sum(
        u[i][j] ** m * sum((X[i, a] - v[j][a]) ** 2 for a in range(d))
        for i in range(n)
        for j in range(k)
    )
    return np.array(u), np.array(v), objective


@pytest.mark.parametrize("fuzzifier", [1.4, 2.0, 3.0])
def test_agrees_with_a_plain_loop(fuzzifier: float) -> None:
    rng = np.random.RandomState(3)
    corners = np.array([[0.0, 0.0, 0.0], [4.0, 1.0, 0.0], [0.0, 5.0, 2.0]])
    X = np.repeat(corners, 12, axis=0) + rng.standard_normal((36, 3))
    model = FuzzyCMeans(fuzzifier=fuzzifier, tol=1e-12, max_iter=2000, random_state=0).fit(X)
    # The loop starts at the corners, the estimator at rows: only the solution is shared.
    u, v, objective = plain_fuzzy_c_means(X, corners, fuzzifier, 400)
    order = euclidean_distances(v, model.cluster_centers_).argmin(axis=1)
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(model.cluster_centers_[order], v, atol=1e-8)
    np.testing.assert_allclose(model.memberships_[:, order], u, atol=1e-8)
    assert model.objective_ == pytest.approx(objective, rel=1e-9)


def test_fit_and_predict_tell_the_same() -> None:
    model = FuzzyCMeans(random_state=0)
    labels = model.fit_predict(IRIS)
    np.testing.assert_array_equal(labels, model.predict(IRIS))
    np.testing.assert_array_equal(model.memberships_, model.predict_proba(IRIS))
    # A row alone is told the same as in its table.
    np.testing.assert_array_equal(model.predict_proba(IRIS[70:71]), model.memberships_[70:71])
    np.testing.assert_allclose(
        model.transform(IRIS), euclidean_distances(IRIS, model.cluster_centers_), atol=1e-7
    )
    assert list(model.get_feature_names_out()) == ["fuzzycmeans0", "fuzzycmeans1", "fuzzycmeans2"]


def test_memberships_by_hand() -> None:
    # Centres 0 and 3, a row at 1: squared distances 1 and 4. m = 2: 1/(1 + 1/4) = 0.8 and 0.2.
    # m = 3 has exponent 2/(m−1) = 1: 1/(1 + 1/2) = 2/3 and 1/3.
    for fuzzifier, expected in [(2.0, [0.8, 0.2]), (3.0, [2 / 3, 1 / 3])]:
        model = FuzzyCMeans(2, fuzzifier=fuzzifier, random_state=0).fit([[0.0], [3.0]])
        order = np.argsort(model.cluster_centers_[:, 0])
        np.testing.assert_allclose(model.cluster_centers_[order, 0], [0.0, 3.0])
        np.testing.assert_allclose(model.predict_proba([[1.0]])[0, order], expected)
        # A row on a centre belongs to it alone.
        np.testing.assert_allclose(model.memberships_[:, order], np.eye(2))


@pytest.mark.parametrize("factor", [1e-160, 1e160])
def test_any_unit_will_do(factor: float) -> None:
    plain = FuzzyCMeans(random_state=0).fit(IRIS)
    scaled = FuzzyCMeans(random_state=0).fit(IRIS * factor)
    np.testing.assert_allclose(scaled.memberships_, plain.memberships_, atol=1e-6)
    np.testing.assert_allclose(
        scaled.transform(IRIS * factor) / factor, plain.transform(IRIS), rtol=1e-5
    )


def test_more_clusters_than_distinct_rows() -> None:
    model = FuzzyCMeans(3, random_state=0).fit([[1.0], [1.0], [1.0], [2.0]])
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1.0)
    assert model.labels_[0] == model.labels_[1] != model.labels_[3]


def test_says_when_it_has_not_converged() -> None:
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        FuzzyCMeans(max_iter=2, random_state=0).fit(IRIS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FuzzyCMeans(random_state=0).fit(IRIS)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_clusters": 0}, ValueError, "n_clusters must be at least 1"),
        ({"n_clusters": 2.5}, TypeError, "n_clusters must be a whole number"),
        ({"n_clusters": 151}, ValueError, "at most as many clusters as there are rows"),
        ({"fuzzifier": 1.0}, ValueError, "fuzzifier must be greater than 1"),
        ({"fuzzifier": "2"}, TypeError, "fuzzifier must be a number"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"tol": -1.0}, ValueError, "tol must be at least 0"),
    ],
)
def test_bad_parameters(
    parameters: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        FuzzyCMeans(**parameters).fit(IRIS)  # type: ignore[arg-type]
