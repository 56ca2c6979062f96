"""Tables in Parquet files and in Arrow's own (IPC files and streams, Feather)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sgpmic.io.table_base import (
    Piece,
    TableError,
    TableReader,
    check_names,
    decoding,
    drop_advice,
    quote,
)
from sgpmic.io.table_cells import BadText, to_numbers, to_texts, unsupported

_ROWS = 65536
_BUFFER_BYTES = 1 << 20
_FILE_MAGIC = b"ARROW1"

#: Opens the file and yields record batches that hold at least the columns of these names.
Batches = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


class ArrowReader(TableReader):
    """A table that comes as Arrow record batches."""

    def __init__(
        self, path: str, kind: str, schema: pa.Schema, n_rows: int | None, batches: Batches
    ) -> None:
        self.path = path
        with decoding(path, kind):  # names may turn out not to be UTF-8
            self.names = tuple(schema.names)
        self.n_rows = n_rows
        self._kind = kind
        self._schema = schema
        self._batches = batches
        check_names(path, self.names)

    def pieces(self, features: Sequence[str], texts: Sequence[str]) -> Iterator[Piece]:
        """Yield the rows of every record batch."""
        for name in features:
            reason = unsupported(self._schema.field(name).type)
            if reason:
                raise TableError(
                    f"{self.path}, column {quote(name)}: {reason}, or {drop_advice(name)}"
                )
        start = 0
        for batch in self._safe_batches(list(dict.fromkeys([*features, *texts]))):
            yield self._piece(batch, start, features, texts)
            start += len(batch)

    def _safe_batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of no more than some rows that are safe to look into."""
        with decoding(self.path, self._kind):
            batches = self._batches(names)
        while True:
            with decoding(self.path, self._kind):
                batch = next(batches, None)
                if batch is None:
                    return
                batch = batch.select(list(names))
                # Arrow trusts offsets in a file; without this a damaged one could end the process.
                batch.validate(full=True)
            for start in range(0, len(batch), _ROWS):
                yield batch.slice(start, _ROWS)

    def _piece(
        self, batch: pa.RecordBatch, start: int, features: Sequence[str], texts: Sequence[str]
    ) -> Piece:
        values = np.empty((len(batch), len(features)))
        for j, name in enumerate(features):
            with decoding(self.path, self._kind):
                numbers = to_numbers(batch.column(name))
            if isinstance(numbers, BadText):
                raise TableError(
                    f"{self.path}, row {start + numbers.row + 1}, column {quote(name)}: "
                    f"{quote(numbers.text)} is not a number; {drop_advice(name)}"
                )
            values[:, j] = numbers
        with decoding(self.path, self._kind):
            words = [to_texts(batch.column(name)) for name in texts]
        return Piece(values, words, lambda row: f"row {start + row + 1}")


def open_parquet(path: str) -> ArrowReader:
    """Open a Parquet file; only its schema is read."""
    kind = "a Parquet file"

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # Through a small buffer: a file may be a single row group, which would be loaded whole.
        with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=_ROWS, columns=list(names))

    with decoding(path, kind), pq.ParquetFile(path) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
    return ArrowReader(path, kind, schema, n_rows, batches)


def open_ipc(path: str) -> ArrowReader:
    """Open an Arrow IPC file or stream, which a Feather file is too; only its schema is read."""
    kind = "an Arrow or Feather file"

    def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(path) as source:
            if is_file:
                reader = pa.ipc.open_file(source)
                for i in range(reader.num_record_batches):
                    yield reader.get_batch(i)
            else:
                yield from pa.ipc.open_stream(source)

    # Not memory-mapped: a file that is cut while it is read would end the process.
    with decoding(path, kind), pa.OSFile(path) as source:
        is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        source.seek(0)
        opener = pa.ipc.open_file if is_file else pa.ipc.open_stream
        schema = opener(source).schema
    return ArrowReader(path, kind, schema, None, batches)
