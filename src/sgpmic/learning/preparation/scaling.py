"""How features are centered and brought to one scale.

Units decide more than models do. Features of different units (a length, a weight, a price) have
to be divided by their own spread each, or the one with the largest numbers decides alone.
Features of one unit (pixels, the counts of words, the sides of a flower) are divided by one number
for all: how much a feature varies then says how much it matters.

``'auto'`` divides each feature by its own standard deviation unless there is strong evidence for
one unit: there are twenty features or more, nine in ten of them are of one number type (whole
numbers or not), and nine in ten have at most ten times the range of the tenth of them with the
smallest. So it is with pixels, spectra and expression values; a few measurements of different
things may have ranges that are close together by chance. Features that never change are not looked
at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sgpmic._types import Bools, Floats
from sgpmic.process_group import ProcessGroup

#: How features are scaled.
SCALES = ("auto", "each", "one", "none")

# What speaks for one unit: so many features, such a ratio of their ranges at most, and such a share
# of one number type.
_MANY_FEATURES, _LARGEST_RATIO, _ONE_TYPE = 20, 10.0, 0.9

# Variances, their inverses and a kernel's parameters are squares of what is in the data.
_SMALLEST_DATA, _LARGEST_DATA = 1e-100, 1e100
# Deviations below this share of the largest value are rounding: nothing to divide by.
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
        """Return rows as the model sees them."""
        return (Y - self.offset) / self.scale

    def inverse_transform(self, Y: Floats) -> Floats:
        """Undo :meth:`transform`."""
        return Y * self.scale + self.offset

    @property
    def log_volume(self) -> float:
        """What one row's log density loses on its way back to the units of the data."""
        if self.kind != "each":  # exactly, for a common factor
            return -len(self.offset) * math.log(self.scale[0])
        return -float(np.log(self.scale).sum())

    def log_volumes(self, Y: Floats) -> Floats:
        """Return the same for every row; of rows with gaps only what they have counts."""
        observed = ~np.isnan(Y)
        if observed.all():
            return np.full(len(Y), self.log_volume)
        return -np.where(observed, np.log(self.scale), 0.0).sum(axis=1)

    @property
    def kernel_factor(self) -> float:
        """What turns a kernel in the units of the data into one of the model, for one scale."""
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
    size = float(np.maximum(np.abs(highest), np.abs(lowest)).max())
    if not (size == 0.0 or _SMALLEST_DATA <= size <= _LARGEST_DATA):
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
        sizes = np.maximum(np.abs(highest), np.abs(lowest))
        scales = _divisor(np.sqrt(variances), sizes)
    mean_variance = float(np.mean((variances / scales**2)[seen]))
    return Scaler(offset, scales, kind, mean_variance if mean_variance > 0 else 1.0, reason)


def total_log_volume(Y: Floats, group: ProcessGroup, scaler: Scaler) -> float:
    """Return what all rows' log density loses on its way back to the units of the data."""
    if not has_gaps(Y, group):
        return group.n_rows * scaler.log_volume
    return float(group.total(scaler.log_volumes(Y).sum()))


def has_gaps(Y: Floats, group: ProcessGroup) -> bool:
    """Return whether a cell of the table of all processes is missing."""
    return bool(group.largest(np.array(np.isnan(Y).any())))


def all_rows_equal(Y: Floats, group: ProcessGroup, scaler: Scaler) -> bool:
    """Return whether all rows of a table are the same but for rounding."""
    size = np.abs(scaler.offset).max()
    # A gap is no difference.
    farthest = (np.fmax.reduce(np.abs(part - scaler.offset), axis=None) for part in _parts(Y))
    differ = any(distance > _CONSTANT * size for distance in farthest)
    return not float(group.largest(np.float64(differ)))


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
    """Return deviations, and 1 where rows are all alike but for rounding."""
    return np.where(deviation <= _CONSTANT * np.asarray(size), 1.0, deviation)


def _parts(Y: Floats) -> Iterator[Floats]:
    """Yield some rows at a time, so that what is computed of them stays small."""
    for first in range(0, len(Y), _PART):
        yield Y[first : first + _PART]
