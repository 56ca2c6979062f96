"""Table formats with typed cells: Parquet, Arrow, NumPy, JSON, Excel."""

from __future__ import annotations

import json
import math
import posixpath
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial, reduce
from importlib import import_module
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sgpmic.tables.conversions import Piece, Source, as_table, numbered_names
from sgpmic.tables.errors import (
    TableError,
    check_count,
    check_memory,
    check_names,
    decoding,
    list_names,
)

# Maximum rows of a piece.
_ROWS = 65536
# Larger tables with a smaller share of filled cells are mistakes.
_MOST_EMPTY, _FEWEST_FILLED = 10**8, 1e-3
# Names of the arrays in an archive that hold the table, and its column names.
_DATA, _NAMES = ("X", "data"), ("names", "columns")

#: Opens a file and yields record batches with at least the named columns; limited to the given rows
#: if the number of rows is known in advance.
_Batches = Callable[[Sequence[str], range], Iterator[pa.RecordBatch]]


def _source(
    path: str, kind: str, every: Sequence[str], n_rows: int | None, batches: _Batches
) -> Source:
    """Build a source from Arrow record batches, validated and sliced into pieces."""
    check_names(path, every)

    def pieces(names: Sequence[str], rows: range) -> Iterator[Piece]:
        before, found = rows.start, batches(names, rows)
        while True:
            with decoding(path, kind):
                if (batch := next(found, None)) is None:
                    return
                batch = batch.select(list(names))
                # Arrow trusts offsets in a file; without this, a damaged one could cause a crash.
                batch.validate(full=True)
            for start in range(0, len(batch), _ROWS):
                yield Piece(batch.slice(start, _ROWS), partial(_place, before + start + 1))
            before += len(batch)

    return Source(path, kind, tuple(every), pieces, None if n_rows is None else range(n_rows))


def _place(first: int, row: int) -> str:
    return f"row {first + row}"


def open_parquet(path: str) -> Source:
    """Open a Parquet file: reads the schema now, and later only the row groups needed."""
    kind = "a Parquet file"
    with decoding(path, kind), pq.ParquetFile(path) as file:
        # Inside the context, because names may not be valid UTF-8.
        names, n_rows = file.schema_arrow.names, file.metadata.num_rows

    def batches(names: Sequence[str], rows: range) -> Iterator[pa.RecordBatch]:
        # Small buffer, because a single row group may be the whole file.
        options = {"buffer_size": 1 << 20, "pre_buffer": False}
        with pq.ParquetFile(path, **options, page_checksum_verification=True) as file:
            # The row groups that overlap the range, and the number of rows before them.
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            ends = np.cumsum([0, *sizes])
            groups = np.flatnonzero((ends[:-1] < rows.stop) & (ends[1:] > rows.start))
            before = int(ends[groups[0]]) if len(groups) else 0
            for batch in file.iter_batches(_ROWS, groups.tolist(), list(names)):
                yield batch[max(rows.start - before, 0) : max(rows.stop - before, 0)]
                before += len(batch)

    return _source(path, kind, names, n_rows, batches)


def open_ipc(path: str) -> Source:
    """Open an Arrow IPC file or stream, such as a Feather file; reads only the schema now."""
    kind = "an Arrow or Feather file"
    # Not memory-mapped: a file truncated while being read would crash the process.
    with decoding(path, kind), pa.OSFile(path) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        every = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).schema.names
    index = {name: i for i, name in enumerate(every)}

    def batches(names: Sequence[str], rows: range) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(included_fields=[index[name] for name in names])
        with pa.OSFile(path) as source:
            if is_file:
                reader = pa.ipc.open_file(source, options=options)
                yield from map(reader.get_batch, range(reader.num_record_batches))
            else:
                yield from pa.ipc.open_stream(source, options=options)

    return _source(path, kind, every, None, batches)


