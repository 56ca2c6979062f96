r"""Clusters as normal distributions of whole rows, beside what the mapping says of densities.

The mapping puts rows on a curved sheet of few dimensions with the same noise in every direction.
What rows have in common beyond the sheet it takes for noise: the densities of the paper's model
are those of a much wider cloud. So the density of a row is a mixture of two,

.. math:: p(y) = \omega\, p_{\text{mapping}}(y)
          + (1 - \omega) \sum_m \pi_m N(y | \mu_m, \Sigma_m),

with the moments of every cluster's training rows, weighted by their memberships. Covariances are
drawn towards what clusters have in common, and that towards a sphere (Ledoit and Wolf, 2004). The
share :math:`\omega` is the one that makes training rows most likely, each left out of both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp
from sklearn.covariance import ledoit_wolf_shrinkage

from sgpmic._types import Bools, Floats
from sgpmic.learning.preparation.completion import FactorModel

#: Parts that rows are divided into to be left out.
_FOLDS = 5
#: Added to variances, relative to those of the table: features may be copies of each other, and all
#: rows of a cluster equal.
_RIDGE = 1e-6
#: Both densities keep a share, so that neither's blind spots decide alone.
_LEAST_SHARE = 1e-4


class ClusterNormals(NamedTuple):
    """A normal distribution for every cluster, of scaled rows."""

    weights: Floats  # (M,)
    means: Floats  # (M, P)
    covariances: Floats  # (M, P, P)

    def log_density(self, Y: Floats) -> Floats:
        """Return log Σ_m π_m N(y | μ_m, Σ_m) of rows, over the cells that they have (not NaN)."""
        has = ~np.isnan(Y)
        patterns, number = np.unique(has, axis=0, return_inverse=True)
        number = number.reshape(-1)
        density = np.empty(len(Y))
        for i, pattern in enumerate(patterns):
            rows = np.flatnonzero(number == i)
            density[rows] = self._of_complete(Y[np.ix_(rows, pattern)], pattern)
        return density

    def _of_complete(self, Y: Floats, features: Bools) -> Floats:
        """Return the same of rows that have just these features."""
        used = np.flatnonzero(self.weights > 0)
        terms = np.empty((len(used), len(Y)))
        for place, m in enumerate(used):
            factor = np.linalg.cholesky(self.covariances[m][np.ix_(features, features)])
            deviation = solve_triangular(factor, (Y - self.means[m, features]).T, lower=True)
            log_det = np.log(2.0 * np.pi) * len(factor) + 2.0 * np.log(np.diagonal(factor)).sum()
            squares = np.sum(deviation**2, axis=0)
            terms[place] = np.log(self.weights[m]) - 0.5 * (log_det + squares)
        return logsumexp(terms, axis=0)


def fit_normals(Y: Floats, S: Floats, factors: FactorModel | None) -> ClusterNormals:
    """Return the moments of the clusters, from scaled rows (N, P) and memberships (N, M).

    ``factors`` say what is expected of missing cells; None where there are none.
    """
    unknown = np.zeros(Y.shape[1])
    if factors is not None:
        missing = np.isnan(Y)
        expected, variance = factors.expected(Y)
        Y = np.where(missing, expected, Y)
        unknown = np.where(missing, variance, 0.0).mean(axis=0)
    N, P = Y.shape
    counts = S.sum(axis=0)
    means = (S.T @ Y) / np.maximum(counts, 1e-12)[:, None]
    deviations = [Y - mean for mean in means]
    scatters = np.stack([(s[:, None] * d).T @ d for s, d in zip(S.T, deviations, strict=True)])
    common = scatters.sum(axis=0) / N
    sphere = np.trace(common) / P
    shrinkage = ledoit_wolf_shrinkage(Y - S @ means, assume_centered=True)
    common = (1.0 - shrinkage) * common + shrinkage * sphere * np.eye(P)
    # As if P + 1 more rows had been seen in every cluster, of what clusters have in common.
    strength = P + 1.0
    covariances = (scatters + strength * common) / (counts + strength)[:, None, None]
    covariances += np.diag(unknown + _RIDGE * (float(Y.var(axis=0).mean()) or 1.0))
    return ClusterNormals(counts / counts.sum(), means, covariances)


def left_out_log_density(Y: Floats, S: Floats, factors: FactorModel | None) -> Floats:
    """Return the log density of scaled rows under the normal distributions of other rows."""
    N = len(Y)
    if N < 2 * _FOLDS:
        return fit_normals(Y, S, factors).log_density(Y)
    fold = np.random.RandomState(0).permutation(N) % _FOLDS
    density = np.empty(N)
    for k in range(_FOLDS):
        others = fold != k
        density[~others] = fit_normals(Y[others], S[others], factors).log_density(Y[~others])
    return density


def best_share(mapping: Floats, normals: Floats, rounds: int = 100) -> float:
    """Return the share of the first of two densities in the mixture that fits rows best."""
    share = 0.5
    for _ in range(rounds):
        odds = np.log(share) - np.log1p(-share) + mapping - normals
        share = float(np.mean(1.0 / (1.0 + np.exp(np.clip(-odds, -700.0, 700.0)))))
        share = min(max(share, _LEAST_SHARE), 1.0 - _LEAST_SHARE)
    return share


def mixed(mapping: Floats, normals: Floats, share: float) -> Floats:
    """Return log(ω exp(mapping) + (1 − ω) exp(normals))."""
    return np.logaddexp(np.log(share) + mapping, np.log1p(-share) + normals)
