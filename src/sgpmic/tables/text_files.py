"""Delimited text files; the dialect is detected from the first lines.

Files are read in chunks of whole records: decompressed, valid UTF-8, line ends normalized to LF.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv

from sgpmic.tables.cell_text import parse_plain_number
from sgpmic.tables.conversions import Piece, Source, numbered_names
from sgpmic.tables.errors import (
    MOST_COLUMNS,
    TableError,
    check_count,
    check_names,
    damaged,
    unreadable,
)

#: Whitespace as a delimiter: any run of spaces and tabs, collapsed to one tab.
WHITE = b" \t"

_KIND = "a text table"
_CHUNK_BYTES = 4 << 20
_LONGEST_RECORD = 64 << 20
# Excel's line that names the delimiter; skipped, since the other lines tell it too.
_SEPARATOR_LINE = re.compile(rb'"?sep=."?(?=\n)')
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# Sample of a file that its layout is detected from.
_SAMPLE_BYTES = 1 << 16
_SAMPLE_RECORDS, _LONG_RECORDS = 100, 3
# In order of preference, to break ties; whitespace last, as it depends on the others.
_DELIMITERS = (b"\t", b";", b"|", b",", WHITE)
# Bonus for a delimiter that yields the same number of fields in all lines; penalty for whitespace.
_REGULAR, _WHITE_DOUBT = 0.5, 0.2
_QUOTED = re.compile(r'\A"((?:[^"]|"")*+)"(.*)', re.DOTALL)


class Chunk(NamedTuple):
    """Whole records, and the number of the line they start on."""

    data: bytes
    first_line: int


def mask_quoted(data: bytes, delimiters: bytes) -> tuple[bytes, int]:
    """Mask quoted fields; also return the start of an unclosed one, or the length of the data.

    The remaining delimiters and line ends are the real ones, at unchanged offsets.
    """
    if b'"' not in data:
        return data, len(data)
    unfinished = len(data)

    def overwrite(match: re.Match[bytes]) -> bytes:
        nonlocal unfinished
        if not match[1]:
            unfinished = match.start()
        return b"x" * len(match[0])

    # A quoted field, possibly unclosed. The pattern starts with the quote, which the regex engine
    # finds quickly, and looks behind from there. Possessive quantifiers, so that a field of
    # megabytes needs neither stack nor backtracking.
    before = rb"(?<![^\n" + re.escape(delimiters) + rb']")'
    return re.sub(rb'"' + before + rb'[^"]*+(?:""[^"]*+)*+("?)', overwrite, data), unfinished


def cut(data: bytes, delimiters: bytes, at: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Split text at every unquoted ``at``; yield each part plain and masked."""
    start = 0
    for masked in mask_quoted(data, delimiters)[0].split(at):
        yield data[start : start + len(masked)], masked
        start += len(masked) + 1


_WHITE_RUN = re.compile(
    rb'("(?<![^\n\t ]")[^"]*+(?:""[^"]*+)*+")|(^[ \t]+|[ \t]+$)|[ \t]+', re.MULTILINE
)


def squeeze_white(data: bytes) -> bytes:
    """Collapse whitespace between fields to one tab, and strip every line."""
    if b'"' in data:
        # Keep quoted fields; remove whitespace at the edges of lines.
        return _WHITE_RUN.sub(lambda found: found[1] or (b"" if found[2] else b"\t"), data)
    # The same without quotes, in a tenth of the time.
    data = data.replace(b" ", b"\t")
    while b"\t\t" in data:
        data = data.replace(b"\t\t", b"\t")
    return data.replace(b"\t\n", b"\n").replace(b"\n\t", b"\n").strip(b"\t")


def read_chunks(path: str, zipped: bool, delimiters: bytes, scale: int) -> Iterator[Chunk]:
    """Yield a text file's records, without blank lines at its end.

    ``delimiters`` are those after which a quote opens a quoted field; chunks have ``scale`` times
    the default size.
    """
    line = 1
    held = b""
    enough = 0
    for text in _clean_text(path, zipped, scale):
        held += text
        if len(held) < enough:
            continue  # scanning again after every read would take quadratic time
        # The end of the last record that is complete and not blank. Blank lines are held back,
        # because they are dropped at the end of the file.
        mask, unfinished = mask_quoted(held, delimiters)
        end = mask.rfind(b"\n", 0, unfinished) + 1
        content = len(mask[:end].rstrip(b" \n"))
        if content:
            end = mask.index(b"\n", content) + 1
            yield Chunk(held[:end], line)
            line += held.count(b"\n", 0, end)
            held = held[end:]
        enough = 2 * len(held)
        if len(held) > _LONGEST_RECORD:
            raise TableError(
                f"{path}, line {line}: the row is longer than {_LONGEST_RECORD >> 20} MB; "
                "check the line endings and that every quote is closed"
            )
    held = held.rstrip(b" \n")
    if held:
        unfinished = mask_quoted(held, delimiters)[1]
        if unfinished < len(held):
            line += held.count(b"\n", 0, unfinished)
            raise TableError(f"{path}, line {line}: a quote is never closed; close or remove it")
        yield Chunk(held + b"\n", line)


