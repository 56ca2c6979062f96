"""Linear transforms of the features: :class:`Scaler`, and :class:`Reduction` of sparse matrices.

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
from scipy.sparse import csr_array, issparse

from sgpmic._types import Bools, Floats
from sgpmic.process_group import ProcessGroup

#: How features are scaled.
SCALES = ("auto", "each", "one", "none")
#: Features that rows of a sparse matrix are reduced to; of no more than these it is made dense.
N_KEPT = 100

# What speaks for one unit: so many features, such a ratio of their ranges at most, and such a share
# of one number type.
_MANY_FEATURES, _LARGEST_RATIO, _ONE_TYPE = 20, 10.0, 0.9

# Variances, their inverses and a kernel's parameters are squares of what is in the data.
_SMALLEST_DATA, LARGEST_DATA = 1e-100, 1e100
# Deviations below this fraction of the largest value are rounding: nothing to divide by.
_CONSTANT = 1e-12
# Rows that are measured at a time.
_PART = 65_536


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

    @property
    def kernel_factor(self) -> float:
        """Converts a kernel's variances from the units of the data, for one common scale."""
        return float(self.scale[0]) ** -2


def fit_scaler(Y: Floats, group: ProcessGroup, scale: str) -> Scaler:
    """Return the scaler of a table, of which ``Y`` are this process's rows; gaps are left out."""
    empty = np.full(Y.shape[1], -np.inf)
    highest, lowest, counts = empty, empty, np.zeros(Y.shape[1])
    fractions = np.zeros(Y.shape[1])
    for part in _parts(Y):
        highest = np.fmax(highest, np.fmax.reduce(part, axis=0))
        lowest = np.fmax(lowest, -np.fmin.reduce(part, axis=0))
        counts += np.sum(~np.isnan(part), axis=0)
        fractions += np.sum(np.abs(part - np.round(part)) > 0, axis=0)
    highest, lowest = group.largest(highest), -group.largest(lowest)
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
    """Return whether features look like ones of one unit, and by what, in words.

    ``is_whole`` says which have whole numbers only.
    """
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


def total_log_volume(Y: Floats, group: ProcessGroup, scaler: Scaler) -> float:
    """Return the sum of :meth:`Scaler.log_volumes` over the rows of all processes."""
    if not has_gaps(Y, group):
        return group.n_rows * scaler.log_volume
    return float(group.total(scaler.log_volumes(Y).sum()))


def has_gaps(Y: Floats, group: ProcessGroup) -> bool:
    """Return whether a cell of the table of all processes is missing."""
    return bool(group.largest(np.array(np.isnan(Y).any())))


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
