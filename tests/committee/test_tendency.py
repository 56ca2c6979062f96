"""Whether a table has clusters at all: the test and its parts."""

import re
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_circles, make_moons
from sklearn.mixture import GaussianMixture

from sgpmic.committee import reference_noise, tendency
from sgpmic.committee.reference_noise import GRID, MixedTable, quantiles
from sgpmic.committee.tendency import (
    LOGNORMAL_SHIFTS,
    ClusterTendency,
    cluster_tendency,
    dip,
    halves,
    two_group_gain,
    widest_gap,
)


def scaled(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std()


def nearest_unimodal(x: np.ndarray) -> float:
    """Return the dip from its definition: a linear program for every place of the mode."""
    x, n = np.sort(x), len(x)
    best = 1.0
    for mode in range(n):
        # The distribution's values up to the mode, from the mode on, and its distance.
        size = n + 2
        rows, bounds = [], []

        def add(entries: dict[int, float], bound: float) -> None:
            row = np.zeros(size)  # noqa: B023
            for place, value in entries.items():
                row[place] += value
            rows.append(row)  # noqa: B023
            bounds.append(bound)  # noqa: B023

        for i in range(n):
            for place in {i} if i < mode else {i + 1} if i > mode else {i, i + 1}:
                before, after = i / n, (i + 1) / n
                high = after if place == i + 1 and i == mode else before
                low = before if place == i and i == mode else after
                add({place: 1, size - 1: -1}, high)
                add({place: -1, size - 1: -1}, -low)
        add({mode: 1, mode + 1: -1}, 0.0)
        if mode > 0:
            add({0: 1, 1: -1}, 0.0)
        if mode < n - 1:
            add({n - 1: 1, n: -1}, 0.0)
        for i in range(1, n - 1):
            if i == mode:
                continue
            place, sign = (i, 1.0) if i < mode else (i + 1, -1.0)
            a, b = 1 / (x[i] - x[i - 1]), 1 / (x[i + 1] - x[i])
            # convex before the mode, concave after it
            add({place - 1: -sign * a, place: sign * (a + b), place + 1: -sign * b}, 0.0)
        cost = np.eye(size)[-1]
        best = min(best, linprog(cost, np.array(rows), bounds, bounds=[(None, None)] * size).fun)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_dip_is_the_distance_to_the_nearest_unimodal_distribution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=int(rng.integers(5, 25)))
    x[::2] += 3 * (seed % 3)
    assert dip(x) == pytest.approx(nearest_unimodal(x), abs=1e-9)


def test_known_dips() -> None:
    assert dip(np.arange(10.0)) == pytest.approx(1 / 20)
    assert dip(np.repeat([0.0, 1.0], 50)) == pytest.approx(1 / 4)  # the largest there is
    assert dip(np.repeat([0.0, 1.0], [60, 40])) == pytest.approx(0.2)
    assert dip(np.zeros(5)) == pytest.approx(1 / 10)


def test_the_gain_of_two_components_is_that_of_a_mixture() -> None:
    rng = np.random.default_rng(0)
    x = np.append(rng.normal(size=300), 4 + rng.normal(size=100))
    mixture = GaussianMixture(2, covariance_type="tied", n_init=5, tol=1e-8, random_state=0)
    expected = mixture.fit(x[:, None]).score(x[:, None]) * len(x)
    single = [stats.norm.logpdf(x, x.mean(), x.std()).sum(), -len(x) * np.log(np.ptp(x))]
    for shift in LOGNORMAL_SHIFTS:
        start = x.min() - shift * x.std()
        spread, scale = np.log(x - start).std(), np.exp(np.log(x - start).mean())
        single.append(stats.lognorm.logpdf(x, spread, start, scale).sum())
    expected -= max(single)
    # Bins of a hundredth of the range stand for the rows.
    assert two_group_gain(np.stack([x, x[::-1]])) == pytest.approx([expected, expected], rel=0.02)


def test_the_gap_is_the_distance_over_that_of_neighbors() -> None:
    # Two rows of equidistant points: 3 neighbors away is 2 steps (3 at the ends), the gap 50.
    line = np.arange(40.0)
    Z = np.append(line, line + 39 + 50)[:, None]
    assert widest_gap(Z) == pytest.approx(np.log(50 / 2), rel=1e-2)


