"""From what columns are to how they are encoded: the steps of fitting a `TableEncoder`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sgpmic._types import Bools, Floats
from sgpmic.tables.cell_text import key
from sgpmic.tables.conversions import Cells, Codes
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
from sgpmic.tables.errors import BadCells, quote, raise_wrong
from sgpmic.tables.kinds import Decision, least_count, values_of

# Columns with more values than these are not compared as renamed categories.
_MOST_RENAMED = 50
# Any two rows lie on a line; ten hardly ever do by chance.
_FEWEST_FOR_COPY = 10
_EXACTLY = 1e-9
# From this correlation on, a column is almost another one. Among more columns than these nothing
# is looked for that is almost a copy, because it takes long, and no more than some of the rows.
_ALMOST, _MOST_COLUMNS, _MOST_ROWS = 0.999, 300, 5000
# Columns that one call takes: each call takes some time of its own, and their copies some memory.
_TOGETHER = 300
# A column of which a larger share of the cells is missing says little.
_MOSTLY_MISSING = 0.8
# A label: its levels, the other columns' share of variance that it explains on average, how much of
# that no straight line explains where it is written in numbers, the fewest columns and rows, and
# how many of very many columns are looked at first.
_MOST_CLASSES, _EXPLAINED, _NOT_LINEAR = 20, 0.4, 0.1
_FEWEST_COLUMNS, _FEWEST_ROWS, _SOME_COLUMNS = 3, 30, 100
# Dates tell a season only if they are spread over it, not if all are of one day of the year.
_SPREAD = 0.01


@dataclass(frozen=True, kw_only=True)
class Plan(Decision):
    """A column with its cells read, on its way to an encoding."""

    name: str
    cells: Cells
    declared: bool  # whether the user has declared its kind
    values: Floats  # numbers, days, places in an order; NaN where missing, empty for other kinds
    levels: tuple[str, ...]  # of a category, the most frequent first
    codes: Codes  # every cell's index among them

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

    def leave_out(self, kind: str, because: str, warning: str = "") -> Plan:
        """Return this column, left out."""
        return replace(self, kind=kind, because=because).warn(warning)


def make_plan(name: str, cells: Cells, decision: Decision, declared: bool) -> Plan:
    """Return a column with its cells read."""
    values: Floats = np.empty(0)
    order = tuple(map(key, decision.order))
    if decision.kind in ("number", "whole", "date", "yes_no") and not decision.wrong:
        found = values_of(cells, decision)
        assert not isinstance(found, BadCells)  # else it would be wrong
        values = found
    levels: tuple[str, ...] = ()
    # Many different numbers have no use for levels, which take long to write.
    if len(np.unique(values[~np.isnan(values)])) > _MOST_RENAMED:
        codes = np.where(np.isnan(values), -1, 0)
    else:
        levels, codes = cells.read_levels(order)
        if decision.kind not in ("text", "id"):
            levels, codes = _merge_spellings(levels, codes)
    if decision.kind == "ordered":
        places = {level: float(i) for i, level in enumerate(order)}
        values = np.asarray([*(places.get(key(level), np.nan) for level in levels), np.nan])[codes]
    return Plan(
        **vars(decision),
        name=name,
        cells=cells,
        declared=declared,
        values=values,
        levels=levels,
        codes=codes,
    )


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
    """Return columns, those left out that are copies of one before them.

    A copy has the same levels with other names; or is missing in the same rows and a linear
    function of the other, such as a temperature in another unit.
    """
    done = list(plans)
    kept = [j for j, plan in enumerate(plans) if plan.is_kept and len(plan.values)]
    for place, (first, exactly) in _find_linear([plans[j].values for j in kept]).items():
        plan, original = plans[kept[place]], quote(plans[kept[first]].name)
        almost = f"almost a copy of {original}"
        done[kept[place]] = _as_copy(plan, original) if exactly else plan.warn(almost)
    seen: dict[bytes, Plan] = {}
    for j, plan in enumerate(done):
        if not plan.is_kept or not 0 < len(plan.levels) <= _MOST_RENAMED:
            continue
        if len(plan.codes) < _FEWEST_FOR_COPY:
            continue
        # Levels numbered in the order in which they appear are the same whatever their names.
        _, start, inverse = np.unique(plan.codes, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(start))
        found = seen.setdefault(np.where(plan.codes < 0, -1, rank[inverse]).tobytes(), plan)
        if found is not plan and "category" in (found.kind, plan.kind):
            done[j] = _as_copy(plan, quote(found.name))
    return done


def _as_copy(plan: Plan, original: str) -> Plan:
    if plan.declared:
        return plan.warn(f"a copy of {original}, and kept")
    return plan.leave_out("copy", f"a copy of {original}", f"says the same as {original}")


def _find_linear(columns: Sequence[Floats]) -> dict[int, tuple[int, bool]]:
    """Return the columns that are copies of one before them: of which, and whether exactly.

    One that is correlated by .999 or more is almost a copy.
    """
    if not columns or len(columns[0]) < _FEWEST_FOR_COPY:
        return {}
    forms = np.empty((len(columns), len(columns[0])))
    for start in range(0, len(columns), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        forms[some] = _standard_forms(np.asarray(columns[some]))
    # A copy has the same product with any vector: only columns next to each other are compared.
    products = forms @ np.random.default_rng(0).normal(size=forms.shape[1])
    order = np.argsort(products, kind="stable").tolist()
    first: dict[int, int] = {}
    for place, j in enumerate(order):
        for i in reversed(order[:place]):
            if products[j] - products[i] > 1e-6 * (1 + abs(products[j])):
                break
            same = np.allclose(forms[i], forms[j], rtol=0, atol=_EXACTLY)
            if same and _same_gaps(columns[i], columns[j]):
                first[i] = first[j] = min(first.get(i, i), i, j)
    found = {j: (root, True) for j, root in first.items() if j != root}
    if len(columns) > _MOST_COLUMNS:
        return found
    step = max(1, len(columns[0]) // _MOST_ROWS)
    stacked = _standard_forms(np.asarray(columns)[:, ::step])
    for j, i in np.argwhere(np.tril(np.abs(stacked @ stacked.T) >= _ALMOST, -1)).tolist():
        if i not in found and j not in found and _same_gaps(columns[i], columns[j]):
            found[j] = (i, False)
    return found


def _same_gaps(one: Floats, other: Floats) -> bool:
    return bool(np.array_equal(np.isnan(one), np.isnan(other)))


def _standard_forms(columns: Floats) -> Floats:
    """Return rows, one a column, centered, of length 1, with signs that do not depend on theirs."""
    gaps = np.isnan(columns)
    forms = np.where(gaps, 0.0, columns)
    size = np.abs(forms).max(axis=1, keepdims=True)
    forms /= np.where(size > 0, size, 1.0)
    forms -= forms.sum(axis=1, keepdims=True) / np.maximum((~gaps).sum(axis=1, keepdims=True), 1)
    forms[gaps] = 0.0
    length = np.linalg.norm(forms, axis=1, keepdims=True)
    forms /= np.where(length > 0, length, 1.0)
    first = np.argmax(np.abs(forms) > _EXACTLY, axis=1, keepdims=True)
    return forms * np.where(np.take_along_axis(forms, first, axis=1) > 0, 1.0, -1.0)


# ------------------------------------------------------------------------------- no measurements


def leave_out_no_measurements(plans: Sequence[Plan]) -> list[Plan]:
    """Return columns, those left out that are mostly missing, or look like the rows' labels.

    Columns that the user has declared stay.
    """
    done = list(plans)
    for j, plan in enumerate(done):
        share = float(plan.missing.mean())
        if plan.declared or not plan.is_kept or len(plan.missing) < _FEWEST_ROWS:
            continue
        if share > _MOSTLY_MISSING:
            because = f"{100 * share:.0f} % of its cells are missing"
            warning = f"{because}; declare what it is to keep it"
            done[j] = plan.leave_out(plan.kind, because, warning)
    numbers = [plan for plan in done if plan.is_kept and plan.is_number]
    some = None
    if len(numbers) > _MOST_COLUMNS:  # some of them tell where there is nothing to find
        some = _moments([plan.values for plan in numbers[:: len(numbers) // _SOME_COLUMNS]])
    for j, plan in enumerate(done):
        if plan.declared or not plan.is_kept or plan.kind not in ("category", "whole"):
            continue
        explained = _explained_as_label(plan, numbers, some)
        if explained:
            done[j] = plan.leave_out(
                plan.kind,
                "looks like a label",
                f"explains {100 * explained:.0f} % of the variance of the other columns, as a "
                "label does; name it as the label, or declare it as a category to keep it",
            )
    return done


def _explained_as_label(plan: Plan, numbers: Sequence[Plan], some: Floats | None) -> float:
    """Return the share of the other columns' variance that a label explains; 0 if it is none."""
    n_levels = len(np.unique(plan.codes[plan.codes >= 0]))
    if not 2 <= n_levels <= _MOST_CLASSES or len(plan.codes) < max(_FEWEST_ROWS, 5 * n_levels):
        return 0.0
    if some is not None and _explained(some, plan.codes).mean() < _EXPLAINED / 2:
        return 0.0
    others = [other.values for other in numbers if other is not plan]
    if len(others) < _FEWEST_COLUMNS:
        return 0.0
    parts = (others[i : i + _TOGETHER] for i in range(0, len(others), _TOGETHER))
    shares = [_explained(_moments(part), plan.codes) for part in parts]
    explained = float(np.concatenate(shares).mean())
    if explained < _EXPLAINED:
        return 0.0
    if plan.kind == "whole":  # a count may correlate with the others, but linearly
        linear = [_squared_correlation(other, plan.values) for other in others]
        if explained - np.mean(linear) < _NOT_LINEAR:
            return 0.0
    return explained


