"""Tables in text files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sgpmic.tables.base import MOST_COLUMNS, Piece, TableReader, check_count, check_unique
from sgpmic.tables.chunks import (
    WHITE,
    Chunk,
    cut,
    mask_quoted,
    read_chunks,
    read_start,
    squeeze_white,
)
from sgpmic.tables.conversions import cast_texts, parse_plain_number
from sgpmic.tables.errors import TableError, damaged
from sgpmic.tables.layout import SAMPLE_BYTES, find_layout

_BLANK_LINE = re.compile(rb"(?<=\n)[ \t]+(?=\n)|\A[ \t]+(?=\n)")
_SPACE_LINE = re.compile(rb"(?<=\n) +(?=\n)|\A +(?=\n)")

#: Columns as text.
Cells = Mapping[str, pa.StringArray]


class TextReader(TableReader):
    """A CSV file or a relative of it, perhaps compressed with gzip."""

    def __init__(self, path: str, zipped: bool = False) -> None:
        self.path = path
        self._zipped = zipped
        start = read_start(path, zipped, SAMPLE_BYTES)
        if not start.strip(b" \t\n"):
            raise TableError(f"{path} is empty; export the table again")
        line = start.lstrip(b" \t\n").partition(b"\n")[0]
        for delimiter in b"\t;|,":
            check_count(path, line.count(delimiter))
        check_count(path, len(line.split(maxsplit=MOST_COLUMNS)))
        self._layout = find_layout(start)
        self.names = self._layout.names
        self._first_line = 1 + start.count(b"\n", 0, len(start) - len(start.lstrip(b" \t\n")))
        check_unique(path, self.names, f", line {self._first_line}")
        # What Arrow is told: users' names may be anything.
        self._keys = {name: str(i) for i, name in enumerate(self.names)}

    def pieces(self, features: Sequence[str], texts: Sequence[str]) -> Iterator[Piece]:
        """Yield the rows of every chunk of the file."""
        # Commas that separate are not decimal; otherwise the first number that is not whole
        # decides, and "" says that none was met yet.
        decimal = "." if self._layout.delimiter == b"," else ""
        for raw in self._chunks():
            chunk, cells = self._parse(raw, list(dict.fromkeys([*features, *texts])))
            columns = {name: cells[name] for name in features}
            decimal = decimal or _find_decimal(columns.values())
            place = partial(self._place, chunk)
            try:  # all columns at once, because every call takes time
                flat = cast_texts(pa.concat_arrays(columns.values()), decimal or ".")
                values = np.ascontiguousarray(flat.reshape(len(features), -1).T)
            except pa.ArrowInvalid:
                other = "" if self._layout.delimiter == b"," else "." if decimal == "," else ","
                values = self._numbers(columns, place, decimal or ".", other)
            words = [pc.utf8_trim_whitespace(cells[name]).to_pylist() for name in texts]
            yield Piece(values, words, place)

    def raw_pieces(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the columns of every chunk of the file, as text."""
        for raw in self._chunks():
            cells = self._parse(raw, names)[1]
            yield pa.table({name: cells[name] for name in names})

    def _chunks(self) -> Iterator[Chunk]:
        """Yield the rows only: no header, white space squeezed."""
        header = self._layout.has_header
        # Every column of a chunk costs some time of its own: of many, chunks are larger.
        scale = min(max(len(self.names) // 2000, 1), 8)
        for chunk in read_chunks(self.path, self._zipped, self._layout.separators, scale):
            data, line = chunk.data, chunk.first_line
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

    # -------------------------------------------------------------------- cells

    def _parse(self, chunk: Chunk, names: Sequence[str]) -> tuple[Chunk, Cells]:
        """Return the columns as text, and the chunk that they were read from."""
        try:
            return chunk, self._cells(chunk.data, names)
        except pa.ArrowInvalid:
            # Lines that only look blank may be all that is wrong; of tabs, they may be rows.
            blank = _SPACE_LINE if self._layout.parsed_delimiter == b"\t" else _BLANK_LINE
            chunk = Chunk(blank.sub(b"", chunk.data), chunk.first_line)
        try:
            return chunk, self._cells(chunk.data, names)
        except pa.ArrowInvalid as error:
            raise self._ragged(chunk) or damaged(self.path, "a text table", error) from None

    def _cells(self, data: bytes, names: Sequence[str]) -> Cells:
        keys = {name: self._keys[name] for name in names}
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
                column_types=dict.fromkeys(keys.values(), pa.string()),
                include_columns=list(keys.values()),
                strings_can_be_null=False,
            ),
        )
        return {name: table.column(key).combine_chunks() for name, key in keys.items()}

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

    # -------------------------------------------------------------------- places

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


def _find_decimal(columns: Collection[pa.Array]) -> str:
    """Return the decimal sign of the numbers in columns of text, "" if all are whole."""
    # Where both occur, the commas are complained about: points are the usual sign.
    for sign in ".,":
        for column in columns:
            cells = column.filter(pc.match_substring(column, sign)).to_pylist()
            if any(parse_plain_number(text, sign) is not None for text in cells):
                return sign
    return ""
