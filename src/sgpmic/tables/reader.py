"""Table files: format detection, and reading in blocks.

All problems with a file raise `TableError`, with one sentence that names the location and the
remedy. Lines are numbered as in editors, with the header on line 1; rows of formats without lines
are numbered from 1, not counting any header. Pickled data is never loaded.
"""

from __future__ import annotations

import difflib
import os
import stat
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sgpmic._types import Floats
from sgpmic.tables import typed_files
from sgpmic.tables.cell_text import parse_plain_number
from sgpmic.tables.conversions import Source, column_words, to_numbers, unsupported
from sgpmic.tables.errors import TableError, check_memory, decoding, list_names, quote, unreadable
from sgpmic.tables.kinds import read_label
from sgpmic.tables.text_files import open_text

if TYPE_CHECKING:
    from sgpmic.tables.encoder import TableEncoder

# Number of runs of rows that a sample consists of, for formats with random access.
_PLACES = 20


@dataclass(frozen=True)
class Block:
    """Consecutive rows: numbers of shape (n_rows, n_features), and one list per text column."""

    values: Floats
    texts: list[list[str]]

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, length: int) -> Block:
        """Return a slice of the rows."""
        rows = slice(start, start + length)
        return Block(self.values[rows], [column[rows] for column in self.texts])

    @classmethod
    def join(cls, parts: list[Block]) -> Block:
        """Concatenate blocks.

        The list is emptied along the way, so that memory never holds everything twice. It holds
        blocks, not pieces, which keep the file's text to locate rows.
        """
        if len(parts) == 1:
            return parts[0]
        values = np.empty((sum(map(len, parts)), parts[0].values.shape[1]))
        columns = zip(*(part.texts for part in parts), strict=True)
        texts = [[text for words in column for text in words] for column in columns]
        end = len(values)
        while parts:
            part = parts.pop()
            values[end - len(part) : end] = part.values
            end -= len(part)
        return cls(values, texts)


_Rows = TypeVar("_Rows", pa.RecordBatch, Block)


