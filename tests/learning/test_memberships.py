"""Starting memberships against published purities, the textbook equations and hand cases."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import euclidean_distances

from sgpmic.learning import initialization
from sgpmic.learning.initialization import _fuzzy_iterations, fuzzy_c_means, initial_memberships

Floats = NDArray[np.float64]
DATA = {"iris": load_iris(), "wine": load_wine(), "cancer": load_breast_cancer()}


def rng(seed: int = 0) -> np.random.RandomState:
    return np.random.RandomState(seed)


def purity(memberships: Floats, labels: NDArray[np.int64]) -> float:
    """Percentage of rows in the majority class of the cluster they belong to most."""
    clusters = memberships.argmax(axis=1)
    majority = sum(np.bincount(labels[clusters == k]).max() for k in np.unique(clusters))
    return round(100.0 * float(majority) / labels.size, 2)


# -------------------------------------------------------------------------------- fuzzy c-means


@pytest.mark.parametrize(
    ("name", "n_features", "n_components", "expected"),
    [
        ("iris", 4, 1, 91.33),
        ("iris", 4, 2, 88.67),
        ("iris", 4, 3, 89.33),
        ("wine", 12, 1, 55.06),
        ("wine", 12, 4, 55.06),
        ("cancer", 30, 1, 85.41),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_published_purities_on_principal_components(
    name: str, n_features: int, n_components: int, expected: float, seed: int
) -> None:
    table = DATA[name]
    scores = PCA(n_components).fit_transform(table.data[:, :n_features])
    n_clusters = np.unique(table.target).size
    found = fuzzy_c_means(scores, n_clusters, rng(seed))
    assert purity(found, table.target) == expected


def centers_of(X: Floats, memberships: Floats) -> Floats:
    weights = memberships**2
    return (weights.T @ X) / weights.sum(axis=0)[:, None]


def objective_of(X: Floats, memberships: Floats) -> float:
    squared = euclidean_distances(X, centers_of(X, memberships), squared=True)
    return float(np.sum(memberships**2 * squared))


def plain_fuzzy_c_means(X: Floats, centers: Floats, rounds: int) -> Floats:
    """Return the memberships after so many rounds of Bezdek's two equations, entry by entry."""
    v = [list(center) for center in centers]
    n, d, k = len(X), X.shape[1], len(v)
    u = [[0.0] * k for _ in range(n)]
    for _ in range(rounds):
        for i in range(n):
            far = [sum((X[i, a] - v[j][a]) ** 2 for a in range(d)) ** 0.5 for j in range(k)]
            for j in range(k):
                u[i][j] = 1.0 / sum((far[j] / far[h]) ** 2 for h in range(k))
        for j in range(k):
            mass = sum(u[i][j] ** 2 for i in range(n))
            v[j] = [sum(u[i][j] ** 2 * X[i, a] for i in range(n)) / mass for a in range(d)]
    return np.array(u)


CORNERS = np.array([[0.0, 0.0, 0.0], [4.0, 1.0, 0.0], [0.0, 5.0, 2.0]])
AROUND_CORNERS = np.repeat(CORNERS, 12, axis=0) + rng(3).standard_normal((36, 3))


def test_agrees_with_a_plain_loop() -> None:
    # The loop starts at the corners, ours at rows: only the solution is shared.
    expected = plain_fuzzy_c_means(AROUND_CORNERS, CORNERS, 200)
    found = fuzzy_c_means(AROUND_CORNERS, 3, rng())
    order = found[::12].argmax(axis=1)
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(found[:, order], expected, atol=1e-5)


