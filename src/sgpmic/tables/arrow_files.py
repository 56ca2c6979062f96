"""Tables in Parquet files and in Arrow's own (IPC files and streams, Feather)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from sgpmic.tables.base import Piece, TableReader, check_unique, row_place
from sgpmic.tables.conversions import to_texts, unsupported
from sgpmic.tables.errors import TableError, decoding, list_names, quote

_ROWS = 65536
_BUFFER_BYTES = 1 << 20
_FILE_MAGIC = b"ARROW1"


class ArrowReader(TableReader):
    """A table that comes as Arrow record batches."""

    kind: str
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

    def pieces(self, features: Sequence[str], texts: Sequence[str]) -> Iterator[Piece]:
        """Yield the rows of every record batch."""
        self._check_types(features)
        start = self._first_row
        for batch in self._safe_batches(list(dict.fromkeys([*features, *texts]))):
            place = partial(row_place, start)
            with decoding(self.path, self.kind):
                values = self._numbers({name: batch.column(name) for name in features}, place)
                words = [to_texts(batch.column(name)) for name in texts]
            yield Piece(values, words, place)
            start += len(batch)

    def _check_types(self, features: Sequence[str]) -> None:
        """Raise for columns whose types are no numbers, all of them in one sentence."""
        with decoding(self.path, self.kind):
            reasons = {name: unsupported(self._schema.field(name).type) for name in features}
        wrong = [name for name, reason in reasons.items() if reason]
        if wrong:
            others = f" (nor are {list_names(wrong[1:])} numbers)" if wrong[1:] else ""
            raise TableError(
                f"{self.path}, column {quote(wrong[0])}: {reasons[wrong[0]]}{others}", wrong
            )

    def raw_pieces(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the columns of every record batch, with their types."""
        for batch in self._safe_batches(names):
            yield pa.Table.from_batches([batch])

    def _safe_batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of no more than some rows that are safe to look into."""
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
                yield batch.slice(start, _ROWS)


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
