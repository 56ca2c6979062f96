"""Delimited text files: the dialect is detected from the first lines, and Arrow parses the rest."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv

from sgpmic._words import plural
from sgpmic.tables.cell_text import parse_plain_number
from sgpmic.tables.conversions import Source, numbered_names
from sgpmic.tables.errors import TableError, check_count, decoding

#: Whitespace as a delimiter: any run of spaces and tabs, collapsed to one tab.
WHITE = " \t"

_BLOCK_BYTES = 4 << 20
# Excel's line that names the delimiter; skipped, since the other lines tell it too.
_SEPARATOR_LINE = re.compile(r'"?sep=."?\n')
# Sample of a file that its layout is detected from; of long records, a few suffice.
_SAMPLE, _LONGEST_SAMPLE = 1 << 16, 64 << 20
_RECORDS, _LONG_RECORDS = 100, 3
# In order of preference, to break ties; whitespace last, as it depends on the others.
_DELIMITERS = ("\t", ";", "|", ",", WHITE)
# Bonus for a delimiter that yields the same number of fields in all lines; penalty for whitespace.
_REGULAR, _WHITE_DOUBT = 0.5, 0.2
_WHITE_RUN = re.compile(rb'("(?<![^\n\t ]")[^"]*+(?:""[^"]*+)*+")|(^[ \t]+|[ \t]+$)|[ \t]+', re.M)
# Every cell of a record added to the end of a file, which only an unclosed quote can swallow.
_END = "\x1eend of table\x1e"


class Layout(NamedTuple):
    """Dialect and column names of a text file."""

    delimiter: str  # WHITE for any whitespace
    names: tuple[str, ...]  # of the columns
    n_skipped: int  # number of lines before the first row; 0 if there is no header


def open_text(path: str, zipped: bool = False) -> Source:
    """Open a delimited text file, optionally compressed with gzip."""
    kind = "a gzip file" if zipped else "a text table"
    opener = gzip.open if zipped else open
    with decoding(path, kind):
        start = _read_start(path, opener)
        if not start.strip():
            raise TableError(f"{path} is empty; export the table again")
        if "\0" in start:
            raise TableError(f"{path} has zero bytes, unlike text; export it again as CSV")
        check_count(path, max(map(start.lstrip().partition("\n")[0].count, "\t;|, ")))
        layout = find_layout(start)

    def batches(names: Sequence[str], rows: range) -> Iterator[pa.RecordBatch]:
        with decoding(path, kind):
            yield from _parse(path, opener, layout, names)

    return Source(path, kind, layout.names, batches)


def _read_start(path: str, opener: Any) -> str:
    """Read a sample, with a few records unless they are very long."""
    with opener(path, "rt", encoding="utf-8-sig") as file:
        try:
            start: str = file.read(_SAMPLE)
            while start.lstrip().count("\n") < _LONG_RECORDS and len(start) < _LONGEST_SAMPLE:
                if not (more := file.read(_BLOCK_BYTES)):
                    break
                start += more
        except UnicodeDecodeError as error:
            is_wide = error.object.startswith((b"\xff\xfe", b"\xfe\xff"))
            raise _not_utf8(path, "UTF-16" if is_wide else "CP1252") from None
    return start


def _not_utf8(path: str, encoding: str) -> TableError:
    return TableError(
        f"{path} is not text in UTF-8; save it as UTF-8, for instance with "
        f"`iconv -f {encoding} -t UTF-8 {shlex.quote(path)} > new.csv`"
    )


def _parse(
    path: str, opener: Any, layout: Layout, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield columns as text, without the header."""
    wrong: list[str] = []

    def skip_blank(row: Any) -> str:
        if not row.text.strip():
            return "skip"
        found, expected = plural(row.actual_columns, "value"), row.expected_columns
        wrong.append(f"row {row.number - layout.n_skipped}: found {found}, expected {expected}")
        return "error"

    # Larger blocks if there are many columns, to amortize the overhead per column.
    size = _BLOCK_BYTES * min(max(len(layout.names) // 2000, 1), 8)
    read = pyarrow.csv.ReadOptions(
        column_names=layout.names, skip_rows=layout.n_skipped, block_size=size, use_threads=False
    )
    parse = pyarrow.csv.ParseOptions(
        delimiter=layout.delimiter[-1], newlines_in_values=True, invalid_row_handler=skip_blank
    )
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), include_columns=list(names)
    )
    last = None
    try:
        file = _Stream(_blocks(path, opener, layout, size))
        for batch in pyarrow.csv.open_csv(file, read, parse, convert):
            if last is not None:
                yield last
            last = batch if len(batch) else last
    except pa.ArrowInvalid as error:
        if wrong:
            remedy = "correct the row, or quote text that contains the delimiter"
            raise TableError(f"{path}, {wrong[0]}; {remedy}") from None
        if "UTF8" in str(error):
            raise _not_utf8(path, "CP1252") from None
        raise _too_long(path, size) if "straddl" in str(error) else error from None
    if last is None or last.column(0)[-1].as_py() != _END:
        raise TableError(f"{path}: a quote is never closed; close or remove it")
    yield last[:-1]


