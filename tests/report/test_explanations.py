"""Every statement on every card is recomputed from the table, by plain counting."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.datasets import load_iris, load_wine
from tests.report.test_content import make_content, memberships_of

from sgpmic import SGPMIC, TableEncoder
from sgpmic.report import profiles, render_report
from sgpmic.report.content import RunContent, describe_rows
from sgpmic.report.explanations import explain
from sgpmic.tables.columns import Levels
from sgpmic.tables.encoder import describe

Row = dict[str, object]


def content_of(values: np.ndarray, names: list[str], labels: np.ndarray, **more) -> RunContent:
    more |= {"values": values, "memberships": memberships_of(labels, 0.01)}
    M = int(labels.max()) + 1
    return make_content(len(labels), len(names), M, feature_names=tuple(names), **more)


def measured(data, gaps: float) -> RunContent:
    values = data.data.copy()
    values[np.random.default_rng(0).random(values.shape) < gaps] = np.nan
    names = [re.sub(r"\W+", "_", name) for name in data.feature_names]
    return content_of(values, names, data.target)


def mixed() -> RunContent:
    """Return a table of all kinds, with a column that is hardly known in one cluster."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, 400)
    labels[labels == 3] = rng.integers(2, 4, int((labels == 3).sum()))
    length = rng.normal(labels * 1000.0, 700.0)
    born = np.round(rng.normal(12_000 + 300 * (labels == 1), 100))
    rated = np.where(rng.random(400) < np.where(labels == 0, 0.05, 0.9), labels + 0.5, np.nan)
    color = np.where(labels == 2, 0, 1 + rng.integers(0, 2, 400))
    color[rng.random(400) < 0.1] = -1
    smokes = (rng.random(400) < 0.2 + 0.6 * (labels == 3)).astype(np.int64)
    island = np.where(labels == 1, 0, 1)
    island[np.flatnonzero(labels == 1)[:2]] = 1
    return content_of(
        np.column_stack([length, born, rated]),
        ["length", "born", "rated"],
        labels,
        dates=("born",),
        categories=(
            Levels("color", ("red", "green", "blue"), color),
            Levels("smokes", ("no", "yes"), smokes),
            Levels("island", ("Dream", "Biscoe"), island),
        ),
    )


def test_a_level_that_never_occurs_is_named_readably() -> None:
    labels = np.arange(90) // 30
    state = np.choose(labels, [np.arange(90) % 2, 2, 2 + np.arange(90) % 2])
    levels = ("AK", "AL", "DC", "WY")
    values = np.random.default_rng(0).normal(size=(90, 1))
    content = content_of(values, ["x"], labels, categories=(Levels("state", levels, state),))
    names = [found.name for found in explain(content)]
    assert names == ["state not DC", "mostly state: DC", "mostly state: WY"]


TABLES = {
    "iris": lambda: measured(load_iris(), 0.0),
    "iris with gaps": lambda: measured(load_iris(), 0.3),
    "wine": lambda: measured(load_wine(), 0.1),
    "mixed": mixed,
}


def rows_of(content: RunContent) -> list[Row]:
    """Return the table as a list of plain rows, None where a cell is missing."""
    rows: list[Row] = [{} for _ in range(content.n_rows)]
    for j, name in enumerate(content.feature_names):
        for row, value in zip(rows, content.values[:, j].tolist(), strict=True):
            row[name] = None if np.isnan(value) else value
            if name in content.dates and row[name] is not None:
                row[name] = str(np.datetime64(int(value), "D"))
    for column in content.categories:
        for row, code in zip(rows, column.codes.tolist(), strict=True):
            row[column.name] = None if code < 0 else column.levels[code]
    return rows


def number_of(words: str) -> float:
    return float(words.replace(",", "").replace("−", "-"))


