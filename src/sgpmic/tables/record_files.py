"""Tables in JSON files and Excel workbooks, which are read as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from sgpmic.tables.arrow_files import ArrowReader
from sgpmic.tables.errors import TableError, damaged, decoding
from sgpmic.tables.frames import as_frame


class FrameReader(ArrowReader):
    """A table in memory that was read from a file."""

    def __init__(self, path: str, kind: str, frame: Any) -> None:
        self.kind = kind
        found = as_frame(frame)
        self._table = pa.table(list(found.columns), names=list(found.names))
        self.n_rows = found.n_rows
        if not found.names:
            raise TableError(f"{path} has no columns; export the table again")
        super().__init__(path, self._table.schema)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(list(names)).to_batches()


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
    return FrameReader(path, kind, columns)


def open_workbook(path: str) -> FrameReader:
    """Open the first sheet of an Excel workbook, by pandas or polars where they are installed."""
    kind = "an Excel workbook"
    for library in ("pandas", "polars"):
        try:
            frame = _first_sheet(import_module(library), path, kind)
        except ImportError:  # of the library, or of what it reads workbooks with
            continue
        return FrameReader(path, kind, frame)
    raise TableError(
        f"{path} is {kind}; install pandas and openpyxl to read it, or save the sheet as CSV"
    )


def _first_sheet(library: Any, path: str, kind: str) -> Any:
    try:
        return library.read_excel(path)
    except ImportError:
        raise
    except Exception as error:  # damaged bytes raise errors of many types
        raise damaged(path, kind, error) from error
