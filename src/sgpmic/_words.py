"""Formatting of shares, counts and durations."""

from __future__ import annotations

import math


def percent(share: float, digits: int = 1) -> str:
    """Format a share in percent; 0 % and 100 % only if it is exactly 0 or 1."""
    if not math.isfinite(share):
        return "–"
    words, least = f"{100 * share:.{digits}f}", 10.0**-digits
    if float(words) >= 100 and share < 1:
        return f"> {100 - least:.{digits}f} %"
    if float(words) <= 0 and share > 0:
        return f"< {least:.{digits}f} %"
    return f"{words} %"


def plural(count: int, word: str) -> str:
    """Format a count with its noun, in the plural if needed."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """Format a duration for display."""
    if seconds < 90:
        return f"{seconds:.{int(seconds < 10)}f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
