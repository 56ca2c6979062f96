"""What is done to a table before anything is learned: order, categories, scaling, reduction.

Order. A sum rounds differently in another order, and a seed draws other rows. Where clusters
overlap that is enough for another partition. So a fit that a committee votes on takes the table in
a canonical order, and gives its results back in the user's: features by their mean after min-max
scaling (of equal means, by their products with the rows' keys); rows by a key, the sum of their
scaled features weighted with the roots of these means. Features stay in their order where the
indicators of a category stand side by side, which says that they are one. Neither order depends on
the units, and noise in the last digits changes it in few places.

Scaling. Features of different units (a length, a weight, a price) have to be standardized each,
or the one with the largest numbers decides alone. Features of one unit (pixels, word counts, the
sides of a flower) are divided by one number for all: how much a feature varies then says how much
it matters. ``'auto'`` standardizes each unless there is strong evidence for one unit: there are
twenty features or more, nine in ten of them are of one number type (whole numbers or not), and nine
in ten have at most ten times the range of the tenth of them with the smallest. So it is with
pixels, spectra and expression values; a few measurements of different things may have ranges that
are close together by chance. Constant features are ignored.

Sparse matrices of many features. A truncated singular value decomposition, X ≈ U D Vᵀ, replaces
every row x by Vᵀ x: of all linear maps to so few features the one that preserves distances best,
and it takes no dense or centered matrix. The row pass itself would cost a dense product with all
features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from sgpmic._types import Bools, Floats, Ints
from sgpmic.process_group import ProcessGroup

#: How features are scaled.
SCALES = ("auto", "each", "one", "none")
#: Features that rows of a sparse matrix are reduced to; of no more than these it is made dense.
N_KEPT = 100

#: A model remembers a sample of more rows than this: starts for new rows need not be perfect.
MOST_REFERENCE_ROWS = 20_000

# What speaks for one unit: so many features, such a ratio of their ranges at most, and such a share
# of one number type.
_MANY_FEATURES, _LARGEST_RATIO, _ONE_TYPE = 20, 10.0, 0.9

# Variances, their inverses and a kernel's parameters are squares of what is in the data.
_SMALLEST_DATA, LARGEST_DATA = 1e-100, 1e100
# Deviations below this fraction of the largest value are rounding: nothing to divide by.
_CONSTANT = 1e-12
# Rows that are measured at a time.
_PART = 65_536
# Larger tables are taken in their own order: a second one in memory would be too much.
_MOST_CELLS = 2**24
# Levels of a category, at most.
_MOST_LEVELS = 100


class Order(NamedTuple):
    """The order that a fit takes rows and features in."""

    rows: Any = slice(None)  # the row of the table that comes at each place
    features: Any = slice(None)
    row_places: Any = slice(None)  # the place of every row: the inverse
    feature_places: Any = slice(None)

    def apply(self, Y: Floats) -> Floats:
        """Return a table in this order."""
        return Y if self is AS_GIVEN else np.ascontiguousarray(Y[self.rows][:, self.features])

    def undo(self, Y: Floats) -> Floats:
        """Return a table in the order that it came in."""
        return Y[self.row_places][:, self.feature_places]


#: The order of the table itself.
AS_GIVEN = Order()


def canonical_order(Y: Floats, group: ProcessGroup) -> Order:
    """Return the canonical order of a table.

    A table that is shared by processes, or very large, is taken as it is.
    """
    if group.n_processes > 1 or Y.size > _MOST_CELLS:
        return AS_GIVEN
    lowest, highest = np.fmin.reduce(Y, axis=0), np.fmax.reduce(Y, axis=0)
    ranges = highest - lowest
    scaled = (Y - lowest) / np.where(ranges > 0, ranges, 1.0)
    totals = _sums(scaled, axis=0)
    # Roots, because sums of whole numbers are often equal; sums of roots are not.
    keys = _sums(scaled * np.sqrt(totals), axis=1)
    features = np.arange(Y.shape[1])
    if not any(category.n_features > 1 for category in find_categories(Y)):
        features = np.lexsort((_sums(scaled * keys[:, None], axis=0), totals))
    # Rows of equal keys by their features.
    rows = np.lexsort((*Y.T[features[::-1]], keys))
    return Order(rows, features, np.argsort(rows), np.argsort(features))


def _sums(values: Floats, axis: int) -> Floats:
    """Return sums, without gaps, that round the same whatever the order."""
    # NumPy adds up in the order of the memory.
    return np.nansum(np.sort(np.ascontiguousarray(values), axis=axis), axis=axis)


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


class Scaler(NamedTuple):
    """Centers features and divides them by their scales."""

    offset: Floats  # (P,)
    scale: Floats  # (P,)
    kind: str  # 'each', 'one' or 'none': how they were scaled
    mean_variance: float  # of the features, divided by their scales
    reason: str = ""  # what ``'auto'`` went by, in words; not kept in files

    def transform(self, Y: Floats) -> Floats:
        """Return scaled rows."""
        return (Y - self.offset) / self.scale

    def inverse_transform(self, Y: Floats) -> Floats:
        """Undo :meth:`transform`."""
        return Y * self.scale + self.offset

    @property
    def log_volume(self) -> float:
        """Log of the Jacobian determinant of :meth:`transform`."""
        if self.kind != "each":  # exactly, for a common factor
            return -len(self.offset) * math.log(self.scale[0])
        return -float(np.log(self.scale).sum())

    def log_volumes(self, Y: Floats) -> Floats:
        """Return the same for every row, over the cells that it has."""
        observed = ~np.isnan(Y)
        if observed.all():
            return np.full(len(Y), self.log_volume)
        return -np.where(observed, np.log(self.scale), 0.0).sum(axis=1)


def fit_scaler(Y: Floats, group: ProcessGroup, scale: str) -> Scaler:
    """Return the scaler of a table, of which ``Y`` are this process's rows; gaps are left out."""
    highest = group.largest(np.fmax.reduce(Y, axis=0, initial=-np.inf))
    lowest = -group.largest(-np.fmin.reduce(Y, axis=0, initial=np.inf))
    counts, fractions = np.zeros((2, Y.shape[1]))
    for part in _parts(Y):
        counts += np.sum(~np.isnan(part), axis=0)
        fractions += np.sum(np.abs(part - np.round(part)) > 0, axis=0)
    counts = group.total(counts)
    seen = counts > 0  # a feature that no row has is 0 everywhere
    highest, lowest = np.where(seen, highest, 0.0), np.where(seen, lowest, 0.0)
    counts = np.maximum(counts, 1.0)
    sums = np.sum if (counts == group.n_rows).all() else np.nansum  # which makes a copy
    sizes = np.maximum(np.abs(highest), np.abs(lowest))
    size = float(sizes.max())
    if not (size == 0.0 or _SMALLEST_DATA <= size <= LARGEST_DATA):
        raise ValueError(
            f"The largest value of the data is {size:.3g} in size, too close to the limits of what "
            "float64 can square: multiply the data by a number that brings it near 1."
        )
    offset = group.total(sums(Y, axis=0)) / counts
    squares = sum((sums((part - offset) ** 2, axis=0) for part in _parts(Y)), np.zeros(Y.shape[1]))
    variances = group.total(squares) / counts
    kind, reason = scale, ""
    if kind == "auto":
        is_one, reason = of_one_unit(highest - lowest, group.total(fractions) == 0)
        kind = "one" if is_one else "each"
    scales = np.ones(Y.shape[1])
    if kind == "one":
        scales[:] = _divisor(np.sqrt(variances[seen].mean()), size)
    elif kind == "each":
        scales = _divisor(np.sqrt(variances), sizes)
    mean_variance = float(np.mean((variances / scales**2)[seen]))
    return Scaler(offset, scales, kind, mean_variance if mean_variance > 0 else 1.0, reason)


