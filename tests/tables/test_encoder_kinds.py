"""What columns are taken for: as people write them, against what they mean."""

from __future__ import annotations

import json
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpmic import TableEncoder
from sgpmic.tables.cell_text import (
    find_date_order,
    find_decimal,
    numeric_date,
    parse_date,
    parse_number,
    parse_time,
)
from sgpmic.tables.columns import Column, DateEncoding, NumberEncoding
from sgpmic.tables.conversions import cells_of
from sgpmic.tables.encoder import describe
from sgpmic.tables.errors import TableError
from sgpmic.tables.kinds import Plan, decide

FILLER = np.random.default_rng(1).normal(size=1000)


def decision_of(cells: list[Any], name: str = "x") -> Plan:
    return decide(name, cells_of(pa.array(cells)), 0.02)


def column_of(cells: list[Any], name: str = "x", **parameters: Any) -> Column:
    """Fit a table of this column, as often as needed, and one of numbers."""
    times = -(-20 // len(cells))
    table = {name: cells * times, "filler": FILLER[: len(cells) * times]}
    return TableEncoder(**parameters).fit(table).columns_[0]


@pytest.mark.parametrize(
    ("unit", "seconds"), [("days", 86_400), ("hours", 3600), ("minutes", 60), ("seconds", 1)]
)
def test_a_duration_has_a_unit(unit: str, seconds: int) -> None:
    numbers = np.arange(1.0, 21.0)
    cells = pd.to_timedelta(numbers * seconds, "s")
    encoder = TableEncoder().fit(pd.DataFrame({"wait": cells, "x": FILLER[:20]}))
    assert encoder.columns_[0].becomes == f"number of {unit}, unchanged"
    assert encoder.columns_[0].features == (f"wait ({unit})",)
    encoded = encoder.transform(pd.DataFrame({"wait": cells[:1], "x": [0.0]}))
    np.testing.assert_allclose(encoded, [[1, 0]])
    assert describe(encoder, encoded).feature_names == (f"wait ({unit})", "x")
    stored = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert stored.encodings_ == encoder.encodings_


@pytest.mark.parametrize(
    ("cells", "hours"),
    [
        (["25:10:00", "0:30:36", "12:00"], [25 + 1 / 6, 0.51, 12]),
        (["0 days 00:30:00", "1 day, 2:00:00", "-1 days +23:00:00"], [0.5, 26, -1]),
    ],
)
def test_times_that_reach_24_hours_are_durations(cells: list[str], hours: list[float]) -> None:
    encoder = TableEncoder().fit({"x": cells * 5})
    assert encoder.columns_[0].features == ("x (hours)",)
    np.testing.assert_allclose(encoder.transform({"x": cells})[:, 0], hours)
    with pytest.raises(TableError, match="holds durations, but also 'soon'"):
        TableEncoder().fit({"x": [*(f"{i}:30" for i in range(30)), "soon"]})


def test_times_below_24_hours_are_durations_if_declared_as_numbers() -> None:
    cells = ["0:30", "7:15", "23:00"] * 5
    assert column_of(cells).kind == "date"
    assert column_of(cells, kinds={"x": "number"}).features == ("x (hours)",)


def test_zero_has_no_logarithm_either() -> None:
    found = NumberEncoding(shift=1.0).encode(cells_of(pa.array([-2.0, -1.0, 0.0, np.e - 1.0])))
    np.testing.assert_allclose(found.values[:, 0], [np.nan, np.nan, 0.0, 1.0], atol=1e-15)
    assert found.outside == 2


@pytest.mark.parametrize(
    ("value", "when"),
    [
        (1000, datetime(1000, 1, 1)),
        (9999, datetime(9999, 1, 1)),
        (2013.5, None),
        (10_000, None),
        (20131231, datetime(2013, 12, 31)),
        (20131331, None),
        (20131231.5, None),
        (1e8, datetime(1973, 3, 3, 9, 46, 40)),
        (-1e9, datetime(1938, 4, 24, 22, 13, 20)),
        (1e11, datetime(1973, 3, 3, 9, 46, 40)),
        (1.1e14, None),
        (np.nan, None),
        (np.inf, None),
    ],
)
def test_numbers_as_dates(value: float, when: datetime | None) -> None:
    """Years, YYYYMMDD, and Unix time in seconds or milliseconds."""
    days = None if when is None else (when - datetime(1970, 1, 1)) / timedelta(days=1)
    assert numeric_date(float(value)) == pytest.approx(days)


def test_short_durations_are_in_minutes_or_seconds() -> None:
    for cells, unit in ((["0:05:30", "0:41:00"], "minutes"), (["0:00:05", "0:00:41"], "seconds")):
        encoder = TableEncoder().fit({"duration": cells * 5})
        assert encoder.columns_[0].features == (f"duration ({unit})",)
        found = encoder.transform({"duration": cells})[:, 0]
        np.testing.assert_allclose(found, [5.5, 41] if unit == "minutes" else [5, 41])


# ------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1.5", "-2", "3e2"], [1.5, -2, 300]),
        (["1,5", "-2", "3,25"], [1.5, -2, 3.25]),
        (["1,234.5", "12", "1,234,567"], [1234.5, 12, 1234567]),
        (["1.234,5", "12", "1.234.567"], [1234.5, 12, 1234567]),
        (["1 234", "1\u00a0234,5", "12"], [1234, 1234.5, 12]),
        (["1'234.5", "7"], [1234.5, 7]),
        (["12 %", "7.5%"], [12, 7.5]),
        (["$1,200", "-$3.50", "($4.00)"], [1200, -3.5, -4]),
        (["1.200 €", "3,50 €"], [1200, 3.5]),
        (["US$2,974", "US$ 1,312.50"], [2974, 1312.5]),
        (["R$ 12,50", "R$ 1.300,00"], [12.5, 1300]),
        (["300 kr", "1 200 kr"], [300, 1200]),
        (["Rs. 3,116", "Rs 12,400"], [3116, 12400]),
        (["12 kg", "13.5 kg"], [12, 13.5]),
        (["5.4 mmol/L", "<NA>", "6 mmol/L"], [5.4, np.nan, 6]),
        (["90 km/h", "1,250 km/h"], [90, 1250]),
        (["3.5 µg", "12 µg"], [3.5, 12]),
        (["NA", "?", "-", "unknown", "3", "4"], [np.nan] * 4 + [3, 4]),
        (["0,123", "0,456"], [0.123, 0.456]),
        (["1,234", "5,678"], [1234, 5678]),
        (["1.234", "5.678"], [1.234, 5.678]),
        (["−3", "+4"], [-3, 4]),
    ],
)
def test_numbers_as_people_write_them(texts: list[str], numbers: list[float]) -> None:
    decision = decision_of(texts)
    assert decision.kind in ("number", "whole")
    assert not decision.wrong
    np.testing.assert_array_equal(decision.values, numbers)