@pytest.mark.parametrize(
    "law",
    [stats.norm(1, 2), stats.uniform(-1, 3), stats.t(2), stats.lognorm(1)],
    ids=["normal", "uniform", "t", "lognormal"],
)
def test_the_distribution_of_a_feature_is_found(law: Any) -> None:
    x = law.rvs(4000, random_state=np.random.default_rng(0))
    body = (GRID > 0.05) & (GRID < 0.95)
    miss = quantiles(x[:, None])[0][body] - law.ppf(GRID[body])
    assert np.abs(miss).max() < 0.15 * (law.ppf(0.75) - law.ppf(0.25))


def test_elliptical_noise_has_the_table_s_radii_and_scatter() -> None:
    rng = np.random.default_rng(0)
    root = np.array([[2.0, 0.0], [1.0, 0.5]])
    Z = rng.normal(size=(3000, 2)) @ root.T
    drawn = np.vstack([reference_noise.elliptical(Z)(rng) for _ in range(5)])
    np.testing.assert_allclose(np.cov(drawn.T), root @ root.T, rtol=0.1, atol=0.05)
    radii = np.linalg.norm(np.linalg.solve(root, drawn.T), axis=0)
    assert stats.kstest(radii, stats.chi(2).cdf).statistic < 0.03


def normal_scores(Y: np.ndarray) -> np.ndarray:
    return stats.norm.ppf((stats.rankdata(Y, axis=0) - 0.5) / len(Y))


def test_noise_of_a_wide_table_has_its_rank_correlations_and_features() -> None:
    rng = np.random.default_rng(0)
    Y = np.exp(rng.normal(size=(40, 3)) @ rng.normal(size=(3, 60)))  # more features than rows
    draw = reference_noise.with_marginals(Y, np.eye(60))
    drawn = np.vstack([draw(rng) for _ in range(100)])
    expected = np.corrcoef(normal_scores(Y).T)
    np.testing.assert_allclose(np.corrcoef(normal_scores(drawn).T), expected, atol=0.08)
    apart = [stats.ks_2samp(drawn[:, i], Y[:, i]).statistic for i in range(60)]
    assert np.mean(apart) < 0.2  # 0.14 for 40 rows of the same distribution


NOISE = {
    "Gaussian": lambda rng: rng.normal(size=(100, 4)),
    "uniform": lambda rng: rng.random((100, 2)),
    "t": lambda rng: rng.normal(size=(100, 4)) / np.sqrt(rng.chisquare(3, (100, 1))),
    "lognormal": lambda rng: np.exp(rng.normal(size=(100, 2))),
}


def test_independent_components_of_an_axis_without_spread() -> None:
    rng = np.random.default_rng(0)
    Z = np.column_stack([rng.exponential(size=(400, 2)) - 1.0, np.zeros(400)])
    drawn = reference_noise.independent(Z, 2)(rng)
    assert drawn.shape == (400, 2)
    for k in range(2):
        assert stats.ks_2samp(drawn[:, k], Z[:, k]).pvalue > 0.01


def test_noise_is_called_noise() -> None:
    found = [
        cluster_tendency(scaled(make(np.random.default_rng(seed))), seed).supported
        for make in NOISE.values()
        for seed in range(10)
    ]
    # Of 40 at a chance of at most 1 in 20: more than 5 has a chance of 1 in 70.
    assert sum(found) <= 5


def test_clusters_are_found() -> None:
    rng = np.random.default_rng(0)
    blobs = rng.normal(size=(200, 5))
    blobs[:60, 0] += 5
    for X in (
        blobs,
        make_moons(200, noise=0.05, random_state=0)[0],
        make_circles(200, noise=0.03, factor=0.3, random_state=0)[0],
        load_iris().data,
    ):
        outcome = cluster_tendency(scaled(X))
        assert outcome.supported
        assert outcome.statistic > 0
        assert "There are clusters" in outcome.sentence()


