"""Columns of any Arrow type to float64 numbers or to text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sgpmic._types import Floats

Codes = NDArray[np.int64]

#: What stands for a missing value, in lower case and without spaces around.
MISSING_WORDS = frozenset(("", "na", "n/a", "#n/a", "nan", "null"))

# A leading zero that no number needs makes a code of it: of a region, a telephone, an article.
_CODE = r"^[+-]?0[0-9]+$"
_BOOLEANS = {"true": 1.0, "false": 0.0}
# float() alone would also take underscores and the digits of other scripts.
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE
)


class BadCells(NamedTuple):
    """Cells that are not what their column is: the first one, and how many were found."""

    row: int
    text: str
    n_cells: int = 1


def is_missing(text: str) -> bool:
    """Return whether a cell's text stands for a missing value."""
    return text.strip().lower() in MISSING_WORDS


def parse_plain_number(text: str, decimal: str = ".") -> float | None:
    """Return the number that a cell holds, NaN if it is missing, None if it is other text."""
    word = text.strip()
    if decimal != ".":
        # A point is then a thousands separator, which nobody can tell from a decimal point.
        word = "." if "." in word else word.replace(decimal, ".")
    if _NUMBER.fullmatch(word):
        return float(word)
    lower = word.lower()
    return float("nan") if lower in MISSING_WORDS else _BOOLEANS.get(lower)


def unsupported(kind: pa.DataType) -> str | None:
    """Return why a type cannot become numbers, in words, or None if it can."""
    kind = plain(pa.nulls(0, kind)).type
    if pa.types.is_temporal(kind):
        return f"holds dates or times ({kind}); turn them into numbers"
    if pa.types.is_nested(kind):
        return f"holds lists or records ({kind}); spread them over columns of their own"
    if _is_number(kind) or _is_text(kind) or pa.types.is_null(kind):
        return None
    return f"holds no numbers ({kind}); turn them into numbers"


def to_numbers(column: pa.Array, decimal: str = ".") -> Floats | BadCells:
    """Return a column of a supported type as numbers, NaN where missing."""
    column = plain(column)
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if _is_text(kind):
        try:
            return cast_texts(column, decimal)
        except pa.ArrowInvalid:
            return _parse_numbers(column.to_pylist(), decimal)
    elif not (pa.types.is_float64(kind) or pa.types.is_float16(kind)):
        if pa.types.is_boolean(kind):
            column = pc.cast(column, pa.uint8())
        # Not "safe": integers beyond 2^53 are rounded, as everywhere else.
        column = pc.cast(column, pa.float64(), safe=False)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def cast_texts(column: pa.Array, decimal: str = ".") -> Floats:
    """Return text as numbers fast; ``ArrowInvalid`` does not yet say that a cell is none."""
    column = pc.utf8_trim_whitespace(column)
    if decimal != ".":
        # A point is no decimal sign then, see `parse_plain_number`.
        column = pc.replace_substring(column, ".", "?")
        column = pc.replace_substring(column, decimal, ".")
    return pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)


def cast_or_none(texts: pa.Array | pa.ChunkedArray, missing: Iterable[str]) -> Any:
    """Return text as numbers fast, null for words in ``missing``; None if others are no number."""
    gaps = pc.is_in(pc.utf8_lower(texts), pa.array(sorted(missing), pa.string()))
    try:
        return pc.cast(pc.if_else(gaps, None, texts), pa.float64())
    except pa.ArrowInvalid:
        return None


def _parse_numbers(texts: list[str | None], decimal: str) -> Floats | BadCells:
    """Return the numbers of a column of text, NaN where missing, or the first that is not one."""
    values = np.empty(len(texts))
    for row, text in enumerate(texts):
        value = parse_plain_number(text or "", decimal)
        if value is None:
            return BadCells(row, text or "")
        values[row] = value
    return values


def to_texts(column: pa.Array) -> list[str]:
    """Return a column of any type as text, empty where missing."""
    column = plain(column)
    if pa.types.is_floating(column.type):
        return [text_of(value) for value in column.to_pylist()]
    if pa.types.is_temporal(column.type):
        # Python's own types have no nanoseconds; Arrow, perhaps, no such time zone.
        with contextlib.suppress(pa.ArrowException):
            column = pc.cast(column, pa.string())
    return ["" if value is None else str(value) for value in column.to_pylist()]


def text_of(value: float | None) -> str:
    """Return a number as text, whole numbers without a point: a label 1.0 is a label 1."""
    if value is None or value != value:
        return ""
    return str(value).removesuffix(".0")


def _is_number(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def plain(column: pa.Array) -> pa.Array:
    """Return the values, unwrapped."""
    while True:
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        elif pa.types.is_dictionary(column.type):
            column = pc.take(plain(column.dictionary), column.indices)
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        elif str(column.type) == "string_view":  # which pyarrow 15 has no name for
            column = pc.cast(column, pa.string())
        else:
            return column


# ------------------------------------------------------------------------------- whole columns


def with_plain_numbers(table: pa.Table, text: Collection[str] = ()) -> pa.Table:
    """Return a table in which columns of plain numbers, as text, are columns of numbers.

    Those in ``text`` stay as they are, because they are known to be something else.
    """
    columns = {name: table.column(place) for place, name in enumerate(table.column_names)}
    for name, column in columns.items():
        if name not in text and pa.types.is_string(column.type):
            numbers = _plain_numbers(column)
            columns[name] = column if numbers is None else numbers
    return pa.table(columns)


def _plain_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return numbers, null where missing; None if a cell is anything else, or none is there."""
    texts = pc.utf8_trim_whitespace(column)
    # Few cells decide about most columns of words.
    if cast_or_none(texts.slice(0, 100), MISSING_WORDS) is None:
        return None
    numbers = cast_or_none(texts, MISSING_WORDS)
    if numbers is None or pc.any(pc.match_substring_regex(texts, _CODE)).as_py():
        return None
    # Infinite values and others that only look like numbers are for those to judge who see text.
    present = numbers.drop_null().to_numpy()
    return numbers if len(present) and np.isfinite(present).all() else None
