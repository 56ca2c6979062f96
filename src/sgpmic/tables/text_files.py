"""Tables in text files: fast where all cells are plain numbers, careful where they are not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sgpmic.tables.base import (
    Floats,
    Piece,
    TableError,
    TableReader,
    check_names,
    damaged,
    drop_advice,
    list_names,
    quote,
)
from sgpmic.tables.cells import BadText, parse_number, parse_numbers, to_numbers
from sgpmic.tables.chunks import (
    WHITE,
    Chunk,
    mask_quoted,
    read_chunks,
    read_start,
    squeeze_white,
)
from sgpmic.tables.layout import SAMPLE_BYTES, Layout, find_layout

_BLANK_LINE = re.compile(rb"(?<=\n)[ \t]+(?=\n)|\A[ \t]+(?=\n)")
_SPACE_LINE = re.compile(rb"(?<=\n) +(?=\n)|\A +(?=\n)")


class TextReader(TableReader):
    """A CSV file or a relative of it.

    Parameters
    ----------
    path : str
        The file.
    zipped : bool
        Whether it is compressed with gzip.
    """

    def __init__(self, path: str, zipped: bool) -> None:
        self.path = path
        self._zipped = zipped
        start = read_start(path, zipped, SAMPLE_BYTES)
        if not start.strip(b" \t\n"):
            raise TableError(f"{path} is empty; export the table again")
        self._layout = find_layout(start)
        self.names = self._layout.names
        self._first_line = 1 + start.count(b"\n", 0, len(start) - len(start.lstrip(b" \t\n")))
        check_names(path, self.names, f", line {self._first_line}")
        self._keys = {name: str(i) for i, name in enumerate(self.names)}

    def pieces(self, features: Sequence[str], texts: Sequence[str]) -> Iterator[Piece]:
        """Yield the rows of every chunk of the file."""
        # Commas that separate are not decimal; otherwise the first number that is not whole
        # decides, and "" says that none was met yet.
        decimal = "." if self._layout.delimiter == b"," else ""
        for chunk in self._chunks():
            read = self._read_fast(chunk.data, features, texts, decimal)
            if read is None:
                chunk, cells = self._read_cells(chunk, [*features, *texts])
                decimal = decimal or _find_decimal([cells[name] for name in features])
                values = self._convert(chunk, cells, features, decimal)
                read = values, [_words(cells[name]) for name in texts]
            yield Piece(*read, place=_Places(chunk, self._layout))

    def _chunks(self) -> Iterator[Chunk]:
        """Yield the rows only: no header, white space squeezed."""
        header = self._layout.has_header
        # Every column of a chunk costs some time of its own, so wide tables come in larger ones.
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

    # -------------------------------------------------------------------- the fast way

    def _read_fast(
        self, data: bytes, features: Sequence[str], texts: Sequence[str], decimal: str
    ) -> tuple[Floats, list[list[str]]] | None:
        """Return the rows as Arrow reads them, or None if something needs a closer look."""
        if not decimal and b"." in data:
            return None  # what points mean in this file is to be found out first
        types = dict.fromkeys(features, pa.float64()) | dict.fromkeys(texts, pa.string())
        if len(types) < len(features) + len(texts):
            return None  # a column is wanted in two ways
        try:
            table = self._parse(data, types, decimal or ".")
        except pa.ArrowInvalid:
            return None
        values = np.empty((table.num_rows, len(features)))
        for j, name in enumerate(features):
            values[:, j] = table.column(self._key(name)).to_numpy()
        return values, [_words(table.column(self._key(name))) for name in texts]

    def _parse(self, data: bytes, types: Mapping[str, pa.DataType], decimal: str) -> pa.Table:
        keys = {self._key(name): kind for name, kind in types.items()}
        return pyarrow.csv.read_csv(
            pa.py_buffer(data),
            read_options=pyarrow.csv.ReadOptions(
                column_names=[str(i) for i in range(len(self.names))],
                block_size=len(data) + 1,  # one block, so that no row is cut
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self._layout.parsed_delimiter.decode(),
                newlines_in_values=b'"' in data,
                # In a single column an empty line is a missing value.
                ignore_empty_lines=len(self.names) > 1,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=keys,
                include_columns=list(keys),
                null_values=[""],
                strings_can_be_null=False,
                decimal_point=decimal,
            ),
        )

    def _key(self, name: str) -> str:
        """Return the name that Arrow is told: users' names may be anything."""
        return self._keys[name]

    # -------------------------------------------------------------------- the careful way

    def _read_cells(
        self, chunk: Chunk, names: Sequence[str]
    ) -> tuple[Chunk, dict[str, pa.ChunkedArray]]:
        """Return the columns as text, and the chunk that they were read from."""
        types = dict.fromkeys(names, pa.string())
        try:
            table = self._parse(chunk.data, types, ".")
        except pa.ArrowInvalid:
            # Lines that only look blank may be all that is wrong; of tabs, they may be rows.
            blank = _SPACE_LINE if self._layout.parsed_delimiter == b"\t" else _BLANK_LINE
            chunk = Chunk(blank.sub(b"", chunk.data), chunk.first_line)
            try:
                table = self._parse(chunk.data, types, ".")
            except pa.ArrowInvalid as error:
                raise self._ragged(chunk) or damaged(self.path, "a text table", error) from None
        return chunk, {name: table.column(self._key(name)) for name in names}

    def _ragged(self, chunk: Chunk) -> TableError | None:
        """Return the error for the first row with more or fewer fields than columns."""
        mask, _ = mask_quoted(chunk.data, self._layout.parsed_delimiter)
        expected = len(self.names)
        for line, row in _numbered_records(chunk, mask):
            found = row.count(self._layout.parsed_delimiter) + 1
            if found != expected and row:
                first = f"line {self._first_line}"
                return TableError(
                    f"{self.path}, line {line}: found {found} value{'s' * (found != 1)}, expected "
                    f"{expected} as in {first}; correct the line, or quote text that contains "
                    "the delimiter"
                )
        return None

    def _convert(
        self,
        chunk: Chunk,
        cells: Mapping[str, pa.ChunkedArray],
        features: Sequence[str],
        decimal: str,
    ) -> Floats:
        """Return the numbers, or raise for the first row with a cell that holds none."""
        columns: list[Floats] = []
        bad: dict[str, BadText] = {}
        for name in features:
            text = cells[name].combine_chunks()
            numbers = parse_numbers(text.to_pylist(), ",") if decimal == "," else to_numbers(text)
            if isinstance(numbers, BadText):
                bad[name] = numbers
            else:
                columns.append(numbers)
        if bad:
            raise self._not_a_number(chunk, bad, decimal)
        return np.column_stack(columns)

    def _not_a_number(self, chunk: Chunk, bad: Mapping[str, BadText], decimal: str) -> TableError:
        name = min(bad, key=lambda name: bad[name].row)
        cell = bad[name]
        place = _Places(chunk, self._layout)(cell.row)
        where = f"{self.path}, {place}, column {quote(name)}: {quote(cell.text)}"
        other = "." if decimal == "," else ","
        if self._layout.delimiter != b"," and parse_number(cell.text, other) is not None:
            words = {".": "decimal point", ",": "decimal comma"}
            return TableError(
                f"{where} has a {words[other]}, but other numbers in the file have a "
                f"{words[decimal or '.']}; write all numbers the same way"
            )
        also = [other for other in bad if other != name]
        others = f" (nor is text in {list_names(also)})" if also else ""
        return TableError(f"{where} is not a number{others}; {drop_advice(name)}")


