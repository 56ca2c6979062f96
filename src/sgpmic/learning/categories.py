"""Tables with categories, as the committee and the start see them: by their principal factors.

Categories are one-hot encoded (:class:`sgpmic.TableEncoder`), so rows form an island for every
combination of levels, and to a neighbor graph the levels of a single category look like perfect
clusters. A cluster should be what several columns have in common. So of a table with many
categories the committee and the starting embedding see the principal factors (those of factor
analysis of mixed data, where the encoder has weighted the indicators), as many as parallel analysis
finds, and members whose clusters are the levels of one category do not vote.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic._types import Floats, Ints
from sgpmic.committee.examination import choose_dimensions, rows_to_look_at
from sgpmic.committee.reference_noise import MixedTable
from sgpmic.learning.preprocessing import Scaler
from sgpmic.process_group import ProcessGroup

#: The share of a table's columns that have to be categories for it to be seen by its factors.
_MANY = 0.25
#: Levels of a category, at most.
_MOST_LEVELS = 100
#: There are at least this many factors.
_LEAST_FACTORS = 2


class Category(NamedTuple):
    """A category: where its indicators begin, how many there are, and every row's level."""

    first: int
    n_features: int
    levels: Ints


def find_categories(Y: Floats) -> list[Category]:
    """Return the categories of a table (N, P), NaN for missing cells.

    A feature with two values is one by itself, unless it and those that follow it are indicators
    of which every row has just one.
    """
    highs = [_is_high(column) for column in Y.T]
    found = []
    j = 0
    while j < len(highs):
        width = _run(highs, j)
        if width:
            block = np.stack([each for each in highs[j : j + width] if each is not None])
            levels = block.argmax(axis=0) if width > 1 else np.maximum(block[0], 0)
            found.append(Category(j, width, np.asarray(levels, np.int64)))
        j += max(width, 1)
    return found


def _is_high(column: Floats) -> NDArray[np.int8] | None:
    """Return 1 for the higher of two values, 0 for the lower, −1 for gaps; None for others."""
    values = np.unique(column[~np.isnan(column)])
    if len(values) != 2:
        return None
    return np.where(np.isnan(column), -1, column == values[1]).astype(np.int8)


def _run(highs: list[NDArray[np.int8] | None], first: int) -> int:
    """Return how many features from ``first`` on are one category; 0 for none."""
    here = highs[first]
    if here is None:
        return 0
    total = np.zeros(len(here), np.int64)
    for width, column in enumerate(highs[first : first + _MOST_LEVELS], start=1):
        if column is None or ((column < 0) != (here < 0)).any():
            break
        total += column > 0
        if (total > 1).any():
            break
        if width > 1 and (total[here >= 0] == 1).all():
            return width
    return 1


class View(NamedTuple):
    """A table as a committee sees it."""

    rows: Floats  # (n_own, r) this process's
    scaler: Scaler
    has_categories: bool = False
    mixed: MixedTable | None = None  # a sample of all processes, with its categories


def committee_view(Y: Floats, Y_imputed: Floats, scaler: Scaler, group: ProcessGroup) -> View:
    """Return the table by its factors if many of its columns are categories, else as it is.

    ``Y`` are this process's rows with their gaps, ``Y_imputed`` those with expectations of missing
    cells.
    """
    numbers = rows_to_look_at(group.n_rows)
    categories = find_categories(group.agree(group.rows_at(Y, numbers)))
    others = Y.shape[1] - sum(category.n_features for category in categories)
    if not categories:
        return View(Y_imputed, scaler)
    sample = group.agree(scaler.transform(group.rows_at(Y_imputed, numbers)))
    mixed = MixedTable(sample, _columns(categories, Y.shape[1]))
    # Features that are all of two values, such as bits, are not columns of a user's table.
    bits = len(categories) == Y.shape[1]
    few = len(categories) < _MANY * (len(categories) + others)
    if few or bits or Y.shape[1] <= _LEAST_FACTORS:
        return View(Y_imputed, scaler, mixed=mixed)
    center = sample.mean(axis=0)
    _, _, axes = np.linalg.svd(sample - center, full_matrices=False)
    count = max(choose_dimensions(sample, mixed.columns).chosen, _LEAST_FACTORS)
    scores = (scaler.transform(Y_imputed) - center) @ group.agree(axes[:count]).T
    unscaled = Scaler(np.zeros(count), np.ones(count), "none", 1.0)
    return View(scores, unscaled, has_categories=True, mixed=mixed)


def _columns(categories: list[Category], n_features: int) -> list[tuple[int, int]]:
    """Return where every column of the user's table begins and ends among the features."""
    begins = {category.first: category.n_features for category in categories}
    columns, j = [], 0
    while j < n_features:
        columns.append((j, j + begins.get(j, 1)))
        j = columns[-1][1]
    return columns
