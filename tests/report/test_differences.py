"""Profiles of gaps, levels and continuous labels, against plain loops and other libraries."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import f_oneway
from sklearn.datasets import load_iris
from tests.report.test_content import cohen, make_content, memberships_of
from tests.report.test_page import Page, unpack

from sgpmic.report import render_report
from sgpmic.report.explanations import explain
from sgpmic.report.picture import pack_levels, pack_values
from sgpmic.report.statistics import (
    cluster_profiles,
    continuous_labels,
    level_shares,
    missing_shares,
    number_by_cluster,
)
from sgpmic.tables.columns import Levels


class TestGaps:
    def test_missing_cells_do_not_count_in_means_and_effects(self):
        iris = load_iris()
        values = iris.data.copy()
        values[np.random.default_rng(0).random(values.shape) < 0.3] = np.nan
        found = cluster_profiles(values, iris.target, 3)
        for m in range(3):
            for j in range(4):
                column, mine = values[:, j], iris.target == m
                inside = column[mine & np.isfinite(column)]
                outside = column[~mine & np.isfinite(column)]
                np.testing.assert_allclose(found.effects[m, j], cohen(inside, outside))
                np.testing.assert_allclose(found.inside[m, j], inside.mean())
                np.testing.assert_allclose(found.outside[m, j], outside.mean())

    def test_a_column_without_a_value_has_no_mean_and_no_effect(self):
        found = cluster_profiles(np.full((4, 1), np.nan), np.array([0, 0, 1, 1]), 2)
        assert np.isnan(found.inside).all()
        assert (found.effects == 0).all()

    def test_missing_shares(self):
        missing = np.array([[True], [True], [True], [False], [True], [False], [False], [False]])
        found = missing_shares(missing, np.array([0, 0, 0, 0, 1, 1, 1, 1]), 2)
        np.testing.assert_allclose(found.inside[:, 0], [0.75, 0.25])
        # Cohen's h of 3/4 and 1/4: 2 asin(√3/2) − 2 asin(1/2) = 2π/3 − π/3.
        np.testing.assert_allclose(found.effects[:, 0], [np.pi / 3, -np.pi / 3])

    def test_packed_values_keep_gaps(self):
        values = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan]])
        packed = pack_values(values)
        json.dumps(packed, allow_nan=False)
        codes = unpack(packed["codes"], "<f4")
        np.testing.assert_allclose(codes.reshape(2, 3).T, values, rtol=1e-6)


class TestLevels:
    @given(
        st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 3)), min_size=1, max_size=40),
    )
    def test_shares_are_those_of_plain_counting(self, rows):
        labels, codes = (np.array(column) for column in zip(*rows, strict=True))
        found = level_shares(codes, 4, labels, 3)
        for m in range(3):
            inside = [c for k, c in rows if k == m and c >= 0]
            outside = [c for k, c in rows if k != m and c >= 0]
            for level in range(4):
                if not inside or not outside:
                    assert found.effects[m, level] == 0
                    continue
                p, q = (side.count(level) / len(side) for side in (inside, outside))
                np.testing.assert_allclose(found.inside[m, level], p, atol=1e-12)
                expected = 2 * np.arcsin(np.sqrt(p)) - 2 * np.arcsin(np.sqrt(q))
                np.testing.assert_allclose(found.effects[m, level], expected, atol=1e-7)

    def test_packed_levels_are_sorted_by_how_often_they_occur(self):
        packed = pack_levels("kind", ["rare", "common"], np.array([1, 0, 1, -1, 1]))
        assert packed["names"] == ["common", "rare", "(missing)"]
        assert unpack(packed["codes"], "u1").tolist() == [0, 1, 0, 2, 0]


def mixed_content(**more):
    """Return a run in which cluster 0 is red and often has no height."""
    n = 60
    labels = np.arange(n) % 3
    height = np.where((labels == 0) & (np.arange(n) < 45), np.nan, labels.astype(float))
    colors = np.where(labels == 0, 0, 1 + np.arange(n) % 2)
    colors[-3:] = -1
    fields = {
        "feature_names": ("height",),
        "values": height[:, None],
        "memberships": memberships_of(labels, 0.05),
        "categories": (
            Levels("color", ("red", "green", "blue"), colors),
            Levels("smokes", ("no", "yes"), (labels == 2).astype(np.int64)),
        ),
        "columns": [
            {
                "name": "color",
                "kind": "category",
                "summary": "red, green, blue",
                "n_missing": 3,
                "n_rows": 60,
                "becomes": "3 indicator columns",
                "warning": None,
            },
            {
                "name": "customer",
                "kind": "id",
                "summary": "60 different values",
                "n_missing": 0,
                "n_rows": 60,
                "becomes": "left out: an id",
                "warning": "‘customer’ is almost surely an id",
            },
        ],
    }
    return make_content(n=n, p=1, **(fields | more))


class TestDifferences:
    def test_levels_and_gaps_are_named_in_the_words_of_the_table(self):
        found = [cluster.differences for cluster in explain(mixed_content())]
        assert found[0][0].subject.name == "color: red"
        said = [
            found[0][0].subject.words(share) for share in (found[0][0].inside, found[0][0].outside)
        ]
        assert said == ["100.0 %", "0.0 %"]
        # 19 of 20 are known; half a row more on either side, and the near end of the interval.
        h = 2 * np.arcsin(np.sqrt(19.5 / 20)) - 2 * np.arcsin(np.sqrt(0.5 / 39))
        certain = (h - 1.96 * np.sqrt(1 / 19 + 1 / 38)) * 19 / 20
        np.testing.assert_allclose(found[0][0].effect, certain)
        assert found[0][0].known == 19
        names = [one.subject.name for one in found[0]]
        assert "height is missing" in names
        assert "smokes: no" in names
        assert "smokes: yes" not in names, "of two levels one says it all"
        sizes = [abs(one.effect) for one in found[0]]
        assert sizes == sorted(sizes, reverse=True)

    def test_the_page_shows_columns_levels_and_gaps(self):
        page = Page(render_report(mixed_content()))
        for expected in (
            *("color: red", "100.0 % against 0.0 %", "height is missing", "left out: an id"),
            *("3 (5.0 %)", "almost surely an id", "60 rows with 3 columns"),
        ):
            assert expected in page.text.replace("\u00a0", " "), expected
        assert {"columns"} <= page.ids
        categories = page.payload["categories"]
        assert [c["name"] for c in categories] == ["color", "smokes"]
        assert categories[0]["names"][-1] == "(missing)"

    def test_categories_alone_make_a_page(self):
        content = mixed_content(feature_names=(), values=np.zeros((60, 0)))
        assert "color: red" in render_report(content)

    def test_hostile_words_are_text(self):
        bad = "</script><b>"
        content = mixed_content(categories=(Levels(bad, (bad, bad + "2"), np.arange(60) % 2),))
        page = Page(render_report(content))
        assert page.payload["categories"][0]["name"] == bad


class TestContinuousLabels:
    @pytest.mark.parametrize(
        "given",
        [
            [str(i % 10) for i in range(100)],
            [str(1 + i % 40) for i in range(100)],
            ["a", "1.5", "2.5"] * 10,
            [f"{i % 3}.5" for i in range(100)],
            ["", "nan", "1.2"] * 20,
            [""] * 5,
        ],
    )
    def test_classes(self, given):
        assert continuous_labels(given) is None

    @pytest.mark.parametrize(
        "given",
        [
            [f"{i / 7:.3f}" for i in range(30)],
            [str(18 + i) for i in range(60)],
            [str(i * i) for i in range(25)],
            [*(f"{i}e-1" for i in range(30)), ""],
        ],
    )
    def test_measurements(self, given):
        found = continuous_labels(given)
        expected = [float(label) if label else np.nan for label in given]
        np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize(
        ("write", "gap", "expected"),
        [
            (lambda i: f"1.{i:03d},50 €", "?", lambda i: 1000.5 + i),
            (lambda i: f"{i},3 %", "unknown", lambda i: i + 0.3),
            (lambda i: f"1.6.{1980 + i}", "", lambda i: 1980 + i + 151 / 365),
            (lambda i: f"{i // 60}:{i % 60:02d}", "-", lambda i: i / 60),
            (lambda i: str(7 * i), "-9999", lambda i: 7.0 * i),
        ],
    )
    def test_labels_are_read_like_features(self, write, gap, expected):
        found = continuous_labels([*map(write, range(40)), gap, gap])
        assert np.isnan(found[40:]).all()
        np.testing.assert_allclose(found[:40], [*map(expected, range(40))], atol=0.003)

    def test_summaries_are_those_of_an_analysis_of_variance(self):
        iris = load_iris()
        y = iris.data[:, 2] + 1e6
        found = number_by_cluster(y, iris.target, 3)
        groups = [y[iris.target == m] for m in range(3)]
        np.testing.assert_allclose(found.means, [g.mean() for g in groups])
        np.testing.assert_allclose(found.deviations, [g.std(ddof=1) for g in groups])
        f = f_oneway(*groups).statistic  # F = (η²/(k − 1)) / ((1 − η²)/(n − k))
        np.testing.assert_allclose(found.eta_squared, 2 * f / (2 * f + 147), rtol=1e-6)

    def test_gaps_and_empty_clusters(self):
        found = number_by_cluster(np.array([1.0, np.nan, 3.0, 5.0]), np.array([0, 0, 1, 1]), 3)
        assert found.counts.tolist() == [1, 2, 0]
        np.testing.assert_array_equal(found.means, [1.0, 4.0, np.nan])
        np.testing.assert_allclose(found.eta_squared, 6 / 8)  # between 4 + 2 · 1, of 4 + 0 + 4

    def test_the_page_summarizes_instead_of_comparing(self):
        numbers = [f"{x:.4f}" for x in np.random.default_rng(0).normal(size=60)]
        page = Page(render_report(mixed_content(given_labels=numbers, label_name="price")))
        assert "not compared as classes" in page.text
        assert "Adjusted Rand" not in page.text
        assert "without a label" not in page.text
        numbers[4] = ""
        page = Page(render_report(mixed_content(given_labels=numbers, label_name="price")))
        assert "1 row without a label is left out. It was not used" in page.text
        assert page.payload["given"] is None
        assert page.payload["features"] == ["height", "price"]
