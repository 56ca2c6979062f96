"""The members of the committee, each against another implementation or a known answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.datasets import load_wine, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors, kneighbors_graph
from sklearn.preprocessing import scale

from sgpmic.committee import members
from sgpmic.committee.geometry import Geometry, mutual_reachability, spanning_tree
from sgpmic.committee.members import MEMBERS, cluster_all, cluster_by_modes, find_modes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GENIE = json.loads((Path(__file__).parents[1] / "data" / "genie.json").read_text())


def rows(seed: int) -> Floats:
    """Return the rows that the stored labels of Genie belong to."""
    rng = np.random.RandomState(seed)
    n = rng.randint(60, 121)
    if seed % 3 == 0:
        return rng.standard_normal((n, 3)) + 4.0 * rng.randint(4, size=(n, 1))
    if seed % 3 == 1:
        angle = 2 * np.pi * rng.uniform(size=n)
        radius = 1.0 + 2.0 * rng.randint(2, size=n)
        circle = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return circle + 0.15 * rng.standard_normal((n, 2))
    return np.exp(rng.standard_normal((n, 2)))


@pytest.mark.parametrize("case", GENIE["cases"], ids=lambda case: str(case["seed"]))
def test_genie_is_that_of_genieclust(case: dict[str, Any]) -> None:
    Y = rows(case["seed"])
    k = case["n_clusters"]
    found = members.genie(Geometry(Y, k), k, case["gini_limit"])
    assert adjusted_rand_score([int(label) for label in case["labels"]], found) == 1.0


def test_the_spanning_tree_is_scipy_s() -> None:
    distances = cdist(rows(3), rows(3))
    tree = spanning_tree(distances)
    expected = np.sort(minimum_spanning_tree(distances).data)
    np.testing.assert_allclose(tree.length, expected, rtol=1e-12)
    np.testing.assert_array_equal(distances[tree.start, tree.end], tree.length)


def test_mutual_reachability_by_its_definition() -> None:
    distances, core = cdist(rows(0), rows(0))[:5, :5], np.array([1.0, 3.0, 0.1, 9.0, 0.5])
    found = mutual_reachability(distances, core)
    for i in range(5):
        for j in range(5):
            assert found[i, j] == max(distances[i, j], core[i], core[j])


def test_neighbors_are_those_of_scikit_learn() -> None:
    geometry = Geometry(rows(0), 3)
    distances, neighbors = NearestNeighbors(n_neighbors=10).fit(rows(0)).kneighbors()
    np.testing.assert_allclose(geometry.neighbor_distances, distances, rtol=1e-10)
    np.testing.assert_array_equal(geometry.neighbors, neighbors)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_ward_and_k_means_are_those_of_scikit_learn(k: int) -> None:
    Y = scale(load_wine().data)
    geometry = Geometry(Y, k)
    ward = AgglomerativeClustering(k).fit_predict(Y)
    assert adjusted_rand_score(ward, MEMBERS["Ward"](geometry, k)) == 1.0
    centers = np.stack([Y[ward == cluster].mean(axis=0) for cluster in range(k)])
    expected = KMeans(k, init=centers, n_init=1).fit_predict(Y)
    assert adjusted_rand_score(expected, MEMBERS["k-means"](geometry, k)) == 1.0


def test_all_find_separate_clusters() -> None:
    rng = np.random.RandomState(0)
    labels = np.repeat(np.arange(3), 50)
    Y = 8.0 * np.eye(10)[labels] + rng.standard_normal((150, 10))
    found, failures = cluster_all(Geometry(Y, 3), 3)
    assert not failures
    assert set(found) == set(MEMBERS)
    for name, each in found.items():
        if name != "subspaces":  # which three clouds are not
            # Seven of ten features are noise, which counts as much in bins as the others do.
            assert adjusted_rand_score(labels, each) > (0.9 if "latent" in name else 0.98), name


@pytest.mark.parametrize("name", ["Genie, 0.3", "spectral, 10 neighbors", "modes of the density"])
@pytest.mark.parametrize("make", [make_moons, make_circles])
def test_members_that_follow_shapes(name: str, make: Any) -> None:
    options = {"factor": 0.4} if make is make_circles else {}
    Y, labels = make(300, noise=0.05, random_state=0, **options)
    assert adjusted_rand_score(labels, MEMBERS[name](Geometry(Y, 2), 2)) > 0.97


def test_subspaces_are_found_where_distances_say_nothing() -> None:
    rng = np.random.RandomState(0)
    labels = np.repeat(np.arange(3), 60)
    bases = rng.standard_normal((3, 3, 30))
    Y = np.einsum("nd,ndp->np", rng.standard_normal((180, 3)), bases[labels])
    Y += 0.05 * rng.standard_normal(Y.shape)
    geometry = Geometry(Y - Y.mean(axis=0), 3)
    assert adjusted_rand_score(labels, MEMBERS["subspaces"](geometry, 3)) > 0.95
    assert adjusted_rand_score(labels, MEMBERS["k-means"](geometry, 3)) < 0.3


def test_latent_classes_are_found_whatever_the_distributions() -> None:
    """Two classes of skewed and of binary features; in the former k-means sees outliers only."""
    rng = np.random.RandomState(0)
    labels = np.repeat([0, 1], 150)
    skewed = np.exp(2.0 * rng.standard_normal((300, 6)) + 2.5 * labels[:, None])
    binary = rng.uniform(size=(300, 6)) < np.where(labels, 0.8, 0.2)[:, None]
    geometry = Geometry(scale(np.hstack([skewed, binary])), 2)
    assert adjusted_rand_score(labels, MEMBERS["latent classes"](geometry, 2)) > 0.9
    assert adjusted_rand_score(labels, MEMBERS["Gaussian mixture, full"](geometry, 2)) < 0.5


def test_em_of_latent_classes_raises_the_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = Geometry(scale(load_wine().data), 3)
    start = MEMBERS["Ward"](geometry, 3)
    found = []
    for n_iterations in range(1, 12):
        monkeypatch.setattr(members, "_MOST_ITERATIONS", n_iterations)
        found.append(members._class_em(geometry.bins, start, 3)[1])
    # Pseudocounts are a prior: the posterior density rises, and here the likelihood does, too.
    assert np.all(np.diff(found) >= -1e-12)
    assert found[-1] > found[0] + 0.01


@pytest.mark.parametrize("n_features", [1, 2, 5, 40])
def test_weights_of_sparse_k_means_are_optimal(n_features: int) -> None:
    between = np.random.RandomState(n_features).uniform(size=n_features) ** 3
    bound = max(0.6 * np.sqrt(n_features), 1.0)
    found = members._sparse_weights(between)
    assert np.linalg.norm(found) == pytest.approx(1.0)
    assert found.sum() <= bound + 1e-6
    weights = optimal_weights(between, bound)
    assert between @ found == pytest.approx(between @ weights, rel=1e-4)
    equal = members._sparse_weights(np.ones(n_features))
    assert np.isfinite(equal).all()
    assert equal.sum() > 0


def optimal_weights(between: Floats, bound: float) -> Floats:
    """Maximize ``between @ w`` over the unit ball, w ≥ 0 and sum(w) ≤ bound, by SLSQP."""
    n = len(between)
    limits: list[Any] = [
        {"type": "ineq", "fun": lambda w: 1.0 - w @ w},
        {"type": "ineq", "fun": lambda w: bound - w.sum()},
    ]
    start = np.full(n, 0.5 / n)
    options = {"maxiter": 500, "ftol": 1e-12}
    return minimize(
        lambda w: -between @ w,
        start,
        bounds=[(0, 1)] * n,
        constraints=limits,
        method="SLSQP",
        options=options,
    ).x


def test_sparse_k_means_leaves_out_useless_features() -> None:
    rng = np.random.RandomState(0)
    labels = np.repeat(np.arange(3), 40)
    Y = rng.standard_normal((120, 80))
    Y[:, :4] += 2.2 * np.eye(3)[labels][:, [0, 1, 2, 0]]
    geometry = Geometry(scale(Y), 3)
    sparse = adjusted_rand_score(labels, MEMBERS["sparse k-means"](geometry, 3))
    assert sparse > adjusted_rand_score(labels, MEMBERS["k-means"](geometry, 3)) + 0.2


def test_wide_tables_are_binned_and_weighted_in_part() -> None:
    rng = np.random.RandomState(0)
    labels = np.repeat(np.arange(2), 30)
    geometry = Geometry(rng.standard_normal((60, 1300)) + 2.0 * labels[:, None], 2)
    assert geometry.bins.shape == (60, 200 * 8)
    for name in ("latent classes", "sparse k-means"):
        assert adjusted_rand_score(labels, MEMBERS[name](geometry, 2)) == 1.0


def test_a_member_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(geometry: Geometry, k: int) -> Ints:
        raise ValueError("no such luck")

    monkeypatch.setitem(members.MEMBERS, "Ward", fails)
    labels, failures = cluster_all(Geometry(rows(0), 2), 2)
    assert failures["Ward"] == "no such luck"
    assert "at least 8 features" in failures["subspaces"]
    assert "Ward" not in labels
    assert "k-means" in labels


# ---------------------------------------------------------------------------- modes of the density


def test_prominence_of_known_modes() -> None:
    """Four rows on a line: two modes, a saddle between them."""
    distances = np.array([[1.0], [2.0], [3.0], [1.5]])
    neighbors = np.array([[1], [0], [1], [2]])
    modes = find_modes(distances, neighbors)
    assert modes.mode[0] == modes.mode[1] != modes.mode[3]
    lower = modes.mode[3]
    # The saddle is the row at height −log 9; the lower mode is at −log 2.25.
    assert modes.prominence[lower] == pytest.approx(np.log(9.0) - np.log(2.25))
    assert modes.parent[lower] == modes.mode[0]
    assert np.isinf(modes.prominence[modes.mode[0]])


def test_asking_for_more_modes_than_there_are() -> None:
    Y = rows(0)
    assert len(np.unique(cluster_by_modes(Geometry(Y, len(Y)), len(Y)))) < len(Y)


def test_eigenvectors_of_many_components_are_the_same_in_every_run() -> None:
    """Twenty cliques: all of the leading eigenvectors are constant in each."""
    graph = csr_array(np.kron(np.eye(20), np.ones((4, 4))))
    found = members.laplacian_eigenvectors(graph, 6)
    np.testing.assert_array_equal(found, members.laplacian_eigenvectors(graph, 6))
    in_cliques = found.reshape(20, 4, 6)
    np.testing.assert_allclose(in_cliques, in_cliques[:, :1].repeat(4, axis=1), atol=1e-10)
    assert np.linalg.matrix_rank(found) == 6
    # Lanczos' method would miss eigenvalues that several components have in common.
    np.testing.assert_array_equal(found, members.laplacian_eigenvectors(graph, 6, factorize=False))


def test_products_find_the_eigenvectors_that_a_factorization_finds() -> None:
    Y = np.random.default_rng(0).normal(size=(400, 12))
    graph = kneighbors_graph(Y, 10, include_self=True)
    graph = 0.5 * (graph + graph.T)
    expected = members.laplacian_eigenvectors(graph, 6)
    found = members.laplacian_eigenvectors(graph, 6, factorize=False)
    assert not np.array_equal(found, expected)
    signs = np.sign(np.sum(found * expected, axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-10)


def test_wide_tables_are_rotated() -> None:
    Y = np.random.default_rng(0).normal(size=(40, 300))
    Y[:20] += 1.0
    Y[7] = Y[3]
    geometry = Geometry(Y, 2)
    assert geometry.Y.shape[1] < 40
    assert (geometry.Y[7] == geometry.Y[3]).all()
    np.testing.assert_allclose(geometry.distances, cdist(Y, Y), rtol=1e-12, atol=1e-6)
    labels = KMeans(2, n_init=10, random_state=0).fit_predict(Y)
    assert adjusted_rand_score(labels, cluster_all(geometry, 2)[0]["k-means"]) == 1.0
    assert geometry.summary[1] == np.log(300)


def test_members_find_the_same_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    Y = np.random.default_rng(0).normal(size=(90, 9)) + 3.0 * (np.arange(90) % 3)[:, None]
    alone, _ = cluster_all(Geometry(Y, 3), 3)
    monkeypatch.setattr(members, "_ROWS_FOR_THREADS", 1)
    monkeypatch.setattr(members, "cpu_count", lambda: 4)
    together, _ = cluster_all(Geometry(Y, 3), 3)
    assert list(together) == list(alone) == list(MEMBERS)
    for name, labels in alone.items():
        np.testing.assert_array_equal(together[name], labels, err_msg=name)