def _open_frame(path: str, kind: str, frame: Any) -> Source:
    """Build a source from a table that was read into memory as a whole."""
    try:
        table, _ = as_table(frame)
    except TableError as error:
        raise TableError(f"{path}, {error}") from None
    if not table.column_names:
        raise TableError(f"{path} has no columns; export the table again")

    def batches(names: Sequence[str], rows: range) -> Iterator[pa.RecordBatch]:
        yield from table.slice(rows.start, len(rows)).select(list(names)).to_batches()

    return _source(path, kind, table.column_names, len(table), batches)


def open_json(path: str) -> Source:
    """Open a JSON file of records: a list of objects, or one object per line (JSON Lines)."""
    kind = "a JSON file"
    with decoding(path, kind), open(path, encoding="utf-8-sig") as file:
        text = file.read()
        try:
            records = json.loads(text)
        except json.JSONDecodeError:
            records = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not (isinstance(records, list) and all(isinstance(record, dict) for record in records)):
        raise TableError(f"{path} is JSON, but not a list of records; export records, or CSV")
    names = dict.fromkeys(name for record in records for name in record)
    _check_size(path, len(records), len(names), sum(map(len, records)))
    columns = {name: [record.get(name) for record in records] for name in names}
    return _open_frame(path, kind, columns)


def open_workbook(path: str) -> Source:
    """Open the first sheet of an Excel workbook with pandas or polars, if installed."""
    kind = "an Excel workbook"
    with decoding(path, kind):
        size = _sheet_size(path)
    _check_size(path, *size)
    for library in ("pandas", "polars"):
        with decoding(path, kind), suppress(ImportError):  # of the library, or of its Excel engine
            frame = import_module(library).read_excel(path)
            break
    else:
        raise TableError(f"{path} is {kind}; install pandas and openpyxl, or save the sheet as CSV")
    return _open_frame(path, kind, frame)


def _check_size(path: str, n_rows: int, n_columns: int, n_filled: int) -> None:
    """Raise if a table that is stored sparsely in its file would exhaust memory when dense."""
    check_count(path, n_columns)
    n_cells = n_rows * n_columns
    if n_cells > _MOST_EMPTY and n_filled < _FEWEST_FILLED * n_cells:
        raise TableError(
            f"{path} has {n_rows} rows and {n_columns} columns, but only {n_filled} of these "
            f"{n_cells} cells have a value; remove columns or cells that do not belong to the table"
        )
    # Every cell is a pointer first, and then a number or a string offset.
    check_memory(path, 16 * n_cells)


def _sheet_size(path: str) -> tuple[int, int, int]:
    """Return the last row and column of a workbook's first sheet, and its number of values."""
    # The dimensions that the sheet declares may be wrong, or include formatted, empty cells.
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

    def attributes_of(member: str, tag: str) -> list[dict[str, str]]:
        elements = ElementTree.fromstring(archive.read(member)).findall(f".//{{*}}{tag}")
        return [{k.rpartition("}")[2]: v for k, v in element.items()} for element in elements]

    with zipfile.ZipFile(path) as archive:
        sheets = attributes_of("xl/workbook.xml", "sheet")
        parts = attributes_of("xl/_rels/workbook.xml.rels", "Relationship") if sheets else []
        files = {part["Id"]: part["Target"] for part in parts if part["Type"].endswith("worksheet")}
        found = [files[sheet["id"]] for sheet in sheets if sheet["id"] in files]
        if found:
            parser = expat.ParserCreate()
            parser.StartElementHandler = start
            with archive.open(posixpath.join("/xl", found[0])[1:]) as file:
                parser.ParseFile(file)
    return last_row, last_column, n_values


def _open_array(path: str, array: NDArray[Any], every: Sequence[str]) -> Source:
    """Open a two-dimensional array, in memory or mapped from a file."""
    index = {name: i for i, name in enumerate(every)}
    # Integers may be labels with more digits than a float can hold.
    dtype = array.dtype.newbyteorder("=") if array.dtype.kind in "iu" else np.float64

    def batches(names: Sequence[str], rows: range) -> Iterator[pa.RecordBatch]:
        # A few rows at a time, so that little of a memory-mapped file is loaded.
        for start in rows[::_ROWS]:
            some = np.asarray(array[start : min(start + _ROWS, rows.stop)])
            # Numbers beyond float64's range become infinite, which is reported later.
            with np.errstate(over="ignore"):
                columns = [np.ascontiguousarray(some[:, index[name]], dtype) for name in names]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), list(names))

    return _source(path, "a NumPy file", every, len(array), batches)


