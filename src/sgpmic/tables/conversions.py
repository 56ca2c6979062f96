"""Conversion of tables to Arrow columns, and of these to numbers, text, dates and levels.

pandas and polars are not imported: their data frames are recognized by duck typing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sgpmic._types import Floats, Ints
from sgpmic._words import plural
from sgpmic.tables.cell_text import MISSING, MISSING_IN_NUMBERS, MISSING_WORDS, key
from sgpmic.tables.errors import BadCells, TableError, check_names

# Digits with a redundant leading zero are a code: a zip code, phone number or article number.
_CODE = r"^[+-]?0[0-9]+$"
# Maximum amount of text to parse in one call.
_MOST_BYTES = 1 << 28
_PER_DAY = {"day": 1, "s": 86_400, "ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}


def plain(column: pa.Array) -> pa.Array:
    """Decode dictionary, run-end encoded and extension arrays."""
    while True:
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        elif pa.types.is_dictionary(column.type):
            column = pc.take(plain(column.dictionary), column.indices)
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        elif str(column.type) == "string_view":  # not exposed in pyarrow 15
            column = pc.cast(column, pa.string())
        else:
            return column


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


_ONE_NAN = [None, pa.py_buffer(np.array([np.nan]))]


def _floats(column: pa.Array) -> Floats:
    """Convert an Arrow array of numbers or booleans to NumPy, NaN where missing."""
    if pa.types.is_float16(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.float64)
    if not pa.types.is_float64(column.type):
        # Not "safe": round integers beyond 2^53, as everywhere else.
        column = pc.cast(column, pa.float64(), safe=False)
    # Avoid to_numpy here: it imports pandas if installed, which takes a third of a second.
    if column.null_count:
        column = pc.coalesce(column, pa.Array.from_buffers(pa.float64(), 1, _ONE_NAN)[0])
    buffer = column.buffers()[1] if len(column) else b""
    return np.frombuffer(buffer, np.float64, len(column), 8 * column.offset)


def with_plain_numbers(table: pa.Table, text: Collection[str] = ()) -> pa.Table:
    """Convert text columns of only plain numbers to numeric ones, except those in ``text``."""
    columns = dict(zip(table.column_names, table.columns, strict=True))
    others = set(text) if len(table) else set(columns)
    texts = {name for name, column in columns.items() if pa.types.is_string(column.type)}
    names = sorted(texts - others)
    # The first cells rule out most columns of words.
    heads = _plain_numbers({name: columns[name].slice(0, 100) for name in names})
    found = _plain_numbers({name: columns[name] for name in heads})
    columns |= {name: cells for name, cells in found.items() if cells.null_count < len(cells)}
    return pa.table(columns)


def _plain_numbers(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, pa.Array]:
    """Convert the text columns that hold only finite numbers and missing cells."""
    found = {}
    for names, texts, numbers in _cast_together(columns):
        odd = pc.or_kleene(pc.match_substring_regex(texts, _CODE), pc.invert(pc.is_finite(numbers)))
        odd = (_floats(odd) == 1.0).reshape(len(names), -1)
        n_rows = odd.shape[1]
        for j in np.flatnonzero(~odd.any(axis=1)).tolist():
            found[names[j]] = numbers.slice(j * n_rows, n_rows)
    return found


def _cast_together(
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
) -> Iterator[tuple[list[str], pa.Array, pa.Array]]:
    """Yield names, text and numbers, both concatenated, of those text columns that are numeric."""
    # In one call, to save overhead per call; if that fails or is too much, in two halves.
    if not columns:
        return
    names, half = list(columns), len(columns) // 2
    numbers = None
    with contextlib.suppress(pa.ArrowInvalid):  # of different types, or too long for one array
        if not half or sum(column.nbytes for column in columns.values()) <= _MOST_BYTES:
            chunks = [c for column in columns.values() for c in getattr(column, "chunks", [column])]
            texts = pc.utf8_trim_whitespace(pa.concat_arrays(chunks))
            numbers = _cast_or_none(texts)
    if numbers is not None:
        yield names, texts, numbers
    elif half:
        for part in (names[:half], names[half:]):
            yield from _cast_together({name: columns[name] for name in part})


def _cast_or_none(texts: pa.Array) -> Any:
    """Cast text to numbers, null for words for "missing"; None if that fails."""
    for has_gaps in (False, True):
        if has_gaps:
            gaps = pc.is_in(pc.utf8_lower(texts), pa.array(sorted(MISSING_WORDS), pa.string()))
            texts = pc.if_else(gaps, None, texts)
        with contextlib.suppress(pa.ArrowInvalid):
            numbers = pc.cast(texts, pa.float64())
            if not pc.any(pc.is_nan(numbers)).as_py():  # Arrow parses "nan(word)" as a number
                return numbers
    return None


def column_words(column: pa.Array | pa.ChunkedArray) -> list[str]:
    """Convert a column of any type to stripped text, empty where missing."""
    if isinstance(column, pa.ChunkedArray):
        return [word for chunk in column.chunks for word in column_words(chunk)]
    column = plain(column)
    if pa.types.is_floating(column.type):
        return [text_of(value) for value in column.to_pylist()]
    if pa.types.is_temporal(column.type):
        # Python's own types have no nanoseconds; Arrow may lack the time zone.
        with contextlib.suppress(pa.ArrowException):
            column = pc.cast(column, pa.string())
    return ["" if value is None else str(value).strip() for value in column.to_pylist()]


def text_of(value: float | None) -> str:
    """Format a number, whole ones without a decimal point: label 1.0 is label 1."""
    return "" if value is None or value != value else str(value).removesuffix(".0")


def range_words(low: float, high: float) -> str:
    """Format a range of numbers, large ones as integers rather than in scientific notation."""
    ends = (f"{x:.0f}" if 1e6 <= abs(x) < 1e15 else f"{x:.6g}" for x in (low, high))
    return " to ".join(ends)


def date_words(days: float) -> str:
    """Format days since 1970 as a date, with the time if it is not midnight."""
    text = str(np.datetime64(round(days * 86_400), "s"))
    return text.removesuffix("T00:00:00").replace("T", " ")


@dataclass(frozen=True)
class Cells:
    """The cells of a column, in one of the few forms that its kind is inferred from."""

    #: By the column's type: 'number', 'bool', 'date', 'time', 'duration', 'text', 'empty', or
    #: 'other' (lists, records and bytes).
    holds: str
    #: Numbers (0 and 1 for booleans), days (since 1970) or fractions of a day; NaN where missing.
    #: Empty for text.
    values: Floats
    texts: tuple[str, ...] = ()  # the distinct values of a text column, stripped
    #: The index of every cell's text, -1 for a null.
    codes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    order: tuple[str, ...] | None = None  # levels from low to high if the type has an order

    def read_levels(self, kept: Iterable[str] = ()) -> tuple[tuple[str, ...], Ints]:
        """Return the levels, the most frequent first, and every cell's index, -1 where missing.

        Spellings of a level that differ in case or spaces are merged. Words for "missing" are
        levels if their keys are in ``kept``.
        """
        different, codes = self._different()
        texts = [self._words(cell) for cell in different]
        counts = np.bincount(codes[codes >= 0], minlength=len(texts)).tolist()
        missing = MISSING.difference(kept) if self.holds == "text" else ()
        spellings: dict[str, list[int]] = {}
        for i, text in enumerate(texts):
            if counts[i] and text.lower() not in missing:
                spellings.setdefault(key(text), []).append(i)
        totals = {word: sum(counts[i] for i in places) for word, places in spellings.items()}
        words = sorted(totals, key=lambda word: (-totals[word], word))
        table = np.full(len(texts) + 1, -1)  # the last entry is for empty cells
        for place, word in enumerate(words):
            table[spellings[word]] = place
        names = (texts[max(spellings[word], key=counts.__getitem__)] for word in words)
        return tuple(names), table[codes]

    def parse(self, parse: Callable[[Any], float | None]) -> Floats:
        """Apply ``parse`` to text or numbers, NaN where missing; None and others are `BadCells`."""
        cells, codes = self._different()
        parsed = [parse(cell) if self.holds in ("text", "number") else None for cell in cells]
        bad = [
            value is None and str(cell).lower() not in MISSING_IN_NUMBERS
            for cell, value in zip(cells, parsed, strict=True)
        ]
        # The last entry is for empty cells; None becomes NaN.
        rows = np.flatnonzero(np.asarray([*bad, False])[codes])
        if len(rows):
            n_parsed = sum(value is not None for value in parsed)
            raise BadCells(int(rows[0]), self._words(cells[codes[rows[0]]]), len(rows), n_parsed)
        return np.asarray([*parsed, None], np.float64)[codes]

    def _different(self) -> tuple[Sequence[Any], Ints]:
        """Return the distinct cells, as text or as numbers, and every cell's index into them."""
        if self.holds == "text":
            return self.texts, self.codes
        found, codes = np.unique(self.values, return_inverse=True)
        return found[~np.isnan(found)].tolist(), np.where(np.isnan(self.values), -1, codes)

    def _words(self, cell: str | float) -> str:
        if isinstance(cell, str):
            return cell
        if self.holds == "bool":
            return "true" if cell else "false"
        if self.holds == "other":
            return "a list, a record or bytes"
        return date_words(cell) if self.holds == "date" else text_of(cell)


