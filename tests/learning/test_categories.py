"""Tables with categories, as a committee sees them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.metrics import adjusted_rand_score, silhouette_score

from sgpmic import SGPMIC, Committee
from sgpmic.committee.dimensions import committee_view
from sgpmic.committee.examination import examine
from sgpmic.committee.geometry import Geometry
from sgpmic.committee.reference_noise import mixed_columns
from sgpmic.committee.tendency import ClusterTendency, cluster_tendency
from sgpmic.committee.voting import take_vote, vote_on
from sgpmic.learning.preprocessing import find_categories, fit_scaler, usual_range
from sgpmic.process_group import ProcessGroup


def indicators(levels: np.ndarray) -> np.ndarray:
    """Return indicators as factor analysis of mixed data weights them."""
    block = np.eye(levels.max() + 1)[levels]
    scaled: np.ndarray = (block - block.mean(axis=0)) / np.sqrt(block.mean(axis=0))
    return scaled


def mixed_table(n_rows: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a table of two clusters, their labels, and the levels of a category of no meaning."""
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], n_rows // 2)
    numbers = rng.normal(size=(n_rows, 3)) + 2.0 * labels[:, None]
    meaning = np.where(rng.random(n_rows) < 0.85, labels, 1 - labels)
    other = np.where(rng.random(n_rows) < 0.8, 2 * labels, 1)
    chance = rng.integers(3, size=n_rows)
    two = 2.0 * meaning[:, None] - 1.0
    parts = [numbers / numbers.std(axis=0), two, indicators(other), indicators(chance)]
    return np.hstack(parts), labels, chance


def test_categories_are_found_by_their_indicators() -> None:
    Y, _, chance = mixed_table()
    found = find_categories(Y)
    assert [(each.first, each.n_features) for each in found] == [(3, 1), (4, 3), (7, 3)]
    np.testing.assert_array_equal(found[2].levels, chance)
    assert find_categories(np.random.default_rng(0).normal(size=(20, 3))) == []


def test_rounding_errors_hide_no_category() -> None:
    Y, _, _ = mixed_table()
    Y += 1e-12 * np.random.default_rng(0).normal(size=Y.shape)
    assert [each.n_features for each in find_categories(Y)] == [1, 3, 3]


def test_gaps_hide_no_category() -> None:
    Y, _, _ = mixed_table()
    Y[5:9, 4:7] = np.nan
    Y[3, 3] = np.nan
    assert [each.n_features for each in find_categories(Y)] == [1, 3, 3]


def test_two_valued_features_of_which_a_row_has_several_are_no_category() -> None:
    bits = np.random.default_rng(0).integers(2, size=(50, 4)).astype(float)
    assert [each.n_features for each in find_categories(bits)] == [1, 1, 1, 1]


def view_of(Y: np.ndarray) -> tuple[bool, np.ndarray]:
    group = ProcessGroup(len(Y))
    view = committee_view(Y, Y, fit_scaler(Y, group, "auto"), group)
    return view.n_factors > 0, view.scaler.transform(view.rows)


def test_factors_are_few_and_hold_what_categories_share_with_other_columns() -> None:
    Y, labels, chance = mixed_table()
    mixed, rows = view_of(Y)
    assert mixed
    assert rows.shape == (200, 4)
    np.testing.assert_allclose(rows[:, :3], Y[:, :3] - Y[:, :3].mean(axis=0))
    assert abs(np.corrcoef(rows[:, 3], labels)[0, 1]) > 0.8
    means = [rows[chance == level, 3].mean() for level in range(3)]
    assert np.ptp(means) < 0.4 * rows[:, 3].std()


