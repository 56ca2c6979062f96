"""The numbers of the report against plain loops, closed forms, SciPy and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import entr
from scipy.stats import chi2, multivariate_normal, norm
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from sgpmic.learning.preprocessing import Scaler
from sgpmic.report.content import RunContent, content_from_model
from sgpmic.report.picture import (
    boundary_segments,
    latent_map,
    latent_maps,
    mixture_log_joint,
    outline,
)
from sgpmic.report.statistics import (
    LARGEST_EFFECT,
    cluster_profiles,
    cluster_sizes,
    compare_labels,
    doubtful_rows,
    log_gaussian,
    strongest_first,
    typical_rows,
)


def make_content(n: int = 60, p: int = 3, M: int = 3, Q: int = 2, **more: Any) -> RunContent:
    """Return a run with random numbers in it."""
    rng = np.random.default_rng(n + 10 * p + 100 * M + 1000 * Q)
    roots = rng.normal(size=(M, Q, Q))
    fields: dict[str, Any] = {
        "title": "A run",
        "feature_names": tuple(f"feature {j}" for j in range(p)),
        "values": rng.normal(size=(n, p)),
        "embedding": rng.normal(size=(n, Q)),
        "memberships": rng.dirichlet(np.full(M, 0.4), size=n),
        "means": rng.normal(size=(M, Q)),
        "covariances": roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(Q),
        "weights": rng.dirichlet(np.full(M, 5.0)),
    }
    return RunContent(**(fields | more))


def memberships_of(labels: np.ndarray, rest: float) -> np.ndarray:
    """Return memberships of these labels, with this much for every other cluster."""
    M = int(labels.max()) + 1
    return np.full((len(labels), M), rest) + (1.0 - M * rest) * np.eye(M)[labels]


def cohen(inside: np.ndarray, outside: np.ndarray) -> float:
    """Cohen's d, as it is written in textbooks."""
    a, b = len(inside), len(outside)
    pooled = ((a - 1) * inside.var(ddof=1) + (b - 1) * outside.var(ddof=1)) / (a + b - 2)
    return float((inside.mean() - outside.mean()) / np.sqrt(pooled))


