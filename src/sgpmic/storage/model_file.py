"""Model files: named arrays and a plain header, checked, in the safetensors format.

A file holds nothing but numbers and text, so loading one executes nothing.  The safetensors
metadata have one entry, ``"sgpmic"``, a JSON object with

``format``
    the version of this layout;
``package``
    the header's ``"package"`` entry, if it has one: what wrote the file;
``header``
    what the caller wants to remember;
``checksums``
    for every array, the SHA-256 of its type, shape and bytes;
``checksum``
    the SHA-256 of all the above.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sgpmic.storage.outputs import write_bytes

FORMAT = 1

_ENTRY = "sgpmic"
_TYPES = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
# The safetensors library's own limit; a longer declared header means a file of another kind.
_LONGEST_HEADER = 100_000_000
# Reading a header takes a second for some megabytes. A long one names many features, of which the
# arrays hold many numbers each.
_SHORT_HEADER = 4_000_000
_DATA_PER_HEADER = 4
_LENGTH_BYTES = 8

_OTHER_KINDS = (
    (b"\x80", "a pickle"),
    (b"PK\x03\x04", "a zip archive, as numpy.savez and torch.save write"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x1f\x8b", "a gzip archive"),
)


class ModelFileError(ValueError):
    """A file is not a model file, or not one that can be trusted, or cannot be written."""


def write_model(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a model file, wholly or not at all.

    The header holds text, finite numbers, booleans, None, and lists and mappings of those (tuples
    come back as lists); arrays are boolean, integer or floating-point, of any shape. A
    `ModelFileError` says that something has no place in a model file.
    """
    target = os.path.realpath(os.fspath(path))
    content = _serialise(target, header, arrays)
    if os.path.isdir(target):
        raise IsADirectoryError(
            errno.EISDIR, "cannot write a model over a folder: name a file in it", target
        )
    advice = "cannot write the model file: check the folder, its permissions and space"
    with _explained(target, advice):
        write_bytes(target, content)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a model file; every byte that matters is checked.

    Arrays are writable and in the machine's byte order. A `ModelFileError` says that the file is
    not a model file, is damaged, or was written by a newer version.
    """
    name = os.fspath(path)
    with _explained(name, "cannot read the model file: check the path and its permissions"):
        content = _read_bytes(name)
    table, data_bytes = _read_table(name, content)
    document = _read_document(name, table)
    _check_length(name, table, data_bytes)
    arrays = _decode(name, content)
    _check_arrays(name, document["checksums"], arrays)
    return document["header"], arrays


# ------------------------------------------------------------------------------- writing


def _serialise(path: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the bytes of the file."""
    import safetensors.numpy  # when there is a file: learning needs none

    try:
        plain = {name: _plain_array(name, array) for name, array in arrays.items()}
        document: dict[str, Any] = {
            "format": FORMAT,
            "package": header.get("package"),
            "header": header,
            "checksums": {name: _array_checksum(array) for name, array in plain.items()},
        }
        document["checksum"] = _document_checksum(document)
        text = json.dumps(document, allow_nan=False)
    except ModelFileError as error:
        raise ModelFileError(f"{path} was not written because {error}") from None
    except (TypeError, ValueError) as error:
        # An infinite number, for one.
        raise ModelFileError(
            f"{path} was not written because its header cannot be put into JSON ({error}): "
            "pass simpler values"
        ) from error
    content = safetensors.numpy.save(plain, metadata={_ENTRY: text})
    if _has_long_header(content):
        raise ModelFileError(
            f"{path} was not written because its header is too long for its arrays: leave "
            "something out"
        )
    return content


def _plain_array(name: str, array: np.ndarray) -> np.ndarray:
    """Return `array` contiguous and little-endian, or refuse it."""
    if not isinstance(name, str) or name == "__metadata__" or not name.isprintable():
        raise ModelFileError(
            f"{name!r} cannot name an array: use printable text other than '__metadata__'"
        )
    result = np.asarray(array)
    if result.dtype.name not in _TYPES:
        raise ModelFileError(
            f"the array {name!r} has the type {result.dtype}: convert it to booleans, integers or "
            "floating-point numbers"
        )
    # numpy.ascontiguousarray would give a scalar a dimension.
    return np.asarray(result, dtype=result.dtype.newbyteorder("<"), order="C")


# ------------------------------------------------------------------------------- reading


def _read_bytes(name: str) -> bytes:
    """Return the content of a file that starts like a model file."""
    mode = os.stat(name).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(mode):
        # Opening a pipe would wait for someone to write into it.
        raise ModelFileError(f"{name} is not a regular file: name a model file instead")
    with open(name, "rb") as file:
        start = file.read(_LENGTH_BYTES + 1)
        if not start:
            raise ModelFileError(f"{name} is empty: write the model again or restore a backup")
        long = _header_length(start) > _LONGEST_HEADER
        if long or (len(start) > _LENGTH_BYTES and start[-1:] != b"{"):
            raise _foreign(name, f"not an sgpmic model file ({_kind(start)})")
        return start + file.read()


