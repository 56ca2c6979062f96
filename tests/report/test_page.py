"""The page as text: nothing from the data becomes markup, and nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report.hostile import HOSTILE
from tests.report.test_content import make_content

from sgpmic._words import percent
from sgpmic.report import render_report
from sgpmic.report.content import RunContent
from sgpmic.report.page import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    _environment,
    bound_chart,
    certainty_histogram,
)
from sgpmic.report.picture import pack_memberships, pack_values
from sgpmic.report.words import number, shorten

VOID = {"meta", "input", "col", "br", "img", "link"}
SVG_EMPTY = {"path", "line", "circle", "rect", "polyline"}


class Page(HTMLParser):
    """A strict reader: every element must be closed, in order, and ids must be unique."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)
        self.close()
        assert self.open == []
        ids = [a["id"] for _, a in self.elements if "id" in a]
        assert len(ids) == len(set(ids))
        self.ids = set(ids)

    def handle_starttag(self, tag, attrs):
        if tag == "wbr":  # wherever a name has an underscore
            return
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), f"an attribute twice in <{tag}>"
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((attributes, ""))

    def handle_startendtag(self, tag, attrs):
        assert tag in SVG_EMPTY, f"<{tag}/> is not empty in HTML"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    @property
    def payload(self):
        (text,) = (text for attributes, text in self.scripts if attributes.get("id") == "payload")
        return json.loads(text)


def unpack(packed, dtype):
    return np.frombuffer(base64.b64decode(packed["base64"]), dtype)


def hostile_content(words: str, **more: object) -> RunContent:
    """Return a run with these words wherever words can be."""
    start = {"embedding": words, "memberships": words, "bound": 1.0, "kept": True, "n_iter": 2}
    fields: dict[str, object] = {
        "n": 12,
        "title": words,
        "feature_names": (words, words + "2", "plain"),
        "ids": [words] * 12,
        "given_labels": [words, "other", words] * 4,
        "label_name": words,
        "starts": [start],
        "history": {"start": [0, 0], "iteration": [1, 2], "bound": [0.0, 1.0]},
        "settings": {words: words, "number": 3, "flag": True},
        "warnings": [words],
        "times": {words: 1.5},
        "versions": {words: words},
    }
    return make_content(**(fields | more))  # type: ignore[arg-type]


@cache
def harmless_page() -> Page:
    return Page(render_report(hostile_content("harmless")))


def json_in_page(data: Any) -> str:
    return _environment().from_string("{{ data|tojson }}").render(data=data)


def test_names_of_settings_break_at_underscores():
    page = render_report(make_content(settings={"em__tol": 1, "<b>": 2}))
    assert "em_<wbr>_<wbr>tol" in page
    assert "<dt><bdi>&lt;b&gt;</bdi>" in page


class TestWords:
    @pytest.mark.parametrize("words", HOSTILE)
    def test_hostile_words_stay_words(self, words):
        clean = harmless_page()
        page = Page(render_report(hostile_content(words)))
        # The same elements with the same attribute names: no word became markup.
        shape = [(tag, sorted(attributes)) for tag, attributes in page.elements]
        assert shape == [(tag, sorted(attributes)) for tag, attributes in clean.elements]
        assert not any(name.startswith("on") for _, names in shape for name in names)
        assert page.payload["features"][0] == shorten(words)
        if shorten(words, 40):
            assert shorten(words, 40) in "".join(page.words)

    @settings(max_examples=15, deadline=None)
    @given(st.text(min_size=1, max_size=30))
    def test_any_words(self, words):
        text = render_report(hostile_content(words))
        text.encode("utf-8")
        assert len(Page(text).scripts) == 3

    @given(st.recursive(st.text() | st.integers() | st.none(), st.lists))
    def test_json_is_safe_inside_a_script(self, data):
        text = json_in_page(data)
        assert not set(text) & set("<>&\u2028\u2029")
        assert json.loads(text) == data

    def test_what_is_not_json_is_refused(self):
        with pytest.raises(ValueError, match="not JSON compliant"):
            json_in_page([float("nan")])

    def test_shorten(self):
        assert shorten("plain") == "plain"
        assert shorten("x" * 9000 + "y" * 1000, 20) == "x" * 13 + "…" + "y" * 6
        assert shorten("a\x00b\nc\u2028d") == "a b c d"
        assert shorten("\ud800x") == "?x"
        assert len(shorten(" " * 9999 + "end", 20)) <= 20

    def test_long_names_are_shortened(self):
        assert len(render_report(hostile_content("y" * 10_000))) < 300_000


