"""Table files: format detection, and reading in blocks.

All problems with a file raise `TableError`, with one sentence that names the location and the
remedy. Rows are numbered from 1, not counting any header. Pickled data is never loaded.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from sgpmic.tables import typed_files
from sgpmic.tables.conversions import Source
from sgpmic.tables.errors import TableError, check_names, decoding, list_names, quote, unreadable
from sgpmic.tables.text_files import open_text

#: Number of rows of a block.
BLOCK_ROWS = 16_384

# Number of runs of rows that a sample consists of, for formats with random access.
_PLACES = 20


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

    def blocks(self, names: Sequence[str], block_rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
        """Yield columns without conversion: as text from text files, else with their own types.

        A block has ``block_rows`` rows, except for the last. Raises `TableError` if there are no
        rows or the file is damaged.
        """
        self.require(names)
        held: list[pa.RecordBatch] = []
        n_held = n_all = 0
        with decoding(self.path, self.kind):
            for batch in self.batches(names, self.rows or range(0)):
                batch = batch.select(list(names))
                # Arrow trusts offsets in a file; without this, a damaged one could cause a crash.
                batch.validate(full=True)
                n_all += len(batch)
                held.append(batch)
                n_held += len(batch)
                while n_held >= block_rows:
                    table = pa.Table.from_batches(held)
                    yield table[:block_rows]
                    held = table[block_rows:].to_batches()
                    n_held -= block_rows
        if n_held:
            yield pa.Table.from_batches(held)
        if not n_all:
            raise TableError(f"{self.path} has columns but no rows; add at least one row of values")

    def sample(self, names: Sequence[str], most: int) -> tuple[pa.Table, bool]:
        """Return up to ``most`` unconverted rows from across the file, and whether that is all."""
        if self.rows is not None and len(self.rows) > most:
            size = most // _PLACES
            starts = [i * (len(self.rows) - size) // (_PLACES - 1) for i in range(_PLACES)]
            parts = [replace(self, rows=self.rows[start : start + size]) for start in starts]
            return pa.concat_tables(next(part.blocks(names, size)) for part in parts), False
        kept: list[pa.Table] = []
        stride, n_seen = 1, 0
        for block in self.blocks(names, most):
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


class _Format(NamedTuple):
    """A file format: file extensions, first bytes, and function to open it."""

    endings: tuple[str, ...]
    starts: tuple[bytes, ...]
    open: Callable[[str], Source]


_TEXT = _Format((".csv", ".tsv", ".txt"), (), open_text)
_FORMATS = (
    _TEXT,
    _Format((".csv.gz", ".tsv.gz", ".txt.gz"), (b"\x1f\x8b",), partial(open_text, zipped=True)),
    _Format((".parquet", ".pq"), (b"PAR1",), typed_files.open_parquet),
    _Format((".feather", ".arrow", ".ipc"), (b"ARROW1", b"\xff\xff\xff\xff"), typed_files.open_ipc),
    _Format((".npy",), (b"\x93NUMPY",), typed_files.open_npy),
    _Format((".npz",), (b"PK",), typed_files.open_npz),
    _Format((".json", ".jsonl", ".ndjson"), (b"[", b"{"), typed_files.open_json),
    _Format((".xlsx", ".xlsm"), (), typed_files.open_workbook),
)
_CONTROL_CHARACTERS = re.compile(rb"[\0-\x08\x0e-\x1f]")


def open_table(path: str | os.PathLike[str]) -> TableReader:
    """Open a table of any size; for most formats, only the header or schema is read.

    The extension is .csv, .tsv or .txt (optionally with .gz), .parquet or .pq, .feather, .arrow or
    .ipc, .npy or .npz, .json, .jsonl or .ndjson (records), or .xlsx (the first sheet); otherwise
    the first bytes determine the format. Raises `TableError` if it is not a readable table.
    """
    name = os.fsdecode(path)
    start = _first_bytes(name)
    found = [kind for kind in _FORMATS if name.lower().endswith(kind.endings)]
    found += [kind for kind in _FORMATS if start.startswith(kind.starts)]
    if not found and _CONTROL_CHARACTERS.search(start):
        raise TableError(f"{name} has no known format; export the table as CSV or Parquet")
    source = (found or [_TEXT])[0].open(name)
    check_names(name, source.names)
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
        # A pipe can be read only once, and opening one may block forever.
        is_file = stat.S_ISREG(os.stat(path).st_mode)
        if is_file:
            with open(path, "rb") as file:
                start = file.read(64)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise TableError(f"{path}: there is no such file; check the path") from None
    except OSError as error:
        raise unreadable(path, error) from error
    if not is_file:
        raise TableError(f"{path} is not a regular file; save the table to a file")
    if not start:
        raise TableError(f"{path} is empty; export the table again")
    return start
