"""From column kinds to encodings: the steps of fitting a `TableEncoder`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from scipy.stats import skew

from sgpmic._types import Bools, Floats, Ints
from sgpmic._words import percent
from sgpmic.tables.cell_text import key
from sgpmic.tables.columns import (
    OTHER,
    YEAR,
    CategoryEncoding,
    Column,
    DateEncoding,
    Encoding,
    NumberEncoding,
    OrderEncoding,
    YesNoEncoding,
    circle,
    feature_names,
)
from sgpmic.tables.conversions import date_words, range_words
from sgpmic.tables.errors import quote, raise_wrong
from sgpmic.tables.kinds import MOST_CLASSES, MOST_RENAMED, Plan, least_count

_MOST_SHOWN = 4
# Any two rows lie on a line; ten rarely do by chance.
_FEWEST_FOR_COPY = 10
_EXACTLY = 1e-9
# Columns per call: a tradeoff between overhead per call and memory for copies.
_TOGETHER = 300
# A column with a larger share of missing cells carries little information.
_MOSTLY_MISSING = 0.8
# Criteria for a label: the mean share of the other columns' variance that it explains; how much of
# that a linear fit does not explain, if it is numeric; the minimum numbers of columns and rows; and
# how many columns to try first if there are very many.
_EXPLAINED, _NOT_LINEAR = 0.4, 0.1
_FEWEST_COLUMNS, _FEWEST_ROWS, _SOME_COLUMNS = 3, 30, 100
# Minimum variance of the phase: dates that all fall on one day of the year tell no season.
_SPREAD = 0.01


def leave_out_columns(plans: Sequence[Plan]) -> None:
    """Leave out undeclared columns that are mostly missing, look like labels, or are copies."""
    found = [plan for plan in plans if plan.is_kept and not plan.declared]
    for plan in found:
        share = float(plan.missing.mean())
        if share > _MOSTLY_MISSING and len(plan.missing) >= _FEWEST_ROWS:
            because = f"{percent(share, 0)} of its cells are missing"
            plan.leave_out(plan.kind, because, f"{because}; declare what it is to keep it")
    numbers = [plan for plan in plans if plan.is_kept and plan.is_number]
    some = None
    if len(numbers) > _TOGETHER:  # a subset suffices to rule out most candidates
        some = _moments([plan.values for plan in numbers[:: len(numbers) // _SOME_COLUMNS]])
    for plan in found:
        may_be_label = plan.is_kept and plan.kind in ("category", "whole")
        if may_be_label and (explained := _explained_as_label(plan, numbers, some)):
            plan.leave_out(
                plan.kind,
                "looks like a label",
                f"explains {percent(explained, 0)} of the variance of the other columns, as a "
                "label does; name it as the label, or declare it as a category"
                f"{' or a number' * (plan.kind == 'whole')} to keep it",
            )
    _leave_out_copies(plans)


def _leave_out_copies(plans: Sequence[Plan]) -> None:
    """Leave out columns that are copies of an earlier one.

    A copy has the same levels under other names, or is missing in the same rows and a linear
    function of the original, such as a temperature in another unit.
    """

    def leave_out(plan: Plan, original: str) -> None:
        if plan.declared:
            plan.warn(f"a copy of {original}, and kept")
        else:
            plan.leave_out("copy", f"a copy of {original}", f"redundant with {original}")

    kept = [plan for plan in plans if plan.is_kept and len(plan.values)]
    for j, first in _find_linear([plan.values for plan in kept]).items():
        leave_out(kept[j], quote(kept[first].name))
    seen: dict[bytes, Plan] = {}
    for plan in plans:
        few = plan.is_kept and 0 < len(plan.levels) <= MOST_RENAMED
        if not few or len(plan.codes) < _FEWEST_FOR_COPY:
            continue
        # Codes in order of first appearance do not depend on the names of the levels.
        _, start, inverse = np.unique(plan.codes, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(start))
        found = seen.setdefault(np.where(plan.codes < 0, -1, rank[inverse]).tobytes(), plan)
        if found is not plan and "category" in (found.kind, plan.kind):
            leave_out(plan, quote(found.name))


def _find_linear(columns: Sequence[Floats]) -> dict[int, int]:
    """Map the indices of linear copies of earlier columns to those of the originals."""
    if not columns or len(columns[0]) < _FEWEST_FOR_COPY:
        return {}
    parts = (columns[i : i + _TOGETHER] for i in range(0, len(columns), _TOGETHER))
    forms = np.concatenate([_standard_forms(np.asarray(part)) for part in parts])
    # Copies have equal random projections, so they are neighbors in the order of these.
    products = forms @ np.random.default_rng(0).normal(size=forms.shape[1])
    groups: list[list[int]] = [[]]
    for j in np.argsort(products, kind="stable").tolist():
        i = groups[-1][-1:]
        same = i and np.allclose(forms[i], forms[j], rtol=0, atol=_EXACTLY)
        if same and np.array_equal(np.isnan(columns[i[0]]), np.isnan(columns[j])):
            groups[-1].append(j)
        else:
            groups.append([j])
    return {j: min(group) for group in groups for j in group if j != min(group)}


def _standard_forms(columns: Floats) -> Floats:
    """Center each row, scale it to unit norm, and make its first nonzero entry positive."""
    forms = _centered(columns)[1]
    length = np.linalg.norm(forms, axis=1, keepdims=True)
    forms /= np.where(length > 0, length, 1.0)
    first = np.argmax(np.abs(forms) > _EXACTLY, axis=1, keepdims=True)
    return forms * np.where(np.take_along_axis(forms, first, axis=1) > 0, 1.0, -1.0)


def _centered(columns: Floats) -> tuple[Bools, Floats]:
    """Return the mask of observed cells, and their centered values, 0 where missing."""
    known = ~np.isnan(columns)
    y = np.where(known, columns, 0.0)
    # At most 1 in magnitude, so that squares neither overflow nor cancel.
    y /= np.maximum(np.abs(y).max(axis=1, keepdims=True), np.finfo(float).tiny)
    y -= y.sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
    y[~known] = 0.0
    return known, y


def _explained_as_label(plan: Plan, numbers: Sequence[Plan], some: Floats | None) -> float:
    """Return the share of the other columns' variance that a label explains; 0 if not a label."""
    n_levels = len(np.unique(plan.codes[plan.codes >= 0]))
    if not 2 <= n_levels <= MOST_CLASSES or len(plan.codes) < max(_FEWEST_ROWS, 5 * n_levels):
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
    """Stack the mask of observed cells, their centered values, and the squares of these."""
    known, y = _centered(np.asarray(columns))
    return np.stack([known, y, y**2])