def holds(condition: str, row: Row) -> bool | None:
    """Return whether a condition as the report writes it holds; None where it is not known."""
    if found := re.fullmatch(r"(\w+) (at least \S+) and (under \S+)", condition):
        both = [holds(f"{found[1]} {one}", row) for one in found.group(2, 3)]
        return None if None in both else all(both)
    if found := re.fullmatch(r"(\w+) is (missing|known)", condition):
        return (row[found[1]] is None) == (found[2] == "missing")
    found = re.fullmatch(r"(\w+) (under|at least|before|from|is not|is) (\S+)( on)?", condition)
    assert found, condition
    value, relation, words = row[found[1]], found[2], found[3]
    if value is None:
        return None
    if relation in ("is", "is not"):
        return (value == words) == (relation == "is")
    if relation in ("before", "from"):  # dates in ISO format sort as text
        return (str(value) < words) == (relation == "before")
    return (value < number_of(words)) == (relation == "under")  # type: ignore[operator]


def cards_of(page: str) -> list[str]:
    found = re.findall(r'<article class="card.*?</article>', page, re.DOTALL)
    return [re.sub(r"\s+", " ", card.replace("\u00a0", " ")) for card in found]


def plain(markup: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def mean_words(value: float, is_date: bool) -> str:
    if is_date:
        return str(np.datetime64(round(value), "D"))
    text = f"{value:.3g}" if abs(value) < 1000 else str(round(value))
    if abs(round(value)) >= 10_000:  # 1994 may be a year
        text = f"{round(value):,}"
    return text.replace("-", "−")


def percent_words(share: float) -> str:
    return f"{100 * share:.1f} %"


def check_line(content: RunContent, rows: list[Row], mine: list[bool], line: str) -> None:
    found = re.fullmatch(r"(.+?) (\S+(?: %)?) against (\S+(?: %)?)( known in .*)?", line)
    assert found, line
    name, inside, outside = found.group(1, 2, 3)
    column, _, level = name.removesuffix(" is missing").partition(": ")
    sides = []
    for side in (True, False):
        cells = [row[column] for row, here in zip(rows, mine, strict=True) if here == side]
        seen = [cell for cell in cells if cell is not None]
        if name.endswith(" is missing"):
            sides.append(percent_words(1 - len(seen) / len(cells)))
        elif level:
            sides.append(percent_words(seen.count(level) / len(seen)))
        else:
            numbers = content.values[np.array(mine) == side, content.feature_names.index(column)]
            sides.append(mean_words(np.nanmean(numbers), column in content.dates))
        if side:
            known = len(cells) if name.endswith(" is missing") else len(seen)
            expected = "" if known == len(cells) else f"known in {known} of {len(cells)} rows"
            assert (expected in line) if expected else ("known in" not in line)
    assert [inside, outside] == sides, line


@pytest.mark.parametrize("table", TABLES)
def test_every_statement_on_every_card_holds(table: str) -> None:
    content = TABLES[table]()
    rows = rows_of(content)
    cards = cards_of(render_report(content))
    assert len(cards) == content.n_clusters
    counted = 0
    for m, card in enumerate(cards):
        mine = (content.labels == m).tolist()
        words = plain(card)
        fact = r"((?:\w+ (?:under|at least|before|from|is)) [^()]*?) in ([\d,]+) of ([\d,]+) rows"
        for found in re.finditer(fact + r"[^(]*\(elsewhere ([\d,]+) of ([\d,]+)\)", words):
            condition = found[1].removeprefix("and ")
            expected = []
            for side in (True, False):
                said = [
                    holds(condition, row)
                    for row, here in zip(rows, mine, strict=True)
                    if here == side
                ]
                expected += [said.count(True), len(said) - said.count(None)]
            assert [int(number_of(found[k])) for k in (2, 3, 4, 5)] == expected, found[0]
            all_known = expected[1] + expected[3] == len(rows)
            assert ("rows in which it is known" in found[0]) != all_known, found[0]
            counted += 1
        rule = re.search(
            r"Rule (.*?): precision ([\d.]+ %) \(([\d,]+) of ([\d,]+) rows\), "
            r"coverage ([\d.]+ %) \(([\d,]+) of ([\d,]+)\)\.",
            words,
        )
        assert rule, words
        conditions = re.split(r", | and ", rule[1])
        assert 1 <= len(conditions) <= 3
        matched = [all(holds(one, row) for one in conditions) for row in rows]
        correct = sum(hit and here for hit, here in zip(matched, mine, strict=True))
        assert rule[2] == percent_words(correct / sum(matched))
        assert rule[5] == percent_words(correct / sum(mine))
        numbers = [int(number_of(rule[k])) for k in (3, 4, 6, 7)]
        assert numbers == [correct, sum(matched), correct, sum(mine)]
        assert correct / sum(matched) > 0.6, "no better than a guess"
        for line in re.findall(r'<th scope="row">(<bdi>.*?)</th>', card):
            check_line(content, rows, mine, plain(line))
            counted += 1
    assert counted >= 2 * content.n_clusters


def test_times_within_a_day_are_told_apart() -> None:
    days = 19_787 + np.r_[np.linspace(0.3, 0.4, 30), np.linspace(0.61, 0.8, 30)]
    content = content_of(days[:, None], ["at"], np.repeat([0, 1], 30), dates=("at",))
    morning, afternoon = explain(content)
    assert morning.facts == "at before 2024-03-05 14:00 in 30 of 30 rows (elsewhere 0 of 30)"
    assert afternoon.rule is not None
    assert afternoon.rule.conditions == ("at from 2024-03-05 14:00 on",)
    assert afternoon.rule.f1 == 1.0
    (difference,) = afternoon.differences
    assert difference.subject.words(difference.inside) == "2024-03-05 16:55"
    page = render_report(content)
    assert re.search(r'"dayParts":\s*\[1440\]', page)
    assert re.search(r'"origins":\s*\[19787.0\]', page)


def test_a_night_is_one_time_of_day_and_read_off_a_clock() -> None:
    rng = np.random.default_rng(0)
    minutes = np.r_[rng.integers(22 * 60, 26 * 60, 60), rng.integers(9 * 60, 17 * 60, 60)] % 1440
    table = {"start": [f"{m // 60:02d}:{m % 60:02d}" for m in minutes], "x": rng.normal(size=120)}
    encoder = TableEncoder().fit(table)
    described = describe(encoder, encoder.transform(table))
    times = {"dates": described.dates, "times_of_day": described.times_of_day}
    names = list(described.feature_names)
    content = content_of(described.values, names, np.repeat([0, 1], 60), **times)
    night, work = explain(content)
    last, first = (
        f"{m // 60:02d}:{m % 60:02d}" for m in (minutes[minutes < 180].max(), minutes[60:].min())
    )
    # Not late: with a day that ends at noon, before the longest pause, it would be early.
    assert re.fullmatch(r"start around (23|00):\d\d", night.name)
    assert work.rule is not None
    assert night.facts.startswith("start from ")
    assert night.facts.endswith(f" to {last} in 60 of 60 rows (elsewhere 0 of 60)")
    assert work.rule.conditions[0].startswith(f"start from {first} to before ")
    (difference,) = night.differences
    assert re.fullmatch(r"(23|00):\d\d", difference.subject.words(difference.inside))
    page = render_report(content)
    assert re.search(r'"timesOfDay":\s*\[0\]', page)


def test_merged_levels_are_said_to_be_rare() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 100)
    towns = np.where(labels == 0, "Bern", [f"town {i}" for i in range(200)])
    table = {"town": towns, "height": rng.normal(labels)}
    encoder = TableEncoder(kinds={"town": "category"}).fit(table)
    described = describe(encoder, encoder.transform(table))
    content = content_of(described.values, list(described.feature_names), labels)
    content = replace(content, categories=described.categories)
    _, rare = explain(content)
    assert "town is rare (100 levels) in 100 of 100 rows" in rare.facts