@pytest.mark.parametrize(
    "text", ["1,23,4", "1.2.3", "A12", "12x", "120/80", "3/Q1", "(3", "--3", "", ".", "1 23", "٣"]
)
def test_what_is_no_number(text: str) -> None:
    assert parse_number(text, ".") is None
    assert parse_number(text, ",") is None


@given(st.floats(-1e15, 1e15), st.sampled_from(".,"), st.sampled_from(["", " ", ",", "."]))
def test_what_is_written_is_read(value: float, decimal: str, group: str) -> None:
    if group == decimal:
        group = ""
    text = f"{value:,.4f}".replace(",", "g").replace(".", decimal).replace("g", group)
    assert parse_number(text, decimal) == float(f"{value:.4f}")


def test_a_comma_that_may_be_either_is_said() -> None:
    assert find_decimal(["1,234", "5,678"]) == (".", True)
    assert find_decimal(["1,234", "5,67"]) == (",", False)
    assert "thousands" in (column_of(["1,234", "5,678", "7,000"]).warning or "")


def test_a_few_are_not_none_of_them() -> None:
    few = ["yes"] * 3 + ["no"] * 997
    assert column_of(few, kinds={"x": "yes_no"}).summary == "yes < 1 %"
    assert column_of(few, kinds={"x": "category"}).summary == "2 levels: no > 99 %, yes < 1 %"
    assert column_of(["yes", "no"]).summary == "yes 50 %"


