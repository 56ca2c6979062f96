"""Latent starting positions against scikit-learn, closed forms and published purities."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_swiss_roll
from sklearn.decomposition import PCA
from sklearn.manifold import Isomap
from sklearn.neighbors import kneighbors_graph

from sgpmic.learning.initialization import _join_pieces, _symmetric_graph, embed, fuzzy_c_means

Floats = NDArray[np.float64]


def rng(seed: int = 0) -> np.random.RandomState:
    return np.random.RandomState(seed)


def same_up_to_sign(found: Floats, expected: Floats) -> None:
    """Compare column by column, relative to the largest entry."""
    assert found.shape == expected.shape
    signs = np.sign(np.sum(found * expected, axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-6 * np.abs(expected).max())


def fuzzy_purity(X: Floats, labels: NDArray[np.int64]) -> float:
    """Percentage of rows in the majority class of their fuzzy cluster, on unit variances."""
    scaled = X / X.std(axis=0)
    n_clusters = np.unique(labels).size
    clusters = fuzzy_c_means(scaled, n_clusters, rng()).argmax(axis=1)
    majority = sum(np.bincount(labels[clusters == k]).max() for k in np.unique(clusters))
    return round(100.0 * float(majority) / labels.size, 2)


# ------------------------------------------------------------------------------------- ISOMAP


@pytest.mark.parametrize(("n_components", "purity"), [(2, 72.47), (4, 78.65)])
def test_isomap_gives_the_published_purity_on_wine(n_components: int, purity: float) -> None:
    wine = load_wine()
    found, notes = embed(wine.data[:, :12], n_components, random_state=rng())
    assert fuzzy_purity(found, wine.target) == purity
    assert notes == ()


@pytest.mark.parametrize(("n_components", "purity"), [(1, 85.24), (2, 86.12)])
def test_isomap_gives_the_published_purity_on_breast_cancer(
    n_components: int, purity: float
) -> None:
    cancer = load_breast_cancer()
    found, _ = embed(cancer.data, n_components, random_state=rng())
    assert fuzzy_purity(found, cancer.target) == purity


@pytest.mark.parametrize("n_rows", [150, 500])  # both eigenvalue solvers
def test_isomap_agrees_with_scikit_learn_on_a_connected_graph(n_rows: int) -> None:
    roll, _ = make_swiss_roll(n_rows, random_state=3)
    found, notes = embed(roll, 3, n_neighbors=10, random_state=rng())
    expected = Isomap(n_neighbors=10, n_components=3, eigen_solver="dense").fit_transform(roll)
    assert notes == ()
    same_up_to_sign(found, expected)


@pytest.mark.parametrize("n_copies", [0, 30])
def test_isomap_with_all_neighbors_is_pca(n_copies: int) -> None:
    """Straight-line distances make classical scaling equal to PCA, repeated rows included."""
    data = rng(1).standard_normal((40, 4)) * [4.0, 3.0, 2.0, 1.0]
    data = np.vstack([data, np.repeat(data[:2], n_copies, axis=0)])
    found, _ = embed(data, 4, n_neighbors=39, random_state=rng())
    same_up_to_sign(found, PCA(4).fit_transform(data))


@pytest.mark.parametrize("method", ["isomap", "pca"])
def test_duplicates_share_their_coordinates(method: str) -> None:
    """Far more copies than neighbors: a plain neighbor graph would see only the copies."""
    distinct = rng(2).standard_normal((60, 3))
    data = np.vstack([distinct, np.tile(distinct[7], (40, 1)), np.tile(distinct[9], (40, 1))])
    found, notes = embed(data, 2, method, n_neighbors=10, random_state=rng())
    assert notes == ()
    assert np.array_equal(found[60:100], np.tile(found[7], (40, 1)))
    assert np.array_equal(found[100:], np.tile(found[9], (40, 1)))
    assert np.unique(found, axis=0).shape[0] == 60


def test_nearly_equal_rows_stay_connected() -> None:
    """Distances below the resolution of the squared-norm formula must not cut an edge."""
    data = np.concatenate([np.arange(8.0), 3.0 + 1e-12 * np.arange(1, 4)])[:, None]
    found, _ = embed(data, 1, n_neighbors=4, random_state=rng())
    expected = data - data.mean()
    same_up_to_sign(found, expected)


def test_rows_whose_squared_distance_underflows_stay_connected() -> None:
    data = np.array([[0.0], [1e-170], [1.0], [2.0], [3.0]])
    found, notes = embed(data, 1, n_neighbors=2, random_state=rng())
    assert notes == ()
    same_up_to_sign(found, data - data.mean())


def test_zero_and_minus_zero_are_the_same_row() -> None:
    data = np.array([[0.0, 1.0], [-0.0, 1.0], [3.0, 1.0], [5.0, 2.0]])
    found, notes = embed(data, 2, random_state=rng())
    assert notes == ()
    assert np.array_equal(found[0], found[1])


# ------------------------------------------------------------------------------ several pieces


def test_two_pieces_on_a_line_are_joined_at_their_ends() -> None:
    """With the link from 2 to 10 the geodesics are the distances on the line."""
    data = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    found, notes = embed(data, 1, n_neighbors=1, random_state=rng())
    np.testing.assert_allclose(found[:, 0], [6, 5, 4, -4, -5, -6], rtol=1e-12)
    assert notes == (
        "The neighbor graph has 2 connected components; they were joined by their shortest links.",
    )


def test_one_enormous_cell_does_not_cut_the_links_between_pieces() -> None:
    """Beside it the gap between the other pieces is 1e-9."""
    data = load_iris().data.copy()
    data[3, 2] = 999_999_999.0
    found, notes = embed(data, 2, random_state=rng())
    assert np.isfinite(found).all()
    assert found.std(axis=0).min() > 0.0
    assert "joined by their shortest links" in notes[0]


@pytest.mark.parametrize("offset", [1e10, 1e11])
def test_a_large_offset_does_not_cut_the_links_between_pieces(offset: float) -> None:
    """It is a shift, so the positions are those without it, to the digits that are left."""
    data = load_iris().data + 1e-3 * rng(1).standard_normal((150, 4))
    shifted = data + np.array([0.0, offset, 0.0, 0.0])
    plain, plain_notes = embed(shifted - np.array([0.0, offset, 0.0, 0.0]), 2, random_state=rng())
    found, notes = embed(shifted, 2, random_state=rng())
    assert notes == plain_notes
    np.testing.assert_allclose(found, plain, atol=1e-3)


def test_joining_is_repeated_merging_of_the_two_closest_pieces() -> None:
    points = rng(5).standard_normal((80, 2))
    graph = _symmetric_graph(points, *kneighbors_graph(points, 1).nonzero())
    n_pieces, piece_of = connected_components(graph, directed=False)
    assert n_pieces > 10
    joined = _join_pieces(points, graph, n_pieces, piece_of)

    distances = cdist(points, points)
    labels = piece_of.copy()
    expected = {tuple(sorted(map(int, edge))) for edge in zip(*graph.nonzero(), strict=True)}
    for _ in range(n_pieces - 1):
        apart = np.where(labels[:, None] == labels[None, :], np.inf, distances)
        i, j = divmod(int(apart.argmin()), 80)
        expected.add((min(i, j), max(i, j)))
        labels[labels == labels[j]] = labels[i]

    found = {tuple(sorted(map(int, edge))) for edge in zip(*joined.nonzero(), strict=True)}
    assert found == expected
    rows, columns = joined.nonzero()
    np.testing.assert_allclose(np.asarray(joined[rows, columns]).ravel(), distances[rows, columns])


def test_largest_piece_is_embedded_alone_and_the_rest_sits_at_zero() -> None:
    iris = load_iris()
    # Iris is full of equally distant neighbors; a little noise settles which are nearest.
    data = iris.data + 1e-3 * rng(1).standard_normal(iris.data.shape)
    found, notes = embed(data, 2, pieces="largest", random_state=rng())
    setosa = iris.target == 0
    alone, _ = embed(data[~setosa], 2, random_state=rng())
    assert np.all(found[setosa] == 0.0)
    same_up_to_sign(found[~setosa], alone)
    assert notes == (
        "The neighbor graph has 2 connected components; only the largest was embedded and the rows "
        "outside it (50) were put at the origin.",
    )


def test_the_largest_piece_is_the_one_with_most_rows_not_most_distinct_rows() -> None:
    data = np.concatenate([np.arange(4.0), 100.0 + np.arange(3.0), np.full(5, 101.0)])[:, None]
    found, _ = embed(data, 1, n_neighbors=1, pieces="largest", random_state=rng())
    assert np.all(found[:4] == 0.0)
    assert np.ptp(found[4:]) == pytest.approx(2.0)


# ------------------------------------------------------------------------------- other methods


@pytest.mark.parametrize("shape", [(50, 6), (6, 50)])
def test_pca_agrees_with_scikit_learn(shape: tuple[int, int]) -> None:
    data = 100.0 + rng(4).standard_normal(shape) * np.arange(1, shape[1] + 1)
    same_up_to_sign(embed(data, 4, "pca", random_state=rng())[0], PCA(4).fit_transform(data))


def test_given_positions_come_back_as_a_copy() -> None:
    given = rng(3).standard_normal((5, 2))
    found, notes = embed(np.ones((5, 3)), 2, given, random_state=rng())
    assert np.array_equal(found, given)
    assert not np.shares_memory(found, given)
    assert notes == ()


# ------------------------------------------------------------------------------ sign and scale


@pytest.mark.parametrize("method", ["isomap", "pca"])
def test_the_largest_entry_of_every_axis_is_positive(method: str) -> None:
    data = rng(6).gamma(1.0, size=(90, 5))
    for sign in (1.0, -1.0):
        found = embed(sign * data, 3, method, random_state=rng())[0]
        assert np.all(found[np.abs(found).argmax(axis=0), np.arange(3)] > 0.0)


@pytest.mark.parametrize("method", ["isomap", "pca"])
@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_the_unit_of_the_data_carries_over(method: str, unit: float) -> None:
    data = rng(6).standard_normal((60, 4))
    plain = embed(data, 3, method, random_state=rng())[0]
    found = embed(unit * data, 3, method, random_state=rng())[0]
    np.testing.assert_allclose(found / unit, plain, atol=1e-8)


# ---------------------------------------------------------------------- too few rows or columns


@pytest.mark.parametrize("method", ["isomap", "pca"])
def test_missing_dimensions_are_small_noise_with_a_note(method: str) -> None:
    data = rng(8).uniform(0.0, 50.0, (400, 1))
    found, notes = embed(data, 3, method, random_state=rng())
    same_up_to_sign(found[:, :1], data - data.mean())
    ratio = found[:, 1:].std(axis=0) / found[:, 0].std()
    np.testing.assert_allclose(ratio, 1e-2, rtol=0.15)
    assert notes == (
        "The data span only 1 of the 3 latent dimensions; the rest were filled with small random "
        "noise.",
    )
    other, _ = embed(data, 3, method, random_state=rng(1))
    assert not np.array_equal(found[:, 1:], other[:, 1:])


@pytest.mark.parametrize("method", ["isomap", "pca"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_identical_rows_give_small_noise_and_a_note(method: str, value: float) -> None:
    data = np.tile([value, value / 3.0, value / 7.0], (199, 1))
    found, notes = embed(data, 2, method, random_state=rng())
    np.testing.assert_allclose(found.std(axis=0), 1e-2, rtol=0.2)
    assert len(notes) == 1
    assert "identical" in notes[0]


@pytest.mark.parametrize("method", ["isomap", "pca"])
def test_the_value_of_a_constant_column_changes_nothing(method: str) -> None:
    Y = rng().standard_normal((60, 3))
    first, second = (
        embed(np.column_stack([Y, np.full(60, value)]), 2, method, random_state=rng())[0]
        for value in (9.0, 70.0)
    )
    np.testing.assert_array_equal(first, second)


def test_a_constant_column_with_rounding_error_adds_no_dimension() -> None:
    """The mean of many copies of 0.1 is not 0.1, which must not look like variance."""
    data = np.column_stack([np.arange(97.0), np.full(97, 0.1)])
    assert len(embed(data, 2, "pca", random_state=rng())[1]) == 1


@pytest.mark.parametrize("method", ["isomap", "pca"])
def test_two_rows_are_placed_at_their_distance(method: str) -> None:
    found, _ = embed(np.array([[1.0, 2.0], [4.0, 6.0]]), 1, method, random_state=rng())
    np.testing.assert_allclose(found[:, 0], [2.5, -2.5])


@pytest.mark.parametrize("method", ["isomap", "pca"])
@pytest.mark.parametrize("n_rows", [1, 2, 3, 13])
def test_small_tables_give_finite_positions(method: str, n_rows: int) -> None:
    found, _ = embed(rng(9).standard_normal((n_rows, 2)), 5, method, random_state=rng())
    assert found.shape == (n_rows, 5)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("n_rows", [300, 450])  # both eigenvalue solvers
def test_equidistant_points(n_rows: int) -> None:
    """All eigenvalues but one are equal, which some eigenvalue solvers cannot handle."""
    found = embed(np.eye(n_rows), 3, n_neighbors=n_rows - 1, random_state=rng())[0]
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-8)


# ---------------------------------------------------------------------------------- complaints


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (np.zeros((6, 3)), r"shape \(6, 2\).*got shape \(6, 3\)"),
        (np.full((6, 2), np.nan), "positions contain NaN"),
    ],
)
def test_wrong_positions_are_named(positions: Floats, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        embed(rng().standard_normal((6, 3)), 2, positions, random_state=rng())


def test_separated_groups_stay_separated_after_joining() -> None:
    """The joined geodesics keep groups whole, so k-means finds every one of them again."""
    centers = np.array([[0.0, 0.0], [40.0, 0.0], [0.0, 60.0]])
    groups = np.repeat(np.arange(3), 40)
    data = centers[groups] + rng(3).standard_normal((120, 2))
    found, _ = embed(data, 2, random_state=rng())
    clusters = KMeans(3, n_init=5, random_state=0).fit_predict(found)
    assert all(np.unique(clusters[groups == g]).size == 1 for g in range(3))
    assert np.unique(clusters).size == 3