def test_distances_between_factors_are_those_of_the_low_rank_approximation() -> None:
    levels = np.random.default_rng(0).integers(4, size=(60, 3))
    levels[:, 1] = np.where(levels[:, 2] < 3, levels[:, 0], levels[:, 1])
    Y = np.hstack([indicators(column) for column in levels.T])
    Y = fit_scaler(Y, ProcessGroup(60), "auto").transform(Y)
    _, rows = view_of(Y)
    left, sizes, axes = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)
    r = rows.shape[1]
    assert 1 <= r < 9
    low_rank = (left[:, :r] * sizes[:r]) @ axes[:r]
    np.testing.assert_allclose(pdist(rows), pdist(low_rank), rtol=1e-9, atol=1e-12)


def test_a_useless_category_does_not_hide_clusters_in_the_numbers() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    numbers = rng.normal(size=(200, 4)) + 2.5 * np.eye(3, 4)[labels]
    Y = np.hstack([numbers / numbers.std(axis=0), indicators(rng.integers(5, size=200))])
    group = ProcessGroup(200)
    view = committee_view(Y, Y, fit_scaler(Y, group, "one"), group)
    vote = vote_on(view, Y, group, Committee(), 3)
    assert adjusted_rand_score(labels, vote.shares.argmax(axis=1)) > 0.6


def test_noise_with_categories_is_one_cluster() -> None:
    rng = np.random.default_rng(4)
    levels = rng.integers(3, size=(150, 2))
    Y = np.hstack([rng.normal(size=(150, 2)), *(1.5 * indicators(each) for each in levels.T)])
    group = ProcessGroup(150)
    view = committee_view(Y, Y, fit_scaler(Y, group, "one"), group)
    found = examine(view, group, tendency=True, clusters=True, dimensions=False).clusters
    assert found is not None
    assert found.chosen == 1


def test_categories_alone_have_two_factors_for_a_picture() -> None:
    rng = np.random.default_rng(0)
    Y = np.hstack([indicators(rng.integers(3, size=120)) for _ in range(4)])
    assert view_of(Y)[1].shape == (120, 2)


def test_noise_is_represented_as_the_table_is() -> None:
    """Independent columns have no part in each other's factors, in the noise as in the table."""
    rng = np.random.default_rng(0)
    Y = np.hstack([rng.normal(size=(200, 3)), indicators(rng.integers(5, size=200))])
    group = ProcessGroup(200)
    view = committee_view(Y, Y, fit_scaler(Y, group, "one"), group)
    assert view.mixed is not None
    drawn = mixed_columns(view.mixed, 8)(rng)
    np.testing.assert_allclose(drawn.var(axis=0).sum(), view.rows.var(axis=0).sum(), rtol=0.3)


@pytest.mark.parametrize(
    "Y",
    [
        np.random.default_rng(0).normal(size=(50, 6)),
        np.random.default_rng(0).integers(2, size=(50, 6)).astype(float),
    ],
    ids=["numbers", "bits"],
)
def test_other_tables_are_seen_as_they_are(Y: np.ndarray) -> None:
    mixed, rows = view_of(Y)
    assert not mixed
    assert rows.shape == Y.shape


def test_a_category_alone_makes_no_clusters() -> None:
    """Members that repeat its levels, or some of them, are not heard."""
    Y, labels, chance = mixed_table()
    _, factors = view_of(Y)
    heaps = np.column_stack([factors, 3.0 * (chance == 2)])
    geometry = Geometry(heaps, 2)
    deceived = take_vote(geometry, 2)
    vote = take_vote(geometry, 2, [chance])
    assert deceived is not None
    assert vote is not None
    repeating = {
        member.name
        for member in deceived.members
        if adjusted_rand_score(chance == 2, member.labels) > 0.9
    }
    assert len(repeating) > 1
    assert not repeating & {member.name for member in vote.members}
    assert {vote.failures[name] for name in repeating} == {
        "its clusters are the levels of one category"
    }
    assert adjusted_rand_score(labels, vote.shares.argmax(axis=1)) > 0.9
    everything_repeats = take_vote(Geometry(heaps[:, 2:], 2), 2, [chance])
    assert everything_repeats is not None  # the votes of all, rather than none


