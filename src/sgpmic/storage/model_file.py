"""Model files: named arrays and a JSON header in the safetensors format, with checksums.

A file holds only numbers and text, so loading one executes no code. The safetensors metadata have
one entry, ``"sgpmic"``, a JSON object with

``format``
    the version of this layout;
``package``
    the header's ``"package"`` entry, if any: the version that wrote the file;
``header``
    the caller's header;
``checksums``
    for every array, the SHA-256 of its type, shape and bytes;
``checksum``
    the SHA-256 of all the above.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

FORMAT = 1

_ENTRY = "sgpmic"
# Parsing a header takes a second for a few megabytes. A legitimate long header names many features,
# for each of which the arrays hold many numbers.
_SHORT_HEADER = 4_000_000
_DATA_PER_HEADER = 4


class ModelFileError(ValueError):
    """A file is not a valid model file, is damaged, or cannot be written."""


def write_model(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a model file atomically.

    The header holds text, finite numbers, booleans, None, and lists and mappings of those (tuples
    are read back as lists); arrays are boolean, integer or floating-point, of any shape. Raises a
    `ModelFileError` for anything else.
    """
    import safetensors.numpy  # imported lazily: fitting does not need it

    plain = {name: _little_endian(np.asarray(array)) for name, array in arrays.items()}
    for name, array in plain.items():
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:  # not a long double
            raise ModelFileError(f"{path} was not written: the array {name!r} is {array.dtype}.")
    document: dict[str, Any] = {
        "format": FORMAT,
        "package": header.get("package"),
        "header": header,
        "checksums": {name: array_checksum(array) for name, array in plain.items()},
    }
    try:
        document["checksum"] = _document_checksum(document)
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:  # for example, an infinite number
        raise ModelFileError(f"{path} was not written: its header is not JSON ({error}).") from None
    if _is_too_long(text, sum(array.nbytes for array in plain.values())):
        raise ModelFileError(f"{path} was not written: its header is too long for its arrays.")
    write_bytes(path, safetensors.numpy.save(plain, metadata={_ENTRY: text}))


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a model file after verifying all checksums.

    Arrays are writable and in native byte order. Raises a `ModelFileError` if the file is not a
    model file, is damaged, or was written by a newer version.
    """
    from safetensors import SafetensorError, safe_open

    name = os.fspath(path)
    if not stat.S_ISREG(os.stat(name).st_mode):  # opening a pipe would block
        raise ModelFileError(f"{name} is not a regular file: name a model file instead")
    with open(name, "rb") as file:  # safetensors hides why a file cannot be opened
        size = os.fstat(file.fileno()).st_size
    if 2 * size > (free := free_memory()):
        raise ModelFileError(
            f"{name} needs {2 * size / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} GiB are "
            "free: use a larger machine"
        )
    try:
        # Checks that the sizes of the arrays add up to that of the file.
        with safe_open(name, "numpy") as opened:
            document = _read_document(opened.metadata(), size)
            arrays = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
        checksums = {key: array_checksum(array) for key, array in arrays.items()}
        if wrong := checksums.items() ^ document["checksums"].items():
            raise ValueError(f"the checksum of the array {min(wrong)[0]!r} does not match")
    except ModelFileError as error:
        raise ModelFileError(f"{name} {error}") from None
    except (SafetensorError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ModelFileError(
            f"{name} is damaged, or not an sgpmic model file ({error}): copy it again, restore a "
            "backup, or give the path of a file that sgpmic saved"
        ) from error
    return document["header"], arrays


def _read_document(metadata: Mapping[str, str] | None, size: int) -> dict[str, Any]:
    """Return the sgpmic entry of the metadata after verifying its checksum."""
    text = (metadata or {}).get(_ENTRY)
    if text is None:
        raise ValueError("it is of another program")
    if _is_too_long(text, size - len(text)):
        raise ValueError("its header is too long for its arrays")
    document: Any = json.loads(text)
    check_kinds(document, {"format": int, "header": dict, "checksums": {Any: str}})
    if (version := document["format"]) != FORMAT:
        raise ModelFileError(f"was written by another sgpmic (format {version}): upgrade sgpmic")
    if document.pop("checksum", None) != _document_checksum(document):
        raise ValueError("the checksum of the model description does not match")
    return dict(document)


def _is_too_long(text: str, n_bytes: int) -> bool:
    """Whether a header is too long for arrays of so many bytes."""
    return len(text) > _SHORT_HEADER + n_bytes // _DATA_PER_HEADER


def _little_endian(array: np.ndarray) -> np.ndarray:
    # numpy.ascontiguousarray would turn a scalar into a 1-D array.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def array_checksum(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's type, shape and little-endian bytes."""
    # The shape is included because an empty array has no bytes.
    digest = hashlib.sha256(f"{array.dtype.name} {array.shape} ".encode())
    digest.update(_little_endian(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _document_checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, independent of key order and whitespace."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


NUMBER = (int, float)


def check_kinds(found: Any, kinds: Mapping[str, Any]) -> None:
    """Validate a JSON object against a schema; raise a ValueError if an entry does not match.

    Files may be damaged, or forged. A kind is a type; None; a tuple of alternatives; a list with
    the kind of all its entries; or a dict of kinds by name (the key Any matches all names). True
    and False are not numbers. Entries not in the schema are ignored.
    """
    for name, kind in kinds.items():
        if name not in found:
            raise ValueError(f"it has no {name!r}")
        if not _is(found[name], kind):
            raise ValueError(f"its {name!r} cannot be {found[name]!r:.60}")


def _is(value: Any, kind: Any) -> bool:
    if isinstance(kind, tuple):
        return any(_is(value, one) for one in kind)
    if isinstance(kind, list):
        return isinstance(value, list) and all(_is(entry, kind[0]) for entry in value)
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return False
        kinds = dict.fromkeys(value, kind[Any]) if Any in kind else kind
        return all(name in value and _is(value[name], one) for name, one in kinds.items())
    if kind is None:
        return value is None
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def free_memory() -> float:
    """Return the bytes of memory available to this process; infinity if unknown."""
    free = free_in_container()
    with suppress(OSError, StopIteration, ValueError), open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
        return min(free, int(line.split()[1]) * 1024)
    return free


def free_in_container(system: Path = Path("/")) -> float:
    """Return the bytes of memory left within the cgroup (version 2) limits of this process."""
    free = math.inf
    with suppress(OSError, StopIteration):
        lines = (system / "proc/self/cgroup").read_text().splitlines()
        group = Path(next(line for line in lines if line.startswith("0::"))[3:])
        for parent in (group, *group.parents):  # limits apply at every level
            folder = system / "sys/fs/cgroup" / parent.relative_to("/")
            with suppress(OSError, ValueError):  # "max" means no limit; the root group has no file
                limit = int((folder / "memory.max").read_text())
                used = int((folder / "memory.current").read_text())
                statistics = (folder / "memory.stat").read_text().split()
                # The page cache counts as used but can be reclaimed.
                cached = int(statistics[statistics.index("inactive_file") + 1])
                free = min(free, limit - used + cached)
    return free


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Replace a file atomically: yield a temporary file and rename it to ``path`` after an fsync.

    If anything fails before, ``path`` is left unchanged. File permissions are kept, and a symbolic
    link stays one.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
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


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as file:
        file.write(content)
