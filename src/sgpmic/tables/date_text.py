"""Dates and times as people write them, as days since 1970.

Understood are ``2024-12-31``, ``2024/12/31``, ``31.12.2024``, ``12/31/2024``, ``31 Dec 2024``,
``December 31, 2024`` (English names), ``2024-12`` and ``Dec 2024`` (the first of the month), each
with a time of the day and a time zone behind it, and times of the day by themselves. Whether the
day or the month comes first in ``03/04/2024`` is decided by the whole column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date

import numpy as np

from sgpmic._types import Bools, Floats

_EPOCH = date(1970, 1, 1).toordinal()
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FULL_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august",
               "september", "october", "november", "december")  # fmt: skip
_CLOCK = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}(?:[.,][0-9]+)?))?"
    r"(?:\s?(?P<half>[ap])\.?m\.?)?"
)
_BEHIND = rf"(?:(?:T|,?\s+){_CLOCK}\s*(?P<zone>Z|UTC|GMT|[+-][0-9]{{2}}:?[0-9]{{2}})?)?"
_DAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+)?(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_NAME = r"(?P<name>[a-z]{3,9})\.?"
_FORMS = tuple(
    re.compile(form + _BEHIND, re.IGNORECASE)
    for form in (
        r"(?P<year>[0-9]{4})(?P<sep>[-/.])(?P<month>[0-9]{1,2})(?P=sep)(?P<day>[0-9]{1,2})",
        r"(?P<year>[0-9]{4})[-/](?P<month>[0-9]{1,2})",
        r"(?P<first>[0-9]{1,2})(?P<sep>[-/.])(?P<other>[0-9]{1,2})(?P=sep)"
        r"(?P<year>[0-9]{4}|[0-9]{2})",
        rf"{_DAY}[\s./-]+{_NAME}[\s./,-]+(?P<year>[0-9]{{4}}|[0-9]{{2}})",
        rf"{_NAME}\s+(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<year>[0-9]{{4}})",
        rf"{_NAME}[\s-]+(?P<year>[0-9]{{4}})",
    )
)
_TIME_ONLY = re.compile(_CLOCK, re.IGNORECASE)
# POSIX: two digits from 69 on are of the last century.
_PIVOT = 69


def parse_date(text: str, day_first: bool) -> float | None:
    """Return the days since 1970 that a cell's text stands for, or None."""
    for form in _FORMS:
        found = form.fullmatch(text)
        if found is not None:
            return _days(found.groupdict(), day_first)
    return None


def parse_time(text: str) -> float | None:
    """Return a time of the day as a share of the day, or None."""
    found = _TIME_ONLY.fullmatch(text)
    return None if found is None else _share_of_day(found.groupdict())


def is_clock(value: Floats) -> Bools:
    """Return whether numbers may be times of the day, hours and minutes as HHMM."""
    return (value >= 0) & (value <= 2400) & (value % 100 < 60) & (value == np.floor(value))


def clock_as_share(value: Floats) -> Floats:
    """Return times of the day, HHMM, as shares of the day."""
    return (value // 100 * 60 + value % 100) / 1440 % 1.0


def number_as_date(value: float) -> float | None:
    """Return the days since 1970 of a year, of 20241231, or of seconds or milliseconds."""
    if value != value or abs(value) > 1e14:
        return None
    if value == int(value):
        whole = int(value)
        if 1000 <= whole <= 9999:
            return float(date(whole, 1, 1).toordinal() - _EPOCH)
        if 10000101 <= whole <= 99991231:
            return _ordinal(whole // 10000, whole // 100 % 100, whole % 100)
    size = abs(value)
    if 1e8 <= size < 1e11:
        return value / 86_400
    return value / 86_400_000 if size >= 1e11 else None


def find_order(texts: Iterable[str]) -> tuple[bool, bool]:
    """Return whether the day comes before the month, and whether the column leaves it open.

    A first number above 12 is a day, and so is a second one. Where there is neither, points
    between the numbers mean the day first, all else the month first.
    """
    n_first = n_other = 0
    ambiguous = points = False
    for text in texts:
        found = _FORMS[2].fullmatch(text)
        if found is None:
            continue
        n_first += int(found["first"]) > 12
        n_other += int(found["other"]) > 12
        ambiguous = ambiguous or found["first"] != found["other"]
        points = points or found["sep"] == "."
    if n_first == n_other == 0:
        return points, ambiguous and not points
    return n_first >= n_other, False


def _days(parts: dict[str, str | None], day_first: bool) -> float | None:
    year = int(parts["year"] or 0)
    if len(parts["year"] or "") == 2:
        year += 1900 if year >= _PIVOT else 2000
    if not 1000 <= year <= 2999:
        return None  # rather a number or a code
    if parts.get("first"):
        pair = int(parts["first"] or 0), int(parts["other"] or 0)
        day, month = pair if day_first else pair[::-1]
    else:
        day = int(parts.get("day") or 1)
        month = _month(parts["name"]) if parts.get("name") else int(parts["month"] or 0)
    days = _ordinal(year, month, day)
    time = _share_of_day(parts) if parts["hour"] else 0.0
    return None if days is None or time is None else days + time - _zone(parts["zone"])


def _month(name: str | None) -> int:
    """Return the number of a month, 0 for another word."""
    lower = (name or "").lower()
    known = lower in FULL_MONTHS or lower in (*MONTHS, "sept")
    return MONTHS.index(lower[:3]) + 1 if known else 0


def _ordinal(year: int, month: int, day: int) -> float | None:
    try:
        return float(date(year, month, day).toordinal() - _EPOCH)
    except ValueError:
        return None


def _share_of_day(parts: dict[str, str | None]) -> float | None:
    hour, minute = int(parts["hour"] or 0), int(parts["minute"] or 0)
    second = float((parts["second"] or "0").replace(",", "."))
    if parts["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if parts["half"].lower() == "p" else 0)
    if hour > 23 or minute > 59 or second >= 61:
        return None
    return (hour * 3600 + minute * 60 + second) / 86_400


def _zone(zone: str | None) -> float:
    """Return what a time zone is ahead of UTC, in days."""
    if not zone or zone[0] not in "+-":
        return 0.0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (-minutes if zone[0] == "-" else minutes) / 1440
