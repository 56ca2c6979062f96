"""Text files in chunks of whole records: unpacked, checked UTF-8, every line end a line feed."""

from __future__ import annotations

import gzip
import re
import shlex
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO

from sgpmic.tables.base import TableError, damaged, unreadable

#: White space as a delimiter: any run of spaces and tabs, made into one tab.
WHITE = b" "

_CHUNK_BYTES = 4 << 20
_LONGEST_RECORD = 64 << 20
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Chunk:
    """Whole records, and the number of the line they start on."""

    data: bytes
    first_line: int


@dataclass(frozen=True)
class _Position:
    """A place in a text: the line, counted from 1, and the bytes of it that lie before."""

    line: int = 1
    offset: int = 0

    def after(self, data: bytes) -> _Position:
        """Return the place where text that starts here ends."""
        lines = data.count(b"\n")
        if not lines:
            return _Position(self.line, self.offset + len(data))
        return _Position(self.line + lines, len(data) - data.rfind(b"\n") - 1)


# ------------------------------------------------------------------------------ quotes


@cache
def _quoted(delimiters: bytes) -> re.Pattern[bytes]:
    """Return the pattern of a quoted field, which may lack its end."""
    # It starts with the quote, which the regular expression engine finds quickly, and looks back
    # from there.  Possessive, so that a field of megabytes needs neither stack nor second thoughts.
    before = rb"(?<![^\n" + re.escape(delimiters) + rb']")'
    return re.compile(rb'"' + before + rb'[^"]*+(?:""[^"]*+)*+("?)')


def mask_quoted(data: bytes, delimiters: bytes) -> tuple[bytes, int]:
    """Return the text with quoted fields overwritten, and where an unfinished one starts, or -1.

    What is left of delimiters and line ends are the real ones, at the same places.
    """
    if b'"' not in data:
        return data, -1
    unfinished = -1

    def overwrite(match: re.Match[bytes]) -> bytes:
        nonlocal unfinished
        if not match[1]:
            unfinished = match.start()
        return b"x" * len(match[0])

    return _quoted(delimiters).sub(overwrite, data), unfinished


def squeeze_white(data: bytes) -> bytes:
    """Return the text with white space between fields made into single tabs, none at the edges."""
    if b'"' in data:
        return _WHITE_RUN.sub(_squeeze, data)
    # The same without quotes, which takes a tenth of the time.
    data = data.replace(b" ", b"\t")
    while b"\t\t" in data:
        data = data.replace(b"\t\t", b"\t")
    return data.replace(b"\t\n", b"\n").replace(b"\n\t", b"\n").strip(b"\t")


_WHITE_RUN = re.compile(rb'"(?<![^\n\t ]")[^"]*+(?:""[^"]*+)*+"|[ \t]+')


def _squeeze(match: re.Match[bytes]) -> bytes:
    """Return a quoted field as it is, white space at the edge of a line as nothing."""
    text, start, end = match.string, *match.span()
    if match[0][:1] == b'"':
        return match[0]
    edge = start == 0 or end == len(text) or text[start - 1] == 10 or text[end] == 10
    return b"" if edge else b"\t"


# ------------------------------------------------------------------------------ reading


def read_start(path: str, zipped: bool, least: int) -> bytes:
    """Return the start of a text file: some bytes, and a line with something in it if there is one.

    Parameters
    ----------
    path, zipped
        As for `read_chunks`.
    least : int
        The number of bytes wanted, if the file has so many.
    """
    held = b""
    for text in _clean_text(path, zipped):
        held += text
        if len(held) > _LONGEST_RECORD or (len(held) >= least and b"\n" in held.lstrip(b" \t\n")):
            break
    return held