def test_the_picture_shows_clusters_not_combinations_of_levels() -> None:
    """Started from the rows as they are, every combination of levels becomes an island."""
    Y, labels, chance = mixed_table()
    model = SGPMIC(2, max_iter=3, scale="one", random_state=0).fit(Y)
    of_chance = silhouette_score(model.embedding_, chance)
    assert silhouette_score(model.embedding_, labels) > of_chance + 0.1


def tendency(Y: np.ndarray) -> ClusterTendency:
    group = ProcessGroup(len(Y))
    view = committee_view(Y, Y, fit_scaler(Y, group, "auto"), group)
    return cluster_tendency(view.scaler.transform(view.rows), mixed=view.mixed)


def noise_with_categories(kind: str, seed: int) -> np.ndarray:
    """Return 120 rows without clusters."""
    rng = np.random.default_rng(seed)
    categories = [indicators(rng.integers(3, size=120)) for _ in range(4)]
    if kind == "categories":
        return np.hstack(categories)
    if kind == "one category":
        return np.hstack([rng.normal(size=(120, 6)), categories[0]])
    score = rng.normal(size=120)  # a category that is a part of a continuous score
    numbers = score[:, None] + rng.normal(size=(120, 3))
    thirds = indicators(np.digitize(score, [-0.5, 0.5]))
    return np.hstack([numbers / numbers.std(axis=0), thirds, categories[0]])


@pytest.mark.parametrize("kind", ["categories", "one category", "thirds of a score"])
def test_noise_with_categories_has_no_clusters(kind: str) -> None:
    # At a level of 5 %, more than 2 of 8 have a chance of 1 in 170.
    found = [tendency(noise_with_categories(kind, seed)).supported for seed in range(8)]
    assert sum(found) <= 2


def test_clusters_that_categories_share_are_found() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=150)
    blocks = [np.where(rng.random(150) < 0.8, labels, rng.integers(3, size=150)) for _ in range(5)]
    assert tendency(np.hstack([indicators(block) for block in blocks])).supported
    assert tendency(mixed_table()[0]).supported


def test_outliers_do_not_hide_clusters() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    Y = rng.normal(size=(200, 4)) + 6.0 * np.eye(3, 4)[labels]
    group = ProcessGroup(200)
    clean = committee_view(Y, Y, fit_scaler(Y, group, "each"), group)
    assert clean.rows is Y
    for j in range(4):
        Y[rng.choice(200, 2, replace=False), j] *= 1e3
    view = committee_view(Y, Y, fit_scaler(Y, group, "each"), group)
    assert (view.scaler.scale < 2.0 * clean.scaler.scale).all()
    assert np.abs(view.scaler.transform(view.rows)).max() < 10.0
    vote = vote_on(view, Y, group, Committee(), 3)
    assert adjusted_rand_score(labels, vote.shares.argmax(axis=1)) > 0.9


def test_rounding_errors_make_no_outliers_of_what_differs_from_the_usual_value() -> None:
    rng = np.random.default_rng(0)
    Y = np.where(rng.random((200, 4)) < 0.99, 0.0, rng.normal(5.0, size=(200, 4)))
    Y += 1e-12 * rng.normal(size=Y.shape)
    group = ProcessGroup(200)
    assert committee_view(Y, Y, fit_scaler(Y, group, "each"), group).rows is Y


@pytest.mark.parametrize("n_missing", [0, 180])
def test_a_long_tail_is_no_outlier(n_missing: int) -> None:
    """However few values of a feature are known."""
    Y = np.exp(2.0 * np.random.default_rng(0).normal(size=(200, 4)))
    Y[:n_missing] = np.nan
    low, high = usual_range(Y)
    np.testing.assert_array_equal(low, -np.inf)
    np.testing.assert_array_equal(high, np.inf)