# ------------------------------------------------------------------------------- dates


@pytest.mark.parametrize(
    ("text", "day_first", "moment"),
    [
        ("2024-12-31", False, (2024, 12, 31)),
        ("2024/2/3", True, (2024, 2, 3)),
        ("31/12/2024", True, (2024, 12, 31)),
        ("12/31/2024", False, (2024, 12, 31)),
        ("3.4.2024", True, (2024, 4, 3)),
        ("3.4.24", True, (2024, 4, 3)),
        ("3/4/69", False, (1969, 3, 4)),
        ("3 Jan 2024", False, (2024, 1, 3)),
        ("03-Jan-24", False, (2024, 1, 3)),
        ("Wed, 3rd January 2024", False, (2024, 1, 3)),
        ("January 3, 2024", False, (2024, 1, 3)),
        ("Sept 2024", False, (2024, 9, 1)),
        ("2024-05", False, (2024, 5, 1)),
        ("2024-12-31T23:59:30", False, (2024, 12, 31, 23, 59, 30)),
        ("2024-12-31 23:59Z", False, (2024, 12, 31, 23, 59)),
        ("2024-12-31 23:30+01:00", False, (2024, 12, 31, 22, 30)),
        ("12/31/2024 11:05 PM", False, (2024, 12, 31, 23, 5)),
        ("3 Jan 2024, 12:00 am", False, (2024, 1, 3)),
    ],
)
def test_dates_as_people_write_them(
    text: str, day_first: bool, moment: tuple[int, int, int]
) -> None:
    expected = datetime(*moment, tzinfo=UTC).timestamp() / 86_400
    assert parse_date(text, day_first) == pytest.approx(expected, abs=1e-9)
    assert decision_of([text, "2020-01-01"]).kind == "date"


@pytest.mark.parametrize(
    "text", ["31/31/2024", "2024-13-01", "2024-02-30", "3 Foo 2024", "1.2", ""]
)
def test_what_is_no_date(text: str) -> None:
    assert parse_date(text, True) is None


def test_times_of_the_day() -> None:
    assert parse_time("06:00") == 0.25
    assert parse_time("6:00 pm") == 0.75
    assert parse_time("24:10") is None
    assert column_of(["06:00", "18:30", "23:00"]).features == ("x (day, sine)", "x (day, cosine)")


def test_the_whole_column_says_whether_the_day_comes_first() -> None:
    assert find_date_order(["01/02/2024", "31/12/2024"]) == (True, False)
    assert find_date_order(["01/02/2024", "12/31/2024"]) == (False, False)
    assert find_date_order(["01/02/2024"]) == (False, True)
    assert find_date_order(["01.02.2024"]) == (True, False)
    column = column_of(["01/02/2024", "03/04/2024"])
    assert "the day or the month comes first" in (column.warning or "")
    with pytest.raises(TableError, match="holds dates, but also '12/31/2024'"):
        column_of([*(f"{day}/12/2024" for day in range(13, 32)), "12/31/2024"])


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)))
def test_typed_dates_are_written_dates(moment: datetime) -> None:
    moment = moment.replace(microsecond=0)
    expected = (moment - datetime(1970, 1, 1)).total_seconds() / 86_400
    for column in (pa.array([moment]), pa.array([moment.isoformat()]), pa.array([f"{moment}"])):
        days = DateEncoding().read(cells_of(column))
        assert days[0] == pytest.approx(expected, abs=1e-9)


