r"""Normal distributions of the clusters in data space, to complement the mapping's density.

To the mapping, correlations off its curved manifold are isotropic noise: the densities of the
paper's model are those of a much wider cloud. So the density of a row is a mixture of two,

.. math:: p(y) = \omega\, p_{\text{mapping}}(y)
          + (1 - \omega) \sum_m \pi_m N(y | \mu_m, \Sigma_m),

with the moments of each cluster's training rows. Covariances are shrunk towards the pooled
covariance, and that towards a multiple of the identity (Ledoit and Wolf, 2004). The weight
:math:`\omega` maximizes the likelihood of held-out training rows.

With many features, clusters have full covariances only along the principal axes V of the rows
within clusters, :math:`\Sigma_m = V S_m V^\top + \mathrm{diag}(\psi)`, so that no features by
features matrix is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from sgpmic._types import Bools, Floats
from sgpmic.learning.gaps import FactorModel
from sgpmic.model.rows import pad_rows

#: Number of cross-validation folds.
_FOLDS = 5
#: Added to variances, relative to their mean: features may be copies, or rows of a cluster equal.
_RIDGE = 1e-6
#: Maximum number of features for full covariances, or of axes; and minimum number of rows per axis.
_MOST_AXES, _ROWS_PER_AXIS = 100, 4
#: Rows per matrix product.
_BLOCK = 128
#: Minimum weight of either density, so that neither's blind spots decide alone.
_LEAST_SHARE = 1e-4


class ClusterNormals(NamedTuple):
    """A normal distribution of scaled rows per cluster: Σ_m = V L_m L_mᵀ Vᵀ + diag(ψ)."""

    weights: Floats  # (M,)
    means: Floats  # (M, P)
    axes: Floats  # (P, r) V, the identity for few features
    roots: Floats  # (M, r, r) L, with S = L Lᵀ
    noise: Floats  # (P,) ψ

    def log_density(self, Y: Floats) -> Floats:
        """Return log Σ_m π_m N(y | μ_m, Σ_m) of rows, over their observed cells (not NaN)."""
        has = ~np.isnan(Y)
        if has.all():
            return self._of_complete(Y, has[0])
        patterns, number = np.unique(has, axis=0, return_inverse=True)
        density, order = np.empty(len(Y)), np.argsort(number.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(number.ravel()))[:-1]
        for pattern, rows in zip(patterns, np.split(order, ends), strict=True):
            density[rows] = self._of_complete(Y[np.ix_(rows, pattern)], pattern)
        return density

    def _of_complete(self, Y: Floats, features: Bools) -> Floats:
        """Return the log density of rows of which just these features are observed.

        By Woodbury's identity, with B = ψ^(-½)VL: ψ^½ Σ⁻¹ ψ^½ = I − B (I + BᵀB)⁻¹ Bᵀ, and
        |Σ| = |ψ| |I + BᵀB|.
        """
        scale = np.sqrt(self.noise[features])
        axes = self.axes[features] / scale[:, None]
        constant = len(scale) * np.log(2.0 * np.pi) + 2.0 * np.log(scale).sum()
        # Fixed-size blocks, because BLAS's rounding of a row depends on the shape of the matrix.
        blocks = pad_rows(Y, -(-len(Y) // _BLOCK) * _BLOCK).reshape(-1, _BLOCK, Y.shape[1])
        used = np.flatnonzero(self.weights > 0)
        terms = np.empty((len(used), len(Y)))
        for place, m in enumerate(used):
            B = axes @ self.roots[m]
            factor = np.linalg.cholesky(np.eye(B.shape[1]) + B.T @ B)
            loadings = solve_triangular(factor, B.T, lower=True).T
            deviation = (blocks - self.means[m, features]) / scale
            squares = np.sum(deviation**2, axis=2) - np.sum((deviation @ loadings) ** 2, axis=2)
            log_det = constant + 2.0 * np.log(np.diagonal(factor)).sum()
            terms[place] = np.log(self.weights[m]) - 0.5 * (log_det + squares.ravel()[: len(Y)])
        return np.logaddexp.reduce(terms, axis=0)


def fit_normals(Y: Floats, S: Floats, factors: FactorModel | None) -> ClusterNormals:
    """Fit the normals to scaled rows (N, P) and one-hot labels (N, M); ``factors`` fill gaps."""
    # Heavy imports, not needed by predictions.
    from sklearn.covariance import ledoit_wolf_shrinkage
    from sklearn.decomposition import PCA

    unknown = np.zeros(Y.shape[1])
    if factors is not None:
        missing = np.isnan(Y)
        expected, variance = factors.expected(Y)
        Y = np.where(missing, expected, Y)
        unknown = np.where(missing, variance, 0.0).mean(axis=0)
    N, P = Y.shape
    counts = S.sum(axis=0)
    means = (S.T @ Y) / np.maximum(counts, 1e-12)[:, None]
    within = Y - S @ means
    noise = unknown + _RIDGE * (float(Y.var(axis=0).mean()) or 1.0)
    if P <= _MOST_AXES:
        axes, reduced, centers = np.eye(P), Y, means
    else:
        n_axes = max(1, min(_MOST_AXES, N // _ROWS_PER_AXIS))
        axes = PCA(n_axes, random_state=0).fit(within).components_.T
        reduced, centers = Y @ axes, means @ axes
        noise += np.mean((within - within @ axes @ axes.T) ** 2, axis=0)
        within = within @ axes
    scatters = np.stack(
        [(s[:, None] * d).T @ d for s, d in zip(S.T, reduced - centers[:, None], strict=True)]
    )
    r = axes.shape[1]
    common = scatters.sum(axis=0) / N
    sphere = np.trace(common) / r
    shrinkage = ledoit_wolf_shrinkage(within, assume_centered=True)
    common = (1.0 - shrinkage) * common + shrinkage * sphere * np.eye(r)
    # Shrink as by r + 1 pseudo-observations of the pooled covariance in each cluster.
    strength = r + 1.0
    cores = (scatters + strength * common) / (counts + strength)[:, None, None]
    values, vectors = np.linalg.eigh(cores)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return ClusterNormals(counts / counts.sum(), means, axes, roots, noise)


def left_out_log_density(Y: Floats, S: Floats, factors: FactorModel | None) -> Floats:
    """Return the cross-validated log density of scaled rows under the cluster normals."""
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
    """Return the maximum likelihood weight of the first of two densities, by EM."""
    share = 0.5
    for _ in range(rounds):
        odds = np.log(share) - np.log1p(-share) + mapping - normals
        share = float(np.mean(1.0 / (1.0 + np.exp(np.clip(-odds, -700.0, 700.0)))))
        share = min(max(share, _LEAST_SHARE), 1.0 - _LEAST_SHARE)
    return share


def mixed(mapping: Floats, normals: Floats, share: float) -> Floats:
    """Return log(ω exp(mapping) + (1 − ω) exp(normals))."""
    return np.logaddexp(np.log(share) + mapping, np.log1p(-share) + normals)


def lower_limit(values: Floats, share: float) -> float:
    """Return the quantile that a new value falls below with probability ``share``.

    The n order statistics divide the probability equally, with 1/(n + 1) below the minimum. If
    that is too much, the lower tail is extrapolated as exponential, fitted to the lowest tenth.
    """
    values = np.sort(values)
    n = len(values)
    if (n + 1) * share >= 1.0:
        return float(np.quantile(values, share, method="weibull"))
    tenth = max(n // 10, min(5, n - 1))
    fall = float(values[tenth] - values[:tenth].mean()) if tenth else 0.0
    return float(values[0] + fall * np.log((n + 1) * share))
