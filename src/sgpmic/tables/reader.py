"""Users' tables in files: which format a file has, and the readers of all but text.

Whatever is wrong with a file, `TableError` says it in one sentence that names the place and what
to do. Lines are counted as editors count them, the header being line 1; rows, where a format has
no lines, are counted from 1 without any header. Nothing pickled is ever loaded.
"""

from __future__ import annotations

import json
import math
import os
import posixpath
import stat
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from importlib import import_module
from typing import Any, NamedTuple, Self
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sgpmic._types import Floats
from sgpmic.tables.base import Block, Piece, TableReader, check_count, check_memory, check_unique
from sgpmic.tables.cell_text import MISSING_WORDS
from sgpmic.tables.conversions import as_frame, numbered_names
from sgpmic.tables.errors import TableError, damaged, decoding, list_names, quote, unreadable
from sgpmic.tables.text_files import TextReader

# Places that a sample is read from, where rows can be found without reading those before.
_PLACES = 20
# Rows of a piece.
_ROWS = 65536
_BUFFER_BYTES = 1 << 20
_FILE_MAGIC = b"ARROW1"
# Larger tables of which a smaller share of the cells has a value are mistakes.
_MOST_EMPTY, _FEWEST_FILLED = 10**8, 1e-3
# Arrays of these names in an archive are the table, and the names of its columns.
_DATA_NAMES, _NAMES_NAMES = ("X", "data"), ("names", "columns")


# ------------------------------------------------------------------------------ Arrow