def _explained(moments: Floats, codes: Ints) -> Floats:
    """Return the between-group share of every column's variance (eta squared, bias-corrected)."""
    rows = np.argsort(codes, kind="stable")[(codes < 0).sum() :]
    starts = np.unique(codes[rows], return_index=True)[1]
    # A matrix product with group indicators would be several times slower.
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


def choose_encodings(
    plans: Sequence[Plan], log: str | bool | Sequence[str], min_frequency: float
) -> bool:
    """Choose the encodings of kept columns; return whether they bring them to a common unit."""
    kept = [plan for plan in plans if plan.is_kept]
    for plan in kept:
        if plan.kind == "category":
            plan.encoding = _join_rare(plan, min_frequency)
    rare = {plan for plan in kept if plan.encoding is None or _is_rare(plan, min_frequency)}
    mixed = any(
        plan.has_levels or (plan.kind == "date" and _encode_date(plan).n_features > 1)
        for plan in set(kept) - rare
    )
    named = () if isinstance(log, str | bool) else log
    wrong = []
    for plan in plans:
        asked = plan.log or plan.name in named
        rule = "yes" if asked or log is True else "no"
        if isinstance(log, str) and not plan.declared:  # declared numbers are not transformed
            rule = "auto"
        if plan in rare and (mixed or plan.has_levels):
            kind, because = "constant", f"almost always {quote(plan.levels[0])}"
            if 2 * (plan.codes == 0).sum() < (plan.codes >= 0).sum():
                kind, because = plan.kind, "all levels are rare (below min_frequency)"
            plan.leave_out(kind, because, f"declared, but {because}" * plan.declared)
        elif plan.is_kept and plan.kind != "category":
            plan.encoding = _encode(plan, rule, mixed)
        what = ""
        if not (plan.is_kept and plan.is_number):
            what = "is not a number and has no logarithm"
        elif isinstance(plan.encoding, NumberEncoding) and plan.encoding.shift is None:
            what = "has values below 0, which have no logarithm"
        if asked and what:
            wrong.append((plan.name, f"{what}: remove it from log"))
    raise_wrong(wrong)
    return mixed