def _header_length(content: bytes) -> int:
    return int.from_bytes(content[:_LENGTH_BYTES], "little")


def _has_long_header(content: bytes) -> bool:
    length = _header_length(content)
    return length > _SHORT_HEADER + (len(content) - length) // _DATA_PER_HEADER


def _read_table(name: str, content: bytes) -> tuple[dict[str, Any], int]:
    """Return the safetensors header, and the number of bytes that follow it."""
    end = _LENGTH_BYTES + max(_header_length(content), 1)
    if len(content) < end:
        raise _truncated(name)
    if _has_long_header(content):
        raise _damaged(name, f"its header of {end >> 20} MB is too long for the arrays that follow")
    return _json_object(name, content[_LENGTH_BYTES:end], "its header"), len(content) - end


def _json_object(name: str, text: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"{what} is not valid JSON") from error
    if not isinstance(found, dict):
        raise _damaged(name, f"{what} is not a JSON object")
    return found


def _read_document(name: str, table: dict[str, Any]) -> dict[str, Any]:
    """Return the package's own part of the header, complete and unchanged."""
    metadata = table.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_ENTRY), str):
        raise _foreign(name, "a safetensors file of another program")
    text = metadata[_ENTRY].encode("utf-8", "surrogatepass")
    document = _json_object(name, text, "the model description in it")
    version = document.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged(name, "it does not say which format it has")
    if version > FORMAT:
        raise ModelFileError(
            f"{name} was written by a newer sgpmic (format {version}; this one reads up to "
            f"{FORMAT}): upgrade sgpmic"
        )
    claimed = document.pop("checksum", None)
    try:
        actual = _document_checksum(document)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, "the model description in it is malformed") from error
    if claimed != actual:
        raise _damaged(name, "the checksum of the model description does not match")
    if not all(isinstance(document.get(key), dict) for key in ("header", "checksums")):
        raise _damaged(name, "the model description in it is incomplete")
    return document


def _check_length(name: str, table: dict[str, Any], found: int) -> None:
    """Tell a file that was cut short from one that was changed."""
    end = 0
    for key, entry in table.items():
        if key == "__metadata__":
            continue
        try:
            end = max(end, int(entry["data_offsets"][1]))
        except (TypeError, KeyError, IndexError, ValueError, OverflowError):
            raise _damaged(name, f"the entry of the array {key!r} is malformed") from None
    if found < end:
        raise _truncated(name)
    if found > end:
        raise _damaged(name, f"{found - end} bytes follow its end")


def _decode(name: str, content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file, as writable copies."""
    import safetensors.numpy
    from safetensors import SafetensorError

    try:
        views = safetensors.numpy.load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise _damaged(name, "its table of arrays does not fit their data") from error
    return {
        key: np.array(view, dtype=view.dtype.newbyteorder("="), order="C")
        for key, view in views.items()
    }


def _check_arrays(name: str, checksums: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Compare what was read with what was written."""
    missing = sorted(set(checksums) - set(arrays))
    if missing:
        raise _damaged(name, f"the array {missing[0]!r} is missing")
    unknown = sorted(set(arrays) - set(checksums))
    if unknown:
        raise _damaged(name, f"it has an array {unknown[0]!r} that the model does not know")
    for key, array in arrays.items():
        if _array_checksum(array) != checksums[key]:
            raise _damaged(name, f"the checksum of the array {key!r} does not match")


# ------------------------------------------------------------------------------- both


def _array_checksum(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's type, shape and little-endian bytes."""
    little = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    # The shape counts: of an empty array it is all there is.
    digest = hashlib.sha256(f"{array.dtype.name} {array.shape} ".encode())
    digest.update(little.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _document_checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, whatever the order and spacing of its text."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _kind(start: bytes) -> str:
    """Return what a file looks like from its first bytes."""
    for magic, kind in _OTHER_KINDS:
        if start.startswith(magic):
            return f"it looks like {kind}"
    if all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start):
        return "it looks like text"
    return "it does not start like one"


def _foreign(name: str, what: str) -> ModelFileError:
    return ModelFileError(f"{name} is {what}: give the path of a file that sgpmic saved")


def _truncated(name: str) -> ModelFileError:
    return ModelFileError(
        f"{name} is truncated, its end is missing: copy it again or restore a backup"
    )


def _damaged(name: str, what: str) -> ModelFileError:
    return ModelFileError(f"{name} is damaged, {what}: copy it again or restore a backup")


@contextlib.contextmanager
def _explained(name: str, advice: str) -> Iterator[None]:
    """Add to an operating-system error what to do about it, keeping its kind.

    The file named is the caller's, not the temporary one that it may have happened to.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise type(error)(error.errno, f"{reason}; {advice}", name) from error