class ArrowReader(TableReader):
    """A table that comes as Arrow record batches."""

    def __init__(self, path: str, names: Sequence[str], n_rows: int | None = None) -> None:
        self.path, self.names = path, tuple(names)
        self.rows = None if n_rows is None else range(n_rows)
        check_unique(path, self.names)

    @abstractmethod
    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Open the file and yield record batches that hold at least the columns of these names."""

    def pieces(self, names: Sequence[str]) -> Iterator[Piece]:
        """Yield the columns of every record batch, no more than some rows at a time."""
        before = 0 if self.rows is None else self.rows.start
        batches = self._batches(names)
        while True:
            with decoding(self.path, self.kind):
                batch = next(batches, None)
                if batch is None:
                    return
                batch = batch.select(list(names))
                # Arrow trusts offsets in a file; without this a damaged one could end the process.
                batch.validate(full=True)
            for start in range(0, len(batch), _ROWS):
                yield Piece(batch.slice(start, _ROWS), partial(_place, before + start + 1))
            before += len(batch)


def _place(first: int, row: int) -> str:
    return f"row {first + row}"


class ParquetReader(ArrowReader):
    """A Parquet file; only its schema is read at first, and of some rows only their row groups."""

    kind = "a Parquet file"
    rows: range

    def __init__(self, path: str) -> None:
        with decoding(path, self.kind), pq.ParquetFile(path) as file:
            # Names may turn out not to be UTF-8.
            names, n_rows = file.schema_arrow.names, file.metadata.num_rows
        super().__init__(path, names, n_rows)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # Through a small buffer: one row group may be the whole file, which would be loaded whole.
        options = {"buffer_size": _BUFFER_BYTES, "pre_buffer": False}
        with pq.ParquetFile(self.path, **options, page_checksum_verification=True) as file:
            # Of the row groups those that hold the rows, and the number of rows before them.
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            ends = np.cumsum([0, *sizes])
            groups = np.flatnonzero((ends[:-1] < self.rows.stop) & (ends[1:] > self.rows.start))
            before = int(ends[groups[0]]) if len(groups) else 0
            for batch in file.iter_batches(_ROWS, groups.tolist(), list(names)):
                wanted = batch.slice(
                    max(self.rows.start - before, 0),
                    max(self.rows.stop - max(before, self.rows.start), 0),
                )
                before += len(batch)
                if len(wanted):
                    yield wanted


class IpcReader(ArrowReader):
    """An Arrow IPC file or stream, such as a Feather file; only its schema is read at first."""

    kind = "an Arrow or Feather file"

    def __init__(self, path: str) -> None:
        # Not memory-mapped: a file that is cut while it is read would end the process.
        with decoding(path, self.kind), pa.OSFile(path) as source:
            self._is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            source.seek(0)
            opener = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
            names = opener(source).schema.names
        super().__init__(path, names)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        index = {name: i for i, name in enumerate(self.names)}
        options = pa.ipc.IpcReadOptions(included_fields=[index[name] for name in names])
        with pa.OSFile(self.path) as source:
            if self._is_file:
                reader = pa.ipc.open_file(source, options=options)
                for i in range(reader.num_record_batches):
                    yield reader.get_batch(i)
            else:
                yield from pa.ipc.open_stream(source, options=options)


# ------------------------------------------------------------------------------ records


class FrameReader(ArrowReader):
    """A table that was read from a file as a whole."""

    rows: range

    def __init__(self, path: str, kind: str, frame: Any) -> None:
        self.kind = kind
        try:
            found = as_frame(frame)
        except TableError as error:
            raise TableError(f"{path}, {error}") from None
        if not found.names:
            raise TableError(f"{path} has no columns; export the table again")
        super().__init__(path, found.names, found.n_rows)
        self._table = pa.table(list(found.columns), names=list(found.names))

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = self._table.slice(self.rows.start, len(self.rows))
        yield from rows.select(list(names)).to_batches()


def open_json(path: str) -> FrameReader:
    """Open a JSON file of records: a list of objects, or one object in every line."""
    kind = "a JSON file"
    with decoding(path, kind), open(path, encoding="utf-8-sig") as file:
        text = file.read()
        try:
            records = json.loads(text)
        except json.JSONDecodeError:
            records = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not (isinstance(records, list) and all(isinstance(record, dict) for record in records)):
        raise TableError(
            f'{path} is JSON, but not a list of records ([{{"a": 1, …}}, …]); export the table as '
            "records, or as CSV"
        )
    names = dict.fromkeys(name for record in records for name in record)
    _check_size(path, len(records), len(names), sum(map(len, records)))
    columns = {name: [record.get(name) for record in records] for name in names}
    return FrameReader(path, kind, columns)


def open_workbook(path: str) -> FrameReader:
    """Open the first sheet of an Excel workbook, by pandas or polars where they are installed."""
    kind = "an Excel workbook"
    with decoding(path, kind):
        size = _sheet_size(path)
    _check_size(path, *size)
    for library in ("pandas", "polars"):
        try:
            frame = import_module(library).read_excel(path)
        except ImportError:  # of the library, or of what it reads workbooks with
            continue
        except Exception as error:  # damaged bytes raise errors of many types
            raise damaged(path, kind, error) from error
        return FrameReader(path, kind, frame)
    raise TableError(
        f"{path} is {kind}; install pandas and openpyxl to read it, or save the sheet as CSV"
    )


def _check_size(path: str, n_rows: int, n_columns: int, n_filled: int) -> None:
    """Raise where a table whose file has only the cells with a value would fill the memory."""
    check_count(path, n_columns)
    n_cells = n_rows * n_columns
    if n_cells > _MOST_EMPTY and n_filled < _FEWEST_FILLED * n_cells:
        raise TableError(
            f"{path} has {n_rows} rows and {n_columns} columns, but only {n_filled} of these "
            f"{n_cells} cells have a value; remove columns or cells that do not belong to the table"
        )
    # Of every cell there is a pointer at first, and then a number or a place of a text.
    check_memory(path, 16 * n_cells)


def _sheet_size(path: str) -> tuple[int, int, int]:
    """Return the last row and column of a workbook's first sheet, and its number of values.

    Cells without a value, which may have a color, do not count. The sheet itself may say something
    else about its size.
    """
    last_row = last_column = n_values = row = column = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal last_row, last_column, n_values, row, column
        tag = tag.rpartition(":")[2]
        if tag == "row":
            row, column = int(attributes.get("r", row + 1)), 0
        elif tag == "c":
            column += 1
            if "r" in attributes:
                letters = attributes["r"].rstrip("0123456789")
                row = int(attributes["r"][len(letters) :])
                column = reduce(lambda n, letter: 26 * n + int(letter, 36) - 9, letters, 0)
        elif tag in ("v", "is"):
            last_row, last_column = max(last_row, row), max(last_column, column)
            n_values += 1

    with zipfile.ZipFile(path) as archive:
        sheets = _tags(archive, "xl/workbook.xml", "sheet")
        parts = _tags(archive, "xl/_rels/workbook.xml.rels", "Relationship") if sheets else []
        files = {part["Id"]: part["Target"] for part in parts if part["Type"].endswith("worksheet")}
        found = [files[sheet["id"]] for sheet in sheets if sheet["id"] in files]
        if found:
            parser = expat.ParserCreate()
            parser.StartElementHandler = start
            with archive.open(posixpath.join("/xl", found[0])[1:]) as file:
                parser.ParseFile(file)
    return last_row, last_column, n_values


def _tags(archive: zipfile.ZipFile, member: str, tag: str) -> list[dict[str, str]]:
    """Return the attributes of all elements of a name, without namespaces."""
    elements = ElementTree.fromstring(archive.read(member)).findall(f".//{{*}}{tag}")
    return [{k.rpartition("}")[2]: v for k, v in element.items()} for element in elements]


# ------------------------------------------------------------------------------ NumPy


class ArrayReader(ArrowReader):
    """A two-dimensional array, in memory or mapped from a file."""

    kind = "a NumPy file"
    rows: range

    def __init__(self, path: str, array: NDArray[Any], names: Sequence[str]) -> None:
        super().__init__(path, names, len(array))
        self._array = array

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        index = {name: i for i, name in enumerate(self.names)}
        # Whole numbers may be labels of more digits than a float has.
        whole = self._array.dtype.kind in "iu"
        dtype = self._array.dtype.newbyteorder("=") if whole else np.float64
        # A few rows at a time, so that little of a mapped file is in memory.
        for start in self.rows[::_ROWS]:
            rows = np.asarray(self._array[start : min(start + _ROWS, self.rows.stop)])
            # Numbers beyond float64's range become infinite, which is reported as such.
            with np.errstate(over="ignore"):
                columns = [np.ascontiguousarray(rows[:, index[name]], dtype) for name in names]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), list(names))


def open_npy(path: str) -> ArrayReader:
    """Open a ``.npy`` file; the array stays on disk."""
    with decoding(path, "a NumPy file"):
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            if "allow_pickle" in str(error) or "Python objects" in str(error):
                raise _has_objects(path) from None
            raise
    _check_table(path, array.shape, array.dtype)
    return ArrayReader(path, array, numbered_names(array.shape[1]))


def open_npz(path: str) -> ArrayReader:
    """Open a ``.npz`` file: its only two-dimensional array, or the one named X or data.

    Of the others only the headers are read.
    """
    with decoding(path, "a NumPy archive"), np.load(path, allow_pickle=False) as archive:
        headers = {
            member.filename.removesuffix(".npy"): _read_header(path, archive.zip, member)
            for member in archive.zip.infolist()
        }
        name = _choose(path, headers)
        where, (shape, dtype) = f"{path}, array {name!r}", headers[name]
        _check_table(where, shape, dtype)
        check_memory(where, math.prod(shape) * dtype.itemsize)
        key = next((key for key in _NAMES_NAMES if key in headers and key != name), None)
        names = numbered_names(shape[1])
        if key is not None:
            names = _read_names(path, archive, key, headers[key], shape[1])
        return ArrayReader(path, archive[name], names)


_Header = tuple[tuple[int, ...], np.dtype[Any]]  # shape and type


def _read_header(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> _Header:
    """Return what an array says of itself; raise where it is not what is there."""
    where = f"{path}, array {member.filename.removesuffix('.npy')!r}"
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
        except ValueError:
            raise TableError(f"{where} is not an array; leave it out") from None
        first = np.lib.format.read_array_header_1_0
        shape, _, dtype = (
            first(file) if version == (1, 0) else np.lib.format.read_array_header_2_0(file)
        )
        if dtype.hasobject:
            raise _has_objects(where)
        declared, found = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
    if declared != found:
        raise TableError(
            f"{where} should have {declared} bytes and has {found}; it is damaged, save it again"
        )
    return shape, dtype


def _has_objects(where: str) -> TableError:
    return TableError(
        f"{where} holds Python objects, which are not loaded for safety; convert it with "
        ".astype(float), or names with .astype(str), and save it again"
    )


def _choose(path: str, arrays: dict[str, _Header]) -> str:
    """Return the name of the array that is the table."""
    if not arrays:
        raise TableError(f"{path} holds no array; save one with numpy.savez({path!r}, X=array)")
    others = [name for name in arrays if name not in _NAMES_NAMES]
    tables = [name for name in others if len(arrays[name][0]) == 2]
    named = [name for name in _DATA_NAMES if name in arrays]
    if not named and len(tables) != 1 and (tables or len(arrays) > 1):
        raise TableError(
            f"{path} holds {len(tables)} two-dimensional arrays (of {list_names(list(arrays))}); "
            "name the table X"
        )
    return [*named, *tables, *arrays][0]  # if it is none, its shape is complained about next


def _check_table(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise unless an array is a table of numbers."""
    wrong = ""
    if dtype.kind not in "biuf":
        wrong = f"holds {dtype} values, not numbers; convert it with .astype(float)"
    elif len(shape) != 2:
        hint = "; for one column use .reshape(-1, 1)" if len(shape) == 1 else ""
        wrong = (
            f"has shape {shape}, a table has rows and columns{hint}; save a two-dimensional array"
        )
    elif not shape[1]:
        wrong = "has no columns; save an array with at least one"
    elif not shape[0]:
        wrong = "has columns but no rows; add at least one row of values"
    if wrong:
        raise TableError(f"{where} {wrong}")
    check_count(where, shape[1])


