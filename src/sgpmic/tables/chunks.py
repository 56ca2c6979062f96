"""Text files in chunks of whole records: unpacked, checked UTF-8, every line end a line feed."""

from __future__ import annotations

import gzip
import re
import shlex
import zlib
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from sgpmic.tables.errors import TableError, damaged, unreadable

#: White space as a delimiter: any run of spaces and tabs, made into one tab.
WHITE = b" "

_CHUNK_BYTES = 4 << 20
_LONGEST_RECORD = 64 << 20
# The line that names the delimiter for Excel; it also follows from the lines below.
_SEPARATOR_LINE = re.compile(rb'"?sep=."?(?=\n)')
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Chunk(NamedTuple):
    """Whole records, and the number of the line they start on."""

    data: bytes
    first_line: int


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


def cut(data: bytes, delimiters: bytes, at: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the parts of a text between those ``at`` that are not quoted, plain and masked."""
    start = 0
    for masked in mask_quoted(data, delimiters)[0].split(at):
        yield data[start : start + len(masked)], masked
        start += len(masked) + 1


def squeeze_white(data: bytes) -> bytes:
    """Return the text with white space between fields made into one tab, none at the edges."""
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
    """Return the first bytes of a text file, with a whole line that is not blank if it has one."""
    held = b""
    for text in _clean_text(path, zipped):
        held += text
        if len(held) > _LONGEST_RECORD or (len(held) >= least and b"\n" in held.lstrip(b" \t\n")):
            break
    return held


def read_chunks(path: str, zipped: bool, delimiters: bytes, scale: int) -> Iterator[Chunk]:
    """Yield a text file's records; blank lines at its end are left out.

    ``delimiters`` may separate fields, which says where a quote opens a quoted field; chunks have
    ``scale`` times the usual size.
    """
    line = 1
    held = b""
    enough = 0
    for text in _clean_text(path, zipped, scale):
        held += text
        if len(held) < enough:
            continue  # looking again after every read would take quadratic time
        end = _last_record_end(held, delimiters)
        if end:
            yield Chunk(held[:end], line)
            line += held.count(b"\n", 0, end)
            held = held[end:]
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
    """Yield the text of a file, checked, without a byte order mark and carriage returns."""
    line, offset = 1, 0  # where the next text starts: the line, and the bytes of it before
    opener = gzip.open if zipped else open
    try:
        # Bytes that are not UTF-8 become characters that UTF-8 does not have.
        with opener(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as file:
            while text := file.read(scale * _CHUNK_BYTES):
                try:
                    data = text.encode()
                except UnicodeEncodeError as error:
                    before = text[: error.start].encode()
                    offset = 0 if b"\n" in before else offset
                    place = offset + len(before) - before.rfind(b"\n")
                    odd = text[error.start : error.start + 2].encode(errors="surrogateescape")
                    raise _not_utf8(path, line + before.count(b"\n"), place, odd) from None
                if (line, offset) == (1, 0):
                    found = _SEPARATOR_LINE.match(data)
                    data = data[found.end() :] if found else data
                if b"\0" in data:
                    line += data.count(b"\n", 0, data.index(b"\0"))
                    raise TableError(
                        f"{path}, line {line}: a zero byte, which no text has; this is a binary or "
                        "damaged file, export the table again as CSV"
                    )
                yield data
                line += data.count(b"\n")
                offset = len(data) - data.rfind(b"\n") - 1 + (0 if b"\n" in data else offset)
    except EOFError:
        raise TableError(
            f"{path} is truncated, the end of the gzip data is missing; copy or export it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise damaged(path, "a gzip file", error) from None
    except OSError as error:
        raise unreadable(path, error) from error


def _not_utf8(path: str, line: int, place: int, found: bytes) -> TableError:
    """Return the error for bytes that are not UTF-8, at a place that is counted from 1."""
    encoding = "LATIN1"
    what = (
        f"byte {place} of the line is 0x{found[0]:02x}, which is not UTF-8; save the file as UTF-8"
    )
    if (line, place) == (1, 1) and found in _UTF16:
        encoding, what = "UTF-16", "the text is UTF-16, not UTF-8; save it as UTF-8"
    return TableError(
        f"{path}, line {line}: {what}, for instance with "
        f"`iconv -f {encoding} -t UTF-8 {shlex.quote(path)} > new.csv`"
    )
