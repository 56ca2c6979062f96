"""The cells of one column, of any Arrow type, in the few forms that kinds are decided from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sgpmic._types import Floats, Ints
from sgpmic.tables import date_text, number_text
from sgpmic.tables.conversions import BadCells, Codes, cast_or_none, plain, text_of, to_numbers
from sgpmic.tables.levels import MISSING, MISSING_IN_NUMBERS, truth_of

_PER_DAY = {"s": 86_400, "ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}


@dataclass(frozen=True)
class Cells:
    """The cells of a column."""

    #: By the column's type: 'number', 'bool', 'date', 'time', 'text', 'empty', or 'other', which
    #: is lists, records and bytes.
    holds: str
    #: Numbers (also of booleans), days since 1970 or shares of a day; NaN where missing. All NaN
    #: for text.
    values: Floats
    texts: tuple[str, ...]  # the different ones of a column of text, without white space around
    codes: Codes  # the index of every cell's text, -1 for an empty cell
    order: tuple[str, ...] | None = None  # levels from low to high where the type carries them
    #: What was read already: reading text takes long, and is asked for several times.
    memo: dict[Any, Floats | BadCells] = field(default_factory=dict, compare=False, repr=False)

    def read_numbers(self, decimal: str = ".") -> Floats | BadCells:
        """Return numbers, NaN where missing, or the cells that are not numbers."""
        if self.holds in ("number", "bool", "empty"):
            return self.values
        how = ("number", decimal)
        if self.holds == "text" and decimal == "." and how not in self.memo:
            plain = cast_or_none(pa.array(self.texts, pa.string()), MISSING_IN_NUMBERS)
            if plain is not None:
                numbers = plain.to_numpy(zero_copy_only=False)
                self.memo[how] = np.append(numbers, np.nan)[self.codes]
        return self._read(how, partial(number_text.parse_number, decimal=decimal))

    def read_dates(self, day_first: bool) -> Floats | BadCells:
        """Return days since 1970, NaN where missing, or the cells that are not dates."""
        if self.holds in ("date", "empty"):
            return self.values

        def parse(text: str) -> float | None:
            days = date_text.parse_date(text, day_first)
            if days is None:
                value = number_text.parse_number(text)
                days = None if value is None else date_text.number_as_date(value)
            return days

        if self.holds == "number":
            # None becomes NaN.
            days = np.asarray([date_text.number_as_date(x) for x in self.values.tolist()], float)
            bad = np.flatnonzero(np.isnan(days) & ~np.isnan(self.values))
            return days if not len(bad) else self._bad_values(bad)
        return self._read(("date", day_first), parse)

    def read_times(self, digits: bool = True) -> Floats | BadCells:
        """Return times as shares of the day, NaN where missing, or the cells that are not times.

        With ``digits``, numbers are times as well: 1345 is 13:45.
        """
        if self.holds in ("time", "empty"):
            return self.values
        if self.holds == "number" and digits:
            bad = np.flatnonzero(~date_text.is_clock(self.values) & ~np.isnan(self.values))
            return self._bad_values(bad) if len(bad) else date_text.clock_as_share(self.values)

        def parse(text: str) -> float | None:
            number = number_text.parse_number(text) if digits else None
            if number is None or not number.is_integer():  # 628.0 is one where others are missing
                return date_text.parse_time(text)
            value = np.asarray(number)
            return float(date_text.clock_as_share(value)) if date_text.is_clock(value) else None

        return self._read(("time", digits), parse)

    def read_levels(self, kept: tuple[str, ...] = ()) -> tuple[tuple[str, ...], Codes]:
        """Return the different levels as text, and every cell's index there, -1 where missing.

        ``kept`` are keys of levels that do not stand for a missing cell here, though elsewhere
        they do.
        """
        if self.holds == "text":
            words = MISSING.difference(kept)
            missing = np.asarray([text.lower() in words for text in self.texts] + [True])
            return self.texts, np.where(missing[self.codes], -1, self.codes)
        present = ~np.isnan(self.values)
        found, inverse = np.unique(self.values[present], return_inverse=True)
        codes = np.full(len(self.values), -1)
        codes[present] = inverse
        return tuple(_value_text(self.holds, value) for value in found.tolist()), codes

    def read_yes_no(self) -> Floats | BadCells:
        """Return 1 for yes and 0 for no, NaN where missing, or cells that are neither."""
        if self.holds in ("number", "bool", "empty"):
            bad = np.flatnonzero(~np.isin(self.values, (0.0, 1.0)) & ~np.isnan(self.values))
            return self.values if not len(bad) else self._bad_values(bad)
        return self._read(("yes_no",), truth_of)

    def _read(
        self, how: tuple[Any, ...], parse: Callable[[str], float | None]
    ) -> Floats | BadCells:
        """Return the parsed cells of a column of text; those of other columns are bad, if any."""
        if self.holds != "text":
            rows = np.flatnonzero(~np.isnan(self.values))
            return self._bad_values(rows) if len(rows) else self.values
        if how not in self.memo:
            self.memo[how] = self._parsed(parse)
        return self.memo[how]

    def _parsed(self, parse: Callable[[str], float | None]) -> Floats | BadCells:
        values = np.full(len(self.texts) + 1, np.nan)  # the last one is of empty cells
        bad = np.zeros(len(values), bool)
        for i, text in enumerate(self.texts):
            value = parse(text)
            if value is not None:
                values[i] = value
            else:
                bad[i] = text.lower() not in MISSING_IN_NUMBERS
        rows = np.flatnonzero(bad[self.codes])
        if len(rows):
            return BadCells(int(rows[0]), self.texts[self.codes[rows[0]]], len(rows))
        return values[self.codes]

    def _bad_values(self, rows: Ints) -> BadCells:
        first = float(self.values[rows[0]])
        return BadCells(int(rows[0]), _value_text(self.holds, first), len(rows))


def cells_of(column: pa.Array) -> Cells:
    """Return the cells of a column."""
    order = None
    if pa.types.is_dictionary(column.type) and column.type.ordered:
        order = tuple(map(str, column.dictionary.to_pylist()))
    column = plain(column)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _of_texts(column, order)
    if pa.types.is_null(kind):
        return _of_values("empty", np.full(len(column), np.nan))
    if pa.types.is_boolean(kind):
        return _of_values("bool", _numbers(column))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _of_values("number", _numbers(column))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _of_values("date", _days(column))
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        storage = pa.int32() if kind.bit_width == 32 else pa.int64()
        holds = "time" if pa.types.is_time(kind) else "number"
        return _of_values(holds, _numbers(pc.cast(column, storage)) / _PER_DAY[kind.unit])
    present = np.where(np.asarray(column.is_null()), np.nan, 0.0)
    return _of_values("other" if len(column) > column.null_count else "empty", present)


def _of_values(holds: str, values: Floats) -> Cells:
    return Cells(holds, values, (), np.full(len(values), -1))


def _of_texts(column: pa.Array, order: tuple[str, ...] | None) -> Cells:
    encoded = pc.utf8_trim_whitespace(column).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    texts = tuple(encoded.dictionary.to_pylist())
    return Cells("text", np.full(len(codes), np.nan), texts, codes, order)


def _numbers(column: pa.Array) -> Floats:
    values = to_numbers(column)
    assert isinstance(values, np.ndarray)  # only text can be bad
    return values


def _days(column: pa.Array) -> Floats:
    """Return dates and times as days since 1970; those of a time zone are in UTC."""
    kind = column.type
    if pa.types.is_date32(kind):
        return _numbers(pc.cast(column, pa.int32()))
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    return _numbers(pc.cast(column, pa.int64())) / _PER_DAY[unit]


def _value_text(holds: str, value: float) -> str:
    if holds == "bool":
        return "true" if value else "false"
    if holds == "date":
        return date_words(value)
    if holds == "other":
        return "a list, a record or bytes"
    return text_of(value)


def date_words(days: float) -> str:
    """Return days since 1970 as a date, with the time where there is one."""
    text = str(np.datetime64(round(days * 86_400), "s"))
    return text.removesuffix("T00:00:00").replace("T", " ")