def _too_long(path: str, size: int) -> TableError:
    return TableError(
        f"{path}: a row is longer than {size / 2**20:.0f} MB; check the line endings and that "
        "every quote is closed"
    )


def _blocks(path: str, opener: Any, layout: Layout, size: int) -> Iterator[bytes]:
    """Yield a file's bytes, with whitespace collapsed if it delimits, and a last record."""
    held = ""
    if layout.delimiter != WHITE:
        with opener(path, "rb") as file:
            yield from iter(partial(file.read, size), b"")
    else:
        with opener(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as file:
            while more := file.read(size):
                lines, end, held = (held + more).rpartition("\n")
                if len(held) > size:
                    raise _too_long(path, size)
                if end:
                    yield squeeze_white((lines + end).encode(errors="surrogateescape"))
    last = layout.delimiter[-1].join([_END] * len(layout.names))
    yield squeeze_white(held.encode(errors="surrogateescape")) + f"\n{last}\n".encode()


def squeeze_white(data: bytes) -> bytes:
    """Collapse whitespace between fields to one tab, and strip every line."""
    if b'"' in data:
        return _WHITE_RUN.sub(lambda found: found[1] or (b"" if found[2] else b"\t"), data)
    # The same without quotes, in a twentieth of the time.
    return b"\n".join([b"\t".join(line.split()) for line in data.split(b"\n")])


class _Stream(io.RawIOBase):
    """A file with the bytes that an iterator yields."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._held = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        # Neither more nor, before the end, fewer bytes, on which Arrow relies.
        while len(self._held) < size and (more := next(self._blocks, b"")):
            self._held += more
        found, self._held = self._held[:size], self._held[size:]
        return found


def find_layout(start: str) -> Layout:
    """Detect the layout of a file from its first characters, which include a whole record."""
    separator = _SEPARATOR_LINE.match(start)
    text = start[separator.end() :] if separator else start
    scores, any_regular = dict.fromkeys(_DELIMITERS, 0.0), False
    rows_by_delimiter = {delimiter: _first_rows(text, delimiter) for delimiter in _DELIMITERS}
    for delimiter, (rows, _) in rows_by_delimiter.items():
        length, count = Counter(len(row) for row in rows).most_common(1)[0]
        cells = [cell for row in rows[1:] or rows for cell in row]
        n_numbers = sum(_as_number(cell, delimiter) is not None for cell in cells)
        is_white, is_regular = delimiter == WHITE, count == len(rows)
        if length < 2 or (is_white and any_regular and n_numbers < len(cells)):
            continue  # one column, or spaces within words
        # Mainly the share of lines with the modal number of fields plus that of numeric cells.
        # Bonus for perfect regularity; penalty for whitespace, since words of text are not columns.
        shares = count / len(rows) + n_numbers / len(cells)
        scores[delimiter] = shares + _REGULAR * is_regular - _WHITE_DOUBT * is_white
        any_regular |= is_regular
    best = max(scores, key=lambda delimiter: scores[delimiter])  # the first, if tied
    # A single column has no delimiter, and the comma is as good as any.
    delimiter = best if scores[best] > 0 else ","
    (cells, *_), n_lines = rows_by_delimiter[delimiter]
    numbers = [_as_number(cell, delimiter) for cell in cells]
    words = any(number is None for number in numbers) or all(math.isnan(n or 0) for n in numbers)
    # Years and codes may be column names, but 5.1 rarely is.
    has_fraction = any(n is not None and math.isfinite(n) and not n.is_integer() for n in numbers)
    if words and not has_fraction:
        names = tuple(cell.strip() or f"column_{i + 1}" for i, cell in enumerate(cells))
        return Layout(delimiter, names, n_lines + bool(separator))
    return Layout(delimiter, numbered_names(len(cells)), int(bool(separator)))


def _as_number(cell: str, delimiter: str) -> float | None:
    # A comma that delimits fields is not a decimal separator.
    decimals = "." if delimiter == "," else ".,"
    numbers = (parse_plain_number(cell, decimal) for decimal in decimals)
    return next((number for number in numbers if number is not None), None)


def _first_rows(start: str, delimiter: str) -> tuple[list[list[str]], int]:
    """Return the first records that are not blank, and the number of lines up to the first."""
    text = squeeze_white(start.encode()).decode() if delimiter == WHITE else start
    reader = csv.reader(io.StringIO(text), delimiter=delimiter[-1])
    rows, n_lines = [], 0
    for row in reader:
        if len(row) > 1 or any(map(str.strip, row)):
            rows.append(row)
            n_lines = n_lines or reader.line_num
            if len(rows) > (_RECORDS if len(start) <= _SAMPLE else _LONG_RECORDS):
                break
    # The last may be truncated.
    return (rows[:-1] or rows if len(start) >= _SAMPLE else rows), n_lines
