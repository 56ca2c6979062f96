"""Columns that say what another one says already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sgpmic._types import Floats
from sgpmic.tables.conversions import Codes

# Any two rows lie on a line; ten hardly ever do by chance.
_FEWEST_ROWS = 10
_EXACTLY = 1e-9
# From this correlation on, a column is almost another one.
_ALMOST = 0.999
# Among more columns than these nothing is looked for that is almost a copy: it takes long.
_MOST_COLUMNS = 300
_MOST_ROWS = 5000


def find_linear(columns: Sequence[Floats]) -> list[tuple[int, bool] | None]:
    """Return for every column the one before it that it is a copy of, and whether exactly.

    A copy is missing in the same rows and a linear function of the other, such as a temperature
    in another unit. One that is correlated by .999 or more is almost a copy.
    """
    found: list[tuple[int, bool] | None] = [None] * len(columns)
    if not columns or len(columns[0]) < _FEWEST_ROWS:
        return found
    forms = [_standard_form(column) for column in columns]
    # A copy has the same product with any vector: only columns next to each other are compared.
    direction = np.random.default_rng(0).normal(size=len(columns[0]))
    products = np.asarray([form @ direction for form in forms])
    order = np.argsort(products, kind="stable")
    first: dict[int, int] = {}
    for place, j in enumerate(order):
        for i in reversed(order[:place]):
            if products[j] - products[i] > 1e-6 * (1 + abs(products[j])):
                break
            if np.allclose(forms[i], forms[j], rtol=0, atol=_EXACTLY) and _same_gaps(
                columns[i], columns[j]
            ):
                root = min(first.get(int(i), int(i)), int(i), int(j))
                first[int(i)] = first[int(j)] = root
    for j, root in first.items():
        if j != root:
            found[j] = (root, True)
    if len(columns) <= _MOST_COLUMNS:
        _find_almost(columns, found)
    return found


def find_renamed(columns: Sequence[Codes]) -> list[int | None]:
    """Return for every column of levels the first one with the same levels by other names."""
    seen: dict[bytes, int] = {}
    found: list[int | None] = []
    for j, codes in enumerate(columns):
        if len(codes) < _FEWEST_ROWS:
            found.append(None)
            continue
        # Levels numbered in the order in which they appear are the same whatever their names.
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        form = np.where(codes < 0, -1, rank[inverse]).tobytes()
        found.append(seen.get(form))
        seen.setdefault(form, j)
    return found


def _find_almost(columns: Sequence[Floats], found: list[tuple[int, bool] | None]) -> None:
    # Some of the rows are enough.
    step = max(1, len(columns[0]) // _MOST_ROWS)
    stacked = np.asarray([_standard_form(column[::step]) for column in columns])
    correlations = np.abs(stacked @ stacked.T)
    for j in range(len(columns)):
        for i in range(j):
            is_new = found[i] is None and found[j] is None
            if is_new and correlations[i, j] >= _ALMOST and _same_gaps(columns[i], columns[j]):
                found[j] = (i, False)


def _same_gaps(one: Floats, other: Floats) -> bool:
    return bool(np.array_equal(np.isnan(one), np.isnan(other)))


def _standard_form(column: Floats) -> Floats:
    """Return a column centered, of length 1, with a sign that does not depend on its own."""
    gaps = np.isnan(column)
    if gaps.all():
        return np.zeros(len(column))
    size = np.abs(column[~gaps]).max() or 1.0
    centered = np.where(gaps, 0.0, column / size)
    centered = np.where(gaps, 0.0, centered - centered[~gaps].mean())
    length = float(np.linalg.norm(centered))
    if length == 0.0:
        return centered
    form = centered / length
    return form if form[np.argmax(np.abs(form) > _EXACTLY)] > 0 else -form
