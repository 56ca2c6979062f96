"""Column type inference: number, category, date, id, ...

Rules for text columns, in order of precedence:

1. Two or more levels of a known scale (low, medium, high) are *ordered*; words for yes and no are
   *yes/no*.
2. If every cell is a number in a common notation (:mod:`sgpmic.tables.cell_text`), the column is a
   *number*; digits with a leading zero are codes, not numbers. If every cell is a date or a time,
   it is a *date*.
3. If at least 80 % of the cells are numbers, or dates, and the rest are not, the column is *wrong*:
   the meaning of the rest is unknown.
4. If levels that are not rare make up half of the cells, the column is a *category*. Otherwise it
   is an *id* if 95 % of the cells are distinct and contain no spaces, else *text*.

Rules for numbers: a column of only 0 and 1 is *yes/no*. Integers that number the rows (consecutive
in any order) are an *id*; so are unique integers in a column that is unnamed or named like an id,
and integers with more than twenty distinct values in a column named like an identifier (flight, zip
code). YYYYMMDD dates are a *date* if the name suggests it. Integers with few distinct values are
numbers.

A column with one distinct value is *constant*, one with none is *empty*. With fewer than ten rows,
nothing is taken for an id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from sgpmic._types import Bools, Floats, Ints
from sgpmic._words import plural
from sgpmic.tables.cell_text import (
    MISSING_IN_NUMBERS,
    TRUTH,
    find_date_order,
    find_decimal,
    find_scale,
    is_yes_no,
    key,
    numeric_date,
    parse_date,
    parse_duration,
    parse_number,
    parse_time,
    unit_of,
)
from sgpmic.tables.columns import (
    YEAR,
    DateEncoding,
    DurationEncoding,
    Encoding,
    NumberEncoding,
    OrderEncoding,
    YesNoEncoding,
    kind_words,
)
from sgpmic.tables.conversions import Cells, arrow_of, cells_of
from sgpmic.tables.errors import BadCells, quote

Readable = NumberEncoding | DateEncoding | YesNoEncoding

_NO_VALUE = "no cell has a value"
_ID_WARNING = "almost surely an id; declare what it is to keep it"

# Below the first, uniqueness says nothing; from the second on, rows may be a sample of a table.
_FEWEST_FOR_ID, _MANY = 10, 1000
# If this share of the cells parses, the rest are taken for mistakes.
_MOSTLY = 0.8
# Levels are row ids if at least this share of the cells is distinct.
_ALMOST_ALL = 0.95
# Minimum share of cells in levels that are not rare, for a category.
_CATEGORY_SHARE = 0.5
# With more distinct texts, they are not spellings of the levels of a scale.
_MOST_LEVELS = 1000
# Texts to try before parsing all of them.
_SOME = 500
# Common sentinel values for "missing".
_CODES = {float(sign * (10**n - 1)) for n in range(1, 8) for sign in (1, -1)}
_CODES |= {-1.0, 777.0, 888.0, 7777.0, 8888.0}
# Names of identifiers, as opposed to measurements and counts.
_IDENTIFIER_WORDS = frozenset(("id", "ids", "uuid", "guid", "rowid", "rownum", "code", "zip"))
_IDENTIFIER_WORDS |= {"zipcode", "postcode", "phone", "flight", "account", "ssn", "isbn", "serial"}
_IDENTIFIER_WORDS |= {"sku", "ean", "upc", "gtin", "barcode", "mrn"}
# Names of identifiers if all values are different.
_ID_WORDS = _IDENTIFIER_WORDS | {"key", "index", "idx"}
_TIME_WORDS = frozenset(("year", "month", "week", "day", "time", "date", "age", "hour", "minute"))
_DATE_WORDS = frozenset(("date", "datum", "day"))
_DURATION_WORDS = frozenset(("duration", "durations", "elapsed", "dauer"))
# Names that pandas and our readers give to unnamed columns.
_UNNAMED = re.compile(r"(?:Unnamed: [0-9]+|column_[0-9]+|__index_level_[0-9]+__)?")
_LEADING_ZERO = re.compile(r"0[0-9]+")
# Columns with more distinct values are not compared as relabeled categories.
MOST_RENAMED = 50
# Up to this many distinct values, a code may be a category, and a column a label.
MOST_CLASSES = 20


@dataclass(eq=False)
class Plan:
    """State of a column while its kind and encoding are determined."""

    name: str
    cells: Cells
    declared: bool = False  # whether the user has declared its kind
    kind: str = "empty"  # one of FOUND_KINDS
    because: str = ""  # why it is dropped, if it is
    order: tuple[str, ...] = ()  # the levels of an ordered column, from low to high
    log: bool = False  # whether the user asked for its logarithm
    wrong: str = ""  # error message with remedy, if it cannot be used
    warnings: list[str] = field(default_factory=list)  # what the user should check
    #: At first, how to parse numbers, dates and yes/no; in the end, the encoding as features.
    encoding: Encoding | None = None
    values: Floats = field(default_factory=lambda: np.empty(0))  # numbers, days, or ordinal ranks
    levels: tuple[str, ...] = ()  # of a category, the most frequent first
    codes: Ints = field(init=False)  # every cell's index into levels

    @property
    def is_kept(self) -> bool:
        """Whether it becomes features."""
        return not self.because

    @property
    def is_number(self) -> bool:
        """Whether it is a number, whole or not."""
        return self.kind in ("number", "whole")

    @property
    def is_time(self) -> bool:
        """Whether it holds times of day without dates."""
        return isinstance(self.encoding, DateEncoding) and self.encoding.time_only

    @property
    def missing(self) -> Bools:
        """Mask of the missing cells."""
        return np.isnan(self.values) if len(self.values) else self.codes < 0

    @property
    def present(self) -> Floats:
        """The values that are not missing."""
        return self.values[~np.isnan(self.values)]

    @property
    def has_levels(self) -> bool:
        """Whether it has no unit of its own, so that the whole table is standardized."""
        # Numeric zeros and ones may be pixels, in the same unit as the neighboring columns.
        is_word = self.kind == "yes_no" and self.cells.holds != "number"
        return self.is_kept and (self.kind in ("category", "ordered") or is_word)

    def warn(self, warning: str) -> None:
        """Add a warning, if it is not empty."""
        self.warnings += filter(None, [warning])

    def leave_out(self, kind: str, because: str, warning: str = "") -> None:
        """Drop this column."""
        self.kind, self.because = kind, because
        self.warn(warning)

    def read_as(self, kind: str, encoding: Readable, complaint: str = "") -> BadCells | None:
        """Parse the cells as numbers, dates or yes/no; return those that cannot be parsed."""
        try:
            self.encoding, self.values = encoding, encoding.read(self.cells)
            self.kind, self.wrong = kind, ""
        except BadCells as bad:
            self.wrong = f"{complaint} {bad}, or declare the column as another kind"
            return bad
        return None

    def read_levels(self) -> None:
        """Read levels and ordinal ranks; drop the column if it is constant."""
        n_different = 2  # or more
        if self.wrong or not (self.is_number or self.kind in ("date", "yes_no")):
            self.values = np.empty(0)
        else:
            # Compare values, not text: "1.0" and "1" are equal, and 999 may mean missing.
            present = self.present
            # Times of day within a millisecond have the same cosine.
            least = 1e-8 if self.is_time else 1e-12 * np.abs(present).max(initial=0.0)
            n_different = 1 + int(np.ptp(present) > least) if len(present) else 0
            # Many distinct numbers need no levels, which are slow to format.
            if n_different > 1 and len(np.unique(present)) > MOST_RENAMED:
                self.codes = np.where(np.isnan(self.values), -1, 0)
                return
        self.levels, self.codes = self.cells.read_levels(map(key, self.order))
        if self.wrong or self.kind == "id" or (self.declared and self.kind == "text"):
            return
        if not len(self.values):
            n_different = len(self.levels)
        if n_different < 2 and self.cells.holds != "other":
            self.leave_out(*("constant", "constant") if n_different else ("empty", _NO_VALUE))
            self.values = np.empty(0)
        if self.kind == "ordered":
            if self.order == find_scale(self.order):  # in our spelling
                spelled = dict(zip(map(key, self.levels), self.levels, strict=True))
                self.order = tuple(spelled.get(level, level) for level in self.order)
            self.encoding = OrderEncoding(self.order)
            self.values = self.encoding.encode(self.cells).values[:, 0]


def least_count(n: int, min_frequency: float) -> int:
    """Return the number of cells below which a level is rare, as `TableEncoder` documents."""
    if min_frequency == 0:
        return 1
    return max(2, min(5, n // 10), int(np.ceil(min_frequency * n)))


def decide(name: str, cells: Cells, min_frequency: float) -> Plan:
    """Infer the kind of a column; levels with a share below ``min_frequency`` are rare."""
    plan = Plan(name, cells)
    if cells.holds == "text":
        _decide_text(plan, min_frequency)
    elif cells.holds in ("number", "bool"):
        if plan.read_as("number", NumberEncoding(), "has too large numbers,") is None:
            _decide_number(plan)
    elif cells.holds in ("date", "time"):
        plan.read_as("date", _date_encoding(cells)[0])
    elif cells.holds == "duration":
        plan.read_as("number", DurationEncoding.fit(cells))
    elif cells.holds == "other":
        plan.leave_out("text", "lists, records or bytes", "split it into separate columns")
    plan.read_levels()
    return plan


def read_label(words: Sequence[str]) -> tuple[list[str], Floats]:
    """Return labels, empty where missing, and their values if features like them were numbers.

    Dates are in years and times of day in hours.
    """
    # A name with which numbers that count the rows are no id.
    plan = decide("age", cells_of(arrow_of(words)), 0.0)
    gone = plan.missing
    if not plan.is_number:  # "none" may be a class, such as that of the healthy
        gone = gone & np.array([word.strip().lower() != "none" for word in words], bool)
    labels = ["" if lost else word for word, lost in zip(words, gone, strict=True)]
    if plan.kind == "date":
        return labels, plan.values * 24 if plan.is_time else 1970 + plan.values / YEAR
    return labels, plan.values if plan.is_number else np.empty(0)


def declare(name: str, cells: Cells, kind: str, order: tuple[str, ...]) -> Plan:
    """Return the plan of a column whose kind the user has declared."""
    plan = Plan(name, cells, declared=True, kind=kind)
    texts = _texts(cells)
    if kind in ("text", "id"):
        plan.because = "declared as an id" if kind == "id" else "declared as text"
    elif kind == "ordered":
        _declare_order(plan, order)
    elif kind != "category":
        encoding: Readable = YesNoEncoding()
        if kind == "date":
            encoding, _ = _date_encoding(cells)
        elif kind != "yes_no":
            are_durations = texts and None not in map(parse_duration, texts)
            is_duration = cells.holds == "duration" or are_durations
            decimal = find_decimal(texts)[0]
            encoding = DurationEncoding.fit(cells) if is_duration else NumberEncoding(decimal)
        plan.log = kind == "log"
        complaint = f"is declared as {kind_words(kind)}, but has"
        plan.read_as("number" if plan.log else kind, encoding, complaint)
        if type(encoding) is NumberEncoding:
            _set_unit(plan, {unit_of(text) for text in texts} - {""})
        if plan.log:
            _look_for_sentinel(plan, np.unique(plan.present))
    plan.read_levels()
    return plan


def _declare_order(plan: Plan, order: tuple[str, ...]) -> None:
    levels, _ = plan.cells.read_levels(map(key, order))
    order = order or plan.cells.order or find_scale(levels) or ()
    if not order and None not in map(parse_number, levels):
        order = tuple(sorted(levels, key=lambda level: parse_number(level) or 0.0))
    known = set(map(key, order))
    plan.order, strange = order, [level for level in levels if key(level) not in known]
    if strange:
        lacks = f"the order has no {quote(strange[0])}"
        plan.wrong = f"is declared as ordered, but {lacks}: say the order of all levels"


def _texts(cells: Cells) -> list[str]:
    """Return the distinct texts that do not mean "missing"."""
    return [text for text in cells.texts if text.lower() not in MISSING_IN_NUMBERS]


def _date_encoding(cells: Cells) -> tuple[DateEncoding, bool]:
    """Return the encoding of times of day or dates, and whether day and month are ambiguous."""
    texts = _texts(cells)
    are_times = texts and _may_be(texts, parse_time)
    if are_times or cells.holds == "time":
        return DateEncoding(time_only=True, day=1.0), False
    day_first, is_ambiguous = find_date_order(texts)
    return DateEncoding(day_first), is_ambiguous


def _decide_text(plan: Plan, min_frequency: float) -> None:
    cells, texts = plan.cells, _texts(plan.cells)
    levels, codes = cells.read_levels()
    order, is_short = cells.order, len(cells.texts) <= _MOST_LEVELS
    if order is None and is_short:
        order = find_scale(cells.texts) or find_scale(texts)
    if order:
        plan.kind, plan.order = "ordered", order
    elif not levels:
        plan.leave_out("empty", _NO_VALUE)
    elif is_short and is_yes_no(levels):
        plan.read_as("yes_no", YesNoEncoding())
    elif not (_as_number(plan, texts) or _as_duration(plan, texts) or _as_date(plan, texts)):
        _decide_levels(plan, levels, codes, min_frequency)


def _as_number(plan: Plan, texts: Sequence[str]) -> bool:
    """Parse a text column as numbers, if most cells are; return whether they are."""
    is_code = any(map(_LEADING_ZERO.fullmatch, texts)) and not any("." in text for text in texts)
    if is_code or not _may_be(texts, parse_number, partial(parse_number, decimal=",")):
        return False
    decimal, is_ambiguous = find_decimal(texts)
    if not _read_most(plan, "number", NumberEncoding(decimal)):
        return False
    if not plan.wrong:
        _decide_number(plan, decimal)
        if plan.kind == "yes_no" and any(key(text) not in TRUTH for text in texts):
            plan.kind, plan.encoding = "whole", NumberEncoding(decimal)  # such as 0 % and 1 %
        _set_unit(plan, {unit_of(text) or "no unit" for text in texts})
        plan.warn("the commas are read as thousands separators" if is_ambiguous else "")
    return True


def _set_unit(plan: Plan, units: set[str]) -> None:
    if len(units) > 1:
        listed = ", ".join(sorted(units)[:4])
        plan.wrong = f"has numbers in different units ({listed}): convert them to one"
    elif type(plan.encoding) is NumberEncoding:
        plan.encoding = replace(plan.encoding, unit="".join(units - {"no unit"}))


def _as_duration(plan: Plan, texts: Sequence[str]) -> bool:
    """Parse a text column as durations, if most cells are, and its name or some cells say so."""
    n_long = sum(parse_time(text) is None and parse_duration(text) is not None for text in texts)
    # A few may be mistakes in times of day.
    if n_long < max(1, len(texts) / 20) and not _words(plan.name) & _DURATION_WORDS:
        return False
    found = _read_most(plan, "number", DurationEncoding.fit(plan.cells))
    plan.warn("read as durations: 25:10 is 25 hours and 10 minutes" if found else "")
    return found


def _as_date(plan: Plan, texts: Sequence[str]) -> bool:
    """Parse a text column as dates, if most cells are; return whether they are."""
    encoding, is_ambiguous = _date_encoding(plan.cells)
    orders = (partial(parse_date, day_first=day_first) for day_first in (True, False))
    if not ((encoding.time_only or _may_be(texts, *orders)) and _read_most(plan, "date", encoding)):
        return False
    if not plan.wrong and any(parse_number(text) is not None for text in texts):
        return False  # bare numbers are dates only if declared as such
    unclear = "no date shows whether the day or the month comes first; assumed month first"
    plan.warn(unclear if is_ambiguous else "")
    return True


def _may_be(texts: Sequence[str], *parsers: Callable[[str], float | None]) -> bool:
    """Return whether half of a sample of the texts can be parsed, to avoid parsing all in vain."""
    some = texts[:: max(1, len(texts) // _SOME)]
    return 2 * sum(any(parse(text) is not None for parse in parsers) for text in some) >= len(some)


def _read_most(plan: Plan, kind: str, encoding: NumberEncoding | DateEncoding) -> bool:
    """Parse a text column, if most of its cells can be; record an error about the others."""
    bad = plan.read_as(kind, encoding, f"holds {encoding.kind}s, but also")
    if bad is not None:
        n = int((plan.cells.read_levels()[1] >= 0).sum())
        if bad.n_parsed < 5 or n - bad.n_cells < _MOSTLY * n:
            plan.wrong = ""
            return False
    return True


def _decide_levels(plan: Plan, levels: Sequence[str], codes: Ints, min_frequency: float) -> None:
    """Classify a text column as category, id or text."""
    counts = np.bincount(codes[codes >= 0])
    n = int(counts.sum())
    # A value that occurs once is not a level, even if rare levels are not merged.
    common = counts[counts >= max(2, least_count(n, min_frequency))].sum()
    spaced = np.mean([len(level.split()) > 1 for level in levels])
    is_id = spaced < 0.5 or _words(plan.name) & _ID_WORDS
    if common >= _CATEGORY_SHARE * n:
        lost = "none" in {text.lower() for text in plan.cells.texts}
        plan.kind = "category"
        plan.warn("'none' is taken as a missing cell" if lost else "")
    elif len(counts) >= _ALMOST_ALL * n and n >= _FEWEST_FOR_ID and is_id:
        plan.leave_out("id", "an id", _ID_WARNING)
    else:
        plan.leave_out("text", "free text")


def _decide_number(plan: Plan, decimal: str = ".") -> None:
    """Classify numbers, which have been read, as measurements, yes/no, dates or ids."""
    present = plan.present
    different, n = np.unique(present), len(present)
    if not (present == np.round(present)).all():
        _look_for_sentinel(plan, different)
        return
    plan.kind, words = "whole", _words(plan.name)
    may_be_id = _FEWEST_FOR_ID <= n == len(different)
    counts_rows = may_be_id and _counts_rows(different)
    is_index = bool(_UNNAMED.fullmatch(plan.name.strip()) or words & _ID_WORDS)
    is_index = is_index or (counts_rows and not words & _TIME_WORDS)
    is_identifier = words & _IDENTIFIER_WORDS and len(different) > MOST_CLASSES
    if set(different[:3].tolist()) == {0.0, 1.0}:
        plan.kind, plan.encoding = "yes_no", YesNoEncoding()
    elif decimal == "." and words & _DATE_WORDS and _is_calendar(different):
        plan.read_as("date", DateEncoding())
        plan.warn("read as dates (19750102 is 1975-01-02); declare it as a number if it is one")
    elif (may_be_id and is_index) or is_identifier:
        because = "an id: it numbers the rows" if counts_rows else "an id"
        plan.leave_out("id", because, _ID_WARNING)
    else:
        _look_for_sentinel(plan, different)


def _is_calendar(different: Floats) -> bool:
    """Return whether sorted distinct integers are dates from 1800 to 2200 as YYYYMMDD."""
    is_within = len(different) > 0 and 18000101 <= different[0] <= different[-1] <= 22001231
    return is_within and None not in map(numeric_date, different.tolist())


def _counts_rows(different: Floats) -> bool:
    """Return whether sorted distinct integers number the rows."""
    steps = np.diff(different)
    if len(different) < _MANY:
        return bool((steps == 1).all())
    # Any constant step will do: the table may be a sample of a larger one.
    return bool((steps == np.median(steps)).mean() >= _ALMOST_ALL)


def _look_for_sentinel(plan: Plan, different: Floats) -> None:
    """Set repeated, very distant codes such as 999 to missing; only warn about others."""
    sentinels: list[float] = []
    ends = different[[-1, 0]].tolist() if len(different) >= 5 else []
    for code in filter(_CODES.__contains__, ends):
        others = different[different != code]
        low, high = others[0], others[-1]
        distance, n_cells = max(code - high, low - code), int((plan.values == code).sum())
        cells = f"{code:.0f} ({plural(n_cells, 'cell')})"
        if abs(code) >= 100 and n_cells > 1 and distance > 5 * (high - low):
            sentinels.append(code)
            plan.warn(f"{cells} is taken as missing; declare the column as a number to keep it")
        elif distance > 3 * np.diff(others).max() or (code < 0 <= low and n_cells > 1):
            plan.warn(f"{cells} may stand for a missing value; empty these cells if it does")
    if sentinels and isinstance(plan.encoding, NumberEncoding):
        plan.read_as(plan.kind, replace(plan.encoding, sentinels=tuple(sentinels)))


def _words(name: str) -> set[str]:
    """Split a column name into words: customer_id and customerId have two."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return set(re.findall(r"[a-z]+", spaced.lower())) | {name.strip().lower()}
