r"""Rows with gaps, as methods that need complete rows see them: by what is expected of the rest.

The model integrates missing cells out (:mod:`sgpmic.model.gaps`). What comes before it does not:
a neighbor graph, k-means or a committee compare rows cell by cell. They are given the expectation
of every missing cell under a factor model of the table,

.. math:: y_n = \mu + W z_n + \varepsilon_n, \qquad z_n \sim N(0, I), \quad
          \varepsilon_{nd} \sim N(0, \psi_d),

which is learned from the cells that are there, by variational Bayesian PCA (Ilin and Raiko, 2010):
W has a posterior and a prior that switches off the factors that the table does not ask for. Without
it a table with many gaps has more parameters than cells. The same model, of what the mapping
leaves over, fills in cells for users (:meth:`sgpmic.SGPMIC.impute`).

Expectations under one normal distribution lie between clusters, and beside curved ones. So the
nearest rows, by these expectations, have the last word (:func:`fill_from_nearest`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors

from sgpmic._types import Floats

#: Factors, at most, and how many rows there have to be for each.
MOST_FACTORS, _ROWS_PER_FACTOR = 20, 4
#: Rows that the model is learned from, at most.
MOST_ROWS = 2000
#: Rounds of learning, at most, and the relative change of the noise that ends it.
_ROUNDS, _TOLERANCE = 100, 1e-3
#: A missing cell is the mean of the first so many rows that have it, among so many nearest ones.
_NEAREST, _NEAREST_ASKED = 5, 20
#: Numbers in the largest array of a part of the rows.
_PART = 1 << 22


class FactorModel(NamedTuple):
    """A normal distribution of rows: mean (P,), loadings W (P, r) and noise ψ (P,)."""

    mean: Floats
    loadings: Floats
    noise: Floats

    def expected(self, Y: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the variance of every cell given the cells that its row has.

        Of a cell that is there they are its value's and its noise's share that the others leave.
        """
        P, r = self.loadings.shape
        products = _squared(self.loadings / np.sqrt(self.noise)[:, None])
        mean, variance = np.empty_like(Y), np.empty_like(Y)
        step = max(1, _PART // max(r * r, P))
        for first in range(0, len(Y), step):
            part = slice(first, first + step)
            has = ~np.isnan(Y[part])
            deviation = np.where(has, Y[part] - self.mean, 0.0) / self.noise
            # Rows with the same gaps know the factors equally well.
            patterns, number = np.unique(has, axis=0, return_inverse=True)
            # Sums by einsum: BLAS rounds a row's product differently in a matrix of another shape.
            precisions = np.einsum("np,pk->nk", patterns.astype(np.float64), products)
            covariances = _inverses(precisions + np.eye(r).ravel())
            unknown = covariances @ _squared(self.loadings).T
            number = number.reshape(-1)
            of_rows = covariances.reshape(-1, r, r)[number]
            z = np.einsum("nij,nj->ni", of_rows, np.einsum("np,pj->nj", deviation, self.loadings))
            mean[part] = self.mean + np.einsum("nr,pr->np", z, self.loadings)
            variance[part] = self.noise + unknown[number]
        return mean, variance

    def complete(self, Y: Floats) -> Floats:
        """Return rows with the expectations of their missing cells."""
        missing = np.isnan(Y)
        if not missing.any():
            return Y
        completed = Y.copy()
        rows = missing.any(axis=1)
        completed[rows] = np.where(missing[rows], self.expected(Y[rows])[0], Y[rows])
        return completed


def _squared(vectors: Floats) -> Floats:
    """Return v vᵀ of every row, as one row each."""
    products: Floats = vectors[:, :, None] * vectors[:, None, :]
    return products.reshape(len(vectors), -1)


def fit_factors(Y: Floats) -> FactorModel:
    """Learn a factor model of rows (N, P) with gaps (NaN), which should be of one scale.

    Of more than :data:`MOST_ROWS` rows, as many, evenly spread. A column without any cell has mean
    0.
    """
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
    prior = np.full(r, 1e-3 / total)
    for _ in range(_ROUNDS):
        # q(z_n), then q(w_d), each the best for the other.
        z_covariance = _inverses(has @ (_squared(W) + W_covariance) / noise + np.eye(r).ravel())
        z = np.einsum("nij,nj->ni", z_covariance.reshape(N, r, r), centered @ W) / noise
        products = has.T @ (_squared(z) + z_covariance)
        W_covariance = noise * _inverses(products + noise * np.diag(prior).ravel())
        W = np.einsum("pij,pj->pi", W_covariance.reshape(P, r, r), centered.T @ z) / noise
        fitted = has * (z @ W.T)
        mean = (values - fitted).sum(axis=0) / counts
        centered = has * (values - mean)
        # What is unknown about z and W makes the rest look smaller than it is.
        unknown = z_covariance @ (_squared(W) + W_covariance).T + _squared(z) @ W_covariance.T
        previous, noise = noise, float(np.sum((centered - fitted) ** 2 + has * unknown)) / n_cells
        noise = max(noise, 1e-9 * total)
        # Of a factor with small loadings the prior says that it is not there.
        spread = np.einsum("pii->i", W_covariance.reshape(P, r, r))
        prior = P / (np.sum(W**2, axis=0) + spread)
        if abs(noise - previous) <= _TOLERANCE * previous:
            break
    unexplained = noise + np.einsum("pii->p", W_covariance.reshape(P, r, r))
    return FactorModel(mean, W, unexplained)


def fill_from_nearest(
    Y: Floats, completed: Floats, sample: Floats, sample_imputed: Floats
) -> Floats:
    """Return rows whose missing cells are means over the nearest rows of a sample that have them.

    Parameters
    ----------
    Y, completed : ndarrays of shape (n_rows, n_features)
        Rows with gaps (NaN), and with expectations in them, which stay where no near row has a
        cell.
    sample, sample_imputed : ndarrays of shape (n_sample, n_features)
        The same of the sample.
    """
    n_asked = min(_NEAREST_ASKED, len(sample))
    search = NearestNeighbors(n_neighbors=n_asked).fit(sample_imputed)
    values, known = np.nan_to_num(sample), ~np.isnan(sample)
    filled = completed.copy()
    rows = np.flatnonzero(np.isnan(Y).any(axis=1))
    step = max(1, _PART // (n_asked * Y.shape[1]))
    for first in range(0, len(rows), step):
        part = rows[first : first + step]
        nearest = search.kneighbors(completed[part], return_distance=False)
        has = known[nearest]  # (rows, neighbors, features)
        counted = has & (np.cumsum(has, axis=1) <= _NEAREST)
        counts = counted.sum(axis=1)
        means = np.sum(values[nearest], axis=1, where=counted) / np.maximum(counts, 1)
        filled[part] = np.where(np.isnan(Y[part]) & (counts > 0), means, completed[part])
    return filled


def _inverses(matrices: Floats) -> Floats:
    """Return the inverses of symmetric matrices, each given, and returned, as one row."""
    r = round(matrices.shape[1] ** 0.5)
    inverses = np.linalg.inv(matrices.reshape(-1, r, r))
    return np.asarray(inverses.reshape(len(matrices), -1), np.float64)
