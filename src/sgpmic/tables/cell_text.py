"""Parsing of cell text: numbers, dates, yes and no, levels of known scales, missing values.

Some cells are ambiguous, but columns rarely are: whether ``1,234`` is 1234 or 1.234, and whether
``03/04/2024`` is in March or in April, is determined from all cells of a column. If that leaves it
open, as with only ``1,234`` or ``1.234``, a point separates decimals, and the month comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from functools import cache
from importlib.resources import files

#: Words for a missing value, in lower case and stripped.
MISSING_WORDS = frozenset(("", "na", "n/a", "#n/a", "nan", "null"))
#: ... in a column whose kind is inferred.
MISSING = MISSING_WORDS | {
    *("-", "--", "---", "–", "—", "?", "??", ".", "none", "nil", "<na>", "nat"),
    *("n.a.", "n.a", "#na", "#value!", "#div/0!", "#ref!", "#num!", "#null!", "#name?"),
}
#: ... and in a column of numbers or dates: in a category, these are informative levels.
MISSING_IN_NUMBERS = MISSING | {
    *("unknown", "missing", "not available", "not applicable", "not known", "undefined"),
    *("no data", "no answer", "tbd", "k.a.", "don't know", "don’t know", "prefer not to say"),
}


# float() alone would also accept underscores and the digits of other scripts.
_PLAIN_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE
)
_SPACES = "\u0020\u00a0\u2009\u202f"
_CURRENCY = r"(?:US|CA|AU|NZ|HK|R)?\$|[€£¥₹₽₩]|kr|Rs\.?|zł|USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD"
_UNIT = rf"%|‰|{_CURRENCY}|kg|mg|[µμ]?g|lbs?|km|cm|mm|m|ft|°?[CF]|°|ms|min|hrs?|h|s|years?|yrs?"
_UNIT += r"|m?[lL]|[MG]B|k?Wh?|bpm|[^\W\d_]{1,5}/[^\W\d_]{1,4}"  # any ratio: mmol/L, km/h
_WRITTEN = re.compile(
    rf"(?P<open>\()?(?P<sign>[+\-−]?)[{_SPACES}]*(?P<before>{_CURRENCY})?[{_SPACES}]*"
    rf"(?P<sign2>[+\-−]?)(?P<digits>[0-9.,'’{_SPACES}]*[0-9.])(?P<exponent>[eE][+-]?[0-9]+)?"
    rf"[{_SPACES}]*(?P<after>{_UNIT})?(?P<close>\))?"
)
# Digits, optionally in groups of three, by decimal separator.
_DIGITS = {
    decimal: re.compile(
        rf"(?:[1-9][0-9]{{0,2}}(?P<g>[{grouping}'’{_SPACES}])[0-9]{{3}}(?:(?P=g)[0-9]{{3}})*"
        rf"|[0-9]*)(?:[{decimal}][0-9]*)?"
    )
    for decimal, grouping in ((".", ","), (",", "."))
}


def parse_plain_number(text: str, decimal: str = ".") -> float | None:
    """Parse a plain number or boolean; NaN if missing, None for other text."""
    word = text.strip()
    if decimal != ".":
        # A point would be a thousands separator, indistinguishable from a decimal point: reject.
        word = "." if "." in word else word.replace(decimal, ".")
    if _PLAIN_NUMBER.fullmatch(word):
        return float(word)
    lower = word.lower()
    return float("nan") if lower in MISSING_WORDS else {"true": 1.0, "false": 0.0}.get(lower)


def parse_number(text: str, decimal: str = ".") -> float | None:
    """Parse a number with optional unit and separators from stripped text; None if not one."""
    written = _WRITTEN.fullmatch(text)
    if written is None or bool(written["open"]) != bool(written["close"]):
        return None
    if written["sign"] and written["sign2"]:
        return None
    digits = written["digits"]
    if not _DIGITS[decimal].fullmatch(digits) or not any(sign.isdigit() for sign in digits):
        return None
    grouping = "," if decimal == "." else "."
    plain = re.sub(rf"[{grouping}'’{_SPACES}]", "", digits).replace(",", ".")
    value = float(plain + (written["exponent"] or ""))
    # Accountants write losses in parentheses.
    negative = (written["sign"] or written["sign2"]) in ("-", "−")
    return -value if negative or written["open"] else value


def unit_of(text: str) -> str:
    """Return the currency, percent sign or unit of a number, or an empty string.

    Without the end of a plural or an abbreviation, as in years or Rs.
    """
    written = _WRITTEN.fullmatch(text)
    unit = "" if written is None else written["before"] or written["after"] or ""
    return re.sub(r"(?<=[a-z]{2})s$|\.$", "", unit)


def find_decimal(texts: Sequence[str]) -> tuple[str, bool]:
    """Return the decimal separator that fits most cells, and whether a comma fits equally well."""
    # Without these, there is no evidence for a decimal comma.
    if not any("," in text or text.count(".") > 1 for text in texts):
        return ".", False
    fit = {sign: sum(parse_number(text, sign) is not None for text in texts) for sign in ".,"}
    decimal = "," if fit[","] > fit["."] else "."
    return decimal, fit["."] == fit[","] and any("," in text for text in texts)


_MONTHS = ("january", "february", "march", "april", "may", "june",
           "july", "august", "september", "october", "november", "december")  # fmt: skip
_MONTH_NUMBERS = {name[:length]: i for i, name in enumerate(_MONTHS, 1) for length in (3, 9)}
_MONTH_NUMBERS["sept"] = 9
_CLOCK = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}(?:[.,][0-9]+)?))?"
    r"(?:\s?(?P<half>[ap])\.?m\.?)?"
)
_BEHIND = rf"(?:(?:T|,?\s+){_CLOCK}\s*(?P<zone>Z|UTC|GMT|[+-][0-9]{{2}}:?[0-9]{{2}})?)?"
_DAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+)?(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_NAME = r"(?P<name>[a-z]{3,9})\.?"
_DATES = tuple(
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
_TIME = re.compile(_CLOCK, re.IGNORECASE)
_HOURS = r"([0-9]{1,5}):([0-5][0-9])(?::([0-5][0-9](?:[.,][0-9]+)?))?"
_DURATION = re.compile(rf"(?:(-?[0-9]{{1,5}}) days?,? \+?)?{_HOURS}")  # -1 days +23:00:00


def parse_date(text: str, day_first: bool) -> float | None:
    """Parse a date as days since 1970; None if the text is not one."""
    found = next(filter(None, (form.fullmatch(text) for form in _DATES)), None)
    if found is None:
        return None
    parts = found.groupdict(default="")
    year = int(parts["year"])
    if len(parts["year"]) == 2:
        year += 1900 if year >= 69 else 2000  # as POSIX has it
    if not 1000 <= year <= 2999:
        return None  # more likely a number or a code
    if "first" in parts:
        pair = int(parts["first"]), int(parts["other"])
        day, month = pair if day_first else pair[::-1]
    else:
        day = int(parts.get("day", 1))
        name = parts.get("name", "").lower()
        month = _MONTH_NUMBERS.get(name, 0) if name else int(parts["month"])
    days = _ordinal(year, month, day)
    time = _day_fraction(parts) if parts["hour"] else 0.0
    if days is None or time is None:
        return None
    zone = parts["zone"]
    minutes = int(zone[1:3]) * 60 + int(zone[-2:]) if zone[:1] in ("+", "-") else 0
    return days + time - (-minutes if zone[:1] == "-" else minutes) / 1440


def parse_time(text: str) -> float | None:
    """Parse a time of day as a fraction of a day; None if the text is not one."""
    found = _TIME.fullmatch("00" + text[2:] if text.startswith("24:00") else text)
    return None if found is None else _day_fraction(found.groupdict(default=""))


def parse_duration(text: str) -> float | None:
    """Parse hours and minutes, which may reach 24 hours, as days; None if the text is neither."""
    if (found := _DURATION.fullmatch(text)) is None:
        return None
    days, hours, minutes, seconds = (float(s.replace(",", ".")) for s in found.groups("0"))
    return days + (hours * 3600 + minutes * 60 + seconds) / 86_400


def numeric_date(value: float) -> float | None:
    """Convert a year, YYYYMMDD, or Unix time in s or ms to days since 1970; None otherwise."""
    size = abs(value)
    if 1000 <= value <= 9999 and value.is_integer():
        return _ordinal(int(value), 1, 1)
    if 10000101 <= value <= 99991231 and value.is_integer():
        year, rest = divmod(int(value), 10000)
        return _ordinal(year, *divmod(rest, 100))
    if 1e8 <= size < 1e11:
        return value / 86_400
    return value / 86_400_000 if 1e11 <= size <= 1e14 else None


def find_date_order(texts: Iterable[str]) -> tuple[bool, bool]:
    """Return whether the day comes before the month, and whether the column is ambiguous.

    A number above 12 is a day. If there is none, dots between the numbers mean day first, other
    separators month first.
    """
    found = [match for match in map(_DATES[2].fullmatch, texts) if match is not None]
    n_first, n_other = (sum(int(match[i]) > 12 for match in found) for i in ("first", "other"))
    if n_first or n_other:
        return n_first >= n_other, False
    points = any(match["sep"] == "." for match in found)
    return points, not points and any(match["first"] != match["other"] for match in found)


def _ordinal(year: int, month: int, day: int) -> float | None:
    try:
        return float((date(year, month, day) - date(1970, 1, 1)).days)
    except ValueError:
        return None


def _day_fraction(parts: dict[str, str]) -> float | None:
    hour, minute = int(parts["hour"]), int(parts["minute"])
    second = float((parts["second"] or "0").replace(",", "."))
    if parts["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if parts["half"].lower() == "p" else 0)
    if hour > 23 or minute > 59 or second >= 61:
        return None
    return (hour * 3600 + minute * 60 + second) / 86_400


_YES_NO = (
    *(("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"), ("1", "0"), ("on", "off")),
    *(("ja", "nein"), ("j", "n"), ("oui", "non"), ("sí", "no"), ("si", "no"), ("sim", "não")),
    *(("tak", "nie"), ("ja", "nee"), ("ja", "nej")),
)
TRUTH = {no: 0.0 for _, no in _YES_NO} | {yes: 1.0 for yes, _ in _YES_NO}


@cache
def _scales() -> list[tuple[str, ...]]:
    lines = files("sgpmic.tables").joinpath("scales.txt").read_text("utf-8").splitlines()
    return [tuple(line.split(" < ")) for line in lines if not line.startswith("#")]


def key(text: str) -> str:
    """Normalize case and whitespace, so that spellings of one level compare equal."""
    return " ".join(text.split()).casefold()


def is_yes_no(levels: Iterable[str]) -> bool:
    """Return whether all levels are words for yes and no, in one or several spellings."""
    # One complete pair must occur: "f" beside "m" is not "false".
    found = set(map(key, levels))
    return found <= TRUTH.keys() and any({yes, no} <= found for yes, no in _YES_NO)


def find_scale(levels: Iterable[str]) -> tuple[str, ...] | None:
    """Return keys of levels from low to high if they belong to a known scale, else None.

    Levels of the scale may be absent. Letters usually name groups: they are a scale only if there
    are three or more (sizes, Roman numerals), and grades (``a``, ``b``, ``c``) never are.
    """
    wanted = set(map(key, levels)) - {""}
    if len(wanted) < 2 or (len(wanted) == 2 and any(len(level) < 3 for level in wanted)):
        return None
    for scale in _scales():
        if wanted <= set(scale):
            return tuple(level for level in scale if level in wanted)
    return None