class TestProfiles:
    def test_by_hand(self):
        # in: 1, 3 (mean 2, squares about it 2); out: 5, 7, 9 (mean 7, squares 8).
        # pooled variance (2 + 8) / 3; d = −5 / √(10/3)
        values = np.array([[1.0], [3.0], [5.0], [7.0], [9.0]])
        found = cluster_profiles(values, np.array([0, 0, 1, 1, 1]), 2)
        np.testing.assert_allclose(found.inside, [[2.0], [7.0]])
        np.testing.assert_allclose(found.outside, [[7.0], [2.0]])
        d = 5.0 / np.sqrt(10.0 / 3.0)
        np.testing.assert_allclose(found.effects, [[-d], [d]])

    def test_textbook_on_iris(self):
        iris = load_iris()
        found = cluster_profiles(iris.data, iris.target, 3)
        for m in range(3):
            mine = iris.target == m
            expected = [cohen(iris.data[mine, j], iris.data[~mine, j]) for j in range(4)]
            np.testing.assert_allclose(found.effects[m], expected, rtol=1e-10)
            np.testing.assert_allclose(found.inside[m], iris.data[mine].mean(axis=0))

    def test_a_wrong_value_hides_no_difference(self):
        iris = load_iris()
        wrong = iris.data.copy()
        wrong[149] *= 100.0
        found = cluster_profiles(wrong, iris.target, 3)
        without = cluster_profiles(iris.data, iris.target, 3).effects
        clear = abs(without) > 1.0
        assert (found.effects[clear] / without[clear] > 0.35).all()
        # The means shown are nevertheless those of the table.
        means = wrong[100:].mean(axis=0)
        np.testing.assert_allclose(found.inside[2, [0, 2, 3]], means[[0, 2, 3]])
        # ... except of sepal widths, which are smaller than those of the others.
        assert found.inside[2, 1] < found.outside[2, 1] < means[1]

    def test_a_small_cluster_far_away_has_its_own_mean(self):
        values = np.random.default_rng(0).normal(size=(500, 2))
        labels = (np.arange(500) < 8).astype(int)
        values[:8, 0] += 1000.0
        found = cluster_profiles(values, labels, 2)
        np.testing.assert_allclose(found.inside[1], values[:8].mean(axis=0))
        np.testing.assert_allclose(found.inside[0], 0.0, atol=0.2)

    def test_means_do_not_contradict_effects(self):
        values, labels = np.arange(100.0)[:, None], np.repeat([0, 1], 50)
        values[0] = 1e6  # a wrong value, in the cluster of the smaller ones
        found = cluster_profiles(values, labels, 2)
        assert found.effects[1, 0] > 1.0
        assert found.inside[1, 0] == 74.5 == found.outside[0, 0]
        assert found.outside[1, 0] < 40.0

    def test_an_infinite_value_counts_as_missing(self):
        values, labels = np.arange(100.0)[:, None], np.repeat([0, 1], 50)
        values[99] = np.inf
        found = cluster_profiles(values, labels, 2)
        np.testing.assert_array_equal(found.known, [[50.0], [49.0]])
        assert found.inside[1, 0] == 74.0

    def test_a_table_without_rows_has_no_differences(self):
        found = cluster_profiles(np.zeros((0, 2)), np.zeros(0, np.int64), 1)
        np.testing.assert_array_equal(found.effects, np.zeros((1, 2)))
        assert np.isnan(found.inside).all()

    def test_units_do_not_matter(self):
        iris = load_iris()
        there = cluster_profiles(1e6 + 1e3 * iris.data, iris.target, 3).effects
        np.testing.assert_allclose(
            there, cluster_profiles(iris.data, iris.target, 3).effects, rtol=1e-7
        )

    def test_constant_and_separating_features(self):
        values = np.array([[0.1, 0.1], [0.1, 0.1], [0.1, 0.3], [0.1, 0.3]])
        found = cluster_profiles(values, np.array([0, 0, 1, 1]), 2)
        np.testing.assert_array_equal(found.effects[:, 0], 0.0)
        np.testing.assert_array_equal(found.effects[:, 1], [-LARGEST_EFFECT, LARGEST_EFFECT])

    def test_empty_and_singleton_clusters(self):
        values = np.array([[1.0], [2.0], [3.0], [10.0]])
        found = cluster_profiles(values, np.array([0, 0, 0, 1]), 3)
        assert np.isnan(found.inside[2, 0])
        assert found.effects[2, 0] == 0.0
        # out: 1, 2, 3: squares 2; in: one row, squares 0; 4 − 2 degrees of freedom
        np.testing.assert_allclose(found.effects[1, 0], 8.0)

    def test_all_in_one_cluster(self):
        found = cluster_profiles(np.arange(6.0).reshape(3, 2), np.zeros(3, dtype=int), 1)
        np.testing.assert_array_equal(found.effects, 0.0)
        assert np.isnan(found.outside).all()

    def test_columns_in_blocks(self, monkeypatch):
        rng = np.random.default_rng(0)
        values, labels = rng.normal(size=(50, 7)), rng.integers(0, 3, 50)
        whole = cluster_profiles(values, labels, 3)
        monkeypatch.setattr("sgpmic.report.statistics._BLOCK", 100)
        for one, other in zip(whole, cluster_profiles(values, labels, 3), strict=True):
            np.testing.assert_allclose(one, other)

    def test_the_largest_numbers_do_not_overflow(self):
        largest = np.finfo(float).max
        values = np.array([[8.430590144851875e307], [largest], [largest]])
        found = cluster_profiles(values, np.array([0, 0, 1]), 2)
        assert found.inside[1, 0] == largest

    @settings(max_examples=60, deadline=None)
    @given(
        arrays(
            np.float64,
            st.tuples(st.integers(1, 12), st.integers(1, 3)),
            elements=st.floats(allow_nan=False, allow_infinity=False),
        ),
        st.data(),
    )
    def test_always_finite(self, values, data):
        labels = data.draw(arrays(np.int64, len(values), elements=st.integers(0, 3)))
        found = cluster_profiles(values, labels, 4)
        assert np.isfinite(found.effects).all()
        assert (abs(found.effects) <= LARGEST_EFFECT).all()
        filled = np.unique(labels)
        assert np.isfinite(found.inside[filled]).all()
        largest = abs(found.effects).max(axis=0)
        assert (np.diff(largest[strongest_first(found.effects)]) <= 0).all()