def of_one_unit(ranges: Floats, is_whole: Bools) -> tuple[bool, str]:
    """Return whether features look like ones of one unit, and by what, in words."""
    varying = ranges > 0
    n_varying = int(varying.sum())
    if n_varying < 2:
        return False, ""
    low, high = np.quantile(ranges[varying], [0.1, 0.9])
    ratio = high / low
    words = f"{n_varying} features, the ratio of their ranges is {ratio:.3g}"
    if n_varying < _MANY_FEATURES or ratio > _LARGEST_RATIO:
        return False, words
    share = is_whole[varying].mean()
    if max(share, 1 - share) < _ONE_TYPE:
        return False, f"{words}, {100 * share:.0f} % of them have whole numbers only"
    return True, words


def _divisor(deviation: Floats, size: Floats | float) -> Floats:
    """Return standard deviations, and 1 where rows are equal but for rounding."""
    return np.where(deviation <= _CONSTANT * np.asarray(size), 1.0, deviation)


def _parts(Y: Floats) -> Iterator[Floats]:
    for first in range(0, len(Y), _PART):
        yield Y[first : first + _PART]


def features_seen(Y: Floats, group: ProcessGroup) -> Bools:
    """Return which features any row of the table of all processes has."""
    return group.total(np.sum(~np.isnan(Y), axis=0)) > 0


