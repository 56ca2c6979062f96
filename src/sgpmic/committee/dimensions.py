"""Principal components: the number of dimensions, and factors that represent many categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from sgpmic._types import Floats
from sgpmic.committee.reference_noise import MixedTable
from sgpmic.learning.preprocessing import Scaler, find_categories, parts, sample_numbers
from sgpmic.process_group import ProcessGroup

#: Maximum number of rows sampled.
MOST_EXAMINED = 1000
#: Maximum number of latent dimensions chosen.
MOST_DIMENSIONS = 10
#: Number of shuffled tables in parallel analysis, and the quantile to exceed.
_SHUFFLED, _QUANTILE = 20, 0.95
# Tables with more rows are decomposed by way of their Gram matrix instead of an SVD.
_MOST_DECOMPOSED = 100_000
#: Fraction of categorical columns from which a table is represented by its factors.
_MANY = 0.25
#: Minimum number of factors.
_LEAST_FACTORS = 2


@dataclass(frozen=True)
class NumberOfDimensions:
    """How the number of latent dimensions was chosen."""

    chosen: int  # principal components with more variance than noise, at least one
    variance: list[float]  # explained variance ratios of the principal components
    noise: list[float]  # the same for independently shuffled features


class View(NamedTuple):
    """The representation of a table that the committee and the initialization use.

    With one-hot encoded categories, the levels of a single one look like perfect clusters in a
    neighbor graph, but a cluster should be shared by several columns. So a table with many
    categories is represented by its principal factors (those of factor analysis of mixed data if
    the encoder has weighted the indicators), as many as parallel analysis finds, and committee
    members whose clusters are the levels of one category do not vote.
    """

    rows: Floats  # (n_own, r) rows of this process
    scaler: Scaler
    has_categories: bool = False
    mixed: MixedTable | None = None  # a sample from all processes, with its categories


def committee_view(Y: Floats, Y_imputed: Floats, scaler: Scaler, group: ProcessGroup) -> View:
    """Return the factor scores of a table with many categorical columns, else the table itself."""
    numbers = sample_numbers(group.n_rows, MOST_EXAMINED)
    categories = find_categories(group.agree(group.rows_at(Y, numbers)))
    if not categories:
        return View(Y_imputed, scaler)
    sample = group.agree(scaler.transform(group.rows_at(Y_imputed, numbers)))
    # Start and end of every original column among the features.
    inner = {j for each in categories for j in range(each.first + 1, each.first + each.n_features)}
    begins = [j for j in range(Y.shape[1]) if j not in inner]
    mixed = MixedTable(sample, list(zip(begins, [*begins[1:], Y.shape[1]], strict=True)))
    # A table of binary features only, such as bits, has no categorical columns.
    bits = len(categories) == Y.shape[1]
    few = len(categories) < _MANY * len(mixed.columns)
    if few or bits or Y.shape[1] <= _LEAST_FACTORS:
        return View(Y_imputed, scaler, mixed=mixed)
    center = sample.mean(axis=0)
    _, _, axes = np.linalg.svd(sample - center, full_matrices=False)
    count = max(choose_dimensions(sample, mixed.columns).chosen, _LEAST_FACTORS)
    scores = (scaler.transform(Y_imputed) - center) @ group.agree(axes[:count]).T
    unscaled = Scaler(np.zeros(count), np.ones(count), "none", 1.0)
    return View(scores, unscaled, has_categories=True, mixed=mixed)


def choose_dimensions(
    Y: Floats, together: Sequence[tuple[int, int]] | None = None
) -> NumberOfDimensions:
    """Choose the number of latent dimensions by Horn's parallel analysis.

    Principal components are counted up to the first whose variance does not exceed that in 95 % of
    tables with shuffled features. A weak dimension behind strong ones may be missed.

    ``together`` are half-open ranges of features that are shuffled as one; by default every
    feature is shuffled separately.
    """
    rng = np.random.RandomState(0)
    parts = [(j, j + 1) for j in range(Y.shape[1])] if together is None else together
    shuffled = [
        _variances(np.column_stack([rng.permutation(Y[:, first:last]) for first, last in parts]))
        for _ in range(_SHUFFLED)
    ]
    variance, noise = _variances(Y), np.quantile(shuffled, _QUANTILE, axis=0)
    first_below = int(np.argmin(np.append(variance > noise, False)))
    chosen = min(max(first_below, 1), MOST_DIMENSIONS)
    return NumberOfDimensions(chosen, variance.tolist(), noise.tolist())


def _variances(Y: Floats) -> Floats:
    squares: Floats = np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False) ** 2
    return squares / max(float(squares.sum()), np.finfo(float).tiny)


def count_components(n_components: Any, scaler: Scaler, Y: Floats, group: ProcessGroup) -> int:
    """Return the number of latent dimensions: as given, or for that fraction of the variance.

    As in scikit-learn's PCA, a fraction selects the smallest number of principal components of the
    scaled features whose explained variance exceeds it.
    """
    if isinstance(n_components, Integral):
        return int(n_components)
    if group.n_processes == 1 and len(Y) <= _MOST_DECOMPOSED:
        squares = np.linalg.svd(scaler.transform(Y), compute_uv=False) ** 2
    else:
        products = np.zeros((Y.shape[1], Y.shape[1]))
        for part in map(scaler.transform, parts(Y, _MOST_DECOMPOSED)):
            products += part.T @ part
        squares = np.maximum(np.linalg.eigvalsh(group.total(products))[::-1], 0.0)
    if squares.sum() == 0:
        return 1
    shares = np.cumsum(squares) / squares.sum()
    return min(int(np.searchsorted(shares, n_components, side="right")) + 1, len(shares))