def read_chunks(path: str, zipped: bool, delimiters: bytes, scale: int = 1) -> Iterator[Chunk]:
    """Yield a text file's records; blank lines at its end are left out.

    Parameters
    ----------
    path : str
        The file.
    zipped : bool
        Whether it is compressed with gzip.
    delimiters : bytes
        What may separate fields, which says where a quote opens a quoted field.
    scale : int
        How many times the usual size chunks should have.
    """
    line = 1
    held = b""
    enough = 0
    for text in _clean_text(path, zipped, scale):
        held += text
        if len(held) < enough:
            continue  # looking again after every read would take quadratic time
        cut = _last_record_end(held, delimiters)
        if cut:
            yield Chunk(held[:cut], line)
            line += held.count(b"\n", 0, cut)
            held = held[cut:]
        enough = 2 * len(held)
        if len(held) > _LONGEST_RECORD:
            raise TableError(
                f"{path}, line {line}: the row is longer than {_LONGEST_RECORD >> 20} MB, which "
                "no row of a table is; check the line ends and that every quote is closed"
            )
    held = held.rstrip(b" \n")
    if held:
        unfinished = mask_quoted(held, delimiters)[1]
        if unfinished >= 0:
            line += held.count(b"\n", 0, unfinished)
            raise TableError(
                f"{path}, line {line}: a quote is opened here and never closed; close or remove it"
            )
        yield Chunk(held + b"\n", line)


def _last_record_end(data: bytes, delimiters: bytes) -> int:
    """Return the end of the last record that surely is whole and not blank, or 0."""
    mask, unfinished = mask_quoted(data, delimiters)
    end = mask.rfind(b"\n", 0, unfinished if unfinished >= 0 else len(mask)) + 1
    # Blank lines wait for what follows: at the end of the file they do not count.
    content = len(mask[:end].rstrip(b" \n"))
    return mask.index(b"\n", content) + 1 if content else 0


def _clean_text(path: str, zipped: bool, scale: int = 1) -> Iterator[bytes]:
    """Yield the text of a file, cut anywhere but within a character or a line end."""
    position = _Position()
    held = b""
    started = False
    for raw in _raw_bytes(path, zipped, scale * _CHUNK_BYTES):
        data = held + raw
        if not started:
            if len(data) < len(_BOM):
                held = data
                continue
            data = _without_mark(path, data)
            started = True
        # The last bytes may be half of a character or of a line end.
        data, held = _split_safely(data)
        data = _unix_lines(data)
        _check_text(path, data, position)
        position = position.after(data)
        yield data
    data = _unix_lines(held if started else _without_mark(path, held))
    _check_text(path, data, position)
    yield data


def _split_safely(data: bytes) -> tuple[bytes, bytes]:
    end = len(data)
    for back in range(1, min(4, end) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the start of a character of several bytes
            end -= back
            break
        if byte < 0x80:
            end -= back == 1 and byte == 0x0D
            break
    return data[:end], data[end:]


def _unix_lines(data: bytes) -> bytes:
    if b"\r" in data:
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data


def _without_mark(path: str, data: bytes) -> bytes:
    if data.startswith(_UTF16):
        raise TableError(
            f"{path}, line 1: the text is UTF-16, not UTF-8; save it as UTF-8, for instance with "
            f"`iconv -f UTF-16 -t UTF-8 {shlex.quote(path)} > new.csv`"
        )
    return data.removeprefix(_BOM)


def _check_text(path: str, data: bytes, start: _Position) -> None:
    """Raise if the text is no text, or not UTF-8."""
    zero = data.find(b"\0")
    if zero >= 0:
        raise TableError(
            f"{path}, line {start.after(data[:zero]).line}: a zero byte, which no text has; this "
            "is a binary or damaged file, export the table again as CSV"
        )
    if data.isascii():
        return
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = start.after(data[: error.start])
        raise TableError(
            f"{path}, line {place.line}: byte {place.offset + 1} of the line is "
            f"0x{data[error.start]:02x}, which is not UTF-8; save the file as UTF-8, for instance "
            f"with `iconv -f LATIN1 -t UTF-8 {shlex.quote(path)} > new.csv`"
        ) from None


def _raw_bytes(path: str, zipped: bool, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked."""
    try:
        with _open(path, zipped) as file:
            while data := file.read(size):
                yield data
    except EOFError:
        raise TableError(
            f"{path} is truncated, the end of the gzip data is missing; copy or export it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, "a gzip file", error) from None
    except OSError as error:
        raise unreadable(path, error) from error


def _open(path: str, zipped: bool) -> BinaryIO:
    return gzip.open(path, "rb") if zipped else open(path, "rb")  # type: ignore[return-value]
