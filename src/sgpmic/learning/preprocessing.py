"""Preprocessing of a table: canonical order, categories, scaling, reduction.

Order. In another order, sums round differently and a seed draws other rows; with overlapping
clusters that is enough to change the partition. So a fit with a committee sorts the table into a
canonical order, and returns its results in the original one: features by their mean after min-max
scaling, rows by a weighted sum of their scaled features. Features are not sorted if there are
one-hot encoded categories, which are recognized by adjacent indicators.

Scaling. Features of different units are standardized individually, or the one with the largest
values dominates. Features of one unit are divided by a common factor, so that the variance of a
feature reflects its importance (docs/mathematics.md says what ``'auto'`` chooses).

Sparse matrices with many features. A truncated SVD, X ≈ U D Vᵀ, replaces every row x by Vᵀ x.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from sgpmic._types import Bools, Floats, Ints
from sgpmic.process_group import ProcessGroup

_T = TypeVar("_T", bound=np.generic)

#: Features that sparse matrices are reduced to; those with no more are made dense.
N_KEPT = 100

#: Training rows that a model stores, at most: initial points of new rows need not be perfect.
MOST_REFERENCE_ROWS = 20_000

# Evidence for one unit: least number of features, largest ratio of ranges, least share of one type.
_MANY_FEATURES, _LARGEST_RATIO, _ONE_TYPE = 20, 10.0, 0.9

# Outliers are farther from the median than this many interquartile ranges, and at most this
# fraction of the values.
_FARTHEST, _MOST_OUTLIERS = 6.0, 0.02

# Variances, their inverses and kernel parameters involve squares of the data.
_SMALLEST_DATA, LARGEST_DATA = 1e-100, 1e100
# A standard deviation below this fraction of the largest value is rounding error.
_CONSTANT = 1e-12
# Rows processed at a time.
_PART = 65_536
# Larger tables are not reordered, to avoid a second copy in memory.
_MOST_CELLS = 2**24
# Maximum number of levels of a category.
_MOST_LEVELS = 100


class Order(NamedTuple):
    """Permutation of rows and features."""

    rows: Any = slice(None)  # original indices in the new order
    features: Any = slice(None)
    row_places: Any = slice(None)  # the inverse permutation
    feature_places: Any = slice(None)

    def apply(self, Y: Floats) -> Floats:
        """Return a table in this order."""
        return Y if self is AS_GIVEN else np.ascontiguousarray(Y[self.rows][:, self.features])


#: The identity permutation.
AS_GIVEN = Order()


def canonical_order(Y: Floats, group: ProcessGroup) -> Order:
    """Return the canonical order of a table, unless it is distributed or very large."""
    if group.n_processes > 1 or Y.size > _MOST_CELLS:
        return AS_GIVEN
    lowest, highest = np.fmin.reduce(Y, axis=0), np.fmax.reduce(Y, axis=0)
    ranges = highest - lowest
    scaled = (Y - lowest) / np.where(ranges > 0, ranges, 1.0)
    totals = _sums(scaled, axis=0)
    # Square roots, because sums of integers often coincide; sums of square roots do not.
    keys = _sums(scaled * np.sqrt(totals), axis=1)
    features = np.arange(Y.shape[1])
    if not any(category.n_features > 1 for category in find_categories(Y)):
        features = np.lexsort((_sums(scaled * keys[:, None], axis=0), totals))
    # Ties are broken by the features.
    rows = np.lexsort((*Y.T[features[::-1]], keys))
    return Order(rows, features, np.argsort(rows), np.argsort(features))


def _sums(values: Floats, axis: int) -> Floats:
    """Return sums, ignoring NaN, whose rounding does not depend on the order."""
    # NumPy sums in memory order.
    return np.nansum(np.sort(np.ascontiguousarray(values), axis=axis), axis=axis)


class Category(NamedTuple):
    """A category: its first indicator, the number of indicators, and the level of each row."""

    first: int
    n_features: int
    levels: Ints


def find_categories(Y: Floats) -> list[Category]:
    """Return the categories of a table (N, P), NaN for missing cells.

    A binary feature is a category by itself, unless it is the first of a one-hot encoding.
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
    """Code a column of two values, up to rounding, as 0 and 1, −1 where missing; else None."""
    low, high = np.fmin.reduce(column, initial=np.inf), np.fmax.reduce(column, initial=-np.inf)
    if not high > low:  # constant, or without a value
        return None
    is_high = column > 0.5 * low + 0.5 * high
    if (np.minimum(column - low, high - column) > 1e-9 * (high - low)).any():
        return None
    return np.where(np.isnan(column), -1, is_high).astype(np.int8)


