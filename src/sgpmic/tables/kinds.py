"""What a column is: a number, a category, a date, an id, ...

The rules, in their order. Of a column of text:

1. Known levels of a scale (low, medium, high), from two of them on, are *ordered*; ways of saying
   yes and no are *yes/no*.
2. Where every cell is a number as people write it (:mod:`sgpmic.tables.cell_text`), it is a
   *number*; digits with a leading zero are codes, not numbers. Where every cell is a date or a time
   it is a *date*.
3. Where four cells in five are numbers, or dates, and the others are not, it is *wrong*: the
   meaning of the others is unknown.
4. JSON is *text*. Where the levels that are not rare make up half of the cells it is a
   *category*. Otherwise it is an *id* if nineteen cells in twenty are different and have no spaces,
   else *text*.

Of numbers: 0 and 1 alone are *yes/no*. Whole numbers that count the rows (all different, and next
to each other in the order of the rows) are an *id*, and so are those that are all different in a
column that is named like an id or has no name, and those of more than twenty values in a column
that is named like an identifier (flight, zip code). Whole numbers up to 2400 of which all could be
times of the day (1345 is 13:45) are a *date* where the name or the minutes say so. Whole numbers of
few values are numbers.

A column with one value is *constant*, one without any is *empty*. Fewer than ten rows are too few
to say that something is an id.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from sgpmic._types import Bools, Floats
from sgpmic.tables.cell_text import (
    MISSING_IN_NUMBERS,
    find_date_order,
    find_decimal,
    find_scale,
    is_yes_no,
    key,
    parse_date,
    parse_number,
    parse_time,
    unit_of,
)
from sgpmic.tables.conversions import Cells, Codes
from sgpmic.tables.errors import BadCells, not_all, quote

if TYPE_CHECKING:
    from sgpmic.tables.columns import Encoding

#: What a column may be declared as.
KINDS = ("number", "whole", "log", "yes_no", "ordered", "category", "date", "text", "id")
#: ... and what it may turn out to be besides.
FOUND_KINDS = (*KINDS, "constant", "copy", "empty")

_NO_VALUE = "no cell has a value"

# Fewer rows say nothing about whether values repeat; so many may have been drawn from more of them.
_FEWEST_FOR_ID, _MANY = 10, 1000
# The share of cells that makes the others mistakes.
_MOSTLY = 0.8
# Levels are names of rows where at least this share of the cells is different.
_ALMOST_ALL = 0.95
# The share of the cells that has to be of levels that are not rare.
_CATEGORY_SHARE = 0.5
# With more different texts, they are not spellings of the levels of a scale.
_MOST_LEVELS = 1000
# So many texts tell whether it is worth reading all of them.
_SOME = 500
# Larger numbers overflow when a model squares them.
_LARGEST = 1e100
# The numbers that people write for "missing".
_CODES = frozenset(
    float(sign * int(digit * n)) for digit in "9" for n in range(1, 8) for sign in (1, -1)
) | {-1.0, 777.0, 888.0, 7777.0, 8888.0}
_ID_WORDS = frozenset(("id", "ids", "uuid", "guid", "key", "index", "idx", "rowid", "rownum"))
_TIME_WORDS = frozenset(("year", "month", "week", "day", "time", "date", "age", "hour", "minute"))
_TARGET_WORDS = frozenset(("target", "label", "labels", "class", "cluster", "outcome", "y"))
# What identifies something, and is not measured or counted.
_IDENTIFIER_WORDS = frozenset(("id", "ids", "uuid", "guid", "rowid", "rownum", "code", "zip"))
_IDENTIFIER_WORDS |= {"zipcode", "postcode", "phone", "flight", "account", "ssn", "isbn", "serial"}
_CLOCK_WORDS = frozenset(("time", "times", "clock", "hhmm"))
# What pandas and our readers call a column without a name.
_UNNAMED = re.compile(r"(?:Unnamed: [0-9]+|column_[0-9]+|__index_level_[0-9]+__)?")
# Digits with a leading zero that no number needs.
_LEADING_ZERO = re.compile(r"0[0-9]+")
# Columns with more values than these are not compared as renamed categories.
MOST_RENAMED = 50
# A code of fewer different values may be a category; and a target has no more.
MOST_CLASSES = 20


@dataclass(eq=False)
class Plan:
    """A column on its way from its cells to an encoding: what it is, and how its cells are read."""

    kind: str  # one of FOUND_KINDS
    because: str = ""  # why it is left out, if it is
    decimal: str = "."
    sentinels: tuple[float, ...] = ()  # numbers that stand for a missing cell
    day_first: bool = False
    time_only: bool = False  # times of the day, without a date
    order: tuple[str, ...] = ()  # the levels of an ordered column, from low to high
    log: bool = False  # whether its logarithm is asked for
    wrong: str = ""  # what is wrong with it and what to do, if something is
    warnings: list[str] = field(default_factory=list)  # what the user should check
    # Once its cells are read (`read_cells`):
    name: str = field(init=False)
    cells: Cells = field(init=False)
    declared: bool = field(init=False)  # whether the user has declared its kind
    values: Floats = field(init=False)  # numbers, days, places in an order; empty for other kinds
    levels: tuple[str, ...] = field(init=False)  # of a category, the most frequent first
    codes: Codes = field(init=False)  # every cell's index among them
    encoding: Encoding | None = None  # in the end, if it is kept

    @property
    def is_kept(self) -> bool:
        """Whether it becomes features."""
        return not self.because

    @property
    def is_number(self) -> bool:
        """Whether it is a number, whole or not."""
        return self.kind in ("number", "whole")

    @property
    def missing(self) -> Bools:
        """Which cells have no value."""
        return np.isnan(self.values) if len(self.values) else self.codes < 0

    @property
    def present(self) -> Floats:
        """The values that are not missing."""
        return self.values[~np.isnan(self.values)]

    @property
    def has_levels(self) -> bool:
        """Whether it has no unit of its own: the whole table is then brought to one."""
        # Typed zeros and ones may be pixels, and of the unit of the columns beside them.
        is_word = self.kind == "yes_no" and self.cells.holds != "number"
        return self.is_kept and (self.kind in ("category", "ordered") or is_word)

    def warn(self, warning: str) -> Self:
        """Add a warning, if it is not empty."""
        self.warnings += filter(None, [warning])
        return self

    def leave_out(self, kind: str, because: str, warning: str = "") -> None:
        """Leave this column out."""
        self.kind, self.because = kind, because
        self.warn(warning)

    def values_in(self, cells: Cells) -> Floats | BadCells:
        """Return cells of a column of numbers, dates, or yes and no, NaN where missing."""
        if self.kind == "date":
            return cells.read_times() if self.time_only else cells.read_dates(self.day_first)
        if self.kind == "yes_no":
            return cells.read_yes_no()
        return cells.read_numbers(self.decimal, self.sentinels)

    def read_cells(self, name: str, cells: Cells, declared: bool) -> Self:
        """Read the cells of this column."""
        self.name, self.cells, self.declared = name, cells, declared
        self.values, self.levels = np.empty(0), ()
        if self.kind in ("number", "whole", "date", "yes_no") and not self.wrong:
            found = self.values_in(cells)
            assert not isinstance(found, BadCells)  # else it would be wrong
            self.values = found
        # Many different numbers have no use for levels, which take long to write.
        if len(np.unique(self.present)) > MOST_RENAMED:
            self.codes = np.where(np.isnan(self.values), -1, 0)
            return self
        order = tuple(map(key, self.order))
        self.levels, self.codes = cells.read_levels(order)
        if self.kind not in ("text", "id"):
            self.levels, self.codes = _merge_spellings(self.levels, self.codes)
        if self.kind == "ordered":
            places = {level: float(i) for i, level in enumerate(order)}
            table = [*(places.get(key(level), np.nan) for level in self.levels), np.nan]
            self.values = np.asarray(table)[self.codes]
        return self


def _merge_spellings(levels: Sequence[str], codes: Codes) -> tuple[tuple[str, ...], Codes]:
    """Return levels that differ by more than case and spaces, the most frequent first."""
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    spellings: dict[str, list[int]] = {}
    for i, level in enumerate(levels):
        if counts[i]:
            spellings.setdefault(key(level), []).append(i)
    totals = {word: int(counts[places].sum()) for word, places in spellings.items()}
    words = sorted(totals, key=lambda word: (-totals[word], word))
    table = np.full(len(levels) + 1, -1)
    names = []
    for new, word in enumerate(words):
        table[spellings[word]] = new
        names.append(levels[max(spellings[word], key=lambda i: counts[i])])
    return tuple(names), table[codes]


def least_count(n: int, min_frequency: float) -> int:
    """Return the number of cells below which a level is rare.

    It is ``min_frequency`` of the cells, and at least five, or a tenth of less than fifty; one
    where ``min_frequency`` is 0.
    """
    if min_frequency == 0:
        return 1
    return max(2, min(5, n // 10), int(np.ceil(min_frequency * n)))


def decide(name: str, cells: Cells, min_frequency: float) -> Plan:
    """Return what a column is; below the share ``min_frequency`` of its cells a level is rare."""
    if cells.holds == "text":
        plan = _decide_text(name, cells, min_frequency)
    elif cells.holds in ("number", "bool"):
        plan = _decide_number(name, cells)
    elif cells.holds in ("date", "time"):
        plan = Plan("date", time_only=cells.holds == "time")
    elif cells.holds == "other":
        because = "lists, records or bytes"
        plan = Plan("text", because).warn("spread what it holds over columns of their own")
    else:
        plan = Plan("empty", _NO_VALUE)
    plan = _if_constant(cells, plan)
    may_be_target = plan.kind in ("whole", "yes_no", "category", "ordered")
    if not plan.because and may_be_target and _words(name) & _TARGET_WORDS:
        codes = cells.read_levels()[1]
        if len(np.unique(codes[codes >= 0])) <= MOST_CLASSES:
            return plan.warn("named like a target: leave it out if it is one")
    return plan


def declared(cells: Cells, kind: str, order: tuple[str, ...]) -> Plan:
    """Return how to read a column whose kind the user has declared."""
    if kind in ("text", "id"):
        return Plan(kind, "declared as an id" if kind == "id" else "declared as text")
    plan = Plan("number", log=True) if kind == "log" else Plan(kind)
    if kind == "ordered":
        plan = _declared_order(cells, order)
    elif kind == "date":
        is_time = not isinstance(cells.read_times(digits=False), BadCells)
        plan.time_only = is_time and cells.holds != "empty"
        plan.day_first = find_date_order(_texts(cells))[0]
    elif plan.is_number:
        plan.decimal = find_decimal(_texts(cells))[0]
    if kind not in ("ordered", "category"):
        read = plan.values_in(cells)
        if isinstance(read, BadCells):
            word = {"date": "a date", "yes_no": "yes or no"}.get(kind, "a number")
            named = "whole numbers" if kind == "whole" else word
            plan.wrong = not_all(read, f"is declared as {named}", word)
        else:
            plan.wrong = _too_large(read)
    return _if_constant(cells, plan)


def _declared_order(cells: Cells, order: tuple[str, ...]) -> Plan:
    levels, codes = cells.read_levels(tuple(map(key, order)))
    used = [levels[i] for i in np.unique(codes[codes >= 0])]
    order = order or cells.order or find_scale([key(level) for level in used]) or ()
    if not order and not isinstance(cells.read_numbers(), BadCells):
        order = tuple(sorted(used, key=lambda level: parse_number(level) or 0.0))
    known = set(map(key, order))
    strange = [level for level in used if key(level) not in known]
    wrong = "is declared as ordered: say the order of its levels, from low to high"
    if order and strange:
        wrong = (
            f"is declared as ordered, and the order has no {quote(strange[0])}: name all levels, "
            "from low to high"
        )
    return Plan("ordered", order=order, wrong=wrong if strange else "")


def _texts(cells: Cells) -> list[str]:
    """Return the different texts that do not stand for a missing cell."""
    return [text for text in cells.texts if text.lower() not in MISSING_IN_NUMBERS]


# ------------------------------------------------------------------------------- text


def _decide_text(name: str, cells: Cells, min_frequency: float) -> Plan:
    levels, codes = cells.read_levels()
    if cells.order is not None:
        return Plan("ordered", order=cells.order)
    if len(cells.texts) <= _MOST_LEVELS:
        scale = find_scale([key(text) for text in cells.texts if key(text)])
        scale = scale or find_scale([key(text) for text in _texts(cells)])
        if scale:
            return Plan("ordered", order=scale)
    if not (codes >= 0).any():
        return Plan("empty", _NO_VALUE)
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    present = [level for level, count in zip(levels, counts, strict=True) if count]
    if len(present) <= _MOST_LEVELS and is_yes_no([key(level) for level in present]):
        return Plan("yes_no")
    found = _as_number(name, cells, codes) or _as_date(cells, codes)
    return found or _as_levels(name, present, counts[counts > 0], cells, min_frequency)


def _as_number(name: str, cells: Cells, codes: Codes) -> Plan | None:
    texts = _texts(cells)
    if any(map(_LEADING_ZERO.fullmatch, texts)) and not any("." in text for text in texts):
        return None
    if not _may_be(texts, lambda text: any(parse_number(text, d) is not None for d in ".,")):
        return None
    decimal, open_question = find_decimal(texts)
    numbers = cells.read_numbers(decimal)
    if isinstance(numbers, BadCells):
        n_different = sum(parse_number(text, decimal) is not None for text in texts)
        return _mostly(numbers, codes, n_different, "holds numbers", "a number")
    units = sorted({unit_of(text) or "no unit" for text in texts})
    if len(units) > 1:
        wrong = f"has numbers in different units ({', '.join(units[:4])}): convert them to one"
        return Plan("number", decimal=decimal, wrong=wrong)
    typed = Cells.of_values("number", numbers)
    plan = _decide_number(name, typed)
    plan.decimal = decimal
    if plan.kind == "yes_no" and isinstance(cells.read_yes_no(), BadCells):
        plan.kind = "whole"  # such as 0 % and 1 %
    return plan.warn("the commas are read as thousands separators" if open_question else "")


def _as_date(cells: Cells, codes: Codes) -> Plan | None:
    texts = _texts(cells)
    if not _may_be(texts, lambda text: parse_time(text) is not None or _is_any_date(text)):
        return None
    if not isinstance(cells.read_times(digits=False), BadCells):
        return Plan("date", time_only=True)
    day_first, open_question = find_date_order(texts)
    days = cells.read_dates(day_first)
    # Bare numbers are dates only if declared so.
    if isinstance(days, BadCells) or any(parse_number(text) is not None for text in texts):
        if all(map(_is_any_date, texts)):
            wrong = (
                "holds dates with the day before the month and others with the month before the "
                "day: write them in one way"
            )
            return Plan("date", wrong=wrong)
        if not isinstance(days, BadCells):
            return None
        n_different = sum(parse_date(text, day_first) is not None for text in texts)
        return _mostly(days, codes, n_different, "holds dates", "a date")
    unclear = "no date shows whether the day or the month comes first; read as month first"
    return Plan("date", day_first=day_first).warn(unclear if open_question else "")


def _is_any_date(text: str) -> bool:
    return any(parse_date(text, day_first) is not None for day_first in (True, False))


def _may_be(texts: list[str], matches: Callable[[str], bool]) -> bool:
    """Return whether half of some texts match: not all are read where they are something else."""
    some = texts[:: max(1, len(texts) // _SOME)]
    return 2 * sum(map(matches, some)) >= len(some)


def _mostly(bad: BadCells, codes: Codes, n_different: int, holds: str, word: str) -> Plan | None:
    """Return a wrong column where most cells are of a kind, None where not even most are."""
    n = int((codes >= 0).sum())
    if n_different < 5 or n - bad.n_cells < _MOSTLY * n:
        return None
    return Plan(word.split()[-1], wrong=not_all(bad, holds, word))


def _as_levels(
    name: str, present: list[str], counts: Codes, cells: Cells, min_frequency: float
) -> Plan:
    n = int(counts.sum())
    if all(map(_is_json, present[:100])):
        return Plan("text", "JSON").warn("spread what it holds over columns of their own")
    merged: Counter[str] = Counter()
    for level, count in zip(present, counts.tolist(), strict=True):
        merged[key(level)] += count
    all_counts = np.asarray(list(merged.values()))
    # A level of one cell is none, even if no level is to be joined.
    common = all_counts[all_counts >= max(2, least_count(n, min_frequency))].sum()
    if common >= _CATEGORY_SHARE * n:
        lost = "none" in {text.lower() for text in cells.texts}
        return Plan("category").warn("'none' is taken as a missing cell" if lost else "")
    if len(merged) >= _ALMOST_ALL * n and n >= _FEWEST_FOR_ID:
        spaced = np.mean([len(level.split()) > 1 for level in present])
        if spaced < 0.5 or _words(name) & _ID_WORDS:
            return Plan("id", "an id").warn("almost surely an id")
        return Plan("text", "free text")
    return Plan("text", "text of too many different values")


def _is_json(text: str) -> bool:
    try:
        return text[:1] in "{[" and json.loads(text) is not None
    except (ValueError, RecursionError):
        return False


# ------------------------------------------------------------------------------- numbers


def _decide_number(name: str, cells: Cells) -> Plan:
    present = cells.values[~np.isnan(cells.values)]
    if wrong := _too_large(cells.values):
        return Plan("number", wrong=wrong)
    different = np.unique(present)
    if len(different) == 2 and set(different.tolist()) == {0.0, 1.0}:
        return Plan("yes_no")
    if not (present == np.round(present)).all():
        return _look_for_sentinel(different, present, Plan("number"))
    words = _words(name)
    n = len(present)
    if n >= _FEWEST_FOR_ID and len(different) == n:
        counts_rows = _counts_rows(present)
        unnamed = _UNNAMED.fullmatch(name.strip()) is not None
        if unnamed or words & _ID_WORDS or (counts_rows and not words & _TIME_WORDS):
            because = "an index without a name" if unnamed else "an id"
            plan = Plan("id", f"{because}: it numbers the rows" if counts_rows else because)
            return plan.warn("almost surely an id")
        if counts_rows:
            return Plan("whole").warn("counts the rows like an id; kept because of its name")
    if _is_clock(different, words):
        reading = "read as times of the day (1345 is 13:45); declare it as a number if it is one"
        return Plan("date", time_only=True).warn(reading)
    if words & _IDENTIFIER_WORDS and len(different) > MOST_CLASSES:
        kept = "declare it as a number or a category to keep it"
        return Plan("id", "an identifier, not a measurement").warn(f"named like one; {kept}")
    plan = Plan("whole")
    if words & (_ID_WORDS | _IDENTIFIER_WORDS) and n >= _FEWEST_FOR_ID:
        plan.warn("named like an id or a code, and taken as a number")
    return _look_for_sentinel(different, present, plan)


def _is_clock(different: Floats, words: set[str]) -> bool:
    """Return whether different whole numbers are times of the day, hours and minutes as HHMM."""
    if len(different) < 20 or different[0] < 0 or not 1000 <= different[-1] <= 2400:
        return False
    minutes, hours = np.unique(different % 100), np.unique(different // 100)
    if minutes[-1] >= 60 or len(hours) < 3:
        return False
    return bool(words & _CLOCK_WORDS) or (len(minutes) >= 30 and len(hours) >= 6)


def _counts_rows(values: Floats) -> bool:
    """Return whether whole numbers number the rows, up or down.

    Of many rows also those with equal steps: they may be some of the rows of a larger table.
    """
    steps = np.diff(values)
    step = np.median(steps)
    if abs(step) != 1 and len(values) < _MANY:
        return False
    share = (steps == step).mean()
    return bool(share == 1 or (len(values) >= _MANY and share >= _ALMOST_ALL))


def _too_large(values: Floats) -> str:
    """Return what is wrong with numbers that cannot be squared, or nothing."""
    rows = np.flatnonzero(np.abs(values) > _LARGEST)
    if not len(rows):
        return ""
    word = "an infinite value" if np.isinf(values[rows[0]]) else "too large a number"
    return f"has {word} (row {rows[0] + 1}): correct it or empty the cell"


def _look_for_sentinel(different: Floats, present: Floats, plan: Plan) -> Plan:
    """Look for a number that stands for "missing".

    Of three digits or more (999, -9999), more than once, and further from all other values than
    five times their range: taken as missing, and said. Nearer than that but alone (further away
    than three times the widest gap between the others), or -1, -9 or 99: named, and kept.
    """
    if len(different) < 5:
        return plan
    for end, others in ((different[-1], different[:-1]), (different[0], different[1:])):
        if float(end) not in _CODES:
            continue
        distance = abs(end - (others[-1] if end > others[-1] else others[0]))
        n_cells = int((present == end).sum())
        if abs(end) >= 100 and n_cells > 1 and distance > 5 * (others[-1] - others[0]):
            plan.sentinels += (float(end),)
            plan.warn(
                f"{n_cells} cells of {end:.0f} are taken as missing; declare the column as a "
                "number to keep them"
            )
        elif distance > 3 * np.diff(others).max() or (end < 0 <= others[0] and n_cells > 1):
            plan.warn(
                f"{end:.0f} ({n_cells} cell{'s' * (n_cells > 1)}) may stand for a missing value; "
                "empty these cells if it does"
            )
    return plan


# ------------------------------------------------------------------------------- any


def _if_constant(cells: Cells, plan: Plan) -> Plan:
    if plan.wrong or plan.kind in ("empty", "id") or cells.holds == "other":
        return plan
    if plan.kind in ("number", "whole", "date", "yes_no"):
        # As values: "1.0" and "1" are one, and 999 may be none.
        values = plan.values_in(cells)
        assert not isinstance(values, BadCells)
        different = values[~np.isnan(values)]
        # Places in the day within a millisecond have one cosine.
        least = 1e-8 if plan.time_only else 1e-12 * np.abs(different).max(initial=0.0)
        same = len(different) < 2 or np.ptp(different) <= least
    else:
        levels, codes = cells.read_levels(tuple(map(key, plan.order)))
        different = np.unique(codes[codes >= 0])
        same = len({key(levels[i]) for i in different}) < 2
    if not len(different):
        plan.leave_out("empty", _NO_VALUE)
    elif same:
        plan.leave_out("constant", "constant")
    return plan


def _words(name: str) -> set[str]:
    """Return the words of a column's name: customer_id and customerId have two."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return set(re.findall(r"[a-z]+", spaced.lower())) | {name.strip().lower()}