@dataclass(frozen=True)
class _Places:
    """Tells the line of a row of a chunk; all the work is left to the moment it is asked."""

    chunk: Chunk
    layout: Layout

    def __call__(self, row: int) -> str:
        mask, _ = mask_quoted(self.chunk.data, self.layout.parsed_delimiter)
        blank_counts = len(self.layout.names) == 1
        records = _numbered_records(self.chunk, mask)
        lines = [line for line, record in records if record or blank_counts]
        return f"line {lines[row]}"


def _numbered_records(chunk: Chunk, mask: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield every record of a chunk, masked, and the line that it starts on."""
    line = chunk.first_line
    start = 0
    for record in mask.removesuffix(b"\n").split(b"\n"):
        yield line, record
        end = start + len(record) + 1
        line += chunk.data.count(b"\n", start, end)
        start = end


def _find_decimal(columns: Sequence[pa.ChunkedArray]) -> str:
    """Return the decimal sign of the numbers in columns of text, "" if all are whole."""
    comma = point = False
    for column in columns:
        comma = comma or any(parse_number(t, ",") is not None for t in _cells_with(column, ","))
        point = point or any(parse_number(t) is not None for t in _cells_with(column, "."))
    # Where both occur, the commas are complained about: points are the usual sign.
    return "." if point else "," if comma else ""


def _cells_with(column: pa.ChunkedArray, sign: str) -> list[str]:
    return column.filter(pc.match_substring(column, sign)).to_pylist()


def _words(column: pa.ChunkedArray) -> list[str]:
    return pc.utf8_trim_whitespace(column).to_pylist()
