"""Numbers as people write them: decimal commas, thousands separators, percent and currency signs.

One cell cannot tell ``1,234`` (a thousand and some) from ``1,234`` (one and some); a column mostly
can. It is read with the decimal sign that every cell agrees with: ``1.234,5`` or ``1,5`` anywhere
make it a comma, ``1,234.5`` or ``1.5`` a point. Where both would do, as with nothing but ``1,234``
or ``1.234``, a point is the decimal sign, and the column's warning says so if there are commas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SPACES = "\u0020\u00a0\u2009\u202f"
_CURRENCY = r"[$€£¥₹₽₩]|USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD"
_UNIT = rf"%|‰|{_CURRENCY}|kg|mg|g|lbs?|km|cm|mm|m|ft|°?[CF]|°|ms|min|hrs?|h|s|years?|yrs?"
_WRITTEN = re.compile(
    rf"(?P<open>\()?(?P<sign>[+\-−]?)[{_SPACES}]*(?P<before>{_CURRENCY})?[{_SPACES}]*"
    rf"(?P<sign2>[+\-−]?)(?P<digits>[0-9.,'’{_SPACES}]*[0-9.])(?P<exponent>[eE][+-]?[0-9]+)?"
    rf"[{_SPACES}]*(?P<after>{_UNIT})?(?P<close>\))?"
)
# Digits by their decimal sign, perhaps in groups of three.
_PLAIN = {
    decimal: re.compile(
        rf"(?:[1-9][0-9]{{0,2}}(?P<g>[{grouping}'’{_SPACES}])[0-9]{{3}}(?:(?P=g)[0-9]{{3}})*"
        rf"|[0-9]*)(?:[{decimal}][0-9]*)?"
    )
    for decimal, grouping in ((".", ","), (",", "."))
}
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
#: Whole numbers with a leading zero are codes: of regions, telephones, articles.
_CODE = re.compile(r"0[0-9]+")


def parse_number(text: str, decimal: str = ".") -> float | None:
    """Return the number that a cell's text, without white space around, stands for, or None."""
    if _INFINITE.fullmatch(text):
        return float(text)
    written = _WRITTEN.fullmatch(text)
    if written is None or bool(written["open"]) != bool(written["close"]):
        return None
    if written["sign"] and written["sign2"]:
        return None
    digits = written["digits"]
    if not _PLAIN[decimal].fullmatch(digits) or not any(sign.isdigit() for sign in digits):
        return None
    grouping = "," if decimal == "." else "."
    plain = re.sub(rf"[{grouping}'’{_SPACES}]", "", digits).replace(",", ".")
    value = float(plain + (written["exponent"] or ""))
    # Accountants write losses in parentheses.
    negative = (written["sign"] or written["sign2"]) in ("-", "−")
    return -value if negative or written["open"] else value


def unit_of(text: str) -> str:
    """Return the sign or unit that stands beside a number, or nothing."""
    written = _WRITTEN.fullmatch(text)
    return "" if written is None else written["before"] or written["after"] or ""


def is_code(text: str) -> bool:
    """Return whether digits start with a zero that no number needs."""
    return _CODE.fullmatch(text) is not None


def find_decimal(texts: Sequence[str]) -> tuple[str, bool]:
    """Return the decimal sign that most cells agree with, and whether the other does as well."""
    # Without these nothing speaks for a comma.
    if not any("," in text or text.count(".") > 1 for text in texts):
        return ".", False
    fit = {sign: sum(parse_number(text, sign) is not None for text in texts) for sign in ".,"}
    decimal = "," if fit[","] > fit["."] else "."
    return decimal, fit["."] == fit[","] and any("," in text for text in texts)
