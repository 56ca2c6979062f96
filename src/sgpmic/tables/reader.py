"""Users' tables: text, Parquet, Arrow and NumPy files, whole or in blocks.

Whatever is wrong with a file, `TableError` says it in one sentence that names the place and what
to do. Lines are counted as editors count them, the header being line 1; rows, where a format has
no lines, are counted from 1 without any header.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from sgpmic._types import Floats
from sgpmic.tables.base import Block, TableReader
from sgpmic.tables.cell_text import MISSING_WORDS
from sgpmic.tables.errors import TableError, list_names, quote, unreadable
from sgpmic.tables.text_files import TextReader
from sgpmic.tables.typed_files import (
    IpcReader,
    ParquetReader,
    open_json,
    open_npy,
    open_npz,
    open_workbook,
)

# Places that a sample is read from, where rows can be found without reading those before.
_PLACES = 20


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


def open_table(path: str | os.PathLike[str]) -> TableReader:
    """Open a table of any size; of most formats only the header or schema is read.

    A file ends in .csv, .tsv or .txt (each perhaps with .gz), .parquet or .pq, .feather, .arrow or
    .ipc, .npy or .npz, .json, .jsonl or .ndjson (records), or .xlsx (the first sheet); with any
    other ending its first bytes decide. A `TableError` says why it is not a table that can be read.
    """
    name = os.fsdecode(path)
    return _find_format(name, _first_bytes(name)).open(name)


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


def without_ending(path: str | os.PathLike[str]) -> str:
    """Return a table's name without its folder and the ending that tells its format."""
    name = os.path.basename(os.fsdecode(path))
    endings = [end for kind in _FORMATS for end in kind.endings]
    return next((name[: -len(end)] for end in endings if name.lower().endswith(end)), name)


# ------------------------------------------------------------------------------ formats


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


# ------------------------------------------------------------------------------ columns


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