def _moments(columns: Sequence[Floats]) -> Floats:
    """Return, of every cell of columns, whether it is known, its value and its square.

    Values are centered and at most 1 in size, so that squares neither overflow nor cancel.
    """
    table = np.asarray(columns)
    known = ~np.isnan(table)
    y = np.where(known, table, 0.0)
    y /= np.maximum(np.abs(y).max(axis=1, keepdims=True), np.finfo(float).tiny)
    y -= y.sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
    y[~known] = 0.0
    return np.stack([known, y, y**2])


def _explained(moments: Floats, codes: Codes) -> Floats:
    """Return columns' shares of variance between groups (eta squared), less what chance gives."""
    rows = np.argsort(codes, kind="stable")[(codes < 0).sum() :]
    starts = np.unique(codes[rows], return_index=True)[1]
    # Products with indicators of the groups would take several times as long.
    counts, sums, squares = np.add.reduceat(moments[:, :, rows], starts, axis=2)
    n, n_groups = counts.sum(axis=1), (counts > 0).sum(axis=1)
    of_mean = sums.sum(axis=1) ** 2 / np.maximum(n, 1)
    total = squares.sum(axis=1) - of_mean
    varies = (total > 1e-12 * squares.sum(axis=1)) & (n > n_groups)
    between = (sums**2 / np.maximum(counts, 1)).sum(axis=1) - of_mean
    within = 1 - between / np.where(varies, total, 1.0)
    share = 1 - within * (n - 1) / np.where(varies, n - n_groups, 1)
    return np.where(varies, np.maximum(share, 0.0), 0.0)