class TestOneFile:
    def test_loads_nothing(self):
        page = Page(render_report(make_content()))
        for tag, attributes in page.elements:
            assert tag not in ("link", "img", "iframe", "object", "embed", "base")
            assert not {"src", "srcset", "action", "background"} & set(attributes)
            assert attributes.get("href", "#").startswith("#")
        text = render_report(make_content())
        # The name of a language, not an address that is asked for anything.
        text = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert not re.search(r"url\(\s*[^#)]|@import", text)

    def test_policy_allows_exactly_our_script(self):
        page = Page(render_report(make_content()))
        policies = [a["content"] for _, a in page.elements if "http-equiv" in a]
        (script,) = (text for a, text in page.scripts if "type" not in a)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'" in policies[0]
        assert "default-src 'none'" in policies[0]
        assert "</script" not in script.lower()
        assert "<!--" not in script

    def test_links_and_labels_lead_somewhere(self):
        page = Page(render_report(hostile_content("x")))
        for _, attributes in page.elements:
            for name in ("href", "for", "aria-labelledby", "aria-describedby"):
                for target in (attributes.get(name) or "").split():
                    assert target.lstrip("#") in page.ids

    def test_same_content_same_page(self):
        assert render_report(make_content()) == render_report(make_content())

    def test_starts_as_html(self):
        assert render_report(make_content()).startswith("<!doctype html>\n")

    def test_size_of_a_small_report(self):
        assert len(render_report(make_content(n=150, p=4)).encode()) < 200_000


class TestSize:
    def test_sample_of_rows_holds_the_rows_the_page_speaks_of(self, monkeypatch):
        monkeypatch.setattr("sgpmic.report.picture.MAX_ROWS", 500)
        content = make_content(n=3000)
        text = render_report(content)
        page = Page(text)
        rows = unpack(page.payload["rows"], "<u4")
        assert len(rows) == page.payload["n"] == 500
        assert (np.diff(rows.astype(int)) > 0).all()
        spoken = {int(a["data-row"] or 0) for _, a in page.elements if "data-row" in a}
        assert spoken <= set(rows.tolist())
        assert "random sample of 500 of 3,000 rows" in text

    def test_values_too_large_for_single_precision_are_clipped(self):
        packed = pack_values(np.array([[-1.7e308, 3.0], [1.7e308, 3.0], [0.0, np.nan]]))
        largest = np.finfo(np.float32).max
        codes = unpack(packed["codes"], "<f4")
        np.testing.assert_array_equal(codes, [-largest, largest, 0.0, 3.0, 3.0, np.nan])
        assert np.isfinite(packed["range"]).all()

    def test_features_that_matter_are_kept(self, monkeypatch):
        monkeypatch.setattr("sgpmic.report.picture.MAX_NUMBERS", 100)
        content = make_content(n=50, p=5)
        values = content.values.copy()
        values[:, [1, 3]] += 9.0 * content.labels[:, None]
        text = render_report(make_content(n=50, p=5, values=values))
        assert Page(text).payload["features"] == ["feature 1", "feature 3"]
        assert "the 2 of 5 features that set clusters apart most" in text

    def test_memberships(self):
        memberships = np.array([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0]])
        packed = pack_memberships(memberships)
        clusters = unpack(packed["clusters"], "<u2").reshape(2, 3)
        chances = unpack(packed["chances"], "<u2").reshape(2, 3)
        assert clusters.tolist() == [[3, 2, 1], [0, 1, 2]]
        np.testing.assert_allclose(chances / 65535, [[0.4, 0.3, 0.2], [1, 0, 0]], atol=1e-5)