def test_the_order_of_rows_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    Y = rng.normal(size=(120, 3))
    Y[:50] += 1.5
    one, other = cluster_tendency(Y), cluster_tendency(Y[rng.permutation(120)])
    assert one.p_value == other.p_value
    assert one.statistic == pytest.approx(other.statistic, rel=1e-6)


def test_odd_tables() -> None:
    rng = np.random.default_rng(0)
    few = cluster_tendency(rng.normal(size=(8, 2)))
    assert not few.supported
    assert "8 rows" in few.sentence()
    assert not cluster_tendency(np.ones((50, 3))).supported
    assert 0 < cluster_tendency(rng.normal(size=(60, 1))).p_value <= 1
    assert 0 < cluster_tendency(rng.normal(size=(30, 80))).p_value <= 1
    assert 0 < cluster_tendency(rng.integers(0, 2, (100, 4)).astype(float)).p_value <= 1


@pytest.mark.parametrize(
    ("lead", "rank", "p_value", "draws"),
    [
        (9.0, 1, 1 / 80, 19),
        (4.0, 1, 1 / 40, 19),
        (2.0, 1, 1 / 40, 39),  # not clear: more tables are drawn
        (4.0, 2, 2 / 40, 39),  # one table of noise is as far
    ],
)
def test_only_a_clear_lead_ends_the_simulation(
    monkeypatch: pytest.MonkeyPatch, lead: float, rank: int, p_value: float, draws: int
) -> None:
    monkeypatch.setattr(tendency, "_compare", lambda figures: (lead, rank / len(figures), 0))
    found = cluster_tendency(np.random.default_rng(0).normal(size=(40, 2)))
    assert (found.p_value, found.draws) == (pytest.approx(p_value), draws)


def test_numbers_of_few_values_are_not_called_categories() -> None:
    Y = scaled(np.repeat([[1.0, 2.0], [3.0, 4.0]], 20, axis=0))
    outcome = cluster_tendency(Y, mixed=MixedTable(Y, [(0, 1), (1, 2)], np.zeros(0, np.int64), 0))
    assert outcome.noise == "rows with columns of the same values and correlations"


@pytest.mark.parametrize(
    ("p_value", "draws", "words"),
    [
        (1 / 80, 79, "There are clusters: .* p = 0.013 .79 simulated tables"),
        (1 / 80, 19, "There are clusters: .* p < 0.05 .19 simulated tables"),  # never simulated
        (0.1, 79, "There may be no clusters: .* looks similar: p = 0.1 "),
        (0.4, 19, "There may be no clusters: .* looks the same: p = 0.4 "),
    ],
)
def test_the_sentence(p_value: float, draws: int, words: str) -> None:
    sentence = ClusterTendency(6.0, p_value, "a gap", "an elliptical cloud", draws).sentence()
    assert re.match(words, sentence), sentence


def test_of_many_features_a_sample_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    n_seen = []
    with_marginals = reference_noise.with_marginals

    def count(Y: Any, axes: Any) -> reference_noise.Draw:
        n_seen.append(Y.shape[1])
        return with_marginals(Y, axes)

    monkeypatch.setattr(reference_noise, "with_marginals", count)
    Y = np.random.default_rng(0).normal(size=(60, 50)) + 6.0 * (np.arange(60) % 2)[:, None]
    monkeypatch.setattr(tendency, "MOST_FEATURES", 20)
    assert cluster_tendency(Y).supported
    assert n_seen == [20]


def test_halves_are_those_of_k_means_for_every_table_by_itself() -> None:
    rng = np.random.default_rng(0)
    sides = np.where(np.arange(80) % 2, 3.0, -3.0)[:, None]
    tables = np.stack([rng.normal(size=(80, 3)) + sides * rng.normal(size=3) for _ in range(4)])
    tables -= tables.mean(axis=1, keepdims=True)
    for table, direction in zip(tables, halves(tables), strict=True):
        one, other = KMeans(2, n_init=10, random_state=0).fit(table).cluster_centers_
        cosine = direction @ (one - other)
        cosine /= np.linalg.norm(direction) * np.linalg.norm(one - other)
        assert abs(cosine) == pytest.approx(1.0, abs=1e-6)