def _squared_correlation(one: Floats, other: Floats) -> float:
    known = ~np.isnan(one) & ~np.isnan(other)
    a, b = one[known] - one[known].mean(), other[known] - other[known].mean()
    size = float((a**2).sum() * (b**2).sum())
    return float((a @ b) ** 2) / size if size > 0 else 0.0


# ------------------------------------------------------------------------------- encodings


def choose_encodings(
    plans: Sequence[Plan], log: str | bool | Sequence[str], min_frequency: float
) -> tuple[list[Plan], list[Encoding | None], bool]:
    """Return the columns, their encodings, and whether these bring the table to one unit.

    Encodings are None for columns that are left out. ``log`` and ``min_frequency`` are those of
    :class:`~sgpmic.TableEncoder`.
    """
    found = list(plans)
    encodings: list[Encoding | None] = [None] * len(found)
    for j, plan in enumerate(found):
        is_rare = plan.has_levels and _is_rare(plan, min_frequency)
        if plan.is_kept and plan.kind == "category":
            encodings[j] = _join_rare(plan, min_frequency)
            is_rare = encodings[j] is None
        if is_rare:
            found[j] = _as_almost_constant(plan)
    mixed = any(
        plan.has_levels
        or (plan.is_kept and plan.kind == "date" and _encode_date(plan).n_features > 1)
        for plan in found
    )
    for j, plan in enumerate(found):
        if not plan.is_kept or plan.kind == "category":
            continue
        if plan.kind == "date":
            encodings[j] = _encode_date(plan, mixed)
        elif mixed and _is_rare(plan, min_frequency):
            found[j] = _as_almost_constant(plan)
        else:
            rule = _log_rule(plan, log)
            encodings[j] = _encode_values(plan, rule, mixed)
            if rule == "auto" and plan.is_number and _is_heavy_tailed(plan.present):
                found[j] = plan.warn("has a long tail, and zeros; its logarithm may serve better")
    _check_logarithms(found, encodings, () if isinstance(log, str | bool) else log)
    return found, encodings, mixed


