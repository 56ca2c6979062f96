"""Result files, written beside and renamed: a reader sees the old file or the new one, whole."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, Sequence[Any] | NDArray[Any]]


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write to; it takes the place of ``path`` when all has gone well."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; results are for sharing, as the umask says.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_bytes(path: Path, content: bytes) -> None:
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


def write_table(path: Path, columns: Columns) -> None:
    """Write columns of equal length as CSV."""
    write_bytes(path, table_bytes(columns))