def test_iterations_end_at_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initialization, "_MAX_ITER", 2)
    found, objective = _fuzzy_iterations(AROUND_CORNERS, CORNERS)
    # The memberships of the start, and two rounds.
    expected = plain_fuzzy_c_means(AROUND_CORNERS, CORNERS, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    centers = centers_of(AROUND_CORNERS, plain_fuzzy_c_means(AROUND_CORNERS, CORNERS, 2))
    squared = euclidean_distances(AROUND_CORNERS, centers, squared=True)
    assert objective == pytest.approx(np.sum(expected**2 * squared))


def test_every_row_belongs_to_a_single_cluster() -> None:
    assert np.all(fuzzy_c_means(rng(2).standard_normal((30, 3)) + 5.0, 1, rng()) == 1.0)


def test_rows_on_centers_belong_to_them_alone() -> None:
    """Two places and two clusters: the centers sit on the places and nothing is shared."""
    X = np.array([[0.0, 0.0]] * 3 + [[3.0, 4.0]] * 2)
    found = fuzzy_c_means(X, 2, rng())
    order = found[[0, 3]].argmax(axis=1)
    np.testing.assert_array_equal(found[:, order], [[1, 0]] * 3 + [[0, 1]] * 2)


def test_a_single_row_is_shared_equally_by_coinciding_centers() -> None:
    np.testing.assert_array_equal(fuzzy_c_means(np.array([[2.0]]), 4, rng()), [[0.25] * 4])


def test_symmetric_case_by_hand() -> None:
    """Points -3, -1, 1, 3 split symmetrically, so the centers are opposite numbers."""
    x = np.array([-3.0, -1.0, 1.0, 3.0])
    c = np.sort(centers_of(x[:, None], fuzzy_c_means(x[:, None], 2, rng()))[:, 0])
    assert c[0] == pytest.approx(-c[1], abs=1e-5)
    # The positive center solves c = sum(u^2 x) / sum(u^2) with u = (x + c)^2 / (2 (x^2 + c^2)).
    low, high = 1.5, 3.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        u = (x + middle) ** 2 / (2.0 * (x**2 + middle**2))
        low, high = (middle, high) if (u**2 @ x) / np.sum(u**2) > middle else (low, middle)
    assert c[1] == pytest.approx(low, abs=1e-5)


def test_the_best_start_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    X = rng(3).uniform(size=(60, 2))
    together = objective_of(X, fuzzy_c_means(X, 12, rng(1)))
    monkeypatch.setattr(initialization, "_N_INIT", 1)
    source = rng(1)
    singles = [objective_of(X, fuzzy_c_means(X, 12, source)) for _ in range(5)]
    assert together == pytest.approx(min(singles))
    # Otherwise keeping the first or the last start would pass as well.
    assert min(singles[0], singles[-1]) > 1.01 * min(singles)


def test_position_and_unit_of_the_points_do_not_matter() -> None:
    X = rng(4).standard_normal((50, 2))
    plain = fuzzy_c_means(X, 3, rng())
    for factor in (1e-160, 1e160):
        np.testing.assert_allclose(fuzzy_c_means(factor * X, 3, rng()), plain, atol=1e-6)
    np.testing.assert_allclose(fuzzy_c_means(X + 1e6, 3, rng()), plain, atol=1e-5)


def test_a_center_without_any_weight_does_no_harm() -> None:
    found, _ = _fuzzy_iterations(np.array([[0.0], [1.0]]), np.array([[0.4], [1e100]]))
    np.testing.assert_allclose(found, [[1.0, 0.0], [1.0, 0.0]], atol=1e-100)


# -------------------------------------------------------------------------- initial memberships


def test_fcm_is_fuzzy_c_means() -> None:
    X = DATA["iris"].data
    expected = fuzzy_c_means(X, 3, rng(5))
    assert np.array_equal(initial_memberships(X, 3, "fcm", rng(5)), expected)


@pytest.mark.parametrize("n_clusters", [1, 2, 5])
@pytest.mark.parametrize(
    "X",
    [
        np.zeros((1, 1)),
        np.full((6, 2), 0.1),
        np.array([[0.0], [0.0], [1.0]]),
        np.array([[1.0, 2.0], [1.0, 2.0 + 1e-15], [1.0, 2.0]]),
        np.arange(4.0)[:, None],
        np.column_stack([np.arange(9.0), np.zeros(9)]),
    ],
)
def test_degenerate_tables_give_proper_memberships_without_warnings(
    X: Floats, n_clusters: int
) -> None:
    with warnings.catch_warnings(action="error"):
        found = initial_memberships(X, n_clusters, "fcm", rng())
    assert found.shape == (X.shape[0], n_clusters)
    assert np.all(found >= 0.0)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.lists(st.floats(-1e3, 1e3, width=16), min_size=2, max_size=2), min_size=1, max_size=12
    ),
    n_clusters=st.integers(1, 6),
)
def test_fuzzy_memberships_are_always_proper(rows: list[list[float]], n_clusters: int) -> None:
    found = fuzzy_c_means(np.array(rows), n_clusters, rng())
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(found >= 0.0)


def test_given_weights_are_divided_by_their_row_sums() -> None:
    given_weights = np.array([[1.0, 3.0], [5.0, 0.0], [1e308, 1e308]])
    found = initial_memberships(np.zeros((3, 1)), 2, given_weights, rng())
    np.testing.assert_allclose(found, [[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    assert given_weights[0, 1] == 3.0


# ---------------------------------------------------------------------------------- complaints


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (np.ones((4, 3)), r"shape \(4, 2\).*got shape \(4, 3\)"),
        (np.array([[1, 0], [1, 0], [1, 0], [2, -1]]), "negative"),
        (np.array([[1, 0], [1, 0], [1, 0], [0, 0]]), "at least one positive"),
        (np.array([[1, 0], [1, 0], [1, 0], [np.nan, 1]]), "memberships contain NaN"),
    ],
)
def test_wrong_memberships_are_named(method: Floats, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        initial_memberships(np.arange(4.0)[:, None], 2, method, rng())
