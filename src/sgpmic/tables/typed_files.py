"""Table formats with typed cells: Parquet, Arrow, NumPy, JSON, Excel."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sgpmic.tables.conversions import Source, as_table, numbered_names
from sgpmic.tables.errors import (
    TableError,
    check_count,
    check_memory,
    check_names,
    decoding,
    list_names,
)

# Maximum rows of a record batch, and of an Excel sheet.
_ROWS, _SHEET_ROWS = 65536, 1 << 20
# Larger tables with a smaller share of filled cells are mistakes.
_MOST_EMPTY, _FEWEST_FILLED = 10**8, 1e-3
# Names of the arrays in an archive that hold the table, and its column names.
_DATA, _NAMES = ("X", "data"), ("names", "columns")


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

    return Source(path, kind, tuple(names), batches, range(n_rows))


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

    return Source(path, kind, tuple(every), batches)


def open_columns(path: str, kind: str, columns: Any) -> Source:
    """Build a source from a table that was read into memory as a whole."""
    try:
        table, _ = as_table(columns)
    except TableError as error:
        raise TableError(f"{path}, {error}") from None
    if not table.column_names:
        raise TableError(f"{path} has no columns; export the table again")

    def batches(names: Sequence[str], rows: range) -> Iterator[pa.RecordBatch]:
        yield from table.slice(rows.start, len(rows)).select(list(names)).to_batches()

    return Source(path, kind, tuple(table.column_names), batches, range(len(table)))


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
    return _open_records(path, kind, records)


def open_workbook(path: str) -> Source:
    """Open the first sheet of an Excel workbook with openpyxl, if installed."""
    kind = "an Excel workbook"
    try:
        openpyxl = import_module("openpyxl")
    except ImportError:
        remedy = "install openpyxl, or save the sheet as CSV"
        raise TableError(f"{path} is {kind}; {remedy}") from None
    with decoding(path, kind):
        with zipfile.ZipFile(path) as archive:
            check_memory(path, sum(member.file_size for member in archive.infolist()))
        sheet = openpyxl.load_workbook(path, read_only=True, data_only=True).worksheets[0]
        sheet.reset_dimensions()  # those that the sheet declares may be wrong
        rows = (
            {j: cell for j, cell in enumerate(row) if cell is not None}
            for row in islice(sheet.iter_rows(values_only=True), _SHEET_ROWS)
        )
        header, *cells = [row for row in rows if row] or [{}]
    names = {j: str(header.get(j, f"column_{j + 1}")) for j in sorted({*header}.union(*cells))}
    check_names(path, list(names.values()))
    records = [{names[j]: cell for j, cell in row.items()} for row in cells]
    return _open_records(path, kind, records, list(names.values()))


def _open_records(
    path: str, kind: str, records: Sequence[dict[str, Any]], names: Sequence[str] = ()
) -> Source:
    """Build a source from records, unless they would exhaust memory as a table."""
    names = list(dict.fromkeys([*names, *(name for record in records for name in record)]))
    check_count(path, len(names))
    n_cells, n_filled = len(records) * len(names), sum(map(len, records))
    if n_cells > _MOST_EMPTY and n_filled < _FEWEST_FILLED * n_cells:
        raise TableError(
            f"{path} has {len(records)} rows and {len(names)} columns, but only {n_filled} of "
            f"these {n_cells} cells have a value; remove columns or cells that do not belong to "
            "the table"
        )
    # Every cell is a pointer first, and then a number or a string offset.
    check_memory(path, 16 * n_cells)
    columns = {name: [record.get(name) for record in records] for name in names}
    return open_columns(path, kind, columns)


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

    return Source(path, "a NumPy file", tuple(every), batches, range(len(array)))


def open_npy(path: str) -> Source:
    """Open a ``.npy`` file, memory-mapped."""
    with decoding(path, "a NumPy file"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        _check_table(path, array)
    return _open_array(path, array, numbered_names(array.shape[1]))


def open_npz(path: str) -> Source:
    """Open a ``.npz`` file: its only array besides the names, or the one named X or data."""
    with decoding(path, "a NumPy archive"), np.load(path, allow_pickle=False) as archive:
        tables = [name for name in archive.files if name not in _NAMES]
        found = [name for name in _DATA if name in tables] or tables
        if not found or (len(tables) > 1 and found is tables):
            raise TableError(f"{path} holds {list_names(tables) or 'no array'}; name the table X")
        keys = [found[0], *(name for name in _NAMES if name in archive.files)][:2]
        used = (one for one in archive.zip.infolist() if one.filename.removesuffix(".npy") in keys)
        check_memory(path, sum(member.file_size for member in used))
        array, *given = (archive[key] for key in keys)
        _check_table(f"{path}, array {keys[0]!r}", array)
        names: Sequence[str] = numbered_names(array.shape[1])
        if given:
            names = np.atleast_1d(given[0]).astype(str).tolist()
            if len(names) != array.shape[1] or not all(isinstance(name, str) for name in names):
                what = f"does not name the {array.shape[1]} columns"
                raise TableError(f"{path}, array {keys[1]!r} {what}; save as many strings")
    return _open_array(path, array, names)


def _check_table(where: str, array: NDArray[Any]) -> None:
    wrong = ""
    if array.dtype.kind not in "biuf":
        wrong = f"holds {array.dtype} values, not numbers; convert it with .astype(float)"
    elif array.ndim != 2 or not array.shape[1]:
        wrong = f"has shape {array.shape}; save an array of rows and columns"
    if wrong:
        raise TableError(f"{where} {wrong}")
    check_count(where, array.shape[1])
