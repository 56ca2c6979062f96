"""Tables in Parquet files, in Arrow's own (IPC files and streams, Feather), in JSON and Excel."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sgpmic.tables.base import Piece, TableReader, check_unique, row_place
from sgpmic.tables.errors import TableError, damaged, decoding
from sgpmic.tables.frames import as_frame

_ROWS = 65536
_BUFFER_BYTES = 1 << 20
_FILE_MAGIC = b"ARROW1"


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
            groups, before = self._groups(file.metadata)
            for batch in file.iter_batches(
                batch_size=_ROWS, columns=list(names), row_groups=groups
            ):
                wanted = batch.slice(
                    max(self._rows.start - before, 0),
                    max(self._rows.stop - max(before, self._rows.start), 0),
                )
                before += len(batch)
                if len(wanted):
                    yield wanted

    def _groups(self, metadata: pq.FileMetaData) -> tuple[list[int], int]:
        """Return the row groups that hold the rows, and the number of rows before the first."""
        groups: list[int] = []
        first = start = 0
        for number in range(metadata.num_row_groups):
            end = start + metadata.row_group(number).num_rows
            if start < self._rows.stop and end > self._rows.start:
                first = first if groups else start
                groups.append(number)
            start = end
        return groups, first


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
    found = as_frame(frame)
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
    columns = {name: [record.get(name) for record in records] for name in names}
    return _as_reader(path, kind, columns)


def open_workbook(path: str) -> FrameReader:
    """Open the first sheet of an Excel workbook, by pandas or polars where they are installed."""
    kind = "an Excel workbook"
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