def _read_names(path: str, archive: Any, key: str, header: _Header, count: int) -> tuple[str, ...]:
    """Return the names of the columns that an archive gives."""
    where = f", array {key!r}"
    if header[1].kind not in "US" or header[0] != (count,):
        raise TableError(
            f"{path}{where} does not name the {count} columns; save a one-dimensional array of "
            f"{count} strings"
        )
    check_memory(path + where, count * header[1].itemsize)
    try:
        names = [n.decode() if isinstance(n, bytes) else n for n in archive[key].tolist()]
    except UnicodeDecodeError:
        raise TableError(
            f"{path}{where} holds names that are not UTF-8; save them with .astype(str)"
        ) from None
    check_unique(path, names, where)
    return tuple(names)


# ------------------------------------------------------------------------------ formats


class _Format(NamedTuple):
    """A kind of file: in words, how its name ends, how it starts, and what reads it."""

    words: str
    endings: tuple[str, ...]
    starts: tuple[bytes, ...]
    open: Callable[[str], TableReader]


_TEXT = _Format("text", (".csv", ".tsv", ".txt"), (), TextReader)
_ARROW = _Format(
    "an Arrow file", (".feather", ".arrow", ".ipc"), (b"ARROW1", b"\xff\xff\xff\xff"), IpcReader
)
_JSON = _Format("a JSON file", (".json", ".jsonl", ".ndjson"), (), open_json)
_WORKBOOK = _Format("an Excel workbook", (".xlsx", ".xlsm"), (), open_workbook)
_ZIP = _Format("a zip archive", (".npz",), (b"PK\x03\x04", b"PK\x05\x06"), open_npz)
_FORMATS = (
    _TEXT,
    _Format(
        "a gzip file",
        (".csv.gz", ".tsv.gz", ".txt.gz"),
        (b"\x1f\x8b",),
        partial(TextReader, zipped=True),
    ),
    _Format("a Parquet file", (".parquet", ".pq"), (b"PAR1",), ParquetReader),
    _ARROW,
    _Format("a NumPy file", (".npy",), (b"\x93NUMPY",), open_npy),
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
    """Open a table of any size; of most formats only the header or schema is read.

    A file ends in .csv, .tsv or .txt (each perhaps with .gz), .parquet or .pq, .feather, .arrow or
    .ipc, .npy or .npz, .json, .jsonl or .ndjson (records), or .xlsx (the first sheet); with any
    other ending its first bytes decide. A `TableError` says why it is not a table that can be read.
    """
    name = os.fsdecode(path)
    return _find_format(name, _first_bytes(name)).open(name)


def without_ending(path: str | os.PathLike[str]) -> str:
    """Return a table's name without its folder and the ending that tells its format."""
    name = os.path.basename(os.fsdecode(path))
    endings = [end for kind in _FORMATS for end in kind.endings]
    return next((name[: -len(end)] for end in endings if name.lower().endswith(end)), name)


def _first_bytes(path: str) -> bytes:
    """Return how a file starts, after checking that it is there and can be read."""
    start = b""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):  # a pipe can be read once only, and opening one may wait for ever
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
    """Return the format of a file from its ending, or from its first bytes."""
    found = _TEXT
    # Columns of a CSV may be named PAR1, PAR2; but text has no control characters.
    if not all(byte >= 0x20 or byte in b"\t\n\r\f" for byte in start):
        for magic, what, remedy in _FOREIGN:
            if start.startswith(magic):
                raise TableError(f"{path} is {what}; {remedy}")
        found = next((kind for kind in _FORMATS if start.startswith(kind.starts)), _TEXT)
    elif start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"[", b"{")):
        found = _JSON
    if found is _ZIP:
        found = _workbook(path) or found
    expected = next((kind for kind in _FORMATS if path.lower().endswith(kind.endings)), None)
    # A stream of an old Arrow starts with nothing but a length, which looks like anything.
    # A column of a CSV may be named like the start of JSON.
    if expected in (None, found) or (expected, found) in ((_ARROW, _TEXT), (_TEXT, _JSON)):
        return expected or found
    raise TableError(
        f"{path} is not {expected.words} as its name says, it starts like {found.words}; rename "
        "it, or export the table again"
    )