# ------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["yes", "no", "Yes "], "yes_no"),
        (["Y", "N", "y"], "yes_no"),
        (["TRUE", "false", "true"], "yes_no"),
        ([True, False, None], "yes_no"),
        ([0, 1, 1], "yes_no"),
        (["0", "1", "1"], "yes_no"),
        (["ja", "nein", "ja"], "yes_no"),
        (["m", "f", "f"], "category"),
        (["low", "High", "medium"], "ordered"),
        (["small", "large", "small"], "ordered"),
        (["1st", "3rd", "2nd"], "ordered"),
        (["agree", "strongly agree", "neutral"], "ordered"),
        (["none", "mild", "severe"], "ordered"),
        (["red", "blue", "green"], "category"),
        (["S", "M", "S"], "category"),
        (["01234", "05678", "01234"], "category"),
        ([3, 1, 2], "whole"),
        ([3.0, 1.0, None], "whole"),
        (["3", "1", "2"], "whole"),
        ([1.5, 2.5, 3.5], "number"),
        (["x", "x", "X "], "constant"),
        ([7, 7, None], "constant"),
        (["NA", "", "-"], "empty"),
        ([None, None], "empty"),
        ([[1], [2], [1]], "text"),
    ],
)
def test_kinds(cells: list[Any], kind: str) -> None:
    assert column_of(cells).kind == kind


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("x", list(range(100, 140)), "id"),
        ("x", [str(i) for i in range(40)], "id"),
        ("x", list(range(40, 0, -1)), "id"),
        ("patient_no", [100 + 3 * i % 40 for i in range(40)], "id"),
        ("year", list(range(1980, 2020)), "whole"),
        ("x", [3 * i % 41 for i in range(40)], "whole"),
        ("customer_id", [3 * i % 41 for i in range(40)], "id"),
        ("customerId", [3 * i % 41 for i in range(40)], "id"),
        ("x", [f"A{i}" for i in range(40)], "id"),
        ("x", [f"00000000-0000-4000-8000-{i:012d}" for i in range(40)], "id"),
        ("x", [f"the {i} words of a sentence" for i in range(40)], "text"),
        ("x", [f"word{i % 30}" for i in range(40)], "text"),
        ("x", [str(i) for i in range(9)], "whole"),
    ],
)
def test_ids_and_text(name: str, cells: list[Any], kind: str) -> None:
    encoder = TableEncoder().fit({name: cells, "filler": FILLER[: len(cells)]})
    assert encoder.columns_[0].kind == kind
    assert bool(encoder.columns_[0].features) == (kind == "whole")
    if kind == "id":
        assert encoder.columns_[0].becomes.startswith("left out: an id")
        assert "id" in (encoder.columns_[0].warning or "")


def test_numbers_that_stand_for_missing_cells() -> None:
    ages = list(range(20, 60))
    column = column_of([*ages, 999, 999])
    assert column.n_missing == 2
    assert "999 (2 cells) is taken as missing" in (column.warning or "")
    assert column_of([*ages, 999, 999], kinds={"x": "whole"}).n_missing == 0
    assert column_of([*ages, 999, 999], kinds={"x": "log"}).n_missing == 2  # a code all the same
    for sentinel in ([999], [99, 99], [-1, -1]):  # might be true: named, and kept
        column = column_of([*ages, *sentinel])
        assert column.n_missing == 0
        assert f"{sentinel[0]} (" in (column.warning or "")
    # Four times the range away: said, not done.
    column = column_of([*range(0, 201, 5), 999, 999])
    assert column.n_missing == 0
    assert "999 (2 cells)" in (column.warning or "")
    assert column_of([*ages, 1000, 1000]).warning is None
    assert column_of([*range(0, 900, 40), 999, 999]).warning is None


