"""Files written beside and renamed: a reader sees the old file or the new one, whole."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Columns = Mapping[str, Sequence[Any] | NDArray[Any]]

#: Rows that are written as text at a time: an array of Arrow holds 2 GiB of it.
_PART = 65_536


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a file to write to; it takes the place of ``path`` once it is safely on disk.

    Whatever goes wrong before leaves ``path`` untouched. A file that was private stays private,
    and a link stays a link.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with suppress(FileNotFoundError):
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    # The new name should survive a power cut, where the system can do so.
    with suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file in one piece."""
    with replacing(path) as file:
        file.write(content)


def table_bytes(columns: Columns, *, header: bool = True) -> bytes:
    """Return columns of equal length as CSV, numbers as Python writes them."""
    import pyarrow.compute as pc

    arrays = [np.asarray(values) for values in columns.values()]
    lines = [",".join(_texts(np.array([*columns])).to_pylist())] if header else []
    for first in range(0, len(arrays[0]), _PART):
        cells = [_texts(array[first : first + _PART]) for array in arrays]
        lines += pc.binary_join_element_wise(*cells, ",").to_pylist()
    return "".join(f"{line}\n" for line in lines).encode()


def _texts(values: NDArray[Any]) -> pa.Array:
    """Return a column of CSV cells, in quotation marks where they need them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.dtype.kind == "f":
        texts = pc.cast(pa.array(values), pa.string())
        size = np.abs(values)
        # Arrow writes these otherwise than Python: whole numbers without a point, 1e-7 for 1e-07,
        # 0.00001 for 1e-05, 1e+10 for 10000000000.0.
        others = ((size >= 9e-10) & (size < 1e-4)) | ~(size < 1e9) | (np.floor(size) == size)
        theirs = pa.array(map(repr, values[others].tolist()), pa.string())
        return pc.replace_with_mask(texts, others, theirs)
    if values.dtype.kind in "iu":
        return pc.cast(pa.array(values), pa.string())
    texts = pa.array(map(str, values.tolist()), pa.string())
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(texts, '[",\r\n]'), quoted, texts)