def open_npy(path: str) -> Source:
    """Open a ``.npy`` file, memory-mapped."""
    with decoding(path, "a NumPy file"):
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            if "allow_pickle" in str(error) or "Python objects" in str(error):
                raise _has_objects(path) from None
            raise
    _check_table(path, array.shape, array.dtype)
    return _open_array(path, array, numbered_names(array.shape[1]))


_Header = tuple[tuple[int, ...], np.dtype[Any]]  # shape and dtype


def open_npz(path: str) -> Source:
    """Open a ``.npz`` file: its only two-dimensional array, or the one named X or data."""
    with decoding(path, "a NumPy archive"), np.load(path, allow_pickle=False) as archive:
        headers = {
            member.filename.removesuffix(".npy"): _read_header(path, archive.zip, member)
            for member in archive.zip.infolist()
        }
        if not headers:
            raise TableError(f"{path} holds no array; save one with numpy.savez({path!r}, X=array)")
        tables = [n for n, (shape, _) in headers.items() if n not in _NAMES and len(shape) == 2]
        named = [name for name in _DATA if name in headers]
        if not named and len(tables) != 1 and (tables or len(headers) > 1):
            raise TableError(f"{path} holds {list_names(list(headers))}; name the table X")
        name = [*named, *tables, *headers][0]  # if not a table, the check below raises
        where, (shape, dtype) = f"{path}, array {name!r}", headers[name]
        _check_table(where, shape, dtype)
        check_memory(where, math.prod(shape) * dtype.itemsize)
        names: Sequence[str] = numbered_names(shape[1])
        for key in [key for key in _NAMES if key in headers and key != name][:1]:
            names = _read_names(path, archive, key, headers[key], shape[1])
        return _open_array(path, archive[name], names)


def _read_header(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> _Header:
    """Read the header of an array; raise if it does not match the size of the data."""
    where = f"{path}, array {member.filename.removesuffix('.npy')!r}"
    form = np.lib.format
    with archive.open(member) as file:
        try:
            version = form.read_magic(file)
        except ValueError:
            raise TableError(f"{where} is not an array; leave it out") from None
        read = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
        shape, _, dtype = read(file)
        if dtype.hasobject:
            raise _has_objects(where)
        declared, found = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
    if declared != found:
        raise TableError(f"{where} has {found} bytes instead of {declared}; save it again")
    return shape, dtype


def _has_objects(where: str) -> TableError:
    return TableError(f"{where} holds Python objects, which are unsafe; save numbers or text")


def _check_table(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    wrong = ""
    if dtype.kind not in "biuf":
        wrong = f"holds {dtype} values, not numbers; convert it with .astype(float)"
    elif len(shape) != 2:
        hint = "; for one column use .reshape(-1, 1)" if len(shape) == 1 else ""
        wrong = f"has shape {shape}, a table has rows and columns{hint}; save a 2-D array"
    elif not shape[1]:
        wrong = "has no columns; save an array with at least one"
    elif not shape[0]:
        wrong = "has columns but no rows; add at least one row of values"
    if wrong:
        raise TableError(f"{where} {wrong}")
    check_count(where, shape[1])


def _read_names(path: str, archive: Any, key: str, header: _Header, count: int) -> list[str]:
    where = f", array {key!r}"
    if header[1].kind not in "US" or header[0] != (count,):
        raise TableError(f"{path}{where} does not name the {count} columns; save {count} strings")
    check_memory(path + where, count * header[1].itemsize)
    try:
        names = [n.decode() if isinstance(n, bytes) else n for n in archive[key].tolist()]
    except UnicodeDecodeError:
        raise TableError(f"{path}{where} has names that are not UTF-8; save them as str") from None
    check_names(path, names, where)
    return names
