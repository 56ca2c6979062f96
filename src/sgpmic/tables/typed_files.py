"""Tables whose cells have types: Parquet, Arrow (IPC, Feather), JSON, Excel and NumPy files.

Nothing pickled is ever loaded.
"""

from __future__ import annotations

import json
import math
import posixpath
import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from importlib import import_module
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sgpmic.tables.base import (
    Piece,
    TableReader,
    check_count,
    check_memory,
    check_unique,
    row_place,
)
from sgpmic.tables.conversions import as_frame, numbered_names
from sgpmic.tables.errors import TableError, damaged, decoding, list_names

_ROWS = 65536
_BUFFER_BYTES = 1 << 20
_FILE_MAGIC = b"ARROW1"
# Larger tables of which a smaller share of the cells has a value are mistakes.
_MOST_EMPTY, _FEWEST_FILLED = 10**8, 1e-3
# Arrays of these names in an archive are the table, and the names of its columns.
_DATA_NAMES, _NAMES_NAMES = ("X", "data"), ("names", "columns")


class ArrowReader(TableReader):
    """A table that comes as Arrow record batches."""

    _first_row = 0

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema
        with decoding(path, self.kind):  # names may turn out not to be UTF-8
            self.names = tuple(schema.names)
        check_unique(path, self.names)

    @abstractmethod
    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Open the file and yield record batches that hold at least the columns of these names."""

    def pieces(self, names: Sequence[str]) -> Iterator[Piece]:
        """Yield the columns of every record batch, no more than some rows at a time."""
        before = self._first_row
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
                yield Piece(batch.slice(start, _ROWS), partial(row_place, before + start))
            before += len(batch)


class ParquetReader(ArrowReader):
    """A Parquet file, or some consecutive rows of one; only its schema is read at first."""

    kind = "a Parquet file"

    def __init__(self, path: str, rows: range | None = None) -> None:
        with decoding(path, self.kind), pq.ParquetFile(path) as file:
            schema, in_file = file.schema_arrow, file.metadata.num_rows
        super().__init__(path, schema)
        self._rows = range(in_file) if rows is None else rows
        self._first_row = self._rows.start
        self.n_rows = len(self._rows)

    def share(self, first: int, end: int) -> ParquetReader:
        """Return a reader of some rows, which reads their row groups only."""
        return ParquetReader(self.path, self._rows[first:end])

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # Through a small buffer: one row group may be the whole file, which would be loaded whole.
        options = {"buffer_size": _BUFFER_BYTES, "pre_buffer": False}
        with pq.ParquetFile(self.path, **options, page_checksum_verification=True) as file:
            # Of the row groups those that hold the rows, and the number of rows before them.
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            ends = np.cumsum([0, *sizes])
            groups = np.flatnonzero((ends[:-1] < self._rows.stop) & (ends[1:] > self._rows.start))
            before = int(ends[groups[0]]) if len(groups) else 0
            for batch in file.iter_batches(_ROWS, groups.tolist(), list(names)):
                wanted = batch.slice(
                    max(self._rows.start - before, 0),
                    max(self._rows.stop - max(before, self._rows.start), 0),
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
            schema = opener(source).schema
        super().__init__(path, schema)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        chosen = [self._schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=chosen)
        with pa.OSFile(self.path) as source:
            if self._is_file:
                reader = pa.ipc.open_file(source, options=options)
                for i in range(reader.num_record_batches):
                    yield reader.get_batch(i)
            else:
                yield from pa.ipc.open_stream(source, options=options)


class FrameReader(ArrowReader):
    """A table that was read from a file as a whole."""

    def __init__(self, path: str, kind: str, table: pa.Table, first_row: int = 0) -> None:
        self.kind = kind
        self._table = table
        self._first_row = first_row
        self.n_rows = len(table)
        super().__init__(path, table.schema)

    def share(self, first: int, end: int) -> FrameReader:
        """Return a reader of some rows."""
        rows = self._table.slice(first, end - first)
        return FrameReader(self.path, self.kind, rows, self._first_row + first)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(list(names)).to_batches()


def _as_reader(path: str, kind: str, frame: Any) -> FrameReader:
    try:
        found = as_frame(frame)
    except TableError as error:
        raise TableError(f"{path}, {error}") from None
    if not found.names:
        raise TableError(f"{path} has no columns; export the table again")
    return FrameReader(path, kind, pa.table(list(found.columns), names=list(found.names)))


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
    return _as_reader(path, kind, columns)


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
        return _as_reader(path, kind, frame)
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


class ArrayReader(TableReader):
    """A two-dimensional array, in memory or mapped from a file."""

    kind = "a NumPy file"

    def __init__(
        self, path: str, array: NDArray[Any], names: Sequence[str], first_row: int = 0
    ) -> None:
        self.path = path
        self.names = tuple(names)
        self.n_rows = len(array)
        self._array = array
        self._first_row = first_row

    def share(self, first: int, end: int) -> ArrayReader:
        """Return a reader of some rows; of a mapped file no others are read."""
        return ArrayReader(self.path, self._array[first:end], self.names, self._first_row + first)

    def pieces(self, names: Sequence[str]) -> Iterator[Piece]:
        """Yield the rows a few at a time, so that little of a mapped file is in memory."""
        index = {name: i for i, name in enumerate(self.names)}
        # Whole numbers may be labels of more digits than a float has.
        whole = self._array.dtype.kind in "iu"
        dtype = self._array.dtype.newbyteorder("=") if whole else np.float64
        for start in range(0, len(self._array), _ROWS):
            rows = np.asarray(self._array[start : start + _ROWS])
            # Numbers beyond float64's range become infinite, which is reported as such.
            with np.errstate(over="ignore"):
                columns = [np.ascontiguousarray(rows[:, index[name]], dtype) for name in names]
            batch = pa.RecordBatch.from_arrays(list(map(pa.array, columns)), list(names))
            yield Piece(batch, partial(row_place, self._first_row + start))


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


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


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
    return _Header(shape, dtype)


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
    tables = [name for name in others if len(arrays[name].shape) == 2]
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
    if header.dtype.kind not in "US" or header.shape != (count,):
        raise TableError(
            f"{path}{where} does not name the {count} columns; save a one-dimensional array of "
            f"{count} strings"
        )
    check_memory(path + where, count * header.dtype.itemsize)
    try:
        names = [n.decode() if isinstance(n, bytes) else n for n in archive[key].tolist()]
    except UnicodeDecodeError:
        raise TableError(
            f"{path}{where} holds names that are not UTF-8; save them with .astype(str)"
        ) from None
    check_unique(path, names, where)
    return tuple(names)
