"""Columns and rows in the user's terms: kinds, numbers in their own units, levels by their names.

Rows follow from the encoded table, which a model file, a process with some of the rows and a report
all have; the table itself they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgpmic._types import Floats
from sgpmic.storage.model_file import check_kinds
from sgpmic.tables.conversions import Codes, date_words
from sgpmic.tables.encodings import DateEncoding, Encoding, WordEncoding
from sgpmic.tables.errors import quote
from sgpmic.tables.kinds import FOUND_KINDS
from sgpmic.tables.plans import Plan

if TYPE_CHECKING:
    from sgpmic.tables.encoder import TableEncoder

# Levels that a summary names.
_MOST_SHOWN = 4
# A column can name the rows where so many cells are different, and so short on average.
_DIFFERENT, _LONGEST_NAME = 0.9, 60
# The types of the stored fields of a column.
_STORED = {
    **dict.fromkeys(("name", "kind", "summary", "becomes"), str),
    **dict.fromkeys(("n_missing", "n_rows"), int),
    "warning": (None, str),
    "features": [str],
}


@dataclass(frozen=True)
class Column:
    """A column of the user's table, and what was made of it.

    Attributes
    ----------
    name : str
    kind : str
        'number', 'whole', 'yes_no', 'ordered', 'category', 'date', 'text', 'id', 'constant',
        'copy' or 'empty'.
    summary : str
        Its range or levels, in words.
    n_missing, n_rows : int
        Cells without a value, and all.
    becomes : str
        What becomes of it, in words.
    warning : str or None
        What the user should check.
    features : tuple of str
        The names of its encoded features; none where it is left out.
    """

    name: str
    kind: str
    summary: str
    n_missing: int
    n_rows: int
    becomes: str
    warning: str | None
    features: tuple[str, ...]


def describe_columns(
    plans: Sequence[Plan], encodings: Sequence[Encoding | None], n_rows: int
) -> list[Column]:
    """Return what is said about every column; encodings are None for those left out."""
    names = iter(feature_names([plan.name for plan in plans], encodings))
    return [
        Column(
            name=plan.name,
            kind=plan.kind,
            summary=_summary(plan),
            n_missing=int(plan.missing.sum()),
            n_rows=n_rows,
            becomes=encoding.becomes if encoding else f"left out: {plan.because}",
            warning="; ".join(plan.warnings) or None,
            features=tuple(islice(names, encoding.n_features if encoding else 0)),
        )
        for plan, encoding in zip(plans, encodings, strict=True)
    ]


def used_names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns that become features."""
    return [column.name for column in columns if column.features]


def naming_column(columns: Mapping[str, Sequence[str]]) -> str | None:
    """Return the first column that is short and hardly ever the same, words before numbers."""
    found = []
    for name, words in columns.items():
        differ = len(set(words)) >= _DIFFERENT * len(words)
        if differ and sum(map(len, words)) <= _LONGEST_NAME * len(words):
            found.append((not any(map(str.isalpha, "".join(words))), name))
    return min(found, key=lambda one: one[0])[1] if found else None


def feature_names(names: Sequence[str], encodings: Sequence[Encoding | None]) -> list[str]:
    """Return the names of all features, which are different; ``names`` are the columns'."""
    taken: set[str] = set()
    found = []
    for column, encoding in zip(names, encodings, strict=True):
        for name in encoding.feature_names(column) if encoding is not None else ():
            # A column may be named like a level of another.
            new, number = name, 2
            while new in taken:
                new, number = f"{name} ({number})", number + 1
            taken.add(new)
            found.append(new)
    return found


def column_from_dict(entry: Mapping[str, Any], encoding: Encoding | None) -> Column:
    """Return a stored column, checked; a ValueError where it is damaged."""
    check_kinds(entry, _STORED)
    found = {name: entry[name] for name in _STORED}
    if found["kind"] not in FOUND_KINDS:
        raise ValueError(f"there is no kind {found['kind']!r:.40}")
    if found["n_missing"] < 0 or found["n_rows"] < 0:
        raise ValueError("the numbers of cells must not be negative")
    if len(found["features"]) != (0 if encoding is None else encoding.n_features):
        raise ValueError(f"column {found['name']!r:.40} has {len(found['features'])} feature names")
    return Column(**{**found, "features": tuple(found["features"])})


def _summary(plan: Plan) -> str:
    """Return the range or the levels of a column, in words."""
    if plan.kind == "constant" and len(plan.levels) == 1:
        return f"always {quote(plan.levels[0])}"
    if plan.kind == "empty" or plan.cells.holds == "other":
        return ""
    if plan.kind == "yes_no" and len(plan.values):
        return f"yes {100 * np.nanmean(plan.values):.0f} %"
    if plan.kind == "ordered":
        return " < ".join(quote(level)[1:-1] for level in plan.order)
    used = plan.codes[plan.codes >= 0]
    if plan.kind in ("category", "constant"):
        counts = np.bincount(used, minlength=len(plan.levels)).tolist()
        shown = [
            f"{quote(level)[1:-1]} {100 * count / max(len(used), 1):.0f} %"
            for level, count in zip(plan.levels, counts, strict=True)
        ][:_MOST_SHOWN]
        more = ", …" if len(plan.levels) > _MOST_SHOWN else ""
        return f"{len(plan.levels)} levels: {', '.join(shown)}{more}"
    if not len(plan.present):
        different = [plan.levels[i] for i in np.unique(used)]
        return f"{len(different)} different, such as {quote(different[0])}" if different else ""
    low, high = float(plan.present.min()), float(plan.present.max())
    if plan.kind != "date":
        return f"{low:.6g} to {high:.6g}"
    words = _clock if plan.time_only else date_words
    return f"{words(low)} to {words(high)}"


def _clock(fraction: float) -> str:
    minutes = round(fraction * 1440)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


# ------------------------------------------------------------------------------- rows


class Levels(NamedTuple):
    """A column of words."""

    name: str
    levels: tuple[str, ...]
    codes: Codes  # (n_rows,): the place of every row's level, -1 where it is missing


class Description(NamedTuple):
    """Rows as their user knows them."""

    names: tuple[str, ...]  # the columns of numbers
    numbers: Floats  # (n_rows, n_numbers): NaN where missing; of dates, days since 1970, or hours
    dates: tuple[str, ...]  # those of the columns of numbers that are dates
    categories: tuple[Levels, ...]  # the columns of words


def kind_words(kind: str) -> str:
    """Return a kind of column as it is written: yes/no, whole number."""
    return {"yes_no": "yes/no", "whole": "whole number"}.get(kind, kind)


def describe(encoder: TableEncoder, values: Floats) -> Description:
    """Return rows that a fitted encoder's ``transform`` returned in the user's words.

    Rare levels that were joined stay so, and levels that were not seen in fit are missing.
    """
    numbers: dict[str, Floats] = {}
    dates: list[str] = []
    categories: list[Levels] = []
    for j, encoding, features in encoder.features_by_column(values):
        name = encoder.columns_[j].name
        if isinstance(encoding, WordEncoding):
            categories.append(Levels(name, encoding.words, encoding.codes(features)))
        elif not isinstance(encoding, DateEncoding):
            numbers[name] = encoding.decode(features)
        elif encoding.time_only:
            numbers[name] = 24.0 * encoding.days(features)
        else:
            numbers[name] = encoding.days(features)
            dates.append(name)
    table = np.column_stack(list(numbers.values())) if numbers else np.empty((len(values), 0))
    return Description(tuple(numbers), table, tuple(dates), tuple(categories))