class TestRows:
    def test_doubtful_by_hand(self):
        memberships = np.array(
            [
                [0.9, 0.1, 0.0],
                [0.5, 0.5, 0.0],  # certainty 0.5, entropy log 2
                [0.5, 0.25, 0.25],  # certainty 0.5, entropy 1.5 log 2: more doubtful
                [0.4, 0.3, 0.3],
                [0.5, 0.5, 0.0],
            ]
        )
        assert doubtful_rows(memberships, 4).tolist() == [3, 2, 1, 4]
        assert doubtful_rows(memberships, 99).tolist() == [3, 2, 1, 4, 0]
        assert doubtful_rows(memberships, 0).tolist() == []

    @settings(max_examples=50, deadline=None)
    @given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 40), st.integers(0, 10**6))
    def test_doubtful_as_a_plain_sort(self, n, M, count, seed):
        # Few distinct values, so that ties are common.
        rng = np.random.default_rng(seed)
        raw = rng.integers(1, 4, (n, M)).astype(float)
        memberships = raw / raw.sum(axis=1, keepdims=True)
        entropy = entr(memberships).sum(axis=1)
        plain = sorted(range(n), key=lambda i: (memberships[i].max(), -entropy[i], i))
        assert doubtful_rows(memberships, count).tolist() == plain[:count]

    def test_typical_as_a_plain_loop(self):
        content = make_content(n=80, Q=3)
        found = typical_rows(
            content.embedding, content.memberships, content.means, content.covariances, 4
        )
        for m, rows in enumerate(found):
            score = {
                i: content.memberships[i, m]
                * multivariate_normal(content.means[m], content.covariances[m]).pdf(
                    content.embedding[i]
                )
                for i in range(80)
                if content.memberships[i].argmax() == m
            }
            assert rows.tolist() == sorted(score, key=lambda i: -score[i])[:4]

    def test_typical_of_an_empty_cluster(self):
        content = make_content(memberships=np.tile([1.0, 0.0, 0.0], (60, 1)))
        found = typical_rows(
            content.embedding, content.memberships, content.means, content.covariances, 2
        )
        assert [len(rows) for rows in found] == [2, 0, 0]

    def test_sizes(self):
        found = cluster_sizes(np.array([[0.8, 0.2, 0.0], [0.6, 0.4, 0.0], [0.1, 0.9, 0.0]]))
        assert found.counts.tolist() == [2, 1, 0]
        np.testing.assert_allclose(found.shares, [2 / 3, 1 / 3, 0])
        np.testing.assert_allclose(found.certainty, [0.7, 0.9, np.nan])


class TestConfusion:
    def test_by_hand(self):
        labels = np.array([0, 0, 0, 1, 1, 2])
        found = compare_labels(labels, ["b", "b", "a", "a", "a", "b"], 4)
        assert found.names == ["a", "b"]
        assert found.table.tolist() == [[1, 2], [2, 0], [0, 1], [0, 0]]
        assert found.purity == pytest.approx(5 / 6)

    def test_ari_by_its_formula(self):
        # pairs together in both: C(2,2) + C(2,2) = 2; in clusters: 3 + 1 = 4; in labels: 3 + 3 = 6
        # of C(6,2) = 15: expected 4·6/15 = 1.6; (2 − 1.6) / ((4 + 6)/2 − 1.6)
        found = compare_labels(np.array([0, 0, 0, 1, 1, 2]), ["b", "b", "a", "a", "a", "b"], 3)
        assert found.ari == pytest.approx(0.4 / 3.4)

    @settings(max_examples=30, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 3), st.text("abX", max_size=2)), min_size=1, max_size=30)
    )
    @example([(0, "a"), (0, "a"), (0, ""), (1, "b"), (1, "")])
    def test_against_scikit_learn(self, pairs):
        labels = np.array([m for m, _ in pairs])
        names = [name for _, name in pairs]
        found = compare_labels(labels, names, 4)
        if not any(names):
            assert found is None
            return
        assert [found.names[k] if k >= 0 else "" for k in found.codes] == names
        pairs = [pair for pair in pairs if pair[1]]
        labels, names = np.array([m for m, _ in pairs]), [name for _, name in pairs]
        assert found.table.sum() == len(pairs)
        own = [[name for k, name in pairs if k == m] for m in range(4)]
        assert found.purity == pytest.approx(
            sum(max(map(mine.count, mine), default=0) for mine in own) / len(pairs)
        )
        assert found.names == sorted(set(names), key=lambda s: (-names.count(s), s))
        assert found.ari == pytest.approx(
            adjusted_rand_score([names.index(s) for s in names], labels)
        )
        for m in range(4):
            for k, name in enumerate(found.names):
                assert found.table[m, k] == sum(pair == (m, name) for pair in pairs)


def log_joint(points: np.ndarray, content: RunContent) -> np.ndarray:
    mixture = [*zip(content.means, content.covariances, strict=True)]
    return mixture_log_joint(points, content.weights, mixture)


