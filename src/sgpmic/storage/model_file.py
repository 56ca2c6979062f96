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
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

__all__ = ["FORMAT", "ModelFileError", "read_model", "write_model"]

FORMAT = 1

_ENTRY = "sgpmic"
_TYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
}
# The safetensors library's own limit; a longer declared header means a file of another kind.
_LONGEST_HEADER = 100_000_000
_LENGTH_BYTES = 8
# Far below where Python's own recursion limit would end writing or reading.
_DEEPEST_HEADER = 50

_OTHER_KINDS = (
    (b"\x80", "a pickle"),
    (b"PK\x03\x04", "a zip archive, as numpy.savez and torch.save write"),
    (b"\x93NUMPY", "a single NumPy array"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x1f\x8b", "a gzip archive"),
)


class ModelFileError(ValueError):
    """A file is not a model file, or not one that can be trusted, or cannot be made into one."""


def write_model(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a model file, wholly or not at all.

    Parameters
    ----------
    path : path-like
        The file to write.  An existing one is replaced in one step once the new one is safely
        on disk; whatever goes wrong before leaves it untouched.
    header : mapping
        What to remember beside the arrays: text, finite numbers, booleans, None, and lists and
        mappings of those.  Tuples come back as lists.
    arrays : mapping of str to numpy.ndarray
        Boolean, integer or floating-point arrays of any shape.

    Raises
    ------
    ModelFileError
        If the header or an array has no place in a model file.
    OSError
        If the file cannot be written.
    """
    target = os.path.realpath(os.fspath(path))
    content = _serialise(target, header, arrays)
    if os.path.isdir(target):
        raise IsADirectoryError(
            errno.EISDIR, "cannot write a model over a folder: name a file in it", target
        )
    advice = "cannot write the model file: check the folder, its permissions and space"
    with _explained(target, advice):
        _replace_file(target, content)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a model file and check every byte that matters.

    Parameters
    ----------
    path : path-like
        A file that `write_model` wrote.

    Returns
    -------
    header : dict
        The header as it was given.
    arrays : dict of str to numpy.ndarray
        The arrays as they were given, writable and in the machine's byte order.

    Raises
    ------
    ModelFileError
        If the file is not a model file, is damaged, or was written by a newer version.
    OSError
        If the file does not exist or cannot be read.
    """
    name = os.fspath(path)
    with _explained(name, "cannot read the model file: check the path and its permissions"):
        mode = os.stat(name).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):
            # Opening a pipe would wait for someone to write into it.
            raise ModelFileError(f"{name} is not a regular file: name a model file instead")
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start, table = _read_table(name, file, size)
            rest = file.read()
    document = _check_document(name, table)
    _check_length(name, table, len(rest))
    arrays = _decode(name, start + rest)
    _check_arrays(name, document["checksums"], arrays)
    return document["header"], arrays


# ------------------------------------------------------------------------------- writing


def _serialise(path: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the bytes of the file."""
    plain_header = _plain_value(path, "header", header)
    plain = {name: _plain_array(path, name, array) for name, array in arrays.items()}
    document: dict[str, Any] = {
        "format": FORMAT,
        "package": plain_header.get("package"),
        "header": plain_header,
        "checksums": {name: _array_checksum(array) for name, array in plain.items()},
    }
    try:
        document["checksum"] = _document_checksum(document)
        text = json.dumps(document, allow_nan=False)
    except ValueError as error:
        # An integer of thousands of digits, for one.
        raise ModelFileError(
            f"{path} was not written because its header cannot be put into JSON ({error}): "
            "pass simpler values"
        ) from error
    import safetensors.numpy  # when there is a file: learning needs none

    return safetensors.numpy.save(plain, metadata={_ENTRY: text})


def _plain_value(path: str, where: str, value: Any, depth: int = 0) -> Any:
    """Return `value` made of plain JSON types, or refuse it."""
    if depth > _DEEPEST_HEADER:
        raise ModelFileError(
            f"{path} was not written because its header is nested more than {_DEEPEST_HEADER} "
            "levels deep, or contains itself: flatten it"
        )
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ModelFileError(
                f"{path} was not written because {where} is {value}, which JSON does not know: "
                "put it into an array"
            )
        return float(value)
    if isinstance(value, list | tuple):
        return [
            _plain_value(path, f"{where}[{i}]", item, depth + 1) for i, item in enumerate(value)
        ]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ModelFileError(
                    f"{path} was not written because {where} has the key {key!r}, which is not "
                    "text: use strings as keys"
                )
        return {
            key: _plain_value(path, f"{where}[{key!r}]", item, depth + 1)
            for key, item in value.items()
        }
    raise ModelFileError(
        f"{path} was not written because {where} is a {type(value).__name__}: use text, numbers, "
        "lists and dictionaries in the header, and put the rest into arrays"
    )


def _plain_array(path: str, name: str, array: np.ndarray) -> np.ndarray:
    """Return `array` contiguous and little-endian, or refuse it."""
    if not isinstance(name, str) or name == "__metadata__" or not name.isprintable():
        raise ModelFileError(
            f"{path} was not written because {name!r} cannot name an array: use printable text "
            "other than '__metadata__'"
        )
    result = np.asarray(array)
    little = result.dtype.newbyteorder("<")
    if result.dtype.name not in _TYPES.values():
        raise ModelFileError(
            f"{path} was not written because the array {name!r} has the type {result.dtype}: "
            "convert it to booleans, integers or floating-point numbers"
        )
    # numpy.ascontiguousarray would give a scalar a dimension.
    return np.asarray(result, dtype=little, order="C")


def _replace_file(target: str, content: bytes) -> None:
    """Put `content` at `target` by way of a temporary file beside it."""
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                # A file that was private stays private.
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Ask that the new name survives a power cut, where the system can do so."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ------------------------------------------------------------------------------- reading


def _read_table(name: str, file: BinaryIO, size: int) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes up to the array data, and the safetensors header they hold."""
    if size == 0:
        raise ModelFileError(f"{name} is empty: write the model again or restore a backup")
    start = file.read(_LENGTH_BYTES + 1)
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if length > _LONGEST_HEADER or (len(start) > _LENGTH_BYTES and start[-1:] != b"{"):
        raise ModelFileError(
            f"{name} is not an sgpmic model file ({_kind(start)}): give the path of a file that "
            "sgpmic saved"
        )
    # The declared length is compared with the size before anything of that length is read.
    if size < _LENGTH_BYTES + max(length, 1):
        raise _truncated(name)
    start += file.read(length - 1)
    if len(start) != _LENGTH_BYTES + length:
        raise _truncated(name)
    try:
        table = json.loads(start[_LENGTH_BYTES:].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damaged(name, "its header is not valid JSON") from error
    if not isinstance(table, dict):
        raise _damaged(name, "its header is not a JSON object")
    return start, table


def _check_document(name: str, table: dict[str, Any]) -> dict[str, Any]:
    """Return the package's own part of the header, complete and unchanged."""
    metadata = table.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_ENTRY), str):
        raise ModelFileError(
            f"{name} is a safetensors file of another program: give the path of a file that "
            "sgpmic saved"
        )
    try:
        document = json.loads(metadata[_ENTRY])
    except (ValueError, RecursionError) as error:
        raise _damaged(name, "the model description in it is not valid JSON") from error
    if not isinstance(document, dict):
        raise _damaged(name, "the model description in it is not a JSON object")
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
    if not isinstance(document.get("header"), dict) or not isinstance(
        document.get("checksums"), dict
    ):
        raise _damaged(name, "the model description in it is incomplete")
    return document


def _check_length(name: str, table: dict[str, Any], found: int) -> None:
    """Tell a file that was cut short from one that was changed."""
    end = 0
    for key, entry in table.items():
        if key == "__metadata__":
            continue
        try:
            _, last = entry["data_offsets"]
            known = entry["dtype"] in _TYPES
        except (TypeError, KeyError, ValueError) as error:
            raise _damaged(name, f"the entry of the array {key!r} is malformed") from error
        if not known or not isinstance(last, int):
            raise _damaged(name, f"the entry of the array {key!r} is malformed")
        end = max(end, last)
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
    return "it starts like no such file"


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
