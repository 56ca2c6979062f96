"""Encoded rows in the user's words: the table that went in comes out again."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgpmic.tables.conversions import with_plain_numbers
from sgpmic.tables.encoder import TableEncoder, describe

N = 40
RNG = np.random.default_rng(0)


def mixed() -> pa.Table:
    return pa.table(
        {
            "size": pa.array(
                [None if i == 3 else float(x) for i, x in enumerate(RNG.normal(size=N))]
            ),
            "income": np.exp(3.0 * RNG.normal(size=N)),
            "color": [["red", "green", "blue", None][i % 4] for i in range(N)],
            "sex": [["f", "m"][i % 3 == 0] for i in range(N)],
            "smokes": [["yes", "no", None][i % 3] for i in range(N)],
            "grade": [["low", "medium", "high"][i // 2 % 3] for i in range(N)],
            "when": [datetime.date(2019, 1, 1) + datetime.timedelta(days=61 * i) for i in range(N)],
            "clock": [f"{i % 24:02d}:30" for i in range(N)],
            "row": [f"r{i}" for i in range(N)],
        }
    )


def test_numbers_and_levels_come_back() -> None:
    table = mixed()
    encoder = TableEncoder(log=["income"]).fit(table)
    found = describe(encoder, encoder.transform(table))
    assert found.feature_names == ("size", "income", "when", "clock")
    assert (found.dates, found.times_of_day) == (("when", "clock"), ("clock",))
    numbers = dict(zip(found.feature_names, found.values.T, strict=True))
    for name in ("size", "income"):
        np.testing.assert_allclose(numbers[name], table.column(name).to_numpy(), rtol=1e-12)
    days = table.column("when").cast(pa.int32()).to_numpy()
    np.testing.assert_allclose(numbers["when"], days)
    np.testing.assert_allclose(24 * numbers["clock"], np.arange(N) % 24 + 0.5)
    for column in found.categories:
        words = [None if code < 0 else column.levels[code] for code in column.codes]
        assert words == table.column(column.name).to_pylist()
    assert [column.name for column in found.categories] == ["color", "sex", "smokes", "grade"]


def test_joined_levels_stay_joined_and_unseen_ones_are_missing() -> None:
    kinds = ["a"] * 30 + ["b"] * 26 + ["c", "d", "e", "f"]
    encoder = TableEncoder(min_frequency=0.04).fit({"kind": kinds})
    with pytest.warns(match="'z'"):
        encoded = encoder.transform({"kind": ["a", "c", "f", "z", None]})
    (column,) = describe(encoder, encoded).categories
    words = ["" if code < 0 else column.levels[code] for code in column.codes]
    assert words == ["a", "rare (5 levels)", "rare (5 levels)", "", ""]


class TestPlainNumbers:
    def test_columns_of_plain_numbers_become_numbers(self) -> None:
        table = pa.table(
            {
                "number": ["1.5", " 2 ", "", "NA", "-3e2"],
                "word": ["1", "2", "x", "4", "5"],
                "code": ["01067", "20095", "1", "2", "3"],
                "percent": ["1 %"] * 5,
                "infinite": ["1", "inf", "2", "3", "4"],
                "nothing": [""] * 5,
                "kept": ["1"] * 5,
            }
        )
        found = with_plain_numbers(table, ["kept"])
        assert found.column("number").to_pylist() == [1.5, 2.0, None, None, -300.0]
        for name in table.column_names[1:]:
            assert found.column(name).equals(table.column(name)), name

    @given(st.lists(st.text("0123456789.,-+eE %NA_xinf", max_size=6), min_size=1, max_size=8))
    def test_what_becomes_a_number_is_what_python_reads(self, cells: list[str]) -> None:
        found = with_plain_numbers(pa.table({"a": pa.array(cells, pa.string())})).column("a")
        if pa.types.is_string(found.type):
            return
        for cell, number in zip(cells, found.to_pylist(), strict=True):
            missing = cell.strip().lower() in ("", "na", "nan", "n/a", "null", "#n/a")
            assert number is None if missing else number == float(cell)
