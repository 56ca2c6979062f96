r"""Missing cells: imputed for methods that need complete rows, and laid out for the model.

The model integrates missing cells out (:mod:`sgpmic.model.rows`). Neighbor graphs, k-means and the
committee need complete rows, and get imputed ones. The imputation is by variational Bayesian PCA
(Ilin and Raiko, 2010) of the observed cells,

.. math:: y_n = \mu + W z_n + \varepsilon_n, \qquad z_n \sim N(0, I), \quad
          \varepsilon_{nd} \sim N(0, \psi_d),

whose automatic relevance determination prior on W keeps a table with many gaps from having more
parameters than cells. As a linear model imputes values between clusters, and off curved ones, the
imputed cells are then replaced by means over nearest neighbors (:func:`fill_from_nearest`). Users
get the mean of both (:func:`impute_cells`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sgpmic._types import Floats
from sgpmic.learning.preprocessing import Scaler, features_seen, parts
from sgpmic.model.rows import Rows, column_patterns, pad, with_groups
from sgpmic.process_group import ProcessGroup, gathered

#: Maximum number of factors, and minimum number of rows for each.
MOST_FACTORS, _ROWS_PER_FACTOR = 20, 4
#: Maximum number of rows that the factor model is fitted to.
MOST_ROWS = 2000
#: Maximum iterations of the factor model, and tolerance on the relative change of the noise.
_MAX_ITER, _TOL = 100, 1e-3
#: Neighbors that are averaged, and neighbors that are searched for ones with the cell.
_NEAREST, _NEAREST_ASKED = 5, 20
#: Number of elements in the largest temporary array.
_PART = 1 << 22
#: Maximum number of groups of features observed in the same rows for which gaps are integrated out
#: exactly; the cost of the bound is about proportional to the number of groups.
MOST_GROUPS = 24


class FactorModel(NamedTuple):
    """Factor analysis: mean (P,), loadings W (P, r) and noise variances ψ (P,)."""

    mean: Floats
    loadings: Floats
    noise: Floats

    def expected(self, Y: Floats) -> tuple[Floats, Floats]:
        """Return the mean and variance of each cell given the observed cells of its row."""
        P, r = self.loadings.shape
        products = _outer(self.loadings / np.sqrt(self.noise)[:, None])
        mean, variance = np.empty_like(Y), np.empty_like(Y)
        step = max(1, _PART // max(r * r, P))
        for first in range(0, len(Y), step):
            part = slice(first, first + step)
            has = ~np.isnan(Y[part])
            deviation = np.where(has, Y[part] - self.mean, 0.0) / self.noise
            # Rows with the same gaps share the posterior covariance of z.
            patterns, number = np.unique(has, axis=0, return_inverse=True)
            number = number.reshape(-1)
            # Not BLAS, whose rounding of a row depends on the shape of the matrix.
            precisions = np.einsum("np,pk->nk", patterns.astype(np.float64), products)
            covariances = _inverses(precisions + np.eye(r).ravel())
            unknown = covariances @ _outer(self.loadings).T
            of_rows = covariances.reshape(-1, r, r)[number]
            z = np.einsum("nij,nj->ni", of_rows, np.einsum("np,pj->nj", deviation, self.loadings))
            mean[part] = self.mean + np.einsum("nr,pr->np", z, self.loadings)
            variance[part] = self.noise + unknown[number]
        return mean, variance

    def draw(self, Y: Floats, rng: np.random.Generator) -> Floats:
        """Draw missing cells from their distribution given the observed cells of their row."""
        z = rng.standard_normal((len(Y), self.loadings.shape[1]))
        simulated = self.mean + z @ self.loadings.T
        simulated += np.sqrt(self.noise) * rng.standard_normal(Y.shape)
        missing = np.isnan(Y)
        # Matheron's rule: the errors of the expectations in simulated rows with the same gaps.
        errors = simulated - self.expected(np.where(missing, np.nan, simulated))[0]
        return np.where(missing, self.expected(Y)[0] + errors, Y)

    def complete(self, Y: Floats) -> Floats:
        """Replace missing cells by their expectations."""
        completed, rows = Y.copy(), np.isnan(Y).any(axis=1)
        completed[rows] = np.where(np.isnan(Y[rows]), self.expected(Y[rows])[0], Y[rows])
        return completed


def _outer(vectors: Floats) -> Floats:
    """Return v vᵀ for each row, flattened."""
    return (vectors[:, :, None] * vectors[:, None, :]).reshape(len(vectors), -1)


def _inverses(matrices: Floats) -> Floats:
    """Return the inverses of flattened symmetric matrices, flattened."""
    r = round(matrices.shape[1] ** 0.5)
    inverses: Any = np.linalg.inv(matrices.reshape(-1, r, r))
    return inverses.reshape(len(matrices), -1)


def fit_factors(Y: Floats) -> FactorModel:
    """Fit a factor model to scaled rows (N, P) with gaps (NaN); an empty column has mean 0."""
    if len(Y) > MOST_ROWS:
        Y = Y[np.linspace(0, len(Y) - 1, MOST_ROWS).astype(np.int64)]
    N, P = Y.shape
    has = (~np.isnan(Y)).astype(np.float64)
    counts = np.maximum(has.sum(axis=0), 1.0)
    values = np.where(has > 0, Y, 0.0)
    mean: Floats = values.sum(axis=0) / counts
    centered = has * (values - mean)
    n_cells = max(float(has.sum()), 1.0)
    total = float(np.sum(centered**2)) / n_cells
    r = max(1, min(P - 1, N // _ROWS_PER_FACTOR, MOST_FACTORS))
    if total == 0.0 or P == 1:
        return FactorModel(mean, np.zeros((P, 1)), np.full(P, max(total, np.finfo(float).tiny)))
    _, sizes, axes = np.linalg.svd(centered, full_matrices=False)
    W = (axes[:r].T * sizes[:r]) / np.sqrt(N)
    noise = max(total - float(np.sum(sizes[:r] ** 2)) / n_cells, 1e-3 * total)
    W_covariance = np.zeros((P, r * r))
    precision = np.full(r, 1e-3 / total)
    for _ in range(_MAX_ITER):
        # q(z_n), then q(w_d).
        z_covariance = _inverses(has @ (_outer(W) + W_covariance) / noise + np.eye(r).ravel())
        z = np.einsum("nij,nj->ni", z_covariance.reshape(N, r, r), centered @ W) / noise
        products = has.T @ (_outer(z) + z_covariance)
        W_covariance = noise * _inverses(products + noise * np.diag(precision).ravel())
        W = np.einsum("pij,pj->pi", W_covariance.reshape(P, r, r), centered.T @ z) / noise
        fitted = has * (z @ W.T)
        mean = (values - fitted).sum(axis=0) / counts
        centered = has * (values - mean)
        # Add the posterior variances of z and W to the squared residuals.
        unknown = z_covariance @ (_outer(W) + W_covariance).T + _outer(z) @ W_covariance.T
        previous, noise = noise, float(np.sum((centered - fitted) ** 2 + has * unknown)) / n_cells
        noise = max(noise, 1e-9 * total)
        variances = np.einsum("pii->i", W_covariance.reshape(P, r, r))
        precision = P / (np.sum(W**2, axis=0) + variances)
        if abs(noise - previous) <= _TOL * previous:
            break
    return FactorModel(mean, W, noise + np.einsum("pii->p", W_covariance.reshape(P, r, r)))


def fill_from_nearest(
    Y: Floats, completed: Floats, sample: Floats, sample_imputed: Floats
) -> Floats:
    """Replace imputed cells by means over the nearest rows of a sample that have the cell."""
    from sklearn.neighbors import NearestNeighbors

    n_asked = min(_NEAREST_ASKED, len(sample))
    search = NearestNeighbors(n_neighbors=n_asked).fit(sample_imputed)
    values, known = np.nan_to_num(sample), ~np.isnan(sample)
    filled = completed.copy()
    rows = np.flatnonzero(np.isnan(Y).any(axis=1))
    step = max(1, _PART // (n_asked * Y.shape[1]))
    for part in parts(rows, step):
        nearest = search.kneighbors(completed[part], return_distance=False)
        has = known[nearest]  # (rows, neighbors, features)
        counted = has & (np.cumsum(has, axis=1) <= _NEAREST)
        counts = counted.sum(axis=1)
        means = np.sum(values[nearest], axis=1, where=counted) / np.maximum(counts, 1)
        filled[part] = np.where(np.isnan(Y[part]) & (counts > 0), means, completed[part])
    return filled


def impute_rows(Y: Floats, group: ProcessGroup, scaler: Scaler) -> Floats:
    """Impute the rows of this process; all processes fit to the same sample."""
    numbers = np.linspace(0, group.n_rows - 1, min(MOST_ROWS, group.n_rows)).astype(np.int64)
    sample = group.agree(scaler.transform(group.rows_at(Y, numbers)))
    factors = group.agree(fit_factors(sample))
    scaled = scaler.transform(Y)
    imputed = fill_from_nearest(scaled, factors.complete(scaled), sample, factors.complete(sample))
    return np.where(np.isnan(Y), scaler.inverse_transform(imputed), Y)


def with_gaps(
    rows: Rows, Y: Floats, imputed: Floats, scaler: Scaler, group: ProcessGroup
) -> tuple[Rows, Any]:
    """Add the gaps of a table ``Y`` to its laid-out rows.

    As groups of features that are observed together, if there are at most :data:`MOST_GROUPS`;
    otherwise as a mask of missing cells, which then have a posterior: their initial values, laid
    out, are returned too.
    """
    missing, shape = np.isnan(Y), (len(Y), rows.Y.shape[1])
    patterns = np.unique(gathered(column_patterns(missing)), axis=1, return_inverse=True)[1]
    patterns = patterns.reshape(-1)
    if len(np.unique(patterns)) <= MOST_GROUPS:
        return with_groups(rows, patterns, missing, lambda own: group.lay_out(own, rows)), None
    n_observed = group.lay_out(np.sum(~missing, axis=1).astype(np.float64), rows)
    seen = features_seen(Y, group)
    mask = group.lay_out(pad((missing & seen).astype(np.float64), shape), rows)
    cells = group.lay_out(pad(scaler.transform(imputed), shape), rows) * mask
    n_features = np.float64(seen.sum())
    return replace(rows, missing=mask, n_observed=n_observed, n_features=n_features), cells


class Imputation(NamedTuple):
    """Imputed rows as arrays (n_samples, n_features), or dicts of columns."""

    values: Any  # the rows, with missing values replaced by their expectations
    std: Any  # standard deviations, 0 for observed values


def impute_cells(Y: Floats, factors: FactorModel, sample: Floats) -> tuple[Floats, Floats]:
    """Return imputed scaled rows and standard deviations, 0 for observed cells.

    Neither the factor model nor the nearest rows of the sample are better on every table: the
    distribution of a cell is an equal mixture of both, with the variance under the factor model.
    """
    missing = np.isnan(Y)
    mean, variance = factors.expected(Y)
    expected = np.where(missing, mean, Y)
    nearest = fill_from_nearest(Y, expected, sample, factors.complete(sample))
    variance += ((nearest - expected) / 2.0) ** 2
    return (expected + nearest) / 2.0, np.where(missing, np.sqrt(variance), 0.0)
