"""Tables in text files; delimiter, header and names are found out from the first lines."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv

from sgpmic.tables.base import (
    MOST_COLUMNS,
    Piece,
    TableReader,
    check_count,
    check_unique,
    numbered_names,
)
from sgpmic.tables.cell_text import parse_plain_number
from sgpmic.tables.chunks import (
    WHITE,
    Chunk,
    cut,
    mask_quoted,
    read_chunks,
    read_start,
    squeeze_white,
)
from sgpmic.tables.errors import TableError, damaged

# How much of a file its layout is found out from.
_SAMPLE_BYTES = 1 << 16
_SAMPLE_RECORDS, _LONG_RECORDS = 100, 3
# In this order when nothing else decides.
_DELIMITERS = (b"\t", b";", b"|", b",", WHITE)
# How much a delimiter gains where all lines are equally long, and loses where it is white space.
_REGULAR, _WHITE_DOUBT = 0.5, 0.2
_QUOTED = re.compile(r'"((?:[^"]|"")*+)"(.*)', re.DOTALL)
_BLANK_LINE = re.compile(rb"(?<=\n)[ \t]+(?=\n)|\A[ \t]+(?=\n)")
_SPACE_LINE = re.compile(rb"(?<=\n) +(?=\n)|\A +(?=\n)")


class TextReader(TableReader):
    """A CSV file or a relative of it, perhaps compressed with gzip."""

    kind = "a text table"

    def __init__(self, path: str, zipped: bool = False) -> None:
        self.path = path
        self._zipped = zipped
        start = read_start(path, zipped, _SAMPLE_BYTES)
        content = start.lstrip(b" \t\n")
        if not content:
            raise TableError(f"{path} is empty; export the table again")
        line = content.partition(b"\n")[0]
        for delimiter in b"\t;|,":
            check_count(path, line.count(delimiter))
        check_count(path, len(line.split(maxsplit=MOST_COLUMNS)))
        self._layout = find_layout(start)
        self.names = self._layout.names
        self._first_line = 1 + start.count(b"\n", 0, len(start) - len(content))
        check_unique(path, self.names, f", line {self._first_line}")
        # Commas that separate are not decimal.
        self.decimals = "." if self._layout.delimiter == b"," else ".,"
        # Arrow's names for the columns: users' names may be anything.
        self._keys = {name: str(i) for i, name in enumerate(self.names)}

    def pieces(self, names: Sequence[str]) -> Iterator[Piece]:
        """Yield the columns of every chunk of the file, as text."""
        for raw in self._chunks():
            chunk, batch = self._parse(raw, names)
            yield Piece(batch, partial(self._place, chunk))

    def _chunks(self) -> Iterator[Chunk]:
        """Yield the rows only: no header, white space squeezed."""
        header = self._layout.has_header
        # Every column of a chunk takes some time of its own: with many columns, chunks are larger.
        scale = min(max(len(self.names) // 2000, 1), 8)
        for data, line in read_chunks(self.path, self._zipped, self._layout.separators, scale):
            if header:
                # Blank lines come before it, perhaps, even a chunk of them.
                first = len(data) - len(data.lstrip(b" \t\n"))
                if first == len(data):
                    continue
                end = mask_quoted(data, self._layout.separators)[0].index(b"\n", first) + 1
                line += data.count(b"\n", 0, end)
                data = data[end:]
                header = False
            if self._layout.delimiter == WHITE:
                data = squeeze_white(data)
            if data.strip(b"\n"):
                yield Chunk(data, line)

    def _parse(self, chunk: Chunk, names: Sequence[str]) -> tuple[Chunk, pa.RecordBatch]:
        """Return the columns as text, and the chunk that they were read from."""
        try:
            return chunk, self._columns(chunk.data, names)
        except pa.ArrowInvalid:
            # Lines that only look blank may be all that is wrong; of tabs, they may be rows.
            blank = _SPACE_LINE if self._layout.parsed_delimiter == b"\t" else _BLANK_LINE
            chunk = Chunk(blank.sub(b"", chunk.data), chunk.first_line)
        try:
            return chunk, self._columns(chunk.data, names)
        except pa.ArrowInvalid as error:
            raise self._ragged(chunk) or damaged(self.path, self.kind, error) from None

    def _columns(self, data: bytes, names: Sequence[str]) -> pa.RecordBatch:
        keys = [self._keys[name] for name in names]
        table = pyarrow.csv.read_csv(
            pa.py_buffer(data),
            read_options=pyarrow.csv.ReadOptions(
                column_names=list(self._keys.values()),
                block_size=len(data) + 1,  # one block, so that no row is cut
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self._layout.parsed_delimiter.decode(),
                newlines_in_values=b'"' in data,
                # In a table of one column an empty line is a missing value.
                ignore_empty_lines=len(self.names) > 1,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.string()),
                include_columns=keys,
                strings_can_be_null=False,
            ),
        )
        columns = [column.combine_chunks() for column in table.columns]
        return pa.RecordBatch.from_arrays(columns, list(names))

    def _ragged(self, chunk: Chunk) -> TableError | None:
        """Return the error for the first row with more or fewer fields than columns."""
        expected = len(self.names)
        for line, row in self._numbered_records(chunk):
            found = row.count(self._layout.parsed_delimiter) + 1
            if found != expected and row:
                return TableError(
                    f"{self.path}, line {line}: found {found} value{'s' * (found != 1)}, expected "
                    f"{expected} as in line {self._first_line}; correct the line, or quote text "
                    "that contains the delimiter"
                )
        return None

    def _place(self, chunk: Chunk, row: int) -> str:
        """Return the line of a row of a chunk."""
        blank_counts = len(self.names) == 1
        records = self._numbered_records(chunk)
        lines = [line for line, record in records if record or blank_counts]
        return f"line {lines[row]}"

    def _numbered_records(self, chunk: Chunk) -> Iterator[tuple[int, bytes]]:
        """Yield every record of a chunk, masked, and the line that it starts on."""
        line = chunk.first_line
        data = chunk.data.removesuffix(b"\n")
        for record, masked in cut(data, self._layout.parsed_delimiter, b"\n"):
            yield line, masked
            line += record.count(b"\n") + 1


# ------------------------------------------------------------------------------ layout


@dataclass(frozen=True)
class Layout:
    """How a text file is to be read."""

    delimiter: bytes  # what separates fields; WHITE for any white space
    names: tuple[str, ...]  # of the columns
    has_header: bool  # whether the first record holds the names

    @property
    def separators(self) -> bytes:
        """The bytes that separate fields in the file."""
        return _separators(self.delimiter)

    @property
    def parsed_delimiter(self) -> bytes:
        """The delimiter once white space is squeezed."""
        return b"\t" if self.delimiter == WHITE else self.delimiter


def find_layout(start: bytes) -> Layout:
    """Return the layout of a file that starts with these bytes, among them a whole record."""
    fits = {delimiter: _fit(start, delimiter) for delimiter in _DELIMITERS}
    if not fits[WHITE].numbers and any(fit.regular for fit in list(fits.values())[:-1]):
        del fits[WHITE]  # spaces within words
    best = max(fits, key=lambda delimiter: fits[delimiter].score)  # the first of equals
    # One column alone has no delimiter, and the comma is as good as any.
    delimiter = best if fits[best].score > 0 else b","
    cells = _split_record(_records(start, delimiter, 1)[0], delimiter)
    numbers = [_as_number(cell, delimiter) for cell in cells]
    words = any(number is None for number in numbers) or all(math.isnan(n or 0) for n in numbers)
    # Years and codes may be names of columns, but hardly ever 5.1.
    has_fraction = any(n is not None and math.isfinite(n) and not n.is_integer() for n in numbers)
    if words and not has_fraction:
        names = [cell.strip() or f"column_{i + 1}" for i, cell in enumerate(cells)]
        return Layout(delimiter, tuple(names), has_header=True)
    return Layout(delimiter, numbered_names(len(cells)), has_header=False)


class _Fit(NamedTuple):
    """How well a delimiter fits: 0 if it separates nothing."""

    score: float
    regular: bool  # all lines are equally long
    numbers: bool  # all cells are numbers


def _fit(start: bytes, delimiter: bytes) -> _Fit:
    """Return how well a delimiter fits.

    In the main it is the share of lines of equal length plus the share of cells that are numbers.
    """
    rows = [_split_record(r, delimiter) for r in _records(start, delimiter, _SAMPLE_RECORDS)]
    length, count = Counter(len(row) for row in rows).most_common(1)[0]
    if length < 2:
        return _Fit(0.0, False, False)
    cells = [cell for row in rows[1:] or rows for cell in row]
    numbers = sum(_as_number(cell, delimiter) is not None for cell in cells)
    score = count / len(rows) + numbers / len(cells)
    # "Without exception" weighs more than "almost"; and the words of a text are not columns.
    regular = count == len(rows)
    score += _REGULAR * regular - _WHITE_DOUBT * (delimiter == WHITE)
    return _Fit(score, regular, numbers == len(cells))


def _as_number(cell: str, delimiter: bytes) -> float | None:
    decimals = "." if delimiter == b"," else ".,"
    numbers = (parse_plain_number(cell, decimal) for decimal in decimals)
    return next((number for number in numbers if number is not None), None)


def _records(start: bytes, delimiter: bytes, most: int) -> list[bytes]:
    """Return the first records that are not blank, at least one."""
    # If lines are very long, a few of them say as much.
    for sample, limit in ((start[:_SAMPLE_BYTES], most), (start, min(most, _LONG_RECORDS))):
        records = [record for record, _ in cut(sample, _separators(delimiter), b"\n")]
        if len(sample) < len(start):
            records.pop()  # it may be cut off
        records = [record for record in records if record.strip(b" \t")]
        if records:
            return records[:limit]
    return [start]


def _split_record(record: bytes, delimiter: bytes) -> list[str]:
    """Return the fields of a record, without their quotes."""
    if delimiter == WHITE:
        record, delimiter = squeeze_white(record), b"\t"
    fields = [field.decode("utf-8", "replace") for field, _ in cut(record, delimiter, delimiter)]
    matches = map(_QUOTED.fullmatch, fields)
    return [
        match[1].replace('""', '"') + match[2] if match else field
        for field, match in zip(fields, matches, strict=True)
    ]


def _separators(delimiter: bytes) -> bytes:
    return b" \t" if delimiter == WHITE else delimiter