class TestPlainWords:
    def text(self, content):
        return Page(render_report(content)).text

    def test_summary(self):
        start = {"kept": True, "converged": True, "n_iter": 9, "embedding": "pca"}
        memberships = np.repeat([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0]], [4, 2], axis=0)
        text = self.text(make_content(n=6, memberships=memberships, starts=[start]))
        assert "6 rows with 3 features were grouped into 2 clusters of 4 and 2 rows" in text
        assert "1 more cluster that the model could use has no rows" in text
        assert "probability of 80.0 %; no row is below 60 %" in text
        assert "The fit converged after 9 iterations." in text
        assert "No row has this as its most probable cluster" in text

    def test_warnings_and_unsettled(self):
        starts = [{"kept": i == 1, "converged": False, "n_iter": 1} for i in range(3)]
        text = self.text(make_content(starts=starts, warnings=["Mind this.", "And this."]))
        assert "There are 2 warnings" in text
        assert text.count("Mind this.") == 2
        assert "stopped after 1 iteration in the selected start, one of 3, before" in text

    def test_remarks_are_not_warnings(self):
        remark = "The neighbor graph has 2 connected components; they were joined."
        page = render_report(make_content(warnings=[remark]))
        assert remark in page
        assert "warnings, below" not in page
        assert '<div class="warnings"' not in page

    def test_one_cluster_is_not_compared(self):
        content = make_content()
        one = replace(
            content,
            memberships=np.ones((content.n_rows, 1)),
            means=content.means[:1],
            covariances=content.covariances[:1],
            weights=np.ones(1),
        )
        text = self.text(one)
        assert "put into a single cluster" in text
        assert "All rows are in one cluster" in text
        for words in (
            "On average",
            "Most doubtful rows",
            "Certainty of rows",
            "No mean or share differs",
        ):
            assert words not in text

    def test_numbers_as_people_write_them(self):
        assert [number(v) for v in (1994.0, 12345.0, 6e-17, -0.25)] == [
            "1994",
            "12,345",
            "0",
            "−0.25",
        ]

    def test_what_the_data_support_is_said_first_and_once(self):
        support = "There may be no clusters: noise looks the same: p = 0.5."
        text = self.text(make_content(support=support, warnings=[f"{support} Ask for fewer."]))
        assert text.index(support) < text.index("were grouped")
        assert text[: text.index("Latent space")].count(support) == 1
        assert "Ask for fewer." in text

    def test_why_a_start_was_kept(self):
        starts = [{"kept": i == 1, "converged": True, "n_iter": 1} for i in range(2)]
        text = self.text(make_content(starts=starts, choice="Kept: start 2 of 2, for a reason."))
        assert "Kept: start 2 of 2, for a reason." in text

    def test_a_number_that_was_found_is_not_called_given(self):
        found = {
            "chosen": 3,
            "candidates": [1, 2, 3],
            "probability": [0.1, 0.2, 0.7],
            "expected": [0.1, 0.5, 0.9],
            "modes": 3,
        }
        text = self.text(make_content(number_of_clusters=found))
        assert "3 were chosen: with so many clusters, rows should be grouped most like" in text
        assert "The table shows the probability of every number" in text
        # Cells of a table stand without spaces.
        assert "expected ARI110.0 %0.1220.0 %0.5370.0 %0.9" in text
        one = self.text(make_content(number_of_clusters=found | {"chosen": 1}))
        assert "1 was chosen: with one cluster, rows should be grouped most like the true" in one
        # In runs of earlier versions, one cluster has no probability.
        old = {"candidates": [2, 3, 4], "probability": [0.7, 0.9, 0.8], "modes": 3}
        one = self.text(make_content(number_of_clusters=old | {"chosen": 1}))
        assert "One was chosen, as the rows do not stand out from noise" in one
        assert "number was given" not in text
        assert "number was given, not found" in self.text(make_content())

    def test_the_committee_and_who_did_not_vote(self):
        members = [
            {"name": "Ward", "weight": 1.0, "expected": 0.8, "agreement": 0.9, "cut": 0.1},
            {"name": "subspaces", "weight": 0.0, "reason": "they need more features"},
        ]
        text = self.text(make_content(committee=members))
        assert "Ward100.0 %0.80.9" in text
        assert "subspacesdid not vote: they need more features" in text
        # Runs of earlier versions do not know what was expected.
        old = self.text(make_content(committee=[{"name": "Ward", "weight": 1.0, "agreement": 0.9}]))
        assert "Ward100.0 %–0.9" in old

    def test_nothing_but_arrays(self):
        """Files of an old run may hold no history, settings or times."""
        text = self.text(make_content())
        assert "Bound over iterations" not in text
        assert "How to read this" in text

    def test_confusion_with_many_labels(self):
        labels = [f"label {i % 30}" for i in range(60)]
        page = Page(render_report(make_content(given_labels=labels)))
        assert "10 others" in page.text
        assert len(page.payload["given"]["names"]) == 30

    def test_rows_without_a_label_are_not_compared(self):
        content = make_content()
        labels = [("red", "green", "blue")[m] for m in content.labels]
        labels[::10] = [""] * len(labels[::10])
        page = Page(render_report(replace(content, given_labels=labels)))
        assert "Adjusted Rand index 1 " in page.text.replace("1.000", "1")
        assert f"{labels.count('')} rows without a label are left out. The labels" in page.text
        assert page.payload["given"]["names"][-1] == "(missing)"
        page = Page(render_report(replace(content, given_labels=[""] * len(labels))))
        assert "Adjusted Rand" not in page.text

    @pytest.mark.parametrize(("n", "p", "M", "Q"), [(1, 1, 1, 1), (2, 1, 5, 1), (40, 2, 30, 5)])
    def test_odd_shapes(self, n, p, M, Q):
        Page(render_report(make_content(n=n, p=p, M=M, Q=Q)))

    def test_percent(self):
        assert [percent(v) for v in (0.5, 1.0, 0.99999, 0.0, 1e-9)] == [
            "50.0 %",
            "100.0 %",
            "> 99.9 %",
            "0.0 %",
            "< 0.1 %",
        ]
        assert [percent(v, 0) for v in (0.0, 0.004, 0.005, 0.52, 0.995, 0.997, 1.0, np.nan)] == [
            *("0 %", "< 1 %", "< 1 %", "52 %", "> 99 %", "> 99 %", "100 %", "–")
        ]