def _as_almost_constant(plan: Plan) -> Plan:
    return plan.leave_out("constant", f"almost always {quote(plan.levels[0])}")


def _log_rule(plan: Plan, log: str | bool | Sequence[str]) -> str:
    if plan.log:
        return "yes"
    if isinstance(log, str):
        return "no" if plan.declared else log  # a declared number stays as it is
    chosen = log if isinstance(log, bool) else plan.name in log
    return "yes" if chosen else "no"


def _join_rare(plan: Plan, min_frequency: float) -> CategoryEncoding | None:
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
    rare = list(range(n_kept, len(counts)))
    if rare and named is not None and named not in rare:
        rare.append(named)
    while rare and counts[rare].sum() < least and len(rare) < len(counts):
        rare.insert(0, max(set(range(len(counts))) - set(rare)))
    kept = [i for i in range(len(counts)) if i not in rare]
    if len(kept) + bool(rare) < 2:
        return None
    if len(rare) == 1:  # one level by itself keeps its name
        kept, rare = [*kept, *rare], []
    sizes = [*counts[kept], counts[rare].sum()] if rare else counts[kept]
    return CategoryEncoding(
        levels=tuple(plan.levels[i] for i in kept),
        joined=tuple(plan.levels[i] for i in sorted(rare)),
        shares=tuple(float(size / len(present)) for size in sizes),
    )


def _is_rare(plan: Plan, min_frequency: float) -> bool:
    """Return whether nearly all cells say yes, or nearly all no.

    In a table of one unit the few others would be as far away as nothing else.
    """
    if plan.kind != "yes_no" or plan.declared:
        return False
    present = plan.present
    n_rarer = min(present.sum(), len(present) - present.sum())
    return bool(n_rarer < least_count(len(present), min_frequency))