@pytest.mark.parametrize(
    ("cells", "match"),
    [
        ([*map(str, range(9)), "many"], r"holds numbers, but also 'many' \(row 10\): correct"),
        (
            [*(f"2024-01-0{i}" for i in range(1, 9)), "later"],
            r"holds dates, but also 'later' \(row 9\)",
        ),
        ([1.0, 2.0, np.inf], r"too large numbers, 'inf' \(row 3\)"),
        ([1.0, 2.0, 1e200], r"too large numbers, '1e\+200' \(row 3\)"),
        (["5 %", "6", "7 %"], r"different units \(%, no unit\)"),
    ],
)
def test_what_is_wrong_with_a_column(cells: list[Any], match: str) -> None:
    with pytest.raises(TableError, match=match):
        TableEncoder().fit({"x": cells})
    encoder = TableEncoder(drop=["x"]).fit({"x": cells, "filler": FILLER[: len(cells)]})
    assert encoder.columns_[0].becomes == "left out: dropped"


@pytest.mark.parametrize("cells", [["1,5", "2,5"], ["31/12/2024", "30/12/2024"], ["low", "high"]])
def test_a_dropped_column_is_described_as_any_other(cells: list[str]) -> None:
    column, dropped = column_of(cells), column_of(cells, drop=["x"])
    assert dropped.becomes == "left out: dropped"
    assert (dropped.kind, dropped.summary) == (column.kind, column.summary)


def test_numbers_in_a_unit_that_is_not_that_of_fit_are_not_read() -> None:
    encoder = TableEncoder().fit({"load": ["300ms", "310ms", "295 ms", "330ms"], "y": range(4)})
    state = encoder.to_dict()
    stored = TableEncoder.from_dict(state)
    new = {"load": ["305", "305 ms"], "y": [1, 2]}
    np.testing.assert_array_equal(stored.transform(new)[:, 0], 305)
    with pytest.raises(TableError, match=r"'0.3 s' \(row 2\)"):
        stored.transform({"load": ["305 ms", "0.3 s"], "y": [1, 2]})
    del state["columns"][0]["encoding"]["unit"]  # as in 1.0.0rc1
    np.testing.assert_array_equal(TableEncoder.from_dict(state).transform(new)[:, 0], 305)
    with pytest.raises(TableError, match=r"different units \(g, kg\)"):
        TableEncoder(kinds={"x": "number"}).fit({"x": ["900 g", "1.5 kg", "2"]})
    assert column_of(["1 year", "2 years", "3 years"]).kind == "whole"


def test_one_error_names_all_columns_that_are_wrong() -> None:
    cells = [*map(str, range(19)), "many"]
    table = {"a": cells, "b": list(range(20)), "c": ["1 %"] * 10 + ["2"] * 10, "d": cells}
    with pytest.raises(TableError, match=r"^3 columns .*'a' .*; 'c' .*; 'd' ") as caught:
        TableEncoder().fit(table)
    assert "'b'" not in str(caught.value)


def test_periods_are_dates_and_intervals_are_levels() -> None:
    """Arrow has neither: it would read months since 1970, and pairs of numbers."""

    def found(cells: Any) -> tuple[str, str]:
        column = TableEncoder().fit({"x": cells, "filler": FILLER[:40]}).columns_[0]
        return column.kind, column.summary

    months = pd.period_range("2020-01", periods=40, freq="M")
    for cells in (months, pd.Series(months)):
        assert found(cells) == ("date", "2020-01-01 to 2023-04-01")
    bins = pd.cut(np.arange(40.0), [-1, 9, 19, 39])
    assert found(pd.Series(bins)) == ("ordered", "(-1, 9] < (9, 19] < (19, 39]")
    for cells in (pd.IntervalIndex(bins), pd.Series(pd.IntervalIndex(bins))):
        levels = "3 levels: (19, 39] 50 %, (-1, 9] 25 %, (9, 19] 25 %"
        assert found(cells) == ("category", levels)