class TestCharts:
    def test_number(self):
        found = [number(v) for v in (-1234567.0, 2e10, 157432.18, 0.5, 1.23456, np.nan, 1e-9)]
        assert found == [
            "−1,234,567",
            "20,000,000,000",
            "157,432",
            "0.5",
            "1.235",
            "–",
            "1e−09",
        ]
        assert number(999.96, 3) == "1000"

    def test_histogram_counts_every_row(self):
        certainty = np.array([0.5, 0.51, 0.99, 1.0, 1.0])
        assert certainty_histogram(certainty) == [("50 to 55 %", 2), ("95 to 100 %", 3)]

    @pytest.mark.parametrize("first", [0, 1], ids=["all starts", "the first start failed"])
    def test_kept_start_is_drawn_last(self, first):
        starts = [first, first, first + 1, first + 1]
        history = {"start": starts, "iteration": [1, 2, 1, 2], "bound": [0.0, 1.0, 2.0, np.nan]}
        chart = bound_chart(make_content(history=history, starts=[{"kept": True}, {"kept": False}]))
        assert chart is not None
        drawn = [(line["start"], line["kept"]) for line in chart["lines"]]
        assert drawn == [(first + 1, False), (first, True)]
        assert chart["lines"][0]["points"] == [(LEFT, TOP)]

    def test_bounds_that_hardly_differ_are_told_apart(self):
        history = {
            "start": [0] * 3,
            "iteration": [1, 2, 3],
            "bound": [-1e4, -3544.759432, -3544.759424],
        }
        chart = bound_chart(make_content(history=history))
        assert chart is not None
        assert (chart["low"], chart["high"]) == ("−3544.759432", "−3544.759424")

    def test_a_first_iteration_far_below_is_cut(self):
        bounds = [-1e6, 10.0, 11.0, 12.0]
        history = {"start": [0] * 4, "iteration": [1, 2, 3, 4], "bound": bounds}
        chart = bound_chart(make_content(history=history))
        assert chart is not None
        assert chart["cut"]
        assert (chart["low"], chart["high"], chart["last"]) == ("10", "12", 4)
        points = chart["lines"][0]["points"]
        assert points[0][1] > BOTTOM == points[1][1]
        assert points[-1] == (RIGHT, TOP)
