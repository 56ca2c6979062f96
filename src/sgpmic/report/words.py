"""Formatting of numbers and names for the report."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

import numpy as np

from sgpmic._words import plural

#: Maximum length of names, ids and labels on the page.
LONGEST = 120

# Smaller numbers are rounding errors.
_NOTHING = 1e-12


def shorten(text: object, longest: int = LONGEST) -> str:
    """Sanitize text for display: truncated, without control characters, valid Unicode."""
    words = str(text)[: 4 * longest]  # first, since the rest is slow
    words = words.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
    words = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in words)
    words = " ".join(words.split())
    cut = len(words) > longest or len(str(text)) > 4 * longest
    return words[: longest - 1].rstrip() + "…" if cut else words


def number(value: float, digits: int = 4) -> str:
    """Format a number for display: few digits, a true minus sign, – if not finite."""
    if not math.isfinite(value):
        return "–"
    if abs(value) < _NOTHING:
        return "0"
    if float(value).is_integer() and abs(value) < 1e7:
        text = f"{int(value):,}" if abs(value) >= 1e4 else str(int(value))  # 1994 is a year
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", "−")


def signed(value: float, digits: int) -> str:
    """Format a difference with its sign, a true minus sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def day(days: float) -> str:
    """Format days since 1970 as a date, – if not finite."""
    if not math.isfinite(days):
        return "–"
    return str(np.datetime64("1970-01-01") + np.timedelta64(round(days), "D"))


def any_number(value: object) -> str:
    """Format a number or boolean for display, and anything else as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):  # such as seeds: no thousands separators
        return str(int(value)).replace("-", "−")
    return number(float(value)) if isinstance(value, float | np.floating) else shorten(value)


def exact_percent(share: float) -> str:
    """Format a probability in percent, with enough digits to tell it from 0 and 100 %."""
    doubt = min(share, 1.0 - share)
    if doubt >= 0.001 or doubt == 0:
        return f"{100 * share:.1f} %"
    if doubt < 1e-7:
        return "> 99.99999 %" if share > 0.5 else "< 0.00001 %"
    digits = -2 - int(np.floor(np.log10(doubt)))
    return f"{100 * share:.{digits}f} %"


def together(words: str) -> str:
    """Put no-break spaces before percent signs."""
    return words.replace(" %", "\N{NO-BREAK SPACE}%")


def duration(seconds: float) -> str:
    """Format a duration for display."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def unlabeled(count: int) -> str:
    """Return a sentence about rows without a label, which are not compared; '' if none."""
    verb = "is" if count == 1 else "are"
    return f"{plural(count, 'row')} without a label {verb} left out." if count else ""


def listing(words: Sequence[str]) -> str:
    """Join words into a phrase: a, b and c."""
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else "".join(words)