def test_ranges_of_whole_numbers_have_all_digits() -> None:
    assert column_of([19750102, 19891128] * 8).summary == "19750102 to 19891128"
    assert column_of([0.5, 1234567.8] * 8).summary == "0.5 to 1234568"


def test_columns_can_be_declared() -> None:
    assert column_of([1, 2, 3], kinds={"x": "category"}).features == ("x=1", "x=2", "x=3")
    assert column_of(["a", "b", "c"], kinds={"x": "text"}).becomes == "left out: declared as text"
    assert column_of(["20240101", "20240301"], kinds={"x": "date"}).summary.startswith("2024-01-01")
    assert column_of([2020, 2024], kinds={"x": "date"}).summary == "2020-01-01 to 2024-01-01"
    order = ("ordered", ("bad", "so so", "nice"))
    assert column_of(["nice", "Bad", "so  so"], kinds={"x": order}).summary == "bad < so so < nice"
    assert column_of([30, 9, 100], kinds={"x": "ordered"}).summary == "9 < 30 < 100"
    ids = list(range(40))
    encoder = TableEncoder(kinds={"x": "number"}).fit({"x": ids})
    np.testing.assert_array_equal(encoder.transform({"x": ids})[:, 0], ids)


@pytest.mark.parametrize(
    ("kinds", "match"),
    [
        ({"x": "number"}, r"declared as number, but has 'a' \(row 1 and 19 more\)"),
        ({"x": "date"}, "declared as date"),
        ({"x": "yes_no"}, "declared as yes/no"),
        ({"x": "ordered"}, "say the order"),
        ({"x": ("ordered", ("a", "c"))}, "the order has no 'b'"),
    ],
)
def test_declarations_that_cells_do_not_bear_out(kinds: dict[str, Any], match: str) -> None:
    with pytest.raises(TableError, match=match):
        column_of(["a", "b"], kinds=kinds)


@pytest.mark.parametrize(
    "parameters",
    [
        {"kinds": {"x": "color"}},
        {"kinds": {"x": ("number", ("a",))}},
        {"kinds": {"y": "number"}},
        {"drop": ["y"]},
        {"drop": "x"},
        {"log": ["y"]},
        {"log": "yes"},
        {"min_frequency": 0.5},
        {"min_frequency": True},
    ],
)
def test_parameters_that_make_no_sense(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"kinds|no column|drop|log|min_frequency"):
        column_of(["a", "b"], **parameters)


# ------------------------------------------------------------------------------- copies


def test_copies_are_left_out() -> None:
    rng = np.random.default_rng(0)
    celsius = rng.normal(10, 5, 50)
    letters = rng.choice(list("abc"), 50)
    names = {"a": "Anna", "b": "Berta", "c": "Carl"}
    table = {
        "celsius": celsius,
        "fahrenheit": 32 + 1.8 * celsius,
        "minus": -celsius,
        "rounded": np.round(celsius, 1),
        "letter": letters,
        "name": [names[letter] for letter in letters],
        "number": ["abc".index(letter) for letter in letters],
        "other": rng.normal(size=50),
    }
    encoder = TableEncoder().fit(table)
    became = {column.name: column.becomes for column in encoder.columns_}
    copies = {name: text for name, text in became.items() if "copy" in text}
    assert copies == {
        "fahrenheit": "left out: a copy of 'celsius'",
        "minus": "left out: a copy of 'celsius'",
        "name": "left out: a copy of 'letter'",
        "number": "left out: a copy of 'letter'",
    }
    declared = TableEncoder(kinds={"minus": "number"}).fit(table)
    assert declared.columns_[2].features == ("minus",)


