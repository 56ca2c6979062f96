"""Result files, written beside and renamed: a reader sees the old file or the new one, whole."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file in one piece."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
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


def write_table(path: Path, columns: dict[str, Sequence[Any] | NDArray[Any]]) -> None:
    """Write columns of equal length as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    lists = (np.asarray(values).tolist() for values in columns.values())
    writer.writerows(zip(*lists, strict=True))
    write_bytes(path, buffer.getvalue().encode())
