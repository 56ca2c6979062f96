"""Tables in NumPy's own files, ``.npy`` and ``.npz``; nothing pickled is ever loaded."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sgpmic.tables.base import (
    Piece,
    TableReader,
    check_count,
    check_memory,
    check_unique,
    numbered_names,
    row_place,
)
from sgpmic.tables.errors import TableError, decoding, list_names

_ROWS = 65536
_DATA_NAMES = ("X", "data")
_NAMES_NAMES = ("names", "columns")


class ArrayReader(TableReader):
    """A two-dimensional array, in memory or mapped from a file."""

    kind = "a NumPy file"

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

    def pieces(self, names: Sequence[str]) -> Iterator[Piece]:
        """Yield the rows a few at a time, so that little of a mapped file is in memory."""
        index = {name: i for i, name in enumerate(self.names)}
        # Whole numbers may be labels of more digits than a float has.
        whole = self._array.dtype.kind in "iu"
        dtype = self._array.dtype.newbyteorder("=") if whole else np.float64
        for start in range(0, len(self._array), _ROWS):
            rows = np.asarray(self._array[start : start + _ROWS])
            # Numbers beyond float64's range become infinite, which is reported as such.
            with np.errstate(over="ignore"):
                columns = [np.ascontiguousarray(rows[:, index[name]], dtype) for name in names]
            batch = pa.RecordBatch.from_arrays(list(map(pa.array, columns)), list(names))
            yield Piece(batch, partial(row_place, self._first_row + start))


def open_npy(path: str) -> ArrayReader:
    """Open a ``.npy`` file; the array stays on disk."""
    with decoding(path, "a NumPy file"):
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            if "allow_pickle" in str(error) or "Python objects" in str(error):
                raise _has_objects(path) from None
            raise
    _check_table(path, array.shape, array.dtype)
    return ArrayReader(path, array, numbered_names(array.shape[1]))


def open_npz(path: str) -> ArrayReader:
    """Open a ``.npz`` file: its only two-dimensional array, or the one named X or data.

    Of the others only the headers are read.
    """
    with decoding(path, "a NumPy archive"), np.load(path, allow_pickle=False) as archive:
        headers = {
            member.filename.removesuffix(".npy"): _read_header(path, archive.zip, member)
            for member in archive.zip.infolist()
        }
        name = _choose(path, headers)
        where, (shape, dtype) = f"{path}, array {name!r}", headers[name]
        _check_table(where, shape, dtype)
        check_memory(where, math.prod(shape) * dtype.itemsize)
        key = next((key for key in _NAMES_NAMES if key in headers and key != name), None)
        names = numbered_names(shape[1])
        if key is not None:
            names = _read_names(path, archive, key, headers[key], shape[1])
        return ArrayReader(path, archive[name], names)


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _read_header(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> _Header:
    """Return what an array says of itself; raise where it is not what is there."""
    where = f"{path}, array {member.filename.removesuffix('.npy')!r}"
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
        except ValueError:
            raise TableError(f"{where} is not an array; leave it out") from None
        first = np.lib.format.read_array_header_1_0
        shape, _, dtype = (
            first(file) if version == (1, 0) else np.lib.format.read_array_header_2_0(file)
        )
        if dtype.hasobject:
            raise _has_objects(where)
        declared, found = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
    if declared != found:
        raise TableError(
            f"{where} should have {declared} bytes and has {found}; it is damaged, save it again"
        )
    return _Header(shape, dtype)


def _has_objects(where: str) -> TableError:
    return TableError(
        f"{where} holds Python objects, which are not loaded for safety; convert it with "
        ".astype(float), or names with .astype(str), and save it again"
    )


def _choose(path: str, arrays: dict[str, _Header]) -> str:
    """Return the name of the array that is the table."""
    if not arrays:
        raise TableError(f"{path} holds no array; save one with numpy.savez({path!r}, X=array)")
    others = [name for name in arrays if name not in _NAMES_NAMES]
    tables = [name for name in others if len(arrays[name].shape) == 2]
    named = [name for name in _DATA_NAMES if name in arrays]
    if not named and len(tables) != 1 and (tables or len(arrays) > 1):
        raise TableError(
            f"{path} holds {len(tables)} two-dimensional arrays (of {list_names(list(arrays))}); "
            "name the table X"
        )
    return [*named, *tables, *arrays][0]  # if it is none, its shape is complained about next


def _check_table(where: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise unless an array is a table of numbers."""
    wrong = ""
    if dtype.kind not in "biuf":
        wrong = f"holds {dtype} values, not numbers; convert it with .astype(float)"
    elif len(shape) != 2:
        hint = "; for one column use .reshape(-1, 1)" if len(shape) == 1 else ""
        wrong = (
            f"has shape {shape}, a table has rows and columns{hint}; save a two-dimensional array"
        )
    elif not shape[1]:
        wrong = "has no columns; save an array with at least one"
    elif not shape[0]:
        wrong = "has columns but no rows; add at least one row of values"
    if wrong:
        raise TableError(f"{where} {wrong}")
    check_count(where, shape[1])


def _read_names(path: str, archive: Any, key: str, header: _Header, count: int) -> tuple[str, ...]:
    """Return the names of the columns that an archive gives."""
    where = f", array {key!r}"
    if header.dtype.kind not in "US" or header.shape != (count,):
        raise TableError(
            f"{path}{where} does not name the {count} columns; save a one-dimensional array of "
            f"{count} strings"
        )
    check_memory(path + where, count * header.dtype.itemsize)
    try:
        names = [n.decode() if isinstance(n, bytes) else n for n in archive[key].tolist()]
    except UnicodeDecodeError:
        raise TableError(
            f"{path}{where} holds names that are not UTF-8; save them with .astype(str)"
        ) from None
    check_unique(path, names, where)
    return tuple(names)