def cells_of(column: pa.Array | pa.ChunkedArray) -> Cells:
    """Convert an Arrow column to cells."""
    order = None
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_dictionary(column.type) and column.type.ordered:
        order = tuple(map(str, column.dictionary.to_pylist()))
    column = plain(column)
    kind = column.type
    if _is_text(kind):
        encoded = pc.utf8_trim_whitespace(column).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        texts = tuple(encoded.dictionary.to_pylist())
        return Cells("text", np.empty(0), texts, codes, order)
    if pa.types.is_boolean(kind) or _is_number(kind):
        return Cells("bool" if pa.types.is_boolean(kind) else "number", _floats(column))
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        # Timestamps with a time zone are stored in UTC; kept if Arrow lacks the time zone.
        if pa.types.is_timestamp(kind) and kind.tz:
            with contextlib.suppress(pa.ArrowException):
                column = pc.local_timestamp(column)
        storage = pa.int32() if kind.bit_width == 32 else pa.int64()
        unit = {"date32[day]": "day", "date64[ms]": "ms"}.get(str(kind)) or kind.unit
        days = _floats(pc.cast(column, storage)) / _PER_DAY[unit]
        is_date = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        return Cells("date" if is_date else "time" if pa.types.is_time(kind) else "duration", days)
    present = np.where(np.asarray(column.is_null()), np.nan, 0.0)
    return Cells("other" if len(column) > column.null_count else "empty", present)