def test_a_condition_on_one_of_two_levels_names_it() -> None:
    labels = np.repeat([0, 1], 40)
    flag = Levels("flag", ("no", "yes"), labels.astype(np.int64))
    content = content_of(np.ones((80, 1)), ["x"], labels, categories=(flag,))
    rules = [found.rule for found in explain(content)]
    assert [rule and rule.conditions for rule in rules] == [("flag is no",), ("flag is yes",)]


def test_cuts_between_whole_numbers_are_whole() -> None:
    labels = np.repeat([0, 1], 40)
    found = explain(content_of(labels[:, None] * 1.0, ["count"], labels))[1]
    assert found.facts.startswith("count at least 1 in 40 of 40 rows")


def test_names_are_unique_and_short() -> None:
    for make in TABLES.values():
        names = [found.name for found in explain(make())]
        assert len(set(names)) == len(names)
        assert all(0 < len(name) <= 130 for name in names)
    one = content_of(np.zeros((5, 1)), ["x"], np.zeros(5, dtype=int))
    (only,) = explain(one)
    assert only.name == "all rows"
    assert only.rule is None


def test_a_cluster_between_the_others_is_named_by_what_is_medium() -> None:
    content = measured(load_iris(), 0.0)
    versicolor = explain(content)[1]
    assert versicolor.name == "medium petal_width_cm_, medium petal_length_cm_"
    assert versicolor.facts.startswith("petal_width_cm_ at least 0.8 and under 1.8 in 49 of 50")
    # The bars are those of means.
    assert [one.subject.name for one in versicolor.differences] == ["sepal_width_cm_"]


