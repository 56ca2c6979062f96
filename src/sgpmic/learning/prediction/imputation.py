r"""Missing cells filled in for users, with their uncertainty.

Three things are known of a missing cell: what the mapping says at the row's latent point, what the
row's other cells say through the table's correlations (a factor model,
:mod:`sgpmic.learning.gaps`), and what the nearest training rows have there,
beyond their own expectations. No one of them is best on every table: the mapping is non-linear but
has few dimensions, the factor model is linear with many. Their weights are learned by hiding some
cells of training rows and predicting them, each row taken out of the mapping first; what the
predictions miss there sets the scale of the standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgpmic._types import Floats, Ints
from sgpmic.learning.gaps import FactorModel, fit_factors

if TYPE_CHECKING:
    from scipy.spatial import KDTree

#: The share of the cells that are hidden, in at most this many rows.
_HIDDEN, _MOST_ROWS = 0.15, 400
#: Nearest training rows that may have a cell.
_DONORS = 10

#: Expectations of all cells by the mapping, for the numbers of training rows and their cells, some
#: of them hidden.
LeftOutMeans = Callable[[Ints, Floats], Floats]


class Imputation(NamedTuple):
    """Rows without gaps.

    Attributes
    ----------
    values : ndarray of shape (n_samples, n_features), or dict of columns
        The rows, with the expectations of missing values in their places.
    std : ndarray of shape (n_samples, n_features), or dict of columns
        The standard deviations of those, 0 for values that were there.
    """

    values: Any
    std: Any


@dataclass
class Imputer:
    """What is learned of a table's cells from each other; all in scaled units."""

    factors: FactorModel
    tree: KDTree
    left_over: Floats  # (R, P) what training rows have beyond their expectations, NaN for gaps
    weights: Floats  # (3,) of the mapping, the factors, and the factors with the nearest rows
    inflation: float = 1.0  # of the factors' standard deviations

    def expected(
        self, Y: Floats, mapped: Floats, *, skip_nearest: bool = False
    ) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of every cell of scaled rows.

        ``mapped`` is what the mapping says of them. The nearest row is skipped where it is the row
        itself.
        """
        mean, variance = self.factors.expected(Y)
        near = mean + self._of_nearest(np.where(np.isnan(Y), mean, Y), skip_nearest)
        parts = np.stack([mapped, mean, near])
        combined: Floats = np.tensordot(self.weights, parts, axes=1)
        return combined, self.inflation * np.sqrt(variance)

    def _of_nearest(self, Y: Floats, skip: bool) -> Floats:
        """Return the mean of what the nearest training rows have beyond their expectations."""
        first, last = int(skip), min(_DONORS + int(skip), len(self.left_over))
        if last <= first:
            return np.zeros_like(Y)
        _, nearest = self.tree.query(Y, k=np.arange(first + 1, last + 1))
        theirs = self.left_over[nearest]  # (n, k, P)
        has = ~np.isnan(theirs)
        # One more row without anything: few rows that have a cell say little.
        total: Floats = np.where(has, theirs, 0.0).sum(axis=1)
        return total / (has.sum(axis=1) + 1.0)


def learn_imputer(rows: Floats, left_out_means: LeftOutMeans) -> Imputer:
    """Learn from scaled training rows (R, P), NaN for missing cells."""
    rng = np.random.RandomState(0)
    chosen = np.arange(len(rows))
    if len(rows) > _MOST_ROWS:
        chosen = np.sort(rng.choice(len(rows), _MOST_ROWS, replace=False))
    known = ~np.isnan(rows[chosen])
    hidden: Any = (rng.uniform(size=known.shape) < _HIDDEN) & known
    # Every row keeps a cell.
    hidden &= (known & ~hidden).any(axis=1)[:, None]
    trial = rows.copy()
    trial[chosen] = np.where(hidden, np.nan, rows[chosen])
    weights, inflation = np.array([0.0, 1.0, 0.0]), 1.0
    if hidden.any():
        truth = rows[chosen][hidden]
        imputer = _of_rows(trial, weights)
        mapped = left_out_means(chosen, trial[chosen])

        def expected(weights: Floats) -> tuple[Floats, Floats]:
            tried = replace(imputer, weights=weights)
            return tried.expected(trial[chosen], mapped, skip_nearest=True)

        parts = [expected(alone)[0][hidden] for alone in np.eye(3)]
        weights = _convex(np.stack(parts, axis=1), truth)
        mean, std = expected(weights)
        inflation = float(np.sqrt(np.mean(((mean[hidden] - truth) / std[hidden]) ** 2)))
    return replace(_of_rows(rows, weights), inflation=inflation)


def _of_rows(rows: Floats, weights: Floats) -> Imputer:
    from scipy.spatial import KDTree  # a tenth of a second that other answers do not need

    factors = fit_factors(rows)
    mean, _ = factors.expected(rows)
    tree = KDTree(np.where(np.isnan(rows), mean, rows))
    return Imputer(factors, tree, rows - mean, weights)


def _convex(parts: Floats, truth: Floats) -> Floats:
    """Return weights (k,), not negative and of sum 1, that predict best."""
    from scipy.optimize import nnls  # a fifth of a second that other answers do not need

    scale = 1e3 * float(np.sqrt(np.mean(parts**2)) or 1.0) * np.sqrt(len(truth))
    padded = np.vstack([parts, np.full((1, parts.shape[1]), scale)])
    weights, _ = nnls(padded, np.append(truth, scale))
    total = weights.sum()
    return weights / total if total > 0.0 else np.array([0.0, 1.0, 0.0])
