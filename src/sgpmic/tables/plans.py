"""From what columns are to how they are encoded: the steps of fitting a `TableEncoder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sgpmic.tables.column_cells import Bad, Cells, date_words, read_levels
from sgpmic.tables.copies import find_linear, find_renamed
from sgpmic.tables.encodings import (
    OTHER,
    YEAR,
    CategoryEncoding,
    DateEncoding,
    Encoding,
    NumberEncoding,
    OrderEncoding,
    YesNoEncoding,
    circle,
)
from sgpmic.tables.errors import quote
from sgpmic.tables.kinds import Decision, least_count, values_of
from sgpmic.tables.levels import key

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

# Columns of more values than these are no categories by other names.
_MOST_RENAMED = 50
_MOST_SHOWN = 4
# A season is told by dates that are spread over it, not by one day of every year.
_SPREAD = 0.01


@dataclass(frozen=True)
class Plan:
    """A column on its way to an encoding.

    Attributes
    ----------
    name : str
    cells : Cells
    decision : Decision
    declared : bool
        Whether its owner has said what it is.
    values : ndarray of shape (n_rows,)
        Numbers, days, places in an order; NaN where missing. Empty for other kinds.
    levels, codes
        Of a category: its levels, the most frequent first, and every cell's index.
    """

    name: str
    cells: Cells
    decision: Decision
    declared: bool
    values: Floats
    levels: tuple[str, ...]
    codes: Codes

    @property
    def kind(self) -> str:
        """What it is."""
        return self.decision.kind

    @property
    def is_kept(self) -> bool:
        """Whether it becomes features."""
        return not self.decision.because

    @property
    def has_levels(self) -> bool:
        """Whether it has no unit of its own: the whole table is then brought to one."""
        # Typed zeros and ones may be pixels, and of the unit of the columns beside them.
        is_word = self.kind == "yes_no" and self.cells.sort != "number"
        return self.is_kept and (self.kind in ("category", "ordered") or is_word)

    def leave_out(self, kind: str, because: str, warning: str = "") -> Plan:
        """Return this column, left out."""
        decision = replace(self.decision, kind=kind, because=because).warn(warning)
        return replace(self, decision=decision)

    def as_almost_constant(self) -> Plan:
        """Return this column, left out because next to all cells are of one level."""
        return self.leave_out("constant", f"almost always {quote(self.levels[0])}")


def make_plan(name: str, cells: Cells, decision: Decision, declared: bool) -> Plan:
    """Return a column with its cells read."""
    values: Floats = np.empty(0)
    order = tuple(map(key, decision.order))
    if decision.kind in ("number", "whole", "date", "yes_no") and not decision.wrong:
        read = values_of(cells, decision)
        assert not isinstance(read, Bad)  # else it would be wrong
        different = np.unique(read[~np.isnan(read)])
        # Many different numbers have no use for levels, which take long to write.
        if len(different) > _MOST_RENAMED or cells.sort == "other":
            codes = np.where(np.isnan(read), -1, 0)
            return Plan(name, cells, decision, declared, read, (), codes)
        values = read
    levels, codes = read_levels(cells, order)
    if decision.kind in ("text", "id"):
        return Plan(name, cells, decision, declared, values, levels, codes)
    levels, codes = _merge_spellings(levels, codes)
    if decision.kind == "ordered":
        places = {level: float(i) for i, level in enumerate(order)}
        table = np.asarray([*(places.get(key(level), np.nan) for level in levels), np.nan])
        values = table[codes]
    return Plan(name, cells, decision, declared, values, levels, codes)


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


# ------------------------------------------------------------------------------- copies


def leave_out_copies(plans: Sequence[Plan]) -> list[Plan]:
    """Return columns, those left out that are copies of one before them."""
    done = list(plans)
    kept = [j for j, plan in enumerate(plans) if plan.is_kept and len(plan.values)]
    for j, copy in zip(kept, find_linear([plans[j].values for j in kept]), strict=True):
        if copy is None:
            continue
        original = quote(plans[kept[copy[0]]].name)
        if copy[1]:
            done[j] = _as_copy(plans[j], original)
        else:
            warned = plans[j].decision.warn(f"almost a copy of {original}")
            done[j] = replace(plans[j], decision=warned)
    few = [
        j for j, plan in enumerate(done) if plan.is_kept and 0 < len(plan.levels) <= _MOST_RENAMED
    ]
    for j, original_place in zip(few, find_renamed([done[j].codes for j in few]), strict=True):
        if original_place is None:
            continue
        first = done[few[original_place]]
        if "category" in (first.kind, done[j].kind):
            done[j] = _as_copy(done[j], quote(first.name))
    return done


def _as_copy(plan: Plan, original: str) -> Plan:
    if plan.declared:
        return replace(plan, decision=plan.decision.warn(f"a copy of {original}, and kept"))
    return plan.leave_out("copy", f"a copy of {original}", f"says the same as {original}")


# ------------------------------------------------------------------------------- encodings


def join_rare(plan: Plan, min_frequency: float) -> CategoryEncoding | None:
    """Return the encoding of a category, or None where all but one level are rare.

    Rare levels (:func:`~sgpmic.tables.kinds.least_count`) are joined; if all of them together are
    still too few, the rarest of the others joins them. A declared category of two levels keeps
    them.
    """
    present = plan.codes[plan.codes >= 0]
    counts = np.bincount(present, minlength=len(plan.levels))
    least = least_count(len(present), min_frequency)
    if plan.declared and len(counts) == 2:
        least = 1
    n_kept = int((counts >= least).sum())
    # A level that is called "other" takes in the rare ones.
    named = next((i for i, level in enumerate(plan.levels) if key(level) == OTHER), None)
    rare = [i for i in range(len(counts)) if i >= n_kept]
    if rare and named is not None and named not in rare:
        rare.append(named)
    while rare and counts[rare].sum() < least and len(rare) < len(counts):
        rare.insert(0, max(set(range(len(counts))) - set(rare)))
    kept = [i for i in range(len(counts)) if i not in rare]
    if len(kept) + bool(rare) < 2:
        return None
    shares = counts[kept] / len(present)
    if len(rare) == 1:  # one level by itself keeps its name
        kept, rare = [*kept, *rare], []
        shares = counts[kept] / len(present)
    elif rare:
        shares = np.append(shares, counts[rare].sum() / len(present))
    return CategoryEncoding(
        levels=tuple(plan.levels[i] for i in kept),
        joined=tuple(plan.levels[i] for i in sorted(rare)),
        shares=tuple(float(share) for share in shares),
    )


def is_rare(plan: Plan, min_frequency: float) -> bool:
    """Return whether nearly all cells say yes, or nearly all no.

    In a table of one unit the few others would be as far away as nothing else.
    """
    if plan.kind != "yes_no" or plan.declared:
        return False
    present = plan.values[~np.isnan(plan.values)]
    n_rarer = min(present.sum(), len(present) - present.sum())
    return bool(n_rarer < least_count(len(present), min_frequency))


def encode_date(plan: Plan, unit: Callable[[Floats], float]) -> DateEncoding:
    """Return the encoding of a date.

    The place in the year is told where the dates span two years or more, that in the day where
    there are times and they span two days or more. Both only where dates are spread over them.
    """
    days = plan.values[~np.isnan(plan.values)]
    time_only = plan.decision.time_only
    year, day = None, None
    if time_only:
        day = _circle_size(days, 1.0) or 1.0
    else:
        span = float(np.ptp(days))
        if span >= 2 * YEAR:
            year = _circle_size(days, YEAR)
        if span >= 2 and (days != np.round(days)).any():
            day = _circle_size(days, 1.0)
    return DateEncoding(plan.decision.day_first, time_only, unit(days), year, day)


def _circle_size(days: Floats, period: float) -> float | None:
    """Return the root of what sine and cosine vary by together, None for next to nothing."""
    variance = float(circle(days, period).var(axis=0).sum())
    return variance**0.5 if variance > _SPREAD else None


def log_shift(values: Floats, rule: str) -> float | None:
    """Return what to add before the logarithm, or None for no logarithm.

    Parameters
    ----------
    values : ndarray of shape (n_present,)
    rule : {'auto', 'yes', 'no'}
        'auto' takes the logarithm of positive numbers with at least 20 different values, of which
        the largest is at least ten times the median and whose skewness is above 2 and at least
        twice that of their logarithms. 'yes' of all that are not negative: where there are zeros,
        half the smallest positive value is added.
    """
    if rule == "no" or not len(values) or values.min() < 0 or values.max() <= 0:
        return None
    if rule == "yes":
        return 0.0 if values.min() > 0 else float(values[values > 0].min()) / 2
    if values.min() == 0 or len(np.unique(values)) < 20 or values.max() < 10 * np.median(values):
        return None
    skewness = _skewness(values)
    return 0.0 if skewness > 2 and skewness >= 2 * abs(_skewness(np.log(values))) else None


def is_heavy_tailed(values: Floats) -> bool:
    """Return whether a logarithm is worth a thought, though there are zeros."""
    if not len(values) or values.min() != 0 or len(np.unique(values)) < 20:
        return False
    positive = values[values > 0]
    return bool(values.max() >= 10 * np.median(positive) and _skewness(values) > 2)


def _skewness(values: Floats) -> float:
    scaled = values / np.abs(values).max() if np.abs(values).max() > 0 else values
    centred = scaled - scaled.mean()
    deviation = centred.std()
    return float(np.mean((centred / deviation) ** 3)) if deviation > 1e-12 else 0.0


def deviation_of(values: Floats) -> float:
    """Return the standard deviation of values that are there, 1 where they do not vary."""
    present = values[~np.isnan(values)]
    size = float(np.abs(present).max()) if len(present) else 0.0
    if size == 0:
        return 1.0
    deviation = float((present / size).std())  # squares of large numbers overflow
    return deviation * size if deviation > 1e-12 else 1.0


def one(values: Floats) -> float:
    """Return 1: values are left in the units that they have."""
    return 1.0


def encode_values(
    plan: Plan, log_rule: str, unit: Callable[[Floats], float]
) -> NumberEncoding | YesNoEncoding | OrderEncoding:
    """Return the encoding of a number, of yes and no, or of levels in an order."""
    present = plan.values[~np.isnan(plan.values)]
    if plan.kind == "yes_no":
        return YesNoEncoding(unit(present))
    if plan.kind == "ordered":
        return OrderEncoding(plan.decision.order, unit(present))
    shift = log_shift(present, log_rule)
    if shift is not None:
        present = np.log(present + shift)
    return NumberEncoding(plan.decision.decimal, plan.decision.sentinels, shift, unit(present))


# ------------------------------------------------------------------------------- words


def summary(plan: Plan) -> str:
    """Return the range or the levels of a column, in words."""
    if plan.kind == "constant" and len(plan.levels) == 1:
        return f"always {quote(plan.levels[0])}"
    if plan.kind == "empty" or plan.cells.sort == "other":
        return ""
    if plan.kind == "yes_no" and len(plan.values):
        return f"yes {100 * np.nanmean(plan.values):.0f} %"
    if plan.kind in ("category", "constant"):
        total = max(int((plan.codes >= 0).sum()), 1)
        counts = np.bincount(plan.codes[plan.codes >= 0], minlength=len(plan.levels))
        shown = [
            f"{_short(level)} {100 * count / total:.0f} %"
            for level, count in zip(plan.levels, counts, strict=True)
        ][:_MOST_SHOWN]
        more = ", …" if len(plan.levels) > _MOST_SHOWN else ""
        return f"{len(plan.levels)} levels: {', '.join(shown)}{more}"
    if plan.kind == "ordered":
        return " < ".join(map(_short, plan.decision.order))
    present = plan.values[~np.isnan(plan.values)] if len(plan.values) else plan.values
    if not len(present):
        used = np.unique(plan.codes[plan.codes >= 0])
        return f"{len(used)} different, such as {quote(plan.levels[used[0]])}" if len(used) else ""
    low, high = float(present.min()), float(present.max())
    if plan.kind == "date":
        words = _clock if plan.decision.time_only else date_words
        return f"{words(low)} to {words(high)}"
    return f"{low:.6g} to {high:.6g}"


def _clock(share: float) -> str:
    minutes = round(share * 1440)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _short(level: str) -> str:
    return quote(level)[1:-1]


def becomes(plan: Plan, encoding: Encoding | None) -> str:
    """Return what becomes of a column, in words."""
    if encoding is None:
        return f"left out: {plan.decision.because}"
    if isinstance(encoding, CategoryEncoding):
        n = encoding.n_features
        joined = f", {len(encoding.joined)} rare levels joined" if encoding.joined else ""
        return f"{n} indicator column{'s' * (n > 1)}{joined}"
    if isinstance(encoding, DateEncoding):
        parts = [] if encoding.time_only else ["days"]
        parts += ["place in the year"] * (encoding.year is not None)
        parts += ["place in the day"] * (encoding.day is not None)
        return f"number, {' and '.join(parts)}"
    if isinstance(encoding, OrderEncoding):
        return "number, the place in the order"
    if isinstance(encoding, YesNoEncoding):
        return "number, 1 for yes and 0 for no"
    has_logarithm = isinstance(encoding, NumberEncoding) and encoding.shift is not None
    return "number, its logarithm" if has_logarithm else "number, as it is"
