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
# The limit of the safetensors library; a longer declared header means a different file format.
_LONGEST_HEADER = 100_000_000
# Parsing a header takes a second for a few megabytes. A legitimate long header names many features,
# for each of which the arrays hold many numbers.
_SHORT_HEADER = 4_000_000
_DATA_PER_HEADER = 4
_LENGTH_BYTES = 8

_OTHER_KINDS = {
    b"\x80": "a pickle",
    b"PK\x03\x04": "a zip archive, as numpy.savez and torch.save write",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip archive",
}

_TRUNCATED = "is truncated, its end is missing: copy it again or restore a backup"


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
    target = os.path.realpath(os.fspath(path))
    try:
        write_bytes(target, _serialize(header, arrays))
    except ModelFileError as error:
        raise ModelFileError(f"{target} was not written because {error}") from None
    except OSError as error:
        advice = "cannot write the model file: name a file in a folder that you may write to"
        raise _explained(error, target, advice) from error


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a model file after verifying all checksums.

    Arrays are writable and in native byte order. Raises a `ModelFileError` if the file is not a
    model file, is damaged, or was written by a newer version.
    """
    name = os.fspath(path)
    try:
        if not stat.S_ISREG(mode := os.stat(name).st_mode) and not stat.S_ISDIR(mode):
            # Opening a pipe would block.
            raise ModelFileError("is not a regular file: name a model file instead")
        with open(name, "rb") as file:
            return _read(file)
    except ModelFileError as error:
        raise ModelFileError(f"{name} {error}") from error.__cause__
    except OSError as error:
        advice = "check the path of the model file, and its permissions"
        raise _explained(error, name, advice) from error


def _explained(error: OSError, name: str, advice: str) -> OSError:
    """Return an error of the same type with the caller's path and advice."""
    return type(error)(error.errno, f"{error.strerror or error}; {advice}", name)


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


def _serialize(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    import safetensors.numpy  # imported lazily: fitting does not need it

    plain = {name: _plain_array(name, array) for name, array in arrays.items()}
    document: dict[str, Any] = {
        "format": FORMAT,
        "package": header.get("package"),
        "header": header,
        "checksums": {name: _array_checksum(array) for name, array in plain.items()},
    }
    try:
        document["checksum"] = _document_checksum(document)
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:  # for example, an infinite number
        raise ModelFileError(f"its header is not JSON ({error}): pass simpler values") from error
    content = safetensors.numpy.save(plain, metadata={_ENTRY: text})
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if _is_long_header(length, len(content) - length):
        raise ModelFileError("its header is too long for its arrays: leave something out")
    return content


def _plain_array(name: str, array: np.ndarray) -> np.ndarray:
    if not isinstance(name, str) or name == "__metadata__" or not name.isprintable():
        raise ModelFileError(f"{name!r} cannot name an array: use other, printable text")
    result = np.asarray(array)
    if result.dtype.kind not in "biuf" or result.dtype.itemsize > 8:  # not a long double
        raise ModelFileError(f"the array {name!r} is {result.dtype}: convert it to numbers")
    # numpy.ascontiguousarray would turn a scalar into a 1-D array.
    return np.asarray(result, dtype=result.dtype.newbyteorder("<"), order="C")


def _read(file: BinaryIO) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays; the arrays are read only after their size has been verified."""
    start = file.read(_LENGTH_BYTES + 1)
    if not start:
        raise ModelFileError("is empty: write the model again or restore a backup")
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if length > _LONGEST_HEADER or start[_LENGTH_BYTES:] not in (b"", b"{"):
        raise _foreign(f"not an sgpmic model file ({_kind(start)})")
    size = os.fstat(file.fileno()).st_size
    n_bytes = size - _LENGTH_BYTES - length
    if n_bytes < 0:
        raise ModelFileError(_TRUNCATED)
    if _is_long_header(length, n_bytes):
        raise _damaged(f"its header of {length >> 20} MB is too long for the arrays that follow")
    table = _json_object(start[_LENGTH_BYTES:] + file.read(length - 1), "its header")
    document = _read_document(table)
    arrays = [entry for key, entry in table.items() if key != "__metadata__"]
    try:
        end = max((int(entry["data_offsets"][1]) for entry in arrays), default=0)
    except (TypeError, KeyError, IndexError, ValueError, OverflowError):
        raise _damaged("its table of arrays is malformed") from None
    if n_bytes < end:
        raise ModelFileError(_TRUNCATED)
    if n_bytes > end:
        raise _damaged(f"{n_bytes - end} bytes follow its end")
    if 2 * size > (free := free_memory()):
        raise ModelFileError(
            f"needs {2 * size / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} GiB are free: use "
            "a larger machine"
        )
    file.seek(0)
    return document["header"], _decode(file.read(), document["checksums"])


def _is_long_header(length: int, n_bytes: int) -> bool:
    return length > _SHORT_HEADER + n_bytes // _DATA_PER_HEADER


def _json_object(text: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise _damaged(f"{what} is not valid JSON") from error
    if not isinstance(found, dict):
        raise _damaged(f"{what} is not a JSON object")
    return found


def _read_document(table: dict[str, Any]) -> dict[str, Any]:
    """Return the sgpmic entry of the metadata after verifying its checksum."""
    metadata = table.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_ENTRY), str):
        raise _foreign("a safetensors file of another program")
    text = metadata[_ENTRY].encode("utf-8", "surrogatepass")
    document = _json_object(text, "the model description in it")
    version: Any = document.get("format")
    if not _is(version, int) or version < 1:
        raise _damaged("it has no format version")
    if version > FORMAT:
        raise ModelFileError(f"was written by a newer sgpmic (format {version}): upgrade sgpmic")
    claimed = document.pop("checksum", None)
    try:
        actual = _document_checksum(document)
    except (ValueError, RecursionError) as error:
        raise _damaged("the model description in it is malformed") from error
    if claimed != actual:
        raise _damaged("the checksum of the model description does not match")
    if not _is(document, {"header": dict, "checksums": dict}):
        raise _damaged("the model description in it is incomplete")
    return document


def _decode(content: bytes, checksums: dict[str, Any]) -> dict[str, np.ndarray]:
    import safetensors.numpy
    from safetensors import SafetensorError

    try:
        views = safetensors.numpy.load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise _damaged("its table of arrays does not fit their data") from error
    for key in sorted({*checksums, *views}):
        if key not in views:
            raise _damaged(f"the array {key!r} is missing")
        if key not in checksums:
            raise _damaged(f"it has an unknown array {key!r}")
        if _array_checksum(views[key]) != checksums[key]:
            raise _damaged(f"the checksum of the array {key!r} does not match")
    return {k: np.array(v, v.dtype.newbyteorder("="), order="C") for k, v in views.items()}


def _array_checksum(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's type, shape and little-endian bytes."""
    little = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    # The shape is included because an empty array has no bytes.
    digest = hashlib.sha256(f"{array.dtype.name} {array.shape} ".encode())
    digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _document_checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, independent of key order and whitespace."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _kind(start: bytes) -> str:
    for magic, kind in _OTHER_KINDS.items():
        if start.startswith(magic):
            return f"it looks like {kind}"
    is_text = all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start)
    return "it looks like text" if is_text else "it does not start like one"


def _foreign(what: str) -> ModelFileError:
    return ModelFileError(f"is {what}: give the path of a file that sgpmic saved")


def _damaged(what: str) -> ModelFileError:
    return ModelFileError(f"is damaged, {what}: copy it again or restore a backup")


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
    # Sync the folder so that the rename survives a power failure, if the system supports it.
    with suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as file:
        file.write(content)
