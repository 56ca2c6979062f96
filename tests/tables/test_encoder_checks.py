"""scikit-learn's own checks of a transformer, and any table that may come."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import parametrize_with_checks

from sgpmic import TableEncoder
from sgpmic.tables.errors import TableError


@parametrize_with_checks([TableEncoder()])
def test_sklearn_convention(estimator: TableEncoder, check: Callable[[TableEncoder], None]) -> None:
    """Every check; none is expected to fail."""
    check(estimator)


# ------------------------------------------------------------------------------- any table


def check_refusal(error: ValueError) -> None:
    """Hold a refused table to one sentence of ours, or scikit-learn's about an empty one."""
    assert isinstance(error, TableError) or "minimum of 1" in str(error)


NUMBERS = st.floats(width=64)
WORDS = st.text(max_size=8)
WRITTEN = st.one_of(
    st.sampled_from(["NA", "-", "?", "", "null", "none", "999", "inf", "(", "1e999", "0001"]),
    NUMBERS.map(str),
    st.integers().map(lambda i: f"{i:,}"),
    st.integers().map(lambda i: f"{i}%"),
    st.integers().map(lambda i: f"€{i},5"),
    st.dates().map(str),
    st.dates().map(lambda day: f"{day.day}/{day.month}/{day.year}"),
    st.datetimes().map(lambda when: f"{when.day} {when:%b} {when.year} {when:%H:%M}"),
    st.sampled_from(["yes", "No", "TRUE", "f", "low", "medium", "High", "2nd", "{}", "[1]"]),
    WORDS,
)
CELLS = (
    NUMBERS,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2),
    st.booleans(),
    st.dates(date(1678, 1, 1), date(2261, 1, 1)),
    st.datetimes(datetime(1678, 1, 1), datetime(2261, 1, 1)),
    st.times(),
    st.timedeltas(-timedelta(days=10_000), timedelta(days=10_000)),
    WRITTEN,
    WORDS,
    st.sampled_from("abc"),
    st.binary(max_size=3),
    st.lists(st.integers(0, 3), max_size=2),
    st.none(),
)


@st.composite
def columns(draw: st.DrawFn, n_rows: int) -> list[Any]:
    cells = draw(st.sampled_from(CELLS))
    if draw(st.booleans()):
        cells = st.one_of(st.none(), cells)
    if draw(st.booleans()):  # few values, so that they repeat
        cells = st.sampled_from(draw(st.lists(cells, min_size=1, max_size=3)))
    return draw(st.lists(cells, min_size=n_rows, max_size=n_rows))


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    n_rows = draw(st.integers(1, 14))
    names = draw(
        st.lists(st.one_of(WORDS, st.sampled_from(["id", "a=b"])), unique=True, max_size=4)
    )
    return {name: draw(columns(n_rows)) for name in names}


@settings(max_examples=300)
@given(tables(), st.sampled_from(["auto", True, False]))
def test_any_table_goes_through_or_gets_one_sentence(
    table: dict[str, list[Any]], log: str | bool
) -> None:
    with warnings.catch_warnings(action="error"):
        encoder = TableEncoder(log=log)
        try:
            encoded = encoder.fit_transform(table)
        except ValueError as error:
            check_refusal(error)
            return
        assert encoded.shape == (encoder.columns_[0].n_rows, len(encoder.source_))
        assert not np.isinf(encoded).any()
        # Nothing is encoded that says nothing.
        assert (np.nanmax(encoded, axis=0) > np.nanmin(encoded, axis=0)).all()
        names = encoder.get_feature_names_out()
        assert len(set(names)) == len(names) == len(encoder.source_)
        for j, column in enumerate(encoder.columns_):
            gaps = np.isnan(encoded[:, encoder.source_ == j])
            assert gaps.shape[1] == len(column.features)
            if column.features:
                assert column.n_missing == gaps[:, 0].sum()
                assert (gaps == gaps[:, :1]).all()
        stored = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
        np.testing.assert_array_equal(stored.transform(table), encoded)
        assert stored.columns_ == encoder.columns_


@settings(max_examples=200)
@given(tables(), tables())
def test_any_other_table_can_follow(table: dict[str, Any], other: dict[str, Any]) -> None:
    other = {name: cells for name, cells in zip(table, other.values(), strict=False)}
    with warnings.catch_warnings(action="ignore"):
        try:
            encoded = TableEncoder().fit(table).transform(other)
        except ValueError as error:
            check_refusal(error)
            return
    assert not np.isinf(encoded).any()