def _join_rare(plan: Plan, min_frequency: float) -> CategoryEncoding | None:
    """Return the encoding of a category, or None if only one level would be left."""
    present = plan.codes[plan.codes >= 0]
    counts = np.bincount(present, minlength=len(plan.levels))
    is_pair = plan.declared and len(counts) == 2  # which keeps both
    least = 1 if is_pair else least_count(len(present), min_frequency)
    # A level named "other" absorbs the rare ones.
    named = next((i for i, level in enumerate(plan.levels) if key(level) == OTHER), None)
    rare = np.flatnonzero(counts < least).tolist()
    if rare and named is not None and named not in rare:
        rare.append(named)
    # If they are too few together, the rarest of the others joins them.
    while rare and counts[rare].sum() < least and len(rare) < len(counts):
        rare.insert(0, max(set(range(len(counts))) - set(rare)))
    kept = [i for i in range(len(counts)) if i not in rare]
    if len(kept) + bool(rare) < 2:
        return None
    sizes = [*counts[kept], counts[rare].sum()] if rare else counts[kept]
    return CategoryEncoding(
        levels=tuple(plan.levels[i] for i in kept),
        joined=tuple(plan.levels[i] for i in sorted(rare)),
        shares=tuple(float(size / len(present)) for size in sizes),
    )


def _is_rare(plan: Plan, min_frequency: float) -> bool:
    """Return whether nearly all cells of a yes/no column are equal."""
    # Once standardized, the few others would be extreme outliers.
    if plan.kind != "yes_no" or plan.declared:
        return False
    present = plan.present
    n_rarer = min(present.sum(), len(present) - present.sum())
    return bool(n_rarer < least_count(len(present), min_frequency))


def _encode_date(plan: Plan, mixed: bool = False) -> DateEncoding:
    """Return the encoding of dates: as days, and as phases of the periods that they span twice."""
    days, times = plan.present, plan.is_time
    span = float(np.ptp(days))
    year = _circle_size(days, YEAR) if span >= 2 * YEAR and not times else None
    day = None
    if times or (span >= 2 and (days != np.round(days)).any()):
        day = _circle_size(days, 1.0) or (1.0 if times else None)
    assert isinstance(plan.encoding, DateEncoding)
    return replace(plan.encoding, divisor=_unit(days, mixed), year=year, day=day)


def _circle_size(days: Floats, period: float) -> float | None:
    """Return the square root of the total variance of sine and cosine, None if negligible."""
    variance = float(circle(days, period).var(axis=0).sum())
    return variance**0.5 if variance > _SPREAD else None


