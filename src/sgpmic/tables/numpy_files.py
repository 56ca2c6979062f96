"""Tables in NumPy's own files, ``.npy`` and ``.npz``; nothing pickled is ever loaded."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpmic.tables.base import (
    Piece,
    TableReader,
    check_count,
    check_unique,
    numbered_names,
    row_place,
)
from sgpmic.tables.conversions import text_of
from sgpmic.tables.errors import TableError, decoding, list_names

_ROWS = 65536
_DATA_NAMES = ("X", "data")
_NAMES_NAMES = ("names", "columns")


class ArrayReader(TableReader):
    """A two-dimensional array, in memory or mapped from a file."""

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

    def pieces(self, features: Sequence[str], texts: Sequence[str]) -> Iterator[Piece]:
        """Yield the rows a few at a time, so that little of a mapped file is in memory."""
        index = {name: i for i, name in enumerate(self.names)}
        chosen = [index[name] for name in features]
        for start in range(0, len(self._array), _ROWS):
            rows = np.asarray(self._array[start : start + _ROWS])
            # Numbers beyond float64's range become infinite, which is reported as such.
            with np.errstate(over="ignore"):
                values = np.ascontiguousarray(rows[:, chosen], np.float64)
            words = [[text_of(value) for value in rows[:, index[name]].tolist()] for name in texts]
            yield Piece(values, words, partial(row_place, self._first_row + start))

    def raw_pieces(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of numbers."""
        for piece in self.pieces(names, ()):
            yield pa.table(
                {name: np.ascontiguousarray(piece.values[:, j]) for j, name in enumerate(names)}
            )


def open_npy(path: str) -> ArrayReader:
    """Open a ``.npy`` file; the array stays on disk."""
    with decoding(path, "a NumPy file"):
        array = _load(path, lambda: np.load(path, mmap_mode="r", allow_pickle=False))
    _check_table(path, array)
    return ArrayReader(path, array, numbered_names(array.shape[1]))


def open_npz(path: str) -> ArrayReader:
    """Open a ``.npz`` file: its only two-dimensional array, or the one named X or data."""
    with decoding(path, "a NumPy archive"), np.load(path, allow_pickle=False) as archive:
        for member in archive.zip.infolist():
            _check_declared(path, archive.zip, member)
        arrays = {
            name: _load(f"{path}, array {name!r}", partial(archive.__getitem__, name))
            for name in archive.files
        }
    if not arrays:
        raise TableError(f"{path} holds no array; save one with numpy.savez({path!r}, X=array)")
    name = _choose(path, arrays)
    array = arrays[name]
    _check_table(f"{path}, array {name!r}", array)
    for key in _NAMES_NAMES:
        if key in arrays and key != name:
            return ArrayReader(path, array, _given_names(path, key, arrays[key], array.shape[1]))
    return ArrayReader(path, array, numbered_names(array.shape[1]))


def _check_declared(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise where an array says that it is larger than what is there: it would be made first."""
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
        except ValueError:
            return  # not an array, which is complained about later
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        declared = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and declared != member.file_size - file.tell():
            raise TableError(
                f"{path}, array {member.filename!r} should have {declared} bytes and has "
                f"{member.file_size - file.tell()}; it is damaged, save it again"
            )


def _load(where: str, load: Callable[[], Any]) -> NDArray[Any]:
    """Return an array, or refuse one of Python objects with a better reason than NumPy's."""
    try:
        array: NDArray[Any] = load()
    except ValueError as error:
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise TableError(
                f"{where} holds Python objects, which are not loaded for safety; convert it with "
                ".astype(float), or names with .astype(str), and save it again"
            ) from None
        raise
    if not isinstance(array, np.ndarray):  # a member that is no array comes as bytes
        raise TableError(f"{where} is not an array; leave it out")
    return array


def _choose(path: str, arrays: dict[str, NDArray[Any]]) -> str:
    """Return the name of the array that is the table."""
    for name in _DATA_NAMES:
        if name in arrays:
            return name
    tables = [
        name for name, array in arrays.items() if array.ndim == 2 and name not in _NAMES_NAMES
    ]
    if len(tables) == 1:
        return tables[0]
    if not tables and len(arrays) == 1:
        return next(iter(arrays))  # its shape is complained about next
    raise TableError(
        f"{path} holds {len(tables)} two-dimensional arrays (of {list_names(list(arrays))}); "
        "name the table X"
    )


def _check_table(where: str, array: NDArray[Any]) -> None:
    """Raise unless the array is a table of numbers."""
    if array.dtype.kind not in "biuf":
        raise TableError(
            f"{where} holds {array.dtype} values, not numbers; convert it with .astype(float)"
        )
    if array.ndim != 2:
        hint = "; for one column use .reshape(-1, 1)" if array.ndim == 1 else ""
        raise TableError(
            f"{where} has shape {array.shape}, a table has rows and columns{hint}; save a "
            "two-dimensional array"
        )
    if not array.shape[1]:
        raise TableError(f"{where} has no columns; save an array with at least one")
    if not array.shape[0]:
        raise TableError(f"{where} has columns but no rows; add at least one row of values")
    check_count(where, array.shape[1])


def _given_names(path: str, key: str, array: NDArray[Any], count: int) -> list[str]:
    where = f", array {key!r}"
    if array.dtype.kind not in "US" or array.ndim != 1 or len(array) != count:
        raise TableError(
            f"{path}{where} does not name the {count} columns; save a one-dimensional array of "
            f"{count} strings"
        )
    try:
        names = [name.decode() if isinstance(name, bytes) else name for name in array.tolist()]
    except UnicodeDecodeError:
        raise TableError(
            f"{path}{where} holds names that are not UTF-8; save them with .astype(str)"
        ) from None
    check_unique(path, names, where)
    return names