def test_a_copy_has_the_same_gaps() -> None:
    values = np.random.default_rng(0).normal(size=30)
    gappy = np.where(np.arange(30) == 3, np.nan, values)
    encoder = TableEncoder().fit({"a": values, "b": gappy, "c": 2 * gappy})
    assert [column.kind for column in encoder.columns_] == ["number", "number", "copy"]
    assert encoder.columns_[2].becomes == "left out: a copy of 'b'"


def test_pandas_carries_an_order() -> None:
    grades = pd.Categorical(["C", "A", "B"] * 5, categories=["C", "B", "A"], ordered=True)
    column = TableEncoder().fit(pd.DataFrame({"grade": grades})).columns_[0]
    assert (column.kind, column.summary) == ("ordered", "C < B < A")


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (lambda i: f"{100 + i % 80}/{160 - i % 80}", "text"),
        (lambda i: f"{i % 23 + 1}. Mai 2023", "category"),
        (lambda i: f"K-{1000 + i}", "id"),
        (lambda i: f"0{1000 + i % 24}", "category"),
        (lambda i: f"ward {i % 24}", "category"),
    ],
)
def test_words_with_digits(write: Any, kind: str) -> None:
    column = column_of([write(i) for i in range(120)])
    assert column.kind == kind
    assert ("almost surely an id" in str(column.warning)) == (kind == "id")


def test_levels_of_a_known_scale_keep_their_spelling() -> None:
    table = {"x": ["Low", "HIGH", "low", "Low", "Medium"] * 5, "filler": FILLER[:25]}
    encoder = TableEncoder().fit(table)
    back = encoder.inverse_transform(encoder.transform(table))["x"].tolist()
    assert back == ["Low", "HIGH", "Low", "Low", "Medium"] * 5


@pytest.mark.parametrize(("zone", "hour"), [("America/New_York", 0), ("Nowhere/X", 5)])
def test_times_are_those_of_the_clock_in_their_zone(zone: str, hour: int) -> None:
    seconds = 86_400 * np.arange(40) + 5 * 3600  # midnights in New York
    days = cells_of(pa.array(seconds, pa.timestamp("s", zone))).values
    np.testing.assert_allclose(days, np.arange(40) + hour / 24)


def test_times_below_24_hours_are_durations_if_the_name_says_so() -> None:
    cells = ["0:05:30", "1:30:00", "23:00:00"]
    decision = decision_of(cells, "call_duration")
    assert decision.kind == "number"
    np.testing.assert_allclose(decision.values, [5.5 / 60, 1.5, 23])
    assert decision_of(cells, "start").kind == "date"
    assert column_of(["brief", "endless"], "duration").kind == "category"


@pytest.mark.parametrize("word", ["no answer", "Don't know", "Prefer not to say"])
def test_no_answer_is_missing_on_a_scale(word: str) -> None:
    cells = ["Disagree", "Neutral", word, "Strongly agree"] * 5
    encoder = TableEncoder().fit({"q": cells, "filler": FILLER[:20]})
    assert (encoder.columns_[0].kind, encoder.columns_[0].n_missing) == ("ordered", 5)
    with warnings.catch_warnings():  # such as about a level not seen in fit
        warnings.simplefilter("error")
        encoded = encoder.transform({"q": cells, "filler": FILLER[:20]})
    assert np.isnan(encoded[:, 0]).sum() == 5


def test_a_mistake_in_times_of_day_makes_no_durations() -> None:
    times = [f"{i % 24:02d}:{i:02d}" for i in range(60)]
    assert TableEncoder().fit({"at": [*times[:-1], "24:00"]}).columns_[0].kind == "date"
    with pytest.raises(TableError, match="holds dates, but also '25:10'"):
        TableEncoder().fit({"at": [*times[:-1], "25:10"]})


def test_a_declared_number_names_the_cell_that_looks_like_a_duration() -> None:
    numbers = [f"{i / 7:.3f}" for i in range(59)]
    with pytest.raises(TableError, match="'12:30'"):
        TableEncoder(kinds={"x": "number"}).fit({"x": [*numbers, "12:30"]})
