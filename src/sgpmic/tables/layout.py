"""The layout of a text table, found out from its first lines: delimiter, header, names."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from sgpmic.tables.base import numbered_names
from sgpmic.tables.chunks import WHITE, cut, squeeze_white
from sgpmic.tables.conversions import parse_plain_number

#: How much of a file is looked at.
SAMPLE_BYTES = 1 << 16

# In this order when nothing else decides.
_DELIMITERS = (b"\t", b";", b"|", b",", WHITE)
_SAMPLE_RECORDS = 100
_LONG_RECORDS = 3
_REGULAR = 0.5
_WHITE_DOUBT = 0.2
_QUOTED = re.compile(r'"((?:[^"]|"")*+)"(.*)', re.DOTALL)


@dataclass(frozen=True)
class Layout:
    """How a text file is to be read."""

    delimiter: bytes  # what separates fields; WHITE for any white space
    names: tuple[str, ...]  # of the columns
    has_header: bool  # whether the first record holds the names

    @property
    def separators(self) -> bytes:
        """The bytes that separate fields in the file."""
        return _separators(self.delimiter)

    @property
    def parsed_delimiter(self) -> bytes:
        """The delimiter once white space is squeezed."""
        return b"\t" if self.delimiter == WHITE else self.delimiter


def find_layout(start: bytes) -> Layout:
    """Return the layout of a file that starts with these bytes, among them a whole record."""
    delimiter = _find_delimiter(start)
    cells = _split_record(_records(start, delimiter, 1)[0], delimiter)
    numbers = [_as_number(cell, delimiter) for cell in cells]
    words = any(number is None for number in numbers) or all(math.isnan(n or 0) for n in numbers)
    # Years and codes may be names of columns, but hardly ever 5.1.
    if words and not any(_has_fraction(number) for number in numbers):
        names = [cell.strip() or f"column_{i + 1}" for i, cell in enumerate(cells)]
        return Layout(delimiter, tuple(names), has_header=True)
    return Layout(delimiter, numbered_names(len(cells)), has_header=False)


def _has_fraction(number: float | None) -> bool:
    return number is not None and math.isfinite(number) and not number.is_integer()


def _split_record(record: bytes, delimiter: bytes) -> list[str]:
    """Return the fields of a record, without their quotes."""
    if delimiter == WHITE:
        record, delimiter = squeeze_white(record), b"\t"
    return [
        _unquote(field.decode("utf-8", "replace")) for field, _ in cut(record, delimiter, delimiter)
    ]


def _unquote(field: str) -> str:
    match = _QUOTED.fullmatch(field)
    return match[1].replace('""', '"') + match[2] if match else field


class _Fit(NamedTuple):
    """How well a delimiter fits: 0 if it separates nothing."""

    score: float
    regular: bool  # all lines are equally long
    numbers: bool  # all cells are numbers


def _find_delimiter(start: bytes) -> bytes:
    """Return the delimiter that makes lines equally long and cells numbers."""
    fits = {delimiter: _fit(start, delimiter) for delimiter in _DELIMITERS}
    if not fits[WHITE].numbers and any(fit.regular for fit in list(fits.values())[:-1]):
        del fits[WHITE]  # spaces within words
    best = max(fits, key=lambda delimiter: fits[delimiter].score)  # the first of equals
    # One column alone has no delimiter, and the comma is as good as any.
    return best if fits[best].score > 0 else b","


def _fit(start: bytes, delimiter: bytes) -> _Fit:
    """Return how well a delimiter fits.

    In the main it is the share of lines of equal length plus the share of cells that are numbers.
    """
    records = _records(start, delimiter, _SAMPLE_RECORDS)
    rows = [_split_record(record, delimiter) for record in records]
    length, count = Counter(len(row) for row in rows).most_common(1)[0]
    if length < 2:
        return _Fit(0.0, False, False)
    cells = [cell for row in rows[1:] or rows for cell in row]
    numbers = sum(_as_number(cell, delimiter) is not None for cell in cells)
    score = count / len(rows) + numbers / len(cells)
    # Without exception weighs more than almost; and words in a text column are no columns.
    regular = count == len(rows)
    score += _REGULAR * regular - _WHITE_DOUBT * (delimiter == WHITE)
    return _Fit(score, regular, numbers == len(cells))


def _as_number(cell: str, delimiter: bytes) -> float | None:
    decimals = "." if delimiter == b"," else ".,"
    numbers = (parse_plain_number(cell, decimal) for decimal in decimals)
    return next((number for number in numbers if number is not None), None)


def _records(start: bytes, delimiter: bytes, most: int) -> list[bytes]:
    """Return the first records that are not blank, at least one."""
    # Very long lines: a few of them say as much.
    for sample, limit in ((start[:SAMPLE_BYTES], most), (start, min(most, _LONG_RECORDS))):
        records = [record for record, _ in cut(sample, _separators(delimiter), b"\n")]
        if len(sample) < len(start):
            records.pop()  # it may be cut off
        records = [record for record in records if record.strip(b" \t")]
        if records:
            return records[:limit]
    return [start]


def _separators(delimiter: bytes) -> bytes:
    return b" \t" if delimiter == WHITE else delimiter