def _log_shift(values: Floats, rule: str) -> tuple[float | None, bool]:
    """Return what to add before the logarithm (None: take none), and whether to suggest one."""
    if rule == "no" or not len(values) or values.min() < 0 or values.max() <= 0:
        return None, False
    positive = values[values > 0]
    has_zeros = len(positive) < len(values)
    if rule == "yes":
        return (float(positive.min()) / 2 if has_zeros else 0.0), False
    if len(np.unique(values)) < 20 or values.max() < 10 * np.median(positive):
        return None, False
    skewness = skew(values / values.max())  # squares of small numbers underflow
    if skewness <= 2 or has_zeros:
        return None, bool(skewness > 2)
    return (0.0 if skewness >= 2 * abs(skew(np.log(values))) else None), False


def _unit(values: Floats, mixed: bool) -> float:
    """Return the divisor of values: their standard deviation if ``mixed`` and not 0, else 1."""
    size = float(np.abs(values).max()) if mixed and len(values) else 0.0
    if size == 0:
        return 1.0
    deviation = float((values / size).std())  # squares of large numbers overflow
    return deviation * size if deviation > 1e-12 else 1.0


def _encode(plan: Plan, log_rule: str, mixed: bool) -> Encoding:
    present, encoding = plan.present, plan.encoding
    if isinstance(encoding, DateEncoding):
        return _encode_date(plan, mixed)
    if isinstance(encoding, YesNoEncoding | OrderEncoding):
        return replace(encoding, divisor=_unit(present, mixed))
    assert isinstance(encoding, NumberEncoding)
    shift, in_doubt = _log_shift(present, log_rule)
    plan.warn("has a long tail and zeros; its logarithm may work better" if in_doubt else "")
    unit = _unit(present if shift is None else np.log(present + shift), mixed)
    return replace(encoding, shift=shift, divisor=unit)


def describe_columns(plans: Sequence[Plan], encodings: Sequence[Encoding | None]) -> list[Column]:
    """Describe every column for the user."""
    names = iter(feature_names([plan.name for plan in plans], encodings))
    return [
        Column(
            name=plan.name,
            kind=plan.kind,
            summary=_summary(plan),
            n_missing=int(plan.missing.sum()),
            n_rows=len(plan.codes),
            becomes=encoding.becomes if encoding else f"left out: {plan.because}",
            warning="; ".join(plan.warnings) or None,
            features=tuple(islice(names, encoding.n_features if encoding else 0)),
        )
        for plan, encoding in zip(plans, encodings, strict=True)
    ]


def _summary(plan: Plan) -> str:
    if plan.kind == "constant" and len(plan.levels) == 1:
        return f"always {quote(plan.levels[0])}"
    if plan.kind == "empty" or plan.cells.holds == "other":
        return ""
    if plan.kind == "yes_no" and len(plan.values):
        return f"yes {percent(float(np.nanmean(plan.values)), 0)}"
    if plan.kind == "ordered":
        return " < ".join(quote(level)[1:-1] for level in plan.order)
    used = plan.codes[plan.codes >= 0]
    if plan.kind in ("category", "constant"):
        counts = np.bincount(used, minlength=len(plan.levels)).tolist()
        shown = [
            f"{quote(level)[1:-1]} {percent(count / max(len(used), 1), 0)}"
            for level, count in zip(plan.levels, counts, strict=True)
        ][:_MOST_SHOWN]
        more = ", …" if len(plan.levels) > _MOST_SHOWN else ""
        return f"{len(plan.levels)} levels: {', '.join(shown)}{more}"
    if not len(plan.present):
        different = [plan.levels[i] for i in np.unique(used)]
        return f"{len(different)} distinct, such as {quote(different[0])}" if different else ""
    low, high = float(plan.present.min()), float(plan.present.max())
    if not isinstance(plan.encoding, DateEncoding):  # the kind may be "copy"
        return range_words(low, high)
    if plan.is_time:
        clocks = (divmod(round(fraction * 1440), 60) for fraction in (low, high))
        return " to ".join(f"{hour:02d}:{minute:02d}" for hour, minute in clocks)
    return f"{date_words(low)} to {date_words(high)}"