def _clean_text(path: str, zipped: bool, scale: int = 1) -> Iterator[bytes]:
    """Yield the text of a file, validated, without byte order mark and carriage returns."""
    line, offset = 1, 0  # where the next text starts: line, and byte offset in the line
    opener = gzip.open if zipped else open
    try:
        # Invalid bytes become surrogates, which cannot be encoded as UTF-8.
        with opener(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as file:
            while text := file.read(scale * _CHUNK_BYTES):
                try:
                    data = text.encode()
                except UnicodeEncodeError as error:
                    before = text[: error.start].encode()
                    offset = 0 if b"\n" in before else offset
                    place = offset + len(before) - before.rfind(b"\n")
                    odd = text[error.start : error.start + 2].encode(errors="surrogateescape")
                    raise _not_utf8(path, line + before.count(b"\n"), place, odd) from None
                if (line, offset) == (1, 0) and (found := _SEPARATOR_LINE.match(data)):
                    data = data[found.end() :]
                if b"\0" in data:
                    line += data.count(b"\n", 0, data.index(b"\0"))
                    raise TableError(f"{path}, line {line}: a zero byte; export it again as CSV")
                yield data
                line += data.count(b"\n")
                offset = len(data) - data.rfind(b"\n") - 1 + (0 if b"\n" in data else offset)
    except EOFError:
        raise TableError(f"{path} is truncated; copy or export it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, "a gzip file", error) from None
    except OSError as error:
        raise unreadable(path, error) from error


def _not_utf8(path: str, line: int, place: int, found: bytes) -> TableError:
    """Return the error for invalid UTF-8; ``place`` is the byte in the line, from 1."""
    encoding = "CP1252"
    what = f"byte {place} of the line is 0x{found[0]:02x}, which is not UTF-8; save it as UTF-8"
    if (line, place) == (1, 1) and found in _UTF16:
        encoding, what = "UTF-16", "the text is UTF-16, not UTF-8; save it as UTF-8"
    return TableError(
        f"{path}, line {line}: {what}, for instance with "
        f"`iconv -f {encoding} -t UTF-8 {shlex.quote(path)} > new.csv`"
    )


def open_text(path: str, zipped: bool = False) -> Source:
    """Open a delimited text file, optionally compressed with gzip."""
    file = _TextFile(path, zipped)
    # A comma that delimits fields is not a decimal separator.
    decimals = "." if file.delimiter == b"," else ".,"
    return Source(path, _KIND, file.names, file.pieces, None, decimals)


class _TextFile:
    def __init__(self, path: str, zipped: bool) -> None:
        self.path = path
        self._zipped = zipped
        start = content = b""
        for text in _clean_text(path, zipped):
            start += text
            content = start.lstrip(b" \t\n")
            if len(start) > _LONGEST_RECORD or (len(start) >= _SAMPLE_BYTES and b"\n" in content):
                break
        if not content:
            raise TableError(f"{path} is empty; export the table again")
        line = content.partition(b"\n")[0]
        n_words = len(line.split(maxsplit=MOST_COLUMNS))
        check_count(path, max(n_words, *map(line.count, b"\t;|,")))
        self.delimiter, self.names, has_header = find_layout(start)
        self._parsed = self.delimiter[-1:]  # after whitespace is collapsed
        self._first_line = 1 + start.count(b"\n", 0, len(start) - len(content))
        self._first_row = self._first_line  # the line after the header
        if has_header:
            self._first_row += 1 + next(cut(content, self.delimiter, b"\n"))[0].count(b"\n")
        check_names(path, self.names, f", line {self._first_line}")
        # Column names for Arrow: users' names may be anything.
        self._keys = {name: str(i) for i, name in enumerate(self.names)}

    def pieces(self, names: Sequence[str], rows: range) -> Iterator[Piece]:
        """Yield the columns of every chunk as text, without the header."""
        # Larger chunks if there are many columns, to amortize the overhead per column.
        scale = min(max(len(self.names) // 2000, 1), 8)
        for data, line in read_chunks(self.path, self._zipped, self.delimiter, scale):
            if (skipped := self._first_row - line) > 0:
                data, line = b"".join(data.split(b"\n", skipped)[skipped:]), self._first_row
            if self.delimiter == WHITE:
                data = squeeze_white(data)
            if data.strip(b"\n"):
                chunk, batch = self._parse(Chunk(data, line), names)
                yield Piece(batch, partial(self._place, chunk))

    def _place(self, chunk: Chunk, row: int) -> str:
        return f"line {list(self._lines(chunk))[row][0]}"

    def _parse(self, chunk: Chunk, names: Sequence[str]) -> tuple[Chunk, pa.RecordBatch]:
        """Parse columns as text; also return the chunk as parsed."""
        with contextlib.suppress(pa.ArrowInvalid):
            return chunk, self._columns(chunk.data, names)
        # Retry without whitespace-only lines; if tabs delimit, a line of tabs may be a row.
        blank = rb"^ +$" if self._parsed == b"\t" else rb"^[ \t]+$"
        chunk = chunk._replace(data=re.sub(blank, b"", chunk.data, flags=re.MULTILINE))
        try:
            return chunk, self._columns(chunk.data, names)
        except pa.ArrowInvalid as error:
            expected = len(self.names)
            for line, found in self._lines(chunk):
                if found != expected:
                    raise TableError(
                        f"{self.path}, line {line}: found {found} value{'s' * (found != 1)}, "
                        f"expected {expected} as in line {self._first_line}; correct the line, or "
                        "quote text that contains the delimiter"
                    ) from None
            raise damaged(self.path, _KIND, error) from None

    def _columns(self, data: bytes, names: Sequence[str]) -> pa.RecordBatch:
        keys = [self._keys[name] for name in names]
        table = pyarrow.csv.read_csv(
            pa.py_buffer(data),
            read_options=pyarrow.csv.ReadOptions(
                column_names=list(self._keys.values()),
                block_size=len(data) + 1,  # one block, so that no row is split
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self._parsed.decode(),
                newlines_in_values=b'"' in data,
                # In a single-column table, an empty line is a missing value.
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

    def _lines(self, chunk: Chunk) -> Iterator[tuple[int, int]]:
        """Yield, for every row of a chunk, its first line and its number of values."""
        line = chunk.first_line
        for record, masked in cut(chunk.data.removesuffix(b"\n"), self._parsed, b"\n"):
            if masked or len(self.names) == 1:
                yield line, masked.count(self._parsed) + 1
            line += record.count(b"\n") + 1


class Layout(NamedTuple):
    """Dialect and column names of a text file."""

    delimiter: bytes  # WHITE for any whitespace
    names: tuple[str, ...]  # of the columns
    has_header: bool  # whether the first record holds the names


def find_layout(start: bytes) -> Layout:
    """Detect the layout of a file from its first bytes, which include a whole record."""
    scores, any_regular = dict.fromkeys(_DELIMITERS, 0.0), False
    rows_by_delimiter = {delimiter: _first_rows(start, delimiter) for delimiter in _DELIMITERS}
    for delimiter, rows in rows_by_delimiter.items():
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
    delimiter = best if scores[best] > 0 else b","
    cells = rows_by_delimiter[delimiter][0]
    numbers = [_as_number(cell, delimiter) for cell in cells]
    words = any(number is None for number in numbers) or all(math.isnan(n or 0) for n in numbers)
    # Years and codes may be column names, but 5.1 rarely is.
    has_fraction = any(n is not None and math.isfinite(n) and not n.is_integer() for n in numbers)
    if words and not has_fraction:
        names = [cell.strip() or f"column_{i + 1}" for i, cell in enumerate(cells)]
        return Layout(delimiter, tuple(names), has_header=True)
    return Layout(delimiter, numbered_names(len(cells)), has_header=False)


def _as_number(cell: str, delimiter: bytes) -> float | None:
    decimals = "." if delimiter == b"," else ".,"
    numbers = (parse_plain_number(cell, decimal) for decimal in decimals)
    return next((number for number in numbers if number is not None), None)


def _first_rows(start: bytes, delimiter: bytes) -> list[list[str]]:
    """Return the unquoted fields of the first records that are not blank."""
    # A few records suffice if they are very long.
    for sample, most in ((start[:_SAMPLE_BYTES], _SAMPLE_RECORDS), (start, _LONG_RECORDS)):
        records = [record for record, _ in cut(sample, delimiter, b"\n")]
        if len(sample) < len(start):
            records.pop()  # may be truncated
        records = [record for record in records if record.strip(b" \t")][:most]
        if records:
            break
    return [_split_record(record, delimiter) for record in records]


def _split_record(record: bytes, delimiter: bytes) -> list[str]:
    if delimiter == WHITE:
        record, delimiter = squeeze_white(record), b"\t"
    fields = (field.decode("utf-8", "replace") for field, _ in cut(record, delimiter, delimiter))
    return [_QUOTED.sub(lambda m: m[1].replace('""', '"') + m[2], field) for field in fields]
