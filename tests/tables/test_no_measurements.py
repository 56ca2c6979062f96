"""Columns that are not measurements: labels, indices, identifiers, times as numbers, gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine

from sgpmic import TableEncoder
from sgpmic.tables.columns import Column

RNG = np.random.default_rng(0)
N = 200
NUMBERS: dict[str, Any] = {name: RNG.normal(size=N) for name in "abc"}


def columns_of(table: dict[str, Any], **kinds: str) -> dict[str, Column]:
    encoder = TableEncoder(kinds=kinds).fit(table)
    return {column.name: column for column in encoder.columns_}


def labeled(load: Any, names: bool) -> dict[str, Any]:
    data = load()
    classes = data.target_names[data.target] if names else data.target + 1
    return {**dict(zip(data.feature_names, data.data.T, strict=True)), "cultivar": classes}


@pytest.mark.parametrize(
    ("load", "names"), [(load_wine, True), (load_wine, False), (load_iris, True)]
)
def test_a_label_among_the_measurements_is_left_out_and_said(load: Any, names: bool) -> None:
    table = labeled(load, names)
    found = columns_of(table)
    label = found.pop("cultivar")
    assert label.becomes == "left out: looks like a label"
    assert "of the variance of the other columns" in str(label.warning)
    assert ("or a number to keep it" in str(label.warning)) != names
    assert all(column.features for column in found.values())
    assert columns_of(table, cultivar="category")["cultivar"].features


def test_what_goes_along_with_the_others_is_no_label() -> None:
    cylinders = RNG.choice([4, 6, 8], size=N)
    power = {f"p{i}": cylinders * (i + 1) + RNG.normal(size=N) for i in range(4)}
    assert columns_of({**power, "cylinders": cylinders})["cylinders"].features
    island = np.array(["x", "y", "z"])[RNG.integers(3, size=N)]
    assert columns_of({**power, "island": island})["island"].features


def test_a_label_is_found_among_very_many_columns_with_gaps() -> None:
    rng = np.random.default_rng(1)
    classes = rng.permuted(np.arange(N) % 4)
    numbers = 2 * rng.normal(size=(4, 700))[classes] + rng.normal(size=(N, 700))
    numbers[rng.random(numbers.shape) < 0.02] = np.nan
    counts = rng.poisson(3, size=(N, 20))
    table = {f"g{j}": column for j, column in enumerate(numbers.T)}
    table |= {f"n{j}": column for j, column in enumerate(counts.T)}
    found = columns_of({**table, "group": classes})
    assert all(found[f"n{j}"].features for j in range(20))
    shares = []  # the ratio of mean squares within groups and in all
    for column in table.values():
        known = ~np.isnan(column)
        y, groups = column[known], classes[known]
        within = sum(((y[groups == g] - y[groups == g].mean()) ** 2).sum() for g in range(4))
        shares.append(max(0.0, 1 - within / (len(y) - 4) / y.var(ddof=1)))
    assert f"explains {100 * np.mean(shares):.0f} % of" in str(found["group"].warning)


@pytest.mark.parametrize("name", ["Unnamed: 0", "column_1", ""])
def test_an_index_without_a_name_is_an_id(name: str) -> None:
    index = np.sort(RNG.choice(60_000, size=N, replace=False))
    found = columns_of({name: index, **NUMBERS})[name]
    assert (found.kind, found.features) == ("id", ())
    assert columns_of({name: index, **NUMBERS}, **{name: "number"})[name].features
    assert columns_of({"income": index, **NUMBERS})["income"].features


@pytest.mark.parametrize("name", ["flight", "zip_code", "customerId", "account", "SKU"])
def test_identifiers_are_no_numbers(name: str) -> None:
    cells = RNG.integers(1, 6000, size=N)
    cells[:20] = cells[20:40]  # they repeat
    found = columns_of({name: cells, **NUMBERS})[name]
    assert found.becomes == "left out: an id"
    assert (found.warning or "").startswith("almost surely an id; declare what it is")
    assert columns_of({name: cells, **NUMBERS}, **{name: "number"})[name].features == (name,)


@pytest.mark.parametrize("name", ["date", "Date", "birthDate", "Datum", "sale_day"])
@pytest.mark.parametrize("written", [str, int])
def test_dates_as_numbers(name: str, written: Callable[[int], str | int]) -> None:
    days = np.datetime64("1974-12-20") + np.arange(N)
    cells = [written(int(str(day).replace("-", ""))) for day in days]
    encoder = TableEncoder().fit({name: cells, **NUMBERS})
    found = encoder.columns_[0]
    assert (found.kind, found.summary[:10]) == ("date", "1974-12-20")
    assert "read as dates (19750102 is 1975-01-02)" in (found.warning or "")
    gaps = {name: [None, *cells[1:]], **NUMBERS}
    decoded = encoder.inverse_transform(encoder.transform(gaps))[name].astype("datetime64[D]")
    np.testing.assert_array_equal(decoded[1:], days[1:])
    assert np.isnat(decoded[0])
    assert columns_of({name: cells, **NUMBERS}, **{name: "number"})[name].kind == "number"


@pytest.mark.parametrize("odd", [19750230, 17991231, 22010101, 99999999, 1975])
def test_other_numbers_are_no_dates(odd: int) -> None:
    cells = [19750100 + i % 28 + 1 for i in range(N)]
    columns = {"amount": cells, "date": [*cells[1:], odd], "day": np.arange(N) % 31, **NUMBERS}
    found = columns_of(columns)
    assert {found[name].kind for name in ("amount", "date", "day")} == {"whole"}
    commas = [f"{cell:,}".replace(",", ".") for cell in cells]
    assert columns_of({"date": commas, **NUMBERS})["date"].kind == "whole"


def test_a_column_that_is_mostly_missing_is_left_out() -> None:
    cells = np.where(np.arange(N) % 10 == 0, RNG.normal(size=N), np.nan)
    words = np.where(np.arange(N) % 10 == 0, "R", None)
    words[:5] = "PG"
    found = columns_of({"rare": cells, "mpaa": words, **NUMBERS})
    assert found["rare"].becomes == "left out: 90 % of its cells are missing"
    assert not found["mpaa"].features
    few = {"few": [1.0, 2.5, *[None] * 998], "full": RNG.normal(size=1000)}
    assert columns_of(few)["few"].becomes == "left out: > 99 % of its cells are missing"
    assert columns_of({"rare": cells, **NUMBERS}, rare="number")["rare"].features
    half = np.where(np.arange(N) % 2 == 0, cells, 1.0 + np.arange(N))
    assert columns_of({"half": half, **NUMBERS})["half"].features


def test_a_date_that_is_a_copy_is_summarized_as_dates() -> None:
    days = np.datetime64("2023-03-01") + np.arange(N)
    found = columns_of({"start": days, "end": days + 7, "x": RNG.normal(size=N)})
    assert found["end"].kind == "copy"
    assert found["end"].summary.startswith("2023-03-08 to ")
