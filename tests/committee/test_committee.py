"""The committee: its members, what their votes weigh, and what comes of them."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import scale

from sgpmic.committee.modes import cluster_by_modes, find_hills
from sgpmic.committee.voting import Vote, count, cut_of, nearest_others, take_vote

Ints = NDArray[np.int64]


def blobs(n_each: int = 50, distance: float = 8.0, seed: int = 0) -> tuple[np.ndarray, Ints]:
    rng = np.random.RandomState(seed)
    labels = np.repeat(np.arange(3), n_each)
    centres = distance * np.eye(3)
    return centres[labels] + rng.standard_normal((len(labels), 3)), labels


def vote_on(Y: np.ndarray, n_clusters: int, **others: Any) -> Vote:
    vote = take_vote(Y, n_clusters, **others)
    assert vote is not None
    return vote


def test_separate_clusters_are_found_by_all_and_sure() -> None:
    Y, labels = blobs()
    vote = vote_on(Y, 3)
    assert adjusted_rand_score(labels, vote.labels) == 1.0
    assert len(vote.members) == 7
    assert sum(member.weight for member in vote.members) == pytest.approx(1.0)
    assert vote.shares.max(axis=1).mean() > 0.95
    np.testing.assert_allclose(vote.shares.sum(axis=1), 1.0)
    assert vote.shares.min() > 0


@pytest.mark.parametrize("make", [make_moons, make_circles])
def test_members_that_follow_shapes_win_where_there_are_shapes(make: Any) -> None:
    """k-means and most mixtures cut both; the vote must not."""
    options = {"factor": 0.4} if make is make_circles else {}
    Y, labels = make(300, noise=0.05, random_state=0, **options)
    vote = vote_on(Y, 2)
    assert adjusted_rand_score(labels, vote.labels) > 0.97
    by_name = {member.name: member for member in vote.members}
    assert by_name["k-means"].weight < by_name["spectral"].weight / 5
    assert by_name["k-means"].agreement < 0.6


def test_noise_is_not_sure_of_itself() -> None:
    for seed in range(3):
        Y = np.random.RandomState(seed).standard_normal((300, 6))
        assert vote_on(Y, 3).shares.max(axis=1).mean() < 0.7


def test_cut_counts_links_cluster_by_cluster() -> None:
    labels = np.array([0, 0, 0, 1])
    neighbours = np.array([[1, 2], [0, 2], [0, 3], [2, 1]])
    # Cluster 0: one link of six leaves it; cluster 1: both of its links do.
    assert cut_of(labels, neighbours, 2) == pytest.approx((1 / 6 + 1.0) / 2)
    # A cluster without rows is small: as if cut off whole.
    assert cut_of(labels, neighbours, 3) == pytest.approx((1 / 6 + 1.0 + 1.0) / 3)


def test_weights_are_squared_where_clusters_hardly_touch() -> None:
    rows = np.arange(100)
    # Two rings of 50 rows. Either as a cluster cuts nothing; five rows further, 4 links of 100.
    ring, place = np.divmod(rows, 50)
    neighbours = np.stack([50 * ring + (place + 1) % 50, 50 * ring + (place - 1) % 50], axis=1)
    moved = ((rows - 5) % 100 >= 50).astype(np.int64)
    apart = count({"rings": ring, "moved": moved}, 2, neighbours).members
    assert apart[0].weight / apart[1].weight == pytest.approx((0.041 / 0.001) ** 2)
    # One ring: parts of five rows lose 2 links of 10, every other row all of them.
    neighbours = np.stack([(rows + 1) % 100, (rows - 1) % 100], axis=1)
    touching = count({"fives": rows // 5 % 2, "turns": rows % 2}, 2, neighbours).members
    assert touching[0].weight / touching[1].weight == pytest.approx(1.001 / 0.201, rel=0.03)


def test_a_handful_of_outliers_is_no_cluster() -> None:
    Y, labels = blobs(distance=5.0)
    Y = np.vstack([Y, 40.0 + np.arange(4)[:, None] * np.ones(3)])
    outliers = np.concatenate([np.zeros(len(labels), np.int64), np.ones(4, np.int64)])
    halves = (np.concatenate([labels, [0] * 4]) > 0).astype(np.int64)
    _, neighbours = nearest_others(Y)
    vote = count({"outliers": outliers, "halves": halves}, 2, neighbours)
    assert vote.members[1].weight > 0.95
    assert adjusted_rand_score(halves, vote.labels) == 1.0


def test_names_of_clusters_do_not_matter() -> None:
    Y, labels = blobs()
    _, neighbours = nearest_others(Y)
    renamed = np.array([2, 0, 1])[labels]
    vote = count({"a": labels, "b": renamed, "c": labels}, 3, neighbours)
    assert adjusted_rand_score(labels, vote.labels) == 1.0
    np.testing.assert_allclose(vote.shares.max(axis=1), vote.shares.max(), rtol=1e-12)


def test_units_and_the_last_digits_do_not_matter() -> None:
    Y = scale(load_wine().data)
    expected = vote_on(Y, 3).labels
    np.testing.assert_array_equal(expected, vote_on(4.0 * Y, 3).labels)
    noisy = Y + 1e-12 * np.random.RandomState(1).standard_normal(Y.shape)
    assert adjusted_rand_score(expected, vote_on(noisy, 3).labels) > 0.98


@pytest.mark.parametrize("n_rows", [3, 4, 8])
def test_few_rows(n_rows: int) -> None:
    vote = take_vote(np.random.RandomState(0).rand(n_rows, 2), 2)
    assert vote is not None
    assert vote.shares.shape == (n_rows, 2)
    assert np.isfinite(vote.shares).all()


def test_rows_that_are_all_equal() -> None:
    vote = take_vote(np.zeros((20, 3)), 2)
    assert vote is None or np.isfinite(vote.shares).all()


# ---------------------------------------------------------------------------- modes of the density


def neighbours_of(Y: np.ndarray) -> tuple[np.ndarray, Ints]:
    found: tuple[np.ndarray, Ints] = NearestNeighbors(n_neighbors=10).fit(Y).kneighbors()
    return found


def test_hills_of_two_moons() -> None:
    Y, labels = make_moons(400, noise=0.06, random_state=0)
    assert adjusted_rand_score(labels, cluster_by_modes(Y, *neighbours_of(Y), 2)) > 0.98


def test_prominence_of_known_hills() -> None:
    """Four rows on a line: two peaks, a pass between them."""
    distances = np.array([[1.0], [2.0], [3.0], [1.5]])
    neighbours = np.array([[1], [0], [1], [2]])
    hills = find_hills(distances, neighbours)
    assert hills.hill[0] == hills.hill[1] != hills.hill[3]
    lower = hills.hill[3]
    # The pass is the row at height −log 9; the lower peak is at −log 2.25.
    assert hills.prominence[lower] == pytest.approx(np.log(9.0) - np.log(2.25))
    assert hills.leans_on[lower] == hills.hill[0]
    assert np.isinf(hills.prominence[hills.hill[0]])


def test_asking_for_more_hills_than_there_are() -> None:
    Y, _ = blobs()
    assert len(np.unique(cluster_by_modes(Y, *neighbours_of(Y), 150))) < 150


def test_agreement_is_the_adjusted_rand_index() -> None:
    vote = vote_on(scale(load_wine().data), 3)
    expected = [adjusted_rand_score(vote.labels, member.labels) for member in vote.members]
    assert [member.agreement for member in vote.members] == pytest.approx(expected, rel=1e-12)
    assert len(set(expected)) > 3, "members differ"
