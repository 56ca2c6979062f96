"""Files written beside and renamed: a reader sees the old file or the new one, whole."""

from __future__ import annotations

import csv
import io
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, Sequence[Any] | NDArray[Any]]


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
    """Return columns of equal length as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if header:
        writer.writerow(columns)
    lists = (np.asarray(values).tolist() for values in columns.values())
    writer.writerows(zip(*lists, strict=True))
    return buffer.getvalue().encode()