def all_rows_equal(Y: Floats, group: ProcessGroup, scaler: Scaler) -> bool:
    """Return whether all rows of a table are the same but for rounding and gaps."""
    size = np.abs(scaler.offset).max()
    farthest = (np.fmax.reduce(np.abs(part - scaler.offset), axis=None) for part in _parts(Y))
    differ = any(distance > _CONSTANT * size for distance in farthest)
    return not group.largest(np.array(differ))


class Reduction(NamedTuple):
    """Truncated SVD of a sparse matrix."""

    components: Floats  # (n_kept, n_features), orthonormal: Vᵀ

    def transform(self, X: Any) -> Floats:
        """Return the reduced rows of a sparse or dense matrix.

        The same to the last bit for both, so that rows which were fitted are recognized.
        """
        rows = _without_gaps(X)
        if not rows.has_canonical_format:
            rows = rows.copy()  # it is the user's
            rows.sum_duplicates()
        return np.ascontiguousarray(rows @ self.components.T)

    def inverse_transform(self, Y: Floats) -> Floats:
        """Return the rows that reduced ones stand for."""
        return Y @ self.components


def fit_reduction(X: Any, rng: np.random.RandomState) -> Reduction | None:
    """Return the reduction of a sparse matrix, None where it has few enough features as it is."""
    if X.shape[1] <= N_KEPT:
        return None
    from sklearn.utils.extmath import randomized_svd  # over a second, and only fits need it

    # Not scikit-learn's TruncatedSVD: signs, and with them results, would be others.
    n_kept = min(N_KEPT, X.shape[0])
    _, _, components = randomized_svd(_without_gaps(X), n_kept, n_iter=7, random_state=rng)
    return Reduction(np.ascontiguousarray(components))


def dense_rows(X: Any, reduction: Reduction | None) -> Floats:
    """Return rows as the model takes them: reduced, or of a sparse matrix made dense."""
    if reduction is not None:
        return reduction.transform(X)
    return X.toarray() if issparse(X) else X


def restored_rows(Y: Floats, reduction: Reduction | None) -> Floats:
    """Return the model's rows with the features of the user's."""
    return Y if reduction is None else reduction.inverse_transform(Y)


def _without_gaps(X: Any) -> csr_array:
    """Return rows as a sparse array, or raise where one has a gap."""
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
    """Return the numbers of all rows, or of so many, drawn at random.

    By default the same ones for every seed: which rows a committee looks at would make more of a
    difference than any other draw of a fit.
    """
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort((rng or np.random.RandomState(0)).choice(n_rows, most, replace=False))


def distinct_rows(points: Floats) -> tuple[Floats, Ints, Ints]:
    """Return the distinct rows in order of appearance, every row's index there, and the counts.

    Order of appearance matters because ties between neighbors are broken by position.
    """
    _, first, inverse, counts = np.unique(
        points, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    return points[first[order]], np.argsort(order)[inverse.reshape(-1)], counts[order]


def rotated(Y: Floats) -> Floats:
    """Return rows in an orthonormal basis of what they span, where that has fewer dimensions.

    Distances and products of rows stay what they are, and equal rows stay equal.
    """
    if Y.shape[1] <= len(Y):
        return Y
    distinct, numbers, _ = distinct_rows(Y)
    triangular = np.asarray(np.linalg.qr(distinct.T, mode="r"))
    return triangular.T[numbers]


def view_axes(points: Floats) -> Floats:
    """Return the axes that pictures of points are drawn in, as columns: a rotation.

    Of up to two dimensions the axes as they are; of more, the principal ones, each pointing to
    where its largest coordinate is.
    """
    if points.shape[1] <= 2:
        return np.eye(points.shape[1])
    axes = np.linalg.eigh(np.cov(points.T))[1][:, ::-1]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(len(axes))])
    return axes * np.where(signs == 0, 1.0, signs)
