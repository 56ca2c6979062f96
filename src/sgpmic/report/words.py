"""Formatting of numbers and names for the report."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

import numpy as np

from sgpmic._types import Floats, Ints
from sgpmic._words import plural

#: Maximum length of names, ids and labels on the page.
LONGEST = 120


def shorten(text: object, longest: int = LONGEST) -> str:
    """Sanitize text for display: at most so long, without control characters, valid Unicode."""
    words = str(text)
    if len(words) > 8 * longest:  # first, since the rest is slow
        words = words[: 4 * longest] + "…" + words[-4 * longest :]
    words = words.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
    words = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in words)
    words = " ".join(words.split())
    if len(words) <= longest:
        return words
    # In the middle, since long texts often begin alike.
    end = (longest - 1) // 3
    return f"{words[: longest - 1 - end].rstrip()}…{words[len(words) - end :].lstrip()}"


def number(value: float, digits: int = 4) -> str:
    """Format a number for display: few digits, a true minus sign, – if not finite."""
    if not math.isfinite(value):
        return "–"
    if abs(value) < 1e-12:  # a rounding error
        return "0"
    if 10.0**digits - 0.5 <= abs(value) < 1e15:  # not in scientific notation
        value = round(value)
    if float(value).is_integer() and abs(value) < 1e15:
        text = f"{int(value):,}" if abs(value) >= 1e4 else str(int(value))  # 1994 is a year
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", "−")


def signed(value: float, digits: int) -> str:
    """Format a difference with its sign, a true minus sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def day(days: float, parts: int = 1, *, time_only: bool = False) -> str:
    """Format days since 1970, rounded to these parts of a day, as a date and perhaps a time.

    With ``time_only``, as a time of day.
    """
    if not math.isfinite(days):
        return "–"
    time = np.datetime64(round(days * parts) * (86400 // parts), "s")
    unit = "D" if parts == 1 else "m" if parts <= 1440 else "s"
    return str(time.astype(f"datetime64[{unit}]")).replace("T", " ")[11 * time_only :]


def day_parts(days: Floats | Ints) -> int:
    """Return as what parts of a day to show dates: minutes if any has a time."""
    return 1440 if (days % 1.0 > 0).any() else 1


def any_number(value: object) -> str:
    """Format a number or boolean for display, and anything else as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    # Integers such as seeds have no thousands separators.
    return number(float(value)) if isinstance(value, float | np.floating) else shorten(value)


def unlabeled(count: int) -> str:
    """Return a sentence about rows without a label, which are not compared; '' if none."""
    verb = "is" if count == 1 else "are"
    return f"{plural(count, 'row')} without a label {verb} left out." if count else ""


def listing(words: Sequence[str]) -> str:
    """Join words into a phrase: a, b and c."""
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else "".join(words)