def _run(highs: list[NDArray[np.int8] | None], first: int) -> int:
    """Return the number of features of the category at ``first``; 0 if there is none."""
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


class Scaler(NamedTuple):
    """Centers features and divides them by their scales."""

    offset: Floats  # (P,)
    scale: Floats  # (P,)
    kind: str  # 'each', 'one' or 'none'
    mean_variance: float  # of the scaled features

    def transform(self, Y: Floats) -> Floats:
        """Return scaled rows."""
        return (Y - self.offset) / self.scale

    def inverse_transform(self, Y: Floats) -> Floats:
        """Undo :meth:`transform`."""
        return Y * self.scale + self.offset

    @property
    def log_volume(self) -> float:
        """Log of the Jacobian determinant of :meth:`transform`."""
        if self.kind != "each":  # exact for a common factor
            return -len(self.offset) * math.log(self.scale[0])
        return -float(np.log(self.scale).sum())

    def log_volumes(self, Y: Floats) -> Floats:
        """Return the same for each row, over its observed cells."""
        observed = ~np.isnan(Y)
        if observed.all():
            return np.full(len(Y), self.log_volume)
        return -np.where(observed, np.log(self.scale), 0.0).sum(axis=1)


def fit_scaler(Y: Floats, group: ProcessGroup, scale: str) -> Scaler:
    """Fit the scaler of a table, ignoring gaps; ``Y`` holds the rows of this process."""
    highest = group.largest(np.fmax.reduce(Y, axis=0, initial=-np.inf))
    lowest = -group.largest(-np.fmin.reduce(Y, axis=0, initial=np.inf))
    counts = group.total(np.sum(~np.isnan(Y), axis=0).astype(np.float64))
    seen = counts > 0  # a feature without any value counts as 0 everywhere
    highest, lowest = np.where(seen, highest, 0.0), np.where(seen, lowest, 0.0)
    counts = np.maximum(counts, 1.0)
    sums = np.sum if (counts == group.n_rows).all() else np.nansum  # nansum makes a copy
    sizes = np.maximum(np.abs(highest), np.abs(lowest))
    size = float(sizes.max())
    if not (size == 0.0 or _SMALLEST_DATA <= size <= LARGEST_DATA):
        raise ValueError(
            f"The largest value of the data is {size:.3g} in size, too close to the limits of what "
            "float64 can square: multiply the data by a number that brings it near 1."
        )
    offset = group.total(sums(Y, axis=0)) / counts
    squares = sum((sums((part - offset) ** 2, axis=0) for part in parts(Y)), np.zeros(Y.shape[1]))
    variances = group.total(squares) / counts
    kind = scale
    if kind == "auto":
        fractions = sum((np.sum(part % 1.0 > 0, axis=0) for part in parts(Y)), np.zeros(Y.shape[1]))
        is_one = of_one_unit(highest - lowest, group.total(fractions) == 0)
        kind = "one" if is_one else "each"
    scales = np.ones(Y.shape[1])
    if kind != "none":
        one = kind == "one"
        deviations = np.sqrt(variances[seen].mean() if one else variances)
        # 1 for features that are constant up to rounding
        is_constant = deviations <= _CONSTANT * (size if one else sizes)
        scales[:] = np.where(is_constant, 1.0, deviations)
    mean_variance = float(np.mean((variances / scales**2)[seen]))
    return Scaler(offset, scales, kind, mean_variance if mean_variance > 0 else 1.0)


def of_one_unit(ranges: Floats, is_whole: Bools) -> bool:
    """Return whether there is strong evidence that the features share a unit."""
    varying = ranges > 0
    if varying.sum() < _MANY_FEATURES:
        return False
    low, high = np.quantile(ranges[varying], [0.1, 0.9])
    share = is_whole[varying].mean()
    return bool(high / low <= _LARGEST_RATIO and max(share, 1 - share) >= _ONE_TYPE)


def parts(rows: NDArray[_T], size: int = _PART) -> Iterator[NDArray[_T]]:
    """Yield some rows at a time."""
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def features_seen(Y: Floats, group: ProcessGroup) -> Bools:
    """Return which features have a value in any row of any process."""
    return group.total(np.sum(~np.isnan(Y), axis=0)) > 0