class TableReader(Source):
    """Reader of a table file of any size; every call to `blocks` starts at the first row."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, or None if the file's metadata does not contain it."""
        return None if self.rows is None else len(self.rows)

    def share(self, part: int, n_parts: int) -> Self:
        """Return a reader for one of ``n_parts`` equal parts of the rows."""
        if n_parts == 1:
            return self
        if self.rows is None:
            raise TableError(f"{self.path}: processes share only Parquet and .npy; convert it")
        first, end = (i * len(self.rows) // n_parts for i in (part, part + 1))
        return replace(self, rows=self.rows[first:end])

    def raw_blocks(self, names: Sequence[str], block_rows: int | None = None) -> Iterator[pa.Table]:
        """Yield columns without conversion: as text from text files, else with their own types.

        A block has ``block_rows`` rows, except for the last; or, if None, all rows. Raises
        `TableError` if there are no rows or the file is damaged.
        """
        self.require(names)
        batches = (piece.batch for piece in self.pieces(names, self.rows or range(0)))
        yield from map(pa.Table.from_batches, self._in_blocks(batches, len(names), block_rows))

    def blocks(
        self, features: Sequence[str], texts: Sequence[str] = (), block_rows: int | None = None
    ) -> Iterator[Block]:
        """Yield `raw_blocks` of ``features``, as finite numbers or NaN, and ``texts``, as text."""
        self.require([*features, *texts])
        parts = self._converted(features, texts)
        yield from map(Block.join, self._in_blocks(parts, len(features), block_rows))

    def _in_blocks(
        self, pieces: Iterable[_Rows], n_columns: int, block_rows: int | None
    ) -> Iterator[list[_Rows]]:
        """Yield the parts of every block; raise if there are no rows, or too many for memory."""
        held: list[_Rows] = []
        n_held = n_all = 0
        if block_rows is None and self.n_rows is not None:
            check_memory(self.path, 8 * n_columns * self.n_rows)
        for piece in pieces:
            if self.n_rows is None:
                check_memory(self.path, 8 * n_columns * (n_held + len(piece)))
            n_all += len(piece)
            done = 0
            while done < len(piece):
                wanted = len(piece) if block_rows is None else block_rows - n_held
                held.append(piece.slice(done, wanted))
                done, n_held = done + len(held[-1]), n_held + len(held[-1])
                if n_held == block_rows:
                    yield held
                    held, n_held = [], 0
        if held:
            yield held
        if not n_all:
            raise TableError(f"{self.path} has columns but no rows; add at least one row of values")

    def _converted(self, features: Sequence[str], texts: Sequence[str]) -> Iterator[Block]:
        # The first number with a fraction determines the decimal separator.
        decimal = self.decimals if len(self.decimals) == 1 else ""
        names = list(dict.fromkeys([*features, *texts]))
        for batch, place in self.pieces(names, self.rows or range(0)):
            with decoding(self.path, self.kind):
                columns = {name: batch.column(name) for name in features}
                decimal = decimal or _find_decimal(columns.values())
                values = self._numbers(columns, place, decimal or ".")
                words = [column_words(batch.column(name)) for name in texts]
            yield Block(values, words)

    def _numbers(
        self, columns: Mapping[str, pa.Array], place: Callable[[int], str], decimal: str
    ) -> Floats:
        """Convert columns to finite numbers or NaN; an error names all columns that fail."""
        reasons = {kind: unsupported(kind) for kind in {one.type for one in columns.values()}}
        if wrong := [name for name, column in columns.items() if reasons[column.type]]:
            others = f" (nor are {list_names(wrong[1:])} numbers)" if wrong[1:] else ""
            reason = f"{reasons[columns[wrong[0]].type]}{others}"
            raise TableError(f"{self.path}, column {quote(wrong[0])}: {reason}", wrong)
        values, bad = to_numbers(columns, decimal)
        if bad:
            first = min(bad, key=lambda name: bad[name].row)
            text = bad[first].text
            where = f"{self.path}, {place(bad[first].row)}, column {quote(first)}: {quote(text)}"
            other = self.decimals.replace(decimal, "")
            if other and parse_plain_number(text, other) is not None:
                signs = ["decimal point", "decimal comma"][:: 1 if decimal == "." else -1]
                raise TableError(
                    f"{where} has a {signs[1]}, but other numbers in the file have a {signs[0]}; "
                    "write all numbers the same way"
                )
            wrong = list(dict.fromkeys([first, *bad]))
            others = f" (nor is text in {list_names(wrong[1:])})" if wrong[1:] else ""
            raise TableError(f"{where} is not a number{others}; correct it", wrong)
        is_infinite = np.isinf(values)
        if is_infinite.any():
            row, j = np.argwhere(is_infinite)[0].tolist()
            names = [*columns]
            more = [names[i] for i in np.flatnonzero(is_infinite.any(axis=0)) if i != j]
            others = f" (so are values of {list_names(more)})" if more else ""
            raise TableError(
                f"{self.path}, {place(row)}, column {quote(names[j])}: the value is infinite or "
                f"too large for a number{others}; correct it or remove the row"
            )
        return values

    def sample(self, names: Sequence[str], most: int) -> tuple[pa.Table, bool]:
        """Return up to ``most`` unconverted rows from across the file, and whether that is all."""
        if self.rows is not None and len(self.rows) > most:
            size = most // _PLACES
            starts = [i * (len(self.rows) - size) // (_PLACES - 1) for i in range(_PLACES)]
            parts = [replace(self, rows=self.rows[start : start + size]) for start in starts]
            return pa.concat_tables(next(part.raw_blocks(names)) for part in parts), False
        kept: list[pa.Table] = []
        stride, n_seen = 1, 0
        for block in self.raw_blocks(names, most):
            rows = np.arange(-n_seen % stride, len(block), stride)
            kept.append(block if stride == 1 else block.take(rows))
            n_seen += len(block)
            if sum(map(len, kept)) > most:
                stride *= 2
                table = pa.concat_tables(kept)
                kept = [table.take(np.arange(0, len(table), 2))]
        return pa.concat_tables(kept), stride == 1

    def require(self, columns: Sequence[str]) -> None:
        """Raise if columns are missing from the table, suggesting similar names."""
        known = set(self.names)
        missing = [name for name in columns if name not in known]
        if not missing:
            return
        by_lower = {name.casefold(): name for name in self.names}
        close = difflib.get_close_matches(missing[0].casefold(), by_lower, n=3, cutoff=0.7)
        advice, plural = f"its columns are {list_names(self.names)}", "s" * (len(missing) > 1)
        if len(missing) == 1 and close:
            advice = f"did you mean {' or '.join(quote(by_lower[match]) for match in close)}?"
        raise TableError(f"{self.path} has no column{plural} {list_names(missing)}; {advice}")

    def choose_features(self, columns: Sequence[str], others: Collection[str] = ()) -> list[str]:
        """Return ``columns`` or, if empty, all but ``others``."""
        self.require([*columns, *others])
        twice = next((name for i, name in enumerate(columns) if name in columns[:i]), None)
        if twice is not None:
            raise TableError(f"{self.path}: column {quote(twice)} is given twice; name it once")
        features = list(columns) or [name for name in self.names if name not in others]
        if not features:
            raise TableError(
                f"{self.path}: no feature column is left of {list_names(self.names)}; drop fewer"
            )
        return features


def _find_decimal(columns: Collection[pa.Array]) -> str:
    """Return the decimal separator in text columns, "" if all numbers are whole."""
    # If both occur, the commas are reported as errors: points are more common.
    for sign in ".,":
        for column in columns:
            cells = column.filter(pc.match_substring(column, sign)).to_pylist()
            if any(parse_plain_number(text, sign) is not None for text in cells):
                return sign
    return ""


class _Format(NamedTuple):
    """A file format: description, file extensions, magic bytes, and function to open it."""

    words: str
    endings: tuple[str, ...]
    starts: tuple[bytes, ...]
    open: Callable[[str], Source]


_TEXT = _Format("text", (".csv", ".tsv", ".txt"), (), open_text)
_ARROW = _Format(
    "an Arrow file",
    (".feather", ".arrow", ".ipc"),
    (b"ARROW1", b"\xff\xff\xff\xff"),
    typed_files.open_ipc,
)
_JSON = _Format("a JSON file", (".json", ".jsonl", ".ndjson"), (), typed_files.open_json)
_WORKBOOK = _Format("an Excel workbook", (".xlsx", ".xlsm"), (), typed_files.open_workbook)
_ZIP = _Format("a zip archive", (".npz",), (b"PK\x03\x04", b"PK\x05\x06"), typed_files.open_npz)
_GZIP_ENDINGS = tuple(f"{ending}.gz" for ending in _TEXT.endings)
_FORMATS = (
    _TEXT,
    _Format("a gzip file", _GZIP_ENDINGS, (b"\x1f\x8b",), partial(open_text, zipped=True)),
    _Format("a Parquet file", (".parquet", ".pq"), (b"PAR1",), typed_files.open_parquet),
    _ARROW,
    _Format("a NumPy file", (".npy",), (b"\x93NUMPY",), typed_files.open_npy),
    _ZIP,
    _JSON,
    _WORKBOOK,
)
_FOREIGN = (
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "save the sheet as CSV"),
    (b"FEA1", "a Feather file of version 1", "write it again with a current Feather"),
    (b"BZh", "compressed with bzip2", "unpack it first"),
    (b"\xfd7zXZ", "compressed with xz", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it first"),
    (b"\x89HDF", "an HDF5 file", "export the table as CSV or Parquet"),
)


def open_table(path: str | os.PathLike[str]) -> TableReader:
    """Open a table of any size; for most formats, only the header or schema is read.

    The extension is .csv, .tsv or .txt (optionally with .gz), .parquet or .pq, .feather, .arrow or
    .ipc, .npy or .npz, .json, .jsonl or .ndjson (records), or .xlsx (the first sheet); otherwise
    the first bytes determine the format. Raises `TableError` if it is not a readable table.
    """
    name = os.fsdecode(path)
    source = _find_format(name, _first_bytes(name)).open(name)
    return TableReader(**vars(source))


def without_ending(path: str | os.PathLike[str]) -> str:
    """Return a table's file name without folder and extension."""
    name = os.path.basename(os.fsdecode(path))
    endings = [end for kind in _FORMATS for end in kind.endings]
    return next((name[: -len(end)] for end in endings if name.lower().endswith(end)), name)


def _first_bytes(path: str) -> bytes:
    """Return the first bytes of a file, after checking that it exists and is readable."""
    start = b""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):  # a pipe can be read only once, and opening one may block forever
            with open(path, "rb") as file:
                start = file.read(64)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise TableError(f"{path}: there is no such file; check the path") from None
    except OSError as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        raise TableError(f"{path} is a folder; name a table in it")
    if not stat.S_ISREG(mode):
        raise TableError(f"{path} is not a regular file; save the table to a file first")
    if not start:
        raise TableError(f"{path} is empty; export the table again")
    return start


def _find_format(path: str, start: bytes) -> _Format:
    found = _TEXT
    # The header of a CSV may start with PAR1, but text has no control characters.
    if not all(byte >= 0x20 or byte in b"\t\n\r\f" for byte in start):
        for magic, what, remedy in _FOREIGN:
            if start.startswith(magic):
                raise TableError(f"{path} is {what}; {remedy}")
        found = next((kind for kind in _FORMATS if start.startswith(kind.starts)), _TEXT)
    elif start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"[", b"{")):
        found = _JSON
    if found is _ZIP:
        members: list[str] = []
        # If it is damaged, the archive reader reports it.
        with suppress(Exception), zipfile.ZipFile(path) as archive:
            members = archive.namelist()
        if "xl/workbook.xml" in members:
            found = _WORKBOOK
        elif "[Content_Types].xml" in members or "mimetype" in members:
            raise TableError(f"{path} is an OpenDocument or other workbook; save the sheet as CSV")
    expected = next((kind for kind in _FORMATS if path.lower().endswith(kind.endings)), None)
    # Streams of old Arrow versions have no magic bytes, only a length.
    # The header of a CSV may start like JSON.
    if expected in (None, found) or (expected, found) in ((_ARROW, _TEXT), (_TEXT, _JSON)):
        return expected or found
    raise TableError(f"{path} is not {expected.words}, it starts like {found.words}; rename it")