class TestLatentMap:
    def test_density_is_scipys_marginal(self):
        content = make_content(Q=4)
        drawn = latent_map(content)
        n_y, n_x = drawn.density.shape
        xs, ys = np.linspace(*drawn.extent[:2], n_x), np.linspace(*drawn.extent[2:], n_y)
        for j, i in [(0, 0), (n_y // 2, n_x // 3), (n_y - 1, 5)]:
            expected = sum(
                w * multivariate_normal(mean[:2], C[:2, :2]).pdf([xs[i], ys[j]])
                for w, mean, C in zip(
                    content.weights, content.means, content.covariances, strict=True
                )
            )
            np.testing.assert_allclose(drawn.density[j, i], expected, rtol=1e-9)

    def test_boundaries_lie_where_two_are_equally_probable(self):
        content = make_content(M=4)
        segments = latent_map(content).boundaries
        assert len(segments) > 50
        joint = np.sort(log_joint(segments[:, :2], content), axis=1)
        gap = joint[:, -1] - joint[:, -2]
        assert np.median(gap) < 1e-3
        assert (gap < 0.05).mean() > 0.95

    def test_boundary_of_two_equal_circles_is_the_line_between(self):
        xs = ys = np.linspace(-3, 3, 40)
        X, Y = np.meshgrid(xs, ys)
        joint = np.stack([-((X + 1) ** 2) - Y**2, -((X - 1) ** 2) - Y**2], axis=2)
        segments = boundary_segments(xs, ys, joint)
        np.testing.assert_allclose(segments[:, [0, 2]], 0.0, atol=1e-12)
        np.testing.assert_allclose(abs(segments[:, 3] - segments[:, 1]).sum(), 6.0)

    def test_three_regions_meet(self):
        xs = ys = np.linspace(-1.0, 1.0, 20)
        X, Y = np.meshgrid(xs, ys)
        angles = np.pi * np.array([0.1, 0.1 + 2 / 3, 0.1 + 4 / 3])
        joint = np.stack([X * np.cos(a) + Y * np.sin(a) for a in angles], axis=2)
        segments = boundary_segments(xs, ys, joint)
        nearest = np.hypot(*segments.reshape(-1, 2).T).min()
        assert nearest < 0.1  # the cell that holds the meeting point

    def test_one_component_has_no_boundary(self):
        assert latent_map(make_content(M=1)).boundaries.shape == (0, 4)

    def test_outline_holds_nine_tenths_of_the_rows(self):
        content = make_content(n=400)
        for m, line in enumerate(latent_map(content).outlines):
            rows = content.embedding[content.labels == m]
            shape = np.cov(rows.T, bias=True) + 1e-4 * content.covariances[m]
            precision, center = np.linalg.inv(shape), rows.mean(axis=0)
            away, rows = line - center, rows - center
            distance = np.einsum("ni,ij,nj->n", away, precision, away)
            assert np.ptp(distance) < 1e-9 * distance.max()  # the rows' shape
            inside = np.einsum("ni,ij,nj->n", rows, precision, rows) <= distance.mean() * (1 + 1e-9)
            assert 0.9 <= inside.mean() < 0.9 + 1.5 / len(rows)

    def test_outline_of_rows_on_a_line(self):
        rows = np.linspace(0.0, 1.0, 50)[:, None] * np.ones(2)
        line = outline(rows, np.full(2, 9.0), np.eye(2))
        along, across = line.sum(axis=1), np.diff(line, axis=1)
        assert 1.6 < np.ptp(along) < 2.0
        assert 0.0 < np.ptp(across) < 0.1

    def test_outline_of_no_rows_holds_nine_tenths_of_the_gaussian(self):
        covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
        line = outline(np.empty((0, 2)), np.ones(2), covariance) - 1.0
        distance = np.einsum("ni,ij,nj->n", line, np.linalg.inv(covariance), line)
        np.testing.assert_allclose(chi2(2).cdf(distance), 0.9)

    def test_every_two_of_the_first_dimensions_have_a_map(self):
        content = make_content(n=200, Q=5)
        maps = latent_maps(content)
        assert [drawn.axes for drawn in maps] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
        for drawn in maps:
            axes = list(drawn.axes)
            np.testing.assert_array_equal(drawn.points, content.embedding[:, axes])
            x0, x1, y0, y1 = drawn.extent
            n_y, n_x = drawn.density.shape
            corner = [x0 + 3 * (x1 - x0) / (n_x - 1), y0 + 5 * (y1 - y0) / (n_y - 1)]
            expected = sum(
                weight * multivariate_normal(mean[axes], C[np.ix_(axes, axes)]).pdf(corner)
                for weight, mean, C in zip(
                    content.weights, content.means, content.covariances, strict=True
                )
            )
            np.testing.assert_allclose(drawn.density[5, 3], expected, rtol=1e-9)

    def test_first_view_holds_everything(self):
        content = make_content()
        drawn = latent_map(content)
        x0, x1, y0, y1 = drawn.home
        inside = np.concatenate([drawn.points, *drawn.outlines])
        assert (inside > [x0, y0]).all()
        assert (inside < [x1, y1]).all()
        assert drawn.extent[0] <= x0 < x1 <= drawn.extent[1]
        assert drawn.extent[2] <= y0 < y1 <= drawn.extent[3]

    def test_an_empty_cluster_far_away_does_not_shrink_the_picture(self):
        content = make_content(
            M=2,
            memberships=np.tile([1.0, 0.0], (60, 1)),
            means=np.array([[0.0, 0.0], [1e6, 0.0]]),
        )
        assert np.ptp(latent_map(content).home[:2]) < 100

    def test_one_dimension_has_random_heights(self):
        content = make_content(n=500, Q=1)
        (drawn,) = latent_maps(content)
        np.testing.assert_array_equal(drawn.points[:, 0], content.embedding[:, 0])
        heights = drawn.points[:, 1]
        assert abs(np.corrcoef(heights, content.embedding[:, 0])[0, 1]) < 0.1
        middle = drawn.density[len(drawn.density) // 2]
        xs = np.linspace(*drawn.extent[:2], len(middle))
        parts = [
            w * norm(mean[0], np.sqrt(C[0, 0])).pdf(xs)
            for w, mean, C in zip(content.weights, content.means, content.covariances, strict=True)
        ]
        expected = np.sum(parts, axis=0)
        np.testing.assert_allclose(middle / middle.max(), expected / expected.max())
        assert np.ptp(drawn.boundaries[:, 1]) > np.ptp(heights)
        joint = np.sort(log_joint(drawn.boundaries[:, :1], content), axis=1)
        np.testing.assert_allclose(joint[:, -1], joint[:, -2], atol=1e-2)

    @pytest.mark.parametrize("Q", [1, 2, 3])
    def test_all_rows_in_one_place(self, Q):
        content = make_content(n=5, Q=Q, embedding=np.zeros((5, Q)))
        drawn = latent_maps(content)[0]
        assert all(np.isfinite(part).all() for part in drawn[:5])
        assert (np.diff(drawn.home.reshape(2, 2), axis=1) > 0).all()

    def test_singular_covariances_are_drawn(self):
        content = make_content(M=2, covariances=np.tile([[1.0, 1.0], [1.0, 1.0]], (2, 1, 1)))
        assert np.isfinite(np.concatenate(latent_map(content).outlines)).all()

    def test_log_gaussian(self):
        content = make_content(Q=3)
        expected = multivariate_normal(content.means[0], content.covariances[0]).logpdf(
            content.embedding
        )
        found = log_gaussian(content.embedding, content.means[0], content.covariances[0])
        np.testing.assert_allclose(found, expected)


class TestRunContent:
    def test_needs_a_row(self):
        with pytest.raises(ValueError, match="at least one row"):
            make_content(n=0)

    def test_from_a_model(self):
        """Anything with the estimator's attributes will do; a mixture stands in for it here."""
        iris = load_iris()
        model: Any = GaussianMixture(3, random_state=0).fit(iris.data)
        model.embedding_ = iris.data
        model.memberships_ = model.predict_proba(iris.data)
        model.history_ = {"bound": [1.0]}
        one = {"embedding": "isomap", "memberships": "votes", "bound": -1.0, "agreement": 0.5}
        model.starts_ = [one | {"kept": False, "labels": iris.target}, one | {"kept": True}]
        model._committee, model.cluster_tendency_, model._number_of_clusters = [], None, None
        model.encoder_ = None
        model.scaler_ = Scaler(iris.data.mean(axis=0), iris.data.std(axis=0), "each", 1.0)
        content = content_from_model(model, iris.data, title="Iris", warnings=["one"])
        np.testing.assert_array_equal(content.labels, model.predict(iris.data))
        assert content.feature_names == ("feature 0", "feature 1", "feature 2", "feature 3")
        assert content.settings["n_components"] == 3
        assert content.kept_start == 1
        assert content.starts[0] == one | {"kept": False}
        assert content.choice.startswith("Kept: start 2 of 2")
        assert content.warnings == ["one"]
        scaled = StandardScaler().fit_transform(iris.data)
        correlations = np.corrcoef(scaled.T)
        values, vectors = np.linalg.eigh(correlations)
        assert content.principal is not None
        np.testing.assert_allclose(content.principal[1], values[:1:-1] / 4)
        np.testing.assert_allclose(abs(content.principal[0]), abs(scaled @ vectors[:, :1:-1]))
