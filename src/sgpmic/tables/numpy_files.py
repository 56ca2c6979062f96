"""Tables in NumPy's own files, ``.npy`` and ``.npz``; nothing pickled is ever loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgpmic.tables.base import Piece, TableError, TableReader, check_names, decoding, list_names
from sgpmic.tables.cells import text_of

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
            before = self._first_row + start
            yield Piece(values, words, lambda row, before=before: f"row {before + row + 1}")  # type: ignore[misc]


def open_npy(path: str) -> ArrayReader:
    """Open a ``.npy`` file; the array stays on disk."""
    with decoding(path, "a NumPy file"):
        with open(path, "rb") as file:
            _refuse_objects(path, file)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    return ArrayReader(path, _check_array(path, array), _numbered(array.shape[1]))


def open_npz(path: str) -> ArrayReader:
    """Open a ``.npz`` file: its only two-dimensional array, or the one named X or data."""
    with decoding(path, "a NumPy archive"), np.load(path, allow_pickle=False) as archive:
        arrays = {name: _load_member(path, archive, name) for name in archive.files}
    if not arrays:
        raise TableError(f"{path} holds no array; save one with numpy.savez({path!r}, X=array)")
    name = _choose(path, arrays)
    array = _check_array(path, arrays[name], f", array {name!r}")
    for key in _NAMES_NAMES:
        if key in arrays and key != name:
            return ArrayReader(path, array, _given_names(path, key, arrays[key], array.shape[1]))
    return ArrayReader(path, array, _numbered(array.shape[1]))


def _numbered(count: int) -> list[str]:
    return [f"feature_{i + 1}" for i in range(count)]


def _refuse_objects(path: str, file: Any) -> None:
    """Raise for arrays of Python objects, with a better reason than that of numpy.load."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        dtype = np.lib.format.read_array_header_1_0(file)[2]
    elif version == (2, 0):
        dtype = np.lib.format.read_array_header_2_0(file)[2]
    else:
        return  # version 3 is for the field names of records, which are refused anyway
    if dtype.hasobject:
        raise _holds_objects(path, "")


def _load_member(path: str, archive: Any, name: str) -> NDArray[Any]:
    try:
        array = archive[name]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise _holds_objects(path, f", array {name!r}") from None
        raise
    if not isinstance(array, np.ndarray):  # a member that is no array comes as bytes
        raise TableError(f"{path} holds {name!r}, which is no array; leave it out")
    return array


def _holds_objects(path: str, where: str) -> TableError:
    return TableError(
        f"{path}{where} holds Python objects, which are not loaded for safety; convert it with "
        ".astype(float), or names with .astype(str), and save it again"
    )


def _choose(path: str, arrays: dict[str, NDArray[Any]]) -> str:
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


def _check_array(path: str, array: NDArray[Any], where: str = "") -> NDArray[Any]:
    """Return the array if it is a table of numbers."""
    if array.dtype.kind not in "biuf":
        raise TableError(
            f"{path}{where} holds {array.dtype} values, not numbers; convert it with .astype(float)"
        )
    if array.ndim != 2:
        hint = "; for a single column use .reshape(-1, 1)" if array.ndim == 1 else ""
        raise TableError(
            f"{path}{where} has shape {array.shape}, a table has rows and columns{hint}; save a "
            "two-dimensional array"
        )
    if not array.shape[1]:
        raise TableError(f"{path}{where} has no columns; save an array with at least one")
    return array


def _given_names(path: str, key: str, array: NDArray[Any], count: int) -> list[str]:
    if array.dtype.kind not in "US" or array.ndim != 1 or len(array) != count:
        raise TableError(
            f"{path}, array {key!r} does not name the {count} columns; save a one-dimensional "
            f"array of {count} strings"
        )
    try:
        names = [name.decode() if isinstance(name, bytes) else name for name in array.tolist()]
    except UnicodeDecodeError:
        raise TableError(
            f"{path}, array {key!r} holds names that are not UTF-8; save them with .astype(str)"
        ) from None
    check_names(path, names, f", array {key!r}")
    return names