def all_rows_equal(Y: Floats, group: ProcessGroup, scaler: Scaler) -> bool:
    """Return whether all rows of a table are equal, up to rounding and gaps."""
    size = np.abs(scaler.offset).max()
    farthest = (np.fmax.reduce(np.abs(part - scaler.offset), axis=None) for part in parts(Y))
    differ = any(distance > _CONSTANT * size for distance in farthest)
    return not group.largest(np.array(differ))


def fit_reduction(X: Any, rng: np.random.RandomState) -> Floats | None:
    """Return Vᵀ (n_kept, n_features) of a sparse matrix; None if it has few features."""
    if X.shape[1] <= N_KEPT:
        return None
    from sklearn.utils.extmath import randomized_svd  # slow import (over a second), for fits only

    # Not scikit-learn's TruncatedSVD, whose signs, and so the results, would differ.
    n_kept = min(N_KEPT, X.shape[0])
    _, _, components = randomized_svd(_without_gaps(X), n_kept, n_iter=7, random_state=rng)
    return np.ascontiguousarray(components)


def dense_rows(X: Any, reduction: Floats | None) -> Floats:
    """Return dense rows for the model, reduced if there is a reduction."""
    if reduction is None:
        return X.toarray() if issparse(X) else X
    # Bitwise the same for sparse and dense X, so that training rows are recognized.
    rows = _without_gaps(X)
    if not rows.has_canonical_format:
        rows = rows.copy()  # do not modify the input
        rows.sum_duplicates()
    return np.ascontiguousarray(rows @ reduction.T)


def restored_rows(Y: Floats, reduction: Floats | None) -> Floats:
    """Undo :func:`dense_rows`, apart from sparsity."""
    return Y if reduction is None else Y @ reduction


def _without_gaps(X: Any) -> csr_array:
    """Return rows as a sparse array; raise if there are missing values."""
    rows = csr_array(X)
    if np.isnan(rows.data).any():
        raise ValueError(
            f"Missing values (NaN) in a sparse matrix of more than {N_KEPT} features cannot be "
            "integrated out: fill them, or leave these rows out."
        )
    return rows


def sample_numbers(
    n_rows: int, most: int = MOST_REFERENCE_ROWS, rng: np.random.RandomState | None = None
) -> Ints:
    """Return the indices of all rows, or of a random sample of ``most`` rows."""
    if n_rows <= most:
        return np.arange(n_rows)
    # By default independent of the seed of a fit: the choice of rows for the committee would make
    # more of a difference than any other random draw.
    return np.sort((rng or np.random.RandomState(0)).choice(n_rows, most, replace=False))


def usual_range(sample: Floats) -> tuple[Floats, Floats]:
    """Return for each feature the limits beyond which values are outliers; NaN are ignored."""
    n_known = (~np.isnan(sample)).sum(axis=0)
    if not len(sample):
        return np.full(len(n_known), -np.inf), np.full(len(n_known), np.inf)
    sample = np.where(np.isnan(sample).all(axis=0), 0.0, sample)
    quantile = np.nanquantile if np.isnan(sample).any() else np.quantile  # the former is slow
    first, median, third = quantile(sample, [0.25, 0.5, 0.75], axis=0)
    reach = _FARTHEST * (third - first)
    # Values are no outliers if many are as far, as in a long tail, or the usual ones all equal.
    many = (abs(sample - median) > reach).sum(axis=0) > _MOST_OUTLIERS * n_known
    reach[many | (third - first <= 1e-9 * np.nanstd(sample, axis=0))] = np.inf
    return median - reach, median + reach


def distinct_rows(points: Floats) -> tuple[Floats, Ints, Ints]:
    """Return the distinct rows in order of appearance, inverse indices, and counts."""
    _, first, inverse, counts = np.unique(
        points, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)  # ties between neighbors are broken by position
    return points[first[order]], np.argsort(order)[inverse.reshape(-1)], counts[order]


def rotated(Y: Floats) -> Floats:
    """Return the rows in an orthonormal basis of their span, if there are fewer than features."""
    if Y.shape[1] <= len(Y):
        return Y
    distinct, numbers, _ = distinct_rows(Y)
    triangular = np.asarray(np.linalg.qr(distinct.T, mode="r"))
    return triangular.T[numbers]


def view_axes(points: Floats) -> Floats:
    """Return the axes for plots of latent points, principal ones if there are more than two."""
    if points.shape[1] <= 2:
        return np.eye(points.shape[1])
    has_values = ~np.isnan(points[:, 0])
    axes = np.linalg.eigh(np.cov(points[has_values].T))[1][:, ::-1]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(len(axes))])
    return axes * np.where(signs == 0, 1.0, signs)