def _encode_date(plan: Plan, mixed: bool = False) -> DateEncoding:
    """Return the encoding of a date.

    The place in the year is encoded where the dates span two years or more, that in the day where
    there are times and they span two days or more. Both only where dates are spread over them.
    """
    days, times = plan.present, plan.time_only
    span = float(np.ptp(days))
    year = _circle_size(days, YEAR) if span >= 2 * YEAR and not times else None
    day = None
    if times or (span >= 2 and (days != np.round(days)).any()):
        day = _circle_size(days, 1.0) or (1.0 if times else None)
    return DateEncoding(plan.day_first, times, _unit(days, mixed), year, day)


def _circle_size(days: Floats, period: float) -> float | None:
    """Return the root of what sine and cosine vary by together, None for almost nothing."""
    variance = float(circle(days, period).var(axis=0).sum())
    return variance**0.5 if variance > _SPREAD else None


def _log_shift(values: Floats, rule: str) -> float | None:
    """Return what to add before the logarithm, or None for no logarithm.

    The rules 'auto' and 'yes' are those of ``log`` of :class:`~sgpmic.TableEncoder`.
    """
    if rule == "no" or not len(values) or values.min() < 0 or values.max() <= 0:
        return None
    if rule == "yes":
        return 0.0 if values.min() > 0 else float(values[values > 0].min()) / 2
    if values.min() == 0 or len(np.unique(values)) < 20 or values.max() < 10 * np.median(values):
        return None
    skewness = _skewness(values)
    return 0.0 if skewness > 2 and skewness >= 2 * abs(_skewness(np.log(values))) else None


def _is_heavy_tailed(values: Floats) -> bool:
    """Return whether a logarithm is worth a thought, though there are zeros."""
    if not len(values) or values.min() != 0 or len(np.unique(values)) < 20:
        return False
    positive = values[values > 0]
    return bool(values.max() >= 10 * np.median(positive) and _skewness(values) > 2)


def _skewness(values: Floats) -> float:
    scaled = values / np.abs(values).max() if np.abs(values).max() > 0 else values
    centered = scaled - scaled.mean()
    deviation = centered.std()
    return float(np.mean((centered / deviation) ** 3)) if deviation > 1e-12 else 0.0


def _unit(values: Floats, mixed: bool) -> float:
    """Return what values are divided by: their standard deviation, in a table of one unit.

    It is 1 in other tables, and for values that do not vary.
    """
    size = float(np.abs(values).max()) if mixed and len(values) else 0.0
    if size == 0:
        return 1.0
    deviation = float((values / size).std())  # squares of large numbers overflow
    return deviation * size if deviation > 1e-12 else 1.0


def _encode_values(
    plan: Plan, log_rule: str, mixed: bool
) -> NumberEncoding | YesNoEncoding | OrderEncoding:
    """Return the encoding of a number, of yes and no, or of levels in an order."""
    present = plan.present
    if plan.kind == "yes_no":
        return YesNoEncoding(_unit(present, mixed))
    if plan.kind == "ordered":
        return OrderEncoding(plan.order, _unit(present, mixed))
    shift = _log_shift(present, log_rule)
    if shift is not None:
        present = np.log(present + shift)
    decimal, sentinels = plan.decimal, plan.sentinels
    return NumberEncoding(decimal, sentinels, shift, _unit(present, mixed))


def _check_logarithms(
    plans: Sequence[Plan], encodings: Sequence[Encoding | None], log: Sequence[str]
) -> None:
    """Raise for columns that are to become their logarithms and have none."""
    wrong = []
    for plan, encoding in zip(plans, encodings, strict=True):
        if not plan.log and plan.name not in log:
            continue
        what = ""
        if not (plan.is_kept and plan.is_number):
            what = "is not a number and has no logarithm"
        elif isinstance(encoding, NumberEncoding) and encoding.shift is None:
            what = "has values below 0, which have no logarithm"
        if what:
            wrong.append((plan.name, f"{what}: take it out of log"))
    raise_wrong(wrong)