@dataclass(frozen=True)
class Table:
    """A table of numbers in memory; the fields from ``columns`` on are those of `Dataset.read`."""

    values: Floats  # (n_rows, n_features) in C order: finite, or NaN where missing
    names: tuple[str, ...]  # of the features, or of the columns that they encode
    ids: list[str] | None  # the id column as text
    id_name: str | None
    labels: list[str] | None  # the label column as text; empty where missing
    label_name: str | None
    columns: Sequence[dict[str, Any]] = ()  # all of the file: sgpmic.tables.columns.Column
    judged_by: int | None = None  # number of rows that the encoder was fitted to, None for all
    encoder: TableEncoder | None = None  # None if values are the numbers in the file
    notes: tuple[str, ...] = ()  # warnings about cells
    first_row: int = 0  # number of rows in the file before these

    @staticmethod
    def of(rows: Block, names: Sequence[str], id_name: str | None, label_name: str | None) -> Table:
        """Build a table from a block whose text columns are the ids and the labels, if any."""
        ids = None if id_name is None else rows.texts[0]
        labels = None if label_name is None else read_label(rows.texts[-1])[0]
        return Table(rows.values, tuple(names), ids, id_name, labels, label_name)


def read_table(
    path: str | os.PathLike[str], *, columns: Sequence[str] = (), share: tuple[int, int] = (0, 1)
) -> Table:
    """Read a table of numbers into memory.

    ``columns`` are the features, in the desired order; all if empty. ``share`` is the index, from
    0, of the part of the rows to read, and the number of equal parts they are divided into.

    Raises `TableError` if the file is not a table, a column does not exist, or a value is infinite
    or not a number.
    """
    reader = open_table(path)
    features = reader.choose_features(columns)
    block = next(reader.share(*share).blocks(features))
    return Table.of(block, features, None, None)