def test_a_wrong_value_leaves_a_cluster_medium() -> None:
    labels = np.arange(600) // 200
    x = 3.0 * labels + np.random.default_rng(0).normal(0.0, 0.5, 600)
    x[300] = 1e6
    names = [one.name for one in explain(content_of(x[:, None], ["x"], labels))]
    assert names == ["low x", "medium x", "high x"]


def test_an_end_of_the_interval_that_excludes_nothing_is_left_out() -> None:
    """Half of the other rows lie below the cluster, the others among its upper rows."""
    x = np.concatenate([np.linspace(0, 1, 50), np.linspace(5, 6, 25), np.linspace(5.5, 6, 25)])
    labels = np.repeat([0, 1, 0], [50, 25, 25])
    found = explain(content_of(x[:, None], ["x"], labels))[1]
    assert (found.name, found.facts) == (
        "medium x",
        "x at least 3 in 25 of 25 rows (elsewhere 25 of 75)",
    )


def test_long_levels_of_a_column_are_told_apart_in_names() -> None:
    levels = ("Strongly disagree", "Strongly agree", "Neutral")
    answers = Levels("Question 4. Do you agree that it is useful?", levels, np.arange(90) // 30)
    labels = answers.codes
    names = [
        one.name
        for one in explain(content_of(np.zeros((90, 0)), [], labels, categories=(answers,)))
    ]
    for name, level in zip(names, levels, strict=True):
        assert level in name


def test_counts_of_known_cells_elsewhere_are_said_to_be_such() -> None:
    values = np.repeat([5.0, 1.0, np.nan], 20)[:, None] + np.arange(60)[:, None] / 100
    found = explain(content_of(values, ["dose"], np.repeat([0, 1, 1], 20)))[0]
    words = "dose at least 3 in 20 of 20 rows in which it is known (elsewhere 0 of 20)"
    assert found.facts == words


def test_the_lower_of_two_values_is_low_also_if_its_mean_has_a_rounding_error() -> None:
    labels = np.repeat([0, 1, 2], [40, 80, 40])
    owns = np.repeat([0.0, 1.0, 0.0, 1.0], [40, 80, 26, 14])
    values = np.column_stack([owns, np.arange(160.0) % 7])
    found = explain(content_of(values, ["owns", "noise"], labels))[0]
    assert found.differences[0].inside != 0.0
    assert found.name.startswith("low owns")


def test_rows_that_are_spread_like_the_others_are_not_medium() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        values, labels = rng.standard_t(3, size=(200, 5)), rng.integers(0, 4, 200)
        found = explain(content_of(values, list("abcde"), labels))
        assert not any("medium" in one.name for one in found)


def test_clusters_that_nothing_tells_apart_have_different_names() -> None:
    labels = np.arange(40) % 2
    names = [found.name for found in explain(content_of(np.zeros((40, 1)), ["x"], labels))]
    assert names == ["like the others (0)", "like the others (1)"]


def test_a_few_known_cells_do_not_lead_a_card() -> None:
    """Two of 746 cells are known, and alike: nothing is known of the other 744 rows."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [746, 300])
    rating = np.where(rng.random(1046) < 0.3, 1, 0)
    rating[:744] = -1
    rating[744:746] = 1
    length = rng.normal(labels, 1.0)
    content = content_of(
        length[:, None], ["length"], labels, categories=(Levels("mpaa", ("PG", "R"), rating),)
    )
    first = explain(content)[0]
    names = [one.subject.name for one in first.differences]
    assert names[0] == "mpaa is missing"
    assert "mpaa: R" not in names
    assert "length" in names


def test_effects_are_the_near_ends_of_confidence_intervals() -> None:
    values = np.random.default_rng(3).normal(np.repeat([0.0, 2.0], [30, 70]))
    content = content_of(values[:, None], ["x"], np.repeat([0, 1], [30, 70]))
    a, b = values[:30], values[30:]
    pooled = np.sqrt((29 * a.var(ddof=1) + 69 * b.var(ddof=1)) / 98)
    d = (b.mean() - a.mean()) / pooled
    error = norm.ppf(0.975) * np.sqrt(1 / 30 + 1 / 70 + d * d / 200)
    found = [mine.differences[0].effect for mine in explain(content)]
    np.testing.assert_allclose(found, [error - d, d - error], rtol=1e-4)


def test_numbers_too_large_for_single_precision_have_rules() -> None:
    labels = np.arange(60) % 2
    values = 1e9 + labels + 0.1 * np.random.default_rng(0).random(60)
    rule = explain(content_of(values[:, None], ["x"], labels))[1].rule
    assert rule is not None
    assert (rule.precision, rule.coverage) == (1.0, 1.0)


def test_python_says_what_the_report_says() -> None:
    iris = load_iris()
    model = SGPMIC(3, committee=None, max_iter=2, n_inducing=10, random_state=0).fit(iris.data)
    found = profiles(model, iris.data)
    assert len({one["name"] for one in found}) == 3
    for m, one in enumerate(found):
        matched = np.ones(150, dtype=bool)
        for condition in one["rule"]["conditions"]:
            j, relation, cut = re.fullmatch(
                r"feature (\d) (under|at least) (\S+)", condition
            ).groups()
            low = iris.data[:, int(j)] < float(cut)
            matched &= low if relation == "under" else ~low
        mine = model.predict(iris.data) == m
        np.testing.assert_allclose(one["rule"]["precision"], mine[matched].mean())
        np.testing.assert_allclose(one["rule"]["coverage"], matched[mine].mean())


def test_numbers_are_those_of_the_table_to_the_last_bit() -> None:
    """Scaling and its inverse round; a value at a cut must not change sides."""
    rng = np.random.default_rng(0)
    table = {
        "length": np.round(rng.normal(207.0, 30.0, 300), 1),
        "tiny": rng.integers(1, 999, 300) / 1e9,
        "day": [f"2013-{i % 12 + 1:02d}-{i % 28 + 1:02d}" for i in range(300)],
        "color": [("red", "blue", "green")[i % 3] for i in range(300)],
    }
    encoder = TableEncoder().fit(table)
    encoded = encoder.transform(table)
    model = SGPMIC(2, committee=None, n_inducing=5, max_iter=1, random_state=0).fit(encoded)
    model.encoder_ = encoder
    found = describe_rows(model, encoded)
    days = np.array(table["day"], dtype="datetime64[D]").astype(float)
    expected = np.column_stack([table["length"], table["tiny"], days])
    np.testing.assert_array_equal(found.values, expected)