def _workbook(path: str) -> _Format | None:
    """Return the format of a workbook, None for another archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except Exception:  # damaged: the reader of archives says so
        return None
    if "xl/workbook.xml" in members:
        return _WORKBOOK
    if "[Content_Types].xml" in members or "mimetype" in members:
        raise TableError(f"{path} is an OpenDocument or unknown workbook; save the sheet as CSV")
    return None


# ------------------------------------------------------------------------------ tables


@dataclass(frozen=True)
class Table:
    """A table of numbers in memory."""

    values: Floats  # (n_rows, n_features) in C order: finite, or NaN where missing
    names: tuple[str, ...]  # of the feature columns
    ids: list[str] | None  # the id column as text
    id_name: str | None
    labels: list[str] | None  # the label column as text; empty where missing
    label_name: str | None

    @classmethod
    def of(
        cls,
        block: Block,
        names: Sequence[str],
        id_name: str | None,
        label_name: str | None,
        **more: Any,
    ) -> Self:
        """Return the table of a block that has the ids and the labels, if any, as text."""
        ids = None if id_name is None else block.texts[0]
        labels = None
        if label_name is not None:
            labels = ["" if word.lower() in MISSING_WORDS else word for word in block.texts[-1]]
        return cls(block.values, tuple(names), ids, id_name, labels, label_name, **more)


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] = (),
    id_column: str | None = None,
    label_column: str | None = None,
    share: tuple[int, int] = (0, 1),
) -> Table:
    """Read a table into memory.

    Parameters
    ----------
    path : path-like
        The file; see `open_table`.
    columns : sequence of str
        The feature columns, in the order wanted; all but the others named here if empty.
    id_column, label_column : str, optional
        Columns of any type to read as text; they are not features.
    share : tuple of two ints
        Which part of the rows to read, from 0, and into how many equal parts they are divided.

    Raises
    ------
    TableError
        If the file is not a table, a column does not exist or has two parts to play, or a
        feature value is infinite or not a number.
    """
    reader = open_table(path)
    features = choose_features(reader, columns, id_column, label_column)
    texts = [name for name in (id_column, label_column) if name is not None]
    block = next(share_of(reader, share).blocks(features, texts))
    return Table.of(block, features, id_column, label_column)


def sample_rows(reader: TableReader, names: Sequence[str], most: int) -> tuple[pa.Table, bool]:
    """Return at most so many rows from all over a file, and whether these are all of them.

    Columns are as the file has them.
    """
    n_rows = reader.n_rows
    if n_rows is not None and n_rows > most:
        size = most // _PLACES
        starts = [place * (n_rows - size) // (_PLACES - 1) for place in range(_PLACES)]
        parts = [next(reader.share(start, start + size).raw_blocks(names)) for start in starts]
        return pa.concat_tables(parts), False
    kept: list[pa.Table] = []
    stride, n_seen = 1, 0
    for block in reader.raw_blocks(names, most):
        rows = np.arange(-n_seen % stride, len(block), stride)
        kept.append(block if stride == 1 else block.take(rows))
        n_seen += len(block)
        if sum(map(len, kept)) > most:
            stride *= 2
            table = pa.concat_tables(kept)
            kept = [table.take(np.arange(0, len(table), 2))]
    return pa.concat_tables(kept), stride == 1


def share_of(reader: TableReader, share: tuple[int, int]) -> TableReader:
    """Return a reader of one of several equal parts of the rows: which one, and of how many."""
    part, n_parts = share
    if n_parts == 1:
        return reader
    n_rows = reader.n_rows or 0
    return reader.share(part * n_rows // n_parts, (part + 1) * n_rows // n_parts)


def choose_features(
    reader: TableReader,
    columns: Sequence[str],
    id_column: str | None,
    label_column: str | None,
    drop: Sequence[str] = (),
) -> list[str]:
    """Return the feature columns, after checking that every column has one part to play.

    They are ``columns``, or all but the others named here if there are none.
    """
    roles = {"id": id_column, "label": label_column}
    others = [name for name in roles.values() if name is not None]
    reader.require([*columns, *drop, *others])
    if id_column is not None and id_column == label_column:
        raise TableError(
            f"{reader.path}: column {quote(id_column)} is asked for as id and as label; choose one"
        )
    for role, name in [*roles.items(), *(("dropped", name) for name in drop)]:
        if name is not None and name in columns:
            raise TableError(
                f"{reader.path}: column {quote(name)} is asked for as feature and as {role}; "
                "choose one"
            )
    if len(set(columns)) < len(columns):
        twice = next(name for i, name in enumerate(columns) if name in columns[:i])
        raise TableError(f"{reader.path}: column {quote(twice)} is asked for twice; name it once")
    unused = {*drop, *others}
    features = list(columns) or [name for name in reader.names if name not in unused]
    if not features:
        raise TableError(
            f"{reader.path}: no feature column is left of {list_names(reader.names)}; drop fewer"
        )
    return features