@dataclass(frozen=True)
class Source:
    """A table in a file, as Arrow record batches."""

    path: str  # as shown in messages
    kind: str  # of file: "a Parquet file"
    names: tuple[str, ...]  # of the columns in the file
    #: Yields the named columns (at least), without conversion, in batches that suit the format;
    #: limited to the given rows if the number of rows is known in advance.
    batches: Callable[[Sequence[str], range], Iterator[pa.RecordBatch]]
    rows: range | None = None  # those to read, if the number of rows is known in advance


def as_table(X: Any) -> tuple[pa.Table, bool]:
    """Convert a pandas or polars frame, Arrow table, dict of sequences, or array to an Arrow table.

    Also returns whether the columns have names of their own, as opposed to generated ones.
    """
    if hasattr(X, "tocsr"):
        raise TypeError("A sparse matrix needs no TableEncoder: use TruncatedSVD or X.toarray().")
    named = True
    if isinstance(X, Mapping):
        names, columns = list(X), list(map(arrow_of, X.values()))
        if len(set(map(len, columns))) > 1:
            raise TableError("the columns have different numbers of cells; make them equally long")
    elif hasattr(X, "iloc") and hasattr(X, "columns"):  # pandas
        # One column at a time, so that a column of mixed objects does not affect the others.
        names = list(X.columns)
        columns = [arrow_of(X.iloc[:, j]) for j in range(len(names))]
        named = all(isinstance(name, str) for name in names)
    elif isinstance(X, pa.RecordBatch | pa.Table) or hasattr(X, "__arrow_c_stream__"):
        # A stream aligns the chunks of all columns, and breaks those that are empty.
        table = X if isinstance(X, pa.Table) else pa.table(X)
        names, columns = table.column_names, table.columns
    elif hasattr(X, "__dataframe__"):
        from pyarrow.interchange import from_dataframe

        return as_table(from_dataframe(X))
    else:
        values = np.asarray(X)
        if np.iscomplexobj(values):
            raise ValueError("Complex data not supported: split it into two columns of numbers.")
        if values.ndim != 2:
            raise ValueError(
                "Expected a data frame, an Arrow table, a dict of columns or a 2-D array, got "
                f"{type(X).__name__} of {plural(values.ndim, 'dimension')}. Reshape your data: "
                "X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row."
            )
        named, names = False, list(numbered_names(values.shape[1]))
        columns = list(map(arrow_of, values.T))
    names = list(map(_valid_text, names))
    check_names("the table", names)
    return pa.table(columns, names=names), named


def numbered_names(count: int) -> tuple[str, ...]:
    """Generate default column names."""
    return tuple(f"feature_{i + 1}" for i in range(count))


def arrow_of(values: Any) -> pa.Array:
    """Convert any sequence to an Arrow array; values of mixed types become text."""
    dtype = getattr(values, "dtype", None)
    kind = str(getattr(getattr(dtype, "categories", None), "dtype", dtype))
    if kind.startswith("period"):  # of pandas; Arrow has neither these nor intervals
        values = getattr(values, "dt", values).to_timestamp()
    elif kind.startswith("interval"):
        values = values.astype("category")
        values = getattr(values, "cat", values).rename_categories(str)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        gaps = [value is None or (isinstance(value, float) and value != value) for value in values]
        texts = [
            None if gap else _valid_text(value) for value, gap in zip(values, gaps, strict=True)
        ]
        return pa.array(texts, pa.string())


def _valid_text(value: Any) -> str:
    """Convert to text, with question marks for lone surrogates, which Arrow rejects."""
    return str(value).encode(errors="replace").decode()
