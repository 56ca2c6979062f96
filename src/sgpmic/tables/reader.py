"""Users' tables: text, Parquet, Arrow and NumPy files, whole or in blocks.

Whatever is wrong with a file, `TableError` says it in one sentence that names the place and what
to do.  Lines are counted as editors count them, the header being line 1; rows, where a format has
no lines, are counted from 1 without any header.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sgpmic.tables.arrow_files import open_ipc, open_parquet
from sgpmic.tables.base import (
    Block,
    Floats,
    Rows,
    TableError,
    TableReader,
    check_known,
    first_bytes,
    join_rows,
    list_names,
    quote,
)
from sgpmic.tables.cells import is_missing
from sgpmic.tables.numpy_files import open_npy, open_npz
from sgpmic.tables.text_files import TextReader

__all__ = [
    "Block",
    "Table",
    "TableError",
    "TableReader",
    "match_columns",
    "missing_columns_sentence",
    "open_table",
    "read_table",
]

_ENDINGS = {
    ".csv": "text",
    ".tsv": "text",
    ".txt": "text",
    ".csv.gz": "text.gz",
    ".tsv.gz": "text.gz",
    ".txt.gz": "text.gz",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "ipc",
    ".arrow": "ipc",
    ".ipc": "ipc",
    ".npy": "npy",
    ".npz": "npz",
}
_MAGIC = (
    (b"PAR1", "parquet"),
    (b"ARROW1", "ipc"),
    (b"\xff\xff\xff\xff", "ipc"),
    (b"\x93NUMPY", "npy"),
    (b"PK\x03\x04", "npz"),
    (b"PK\x05\x06", "npz"),
    (b"\x1f\x8b", "text.gz"),
)
_NAMES = {
    "parquet": "a Parquet file",
    "ipc": "an Arrow file",
    "npy": "a NumPy file",
    "npz": "a zip archive",
    "text.gz": "a gzip file",
    "text": "text",
}
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
    """A table of numbers in memory.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_features)
        The features, finite, in C order.
    names : tuple of str
        The feature columns.
    ids : list of str or None
        The id column as text.
    id_name : str or None
        Its name.
    labels : list of str or None
        The label column as text; empty where missing.
    label_name : str or None
        Its name.
    digest : str
        SHA-256 of the values and the feature names: equal for the same data in any format.
    """

    values: Floats
    names: tuple[str, ...]
    ids: list[str] | None
    id_name: str | None
    labels: list[str] | None
    label_name: str | None
    digest: str


def open_table(path: str | os.PathLike[str]) -> TableReader:
    """Open a table of any size; only its header or schema is read.

    Parameters
    ----------
    path : path-like
        A file that ends in .csv, .tsv or .txt (each perhaps with .gz), .parquet or .pq,
        .feather, .arrow or .ipc, .npy or .npz; with any other ending its first bytes decide.

    Returns
    -------
    TableReader

    Raises
    ------
    TableError
        If the file is not a table that can be read.
    """
    name = os.fsdecode(path)
    start = first_bytes(name)
    kind = _kind_of(name, start)
    if kind == "parquet":
        return open_parquet(name)
    if kind == "ipc":
        return open_ipc(name)
    if kind == "npy":
        return open_npy(name)
    if kind == "npz":
        return open_npz(name)
    return TextReader(name, zipped=kind == "text.gz")


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
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
    drop : sequence of str
        Columns that are no features.
    id_column, label_column : str, optional
        Columns of any type to read as text; they are no features.
    share : tuple of two ints
        Which part of the rows to read, from 0, and into how many equal parts they are divided.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        If the file is not a table, a column does not exist or has two parts to play, or a
        feature value is not a finite number.
    """
    reader = open_table(path)
    features = _choose_features(reader, columns, drop, id_column, label_column)
    part, n_parts = share
    if n_parts > 1:
        n_rows = reader.n_rows or 0
        reader = reader.share(part * n_rows // n_parts, (part + 1) * n_rows // n_parts)
    texts = [name for name in (id_column, label_column) if name is not None]
    parts: list[Rows] = [
        (piece.values, piece.texts) for piece in reader.checked_pieces(features, texts)
    ]
    values, words = join_rows(parts)
    ids = words[0] if id_column is not None else None
    labels = None
    if label_column is not None:
        labels = ["" if is_missing(word) else word for word in words[-1]]
    names = tuple(features)
    return Table(values, names, ids, id_column, labels, label_column, _digest(values, names))


def match_columns(wanted: Sequence[str], found: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which of the wanted columns are missing, and which columns are not wanted."""
    has, needs = set(found), set(wanted)
    return (
        [name for name in wanted if name not in has],
        [name for name in found if name not in needs],
    )


def missing_columns_sentence(
    path: str | os.PathLike[str], wanted: Sequence[str], found: Sequence[str]
) -> str | None:
    """Return what to tell someone whose new table lacks columns of the model, or None.

    Parameters
    ----------
    path : path-like
        The new table.
    wanted : sequence of str
        The columns that the model was fitted to.
    found : sequence of str
        The columns of the new table.
    """
    missing, extra = match_columns(wanted, found)
    if not missing:
        return None
    name = os.fsdecode(path)
    plural = "s" if len(missing) > 1 else ""
    sentence = f"{name} lacks the column{plural} {list_names(missing)} that the model was fitted to"
    if extra:
        return f"{sentence}; rename or add them (columns it has besides: {list_names(extra)})"
    return f"{sentence}; add them"


# ------------------------------------------------------------------------------ formats


def _kind_of(path: str, start: bytes) -> str:
    """Return the format of a file from its ending, or from its first bytes."""
    sniffed = "text"
    if not _looks_like_text(start):
        for magic, what, remedy in _FOREIGN:
            if start.startswith(magic):
                raise TableError(f"{path} is {what}; {remedy}")
        sniffed = next((kind for magic, kind in _MAGIC if start.startswith(magic)), "text")
    if sniffed == "npz" and _is_workbook(path):
        raise TableError(f"{path} is an Excel or OpenDocument workbook; save the sheet as CSV")
    lower = os.path.basename(path).lower()
    expected = next((kind for end, kind in _ENDINGS.items() if lower.endswith(end)), None)
    if expected is None:
        return sniffed
    if expected != sniffed and not (expected == "ipc" and sniffed == "text"):
        # A stream of an old Arrow starts with a mere length, which looks like anything.
        raise TableError(
            f"{path} is not {_NAMES[expected]} as its name says, it starts like "
            f"{_NAMES[sniffed]}; rename it, or export the table again"
        )
    return expected


def _looks_like_text(start: bytes) -> bool:
    """Return whether no byte is a control character: columns of a CSV may be named PAR1, PAR2."""
    return all(byte >= 0x20 or byte in b"\t\n\r\f" for byte in start)


def _is_workbook(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except Exception:  # damaged: the reader of archives says so
        return False
    return "[Content_Types].xml" in members or "mimetype" in members


# ------------------------------------------------------------------------------ columns


def _choose_features(
    reader: TableReader,
    columns: Sequence[str],
    drop: Sequence[str],
    id_column: str | None,
    label_column: str | None,
) -> list[str]:
    """Return the feature columns, after checking that every column has one part to play."""
    roles = {"id": id_column, "label": label_column}
    others = [name for name in roles.values() if name is not None]
    check_known(reader.path, [*columns, *drop, *others], reader.names)
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


def _digest(values: Floats, names: Sequence[str]) -> str:
    """Return a fingerprint of the data that does not depend on the machine or the format."""
    digest = hashlib.sha256(repr((values.shape, tuple(names))).encode())
    digest.update(np.ascontiguousarray(values, "<f8").view(np.uint8).data)
    return digest.hexdigest()
