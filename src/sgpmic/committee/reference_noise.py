"""Null models for the test of cluster tendency: noise that resembles a table without clusters.

Each function fits a null model to scaled rows and returns a function that samples a table from it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats
from scipy.optimize import isotonic_regression

from sgpmic._types import Floats, Ints

#: Samples one table of noise.
Draw = Callable[[np.random.Generator], Floats]
#: Features with at most this many distinct values keep their empirical distribution.
FEW_VALUES = 10
_ENDS = np.geomspace(1e-5, 0.02, 60)
#: Probabilities at which quantiles are tabulated, dense at both ends.
GRID = np.concatenate([_ENDS[:-1], np.linspace(0.02, 0.98, 200), 1.0 - _ENDS[::-1][1:]])
_NORMAL = special.ndtri(GRID)
_STUDENT = {df: special.stdtrit(df, GRID) for df in (1.0, 1.5, 2.0, 3.0, 5.0, 8.0)}
#: Features whose distributions are fitted at a time, to stay within the CPU cache.
_TOGETHER = 256


def convex_minorant(x: Floats, y: Floats) -> Ints:
    """Return the indices of the knots of the greatest convex minorant; ``x`` is ascending."""
    if len(x) < 2:
        return np.arange(len(x))
    steps = np.maximum(np.diff(x), 1e-300)  # high powers of radii can be equal
    # Its slopes are the isotonic regression of the slopes between neighboring points.
    return isotonic_regression(np.diff(y) / steps, weights=steps).blocks


def _student_fit(X: Floats, df: float) -> tuple[Floats, Floats, Floats]:
    """Fit Student's t with ``df`` degrees of freedom: log-likelihoods, locations, scales (p,)."""
    n, at = len(X), np.median(X, axis=0)
    square = 1.5 * np.median((X - at) ** 2, axis=0)
    square = np.maximum(square, 1e-12 * X.var(axis=0))
    for _ in range(10):
        weight = (df + 1.0) / (df + (X - at) ** 2 / square)
        at = np.sum(weight * X, axis=0) / np.sum(weight, axis=0)
        square = np.sum(weight * (X - at) ** 2, axis=0) / n
    constant = special.gammaln((df + 1) / 2) - special.gammaln(df / 2) - 0.5 * np.log(df * np.pi)
    terms = constant - (df + 1) / 2 * np.log1p((X - at) ** 2 / (df * square))
    return terms.sum(axis=0) - n / 2 * np.log(square), at, np.sqrt(square)


def quantiles(X: Floats) -> Floats:
    """Return the quantiles (p, len(GRID)) of the best unimodal distribution for every feature.

    Candidates are the Gaussian, the uniform, Student's t and lognormals of either sign.
    """
    n, p = X.shape
    tables = np.empty((p, len(GRID)))
    continuous = []
    for i in range(p):
        values, counts = np.unique(X[:, i], return_counts=True)
        if len(values) > FEW_VALUES:
            continuous.append(i)
            continue
        tables[i] = values.take(np.searchsorted(np.cumsum(counts) / n, GRID), mode="clip")
    for first in range(0, len(continuous), _TOGETHER):
        part = continuous[first : first + _TOGETHER]
        tables[part] = _continuous_quantiles(X[:, part])
    return tables


def _continuous_quantiles(X: Floats) -> Floats:
    n = len(X)
    spread, half = X.std(axis=0), n / 2 * (1 + np.log(2 * np.pi))
    low, high = X.min(axis=0), X.max(axis=0)
    width = (high - low) * (n + 1) / (n - 1)
    found = [
        (-n * np.log(spread) - half, _moved(_NORMAL, X.mean(axis=0), spread)),
        (-n * np.log(width), _moved(GRID - 0.5, (low + high) / 2, width)),
    ]
    for df, table in _STUDENT.items():
        fit, at, scale = _student_fit(X, df)
        found.append((fit - 1.0, _moved(table, at, scale)))  # penalty for one more parameter
    for sign in (1.0, -1.0):
        Y = sign * X
        least = Y.min(axis=0)
        unit = np.maximum(np.quantile(Y, 0.9, axis=0) - least, 1e-9 * (high - low))
        for shift in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
            start = least - shift * unit
            logs = np.log(Y - start)
            table = start[:, None] + np.exp(_moved(_NORMAL, logs.mean(axis=0), logs.std(axis=0)))
            fit = -n * np.log(logs.std(axis=0)) - half - logs.sum(axis=0) - 1.0
            found.append((fit, table if sign > 0 else -table[:, ::-1]))
    likelihoods, tables = (np.stack(each) for each in zip(*found, strict=True))
    return tables[likelihoods.argmax(axis=0), np.arange(X.shape[1])]


def _moved(table: Floats, at: Floats, scale: Floats) -> Floats:
    """Return standard quantiles shifted and scaled for every location and scale."""
    return at[:, None] + scale[:, None] * table


def axis_scales(Z: Floats, rng: np.random.Generator) -> Floats:
    """Return factors for the axes with which sampled noise has the table's sample variances.

    Those vary more along principal axes than the population's: noise drawn with them would be too
    narrow in all but the first directions, and have fewer directions with chance groups.
    """
    if Z.shape[1] == 1:
        return np.ones(1)
    seen = np.linalg.norm(Z, axis=0)
    drawn_with = seen.copy()
    for _ in range(4):
        logs = np.zeros_like(seen)
        for _ in range(6):
            sample = rng.normal(size=Z.shape) * (drawn_with / np.sqrt(len(Z)))
            values = np.linalg.eigvalsh(sample.T @ sample)[::-1]
            logs += 0.5 * np.log(np.maximum(values, 1e-300)) / 6
        drawn_with *= np.clip(seen / np.exp(logs), 0.5, 2.0)
        drawn_with = np.minimum.accumulate(drawn_with)
    return drawn_with / seen


def gaussian(Z: Floats) -> Draw:
    """Gaussian rows with the covariance of the table."""
    values, vectors = np.linalg.eigh(Z.T @ Z / len(Z))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return lambda rng: rng.normal(size=Z.shape) @ root.T


def elliptical(Z: Floats) -> Draw:
    """Rows from the maximum-likelihood elliptical density that decreases from its center."""
    n, p = Z.shape
    center, scatter = np.median(Z, axis=0), np.diag(Z.var(axis=0) + 1e-12)
    for _ in range(15):  # scatter of a t distribution with df = 3, which downweights outliers
        D = Z - center
        weight = (3.0 + p) / (3.0 + np.sum(D * np.linalg.solve(scatter, D.T).T, axis=1))
        center = weight @ Z / weight.sum()
        D = Z - center
        scatter = D.T @ (D * weight[:, None]) / n
        scatter += 1e-9 * np.trace(scatter) / p * np.eye(p)
    root = np.linalg.cholesky(scatter)
    radii = np.sort(np.linalg.norm(np.linalg.solve(root, (Z - center).T), axis=0))
    # A density that decreases with the radius r has a concave CDF of r^p (Grenander).
    volume = np.append(0.0, (radii / radii[-1]) ** p)
    share = np.linspace(0.0, 1.0, n + 1)
    knots = convex_minorant(volume, -share)

    def draw(rng: np.random.Generator) -> Floats:
        r = radii[-1] * np.interp(rng.random(n), share[knots], volume[knots]) ** (1.0 / p)
        direction = rng.normal(size=Z.shape)
        direction *= (r / np.linalg.norm(direction, axis=1))[:, None]
        return direction @ root.T

    return draw


def with_marginals(Y: Floats, axes: Floats) -> Draw:
    """Rows from a Gaussian copula with the features' marginals and rank correlations."""
    n, p = Y.shape
    scores = special.ndtri((stats.rankdata(Y, axis=0) - 0.5) / n)
    if p <= n:
        values, vectors = np.linalg.eigh(np.corrcoef(scores.T).reshape(p, p))
        root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    else:  # the same correlations, without a p × p matrix
        root = (scores - scores.mean(axis=0)) / (scores.std(axis=0) * np.sqrt(n))
    tables = quantiles(Y)

    def draw(rng: np.random.Generator) -> Floats:
        u = special.ndtr(rng.normal(size=(n, len(root))) @ root)
        rows = np.column_stack([np.interp(u[:, i], GRID, tables[i]) for i in range(p)])
        return rows @ axes

    return draw


class MixedTable(NamedTuple):
    """Scaled rows of a table with categories, which have several indicators."""

    rows: Floats
    columns: Sequence[tuple[int, int]]  # start and end of each original column among the features
    indicators: Ints  # the features that are indicators of categories
    n_factors: int  # of the table

    def factors(self, centered: Floats) -> Floats:
        """Return the weights (P, r) of features in what categories share with other columns.

        That is their part of the best approximation of the rows by ``n_factors`` principal
        components, in as few coordinates as preserve its distances.
        """
        if not self.n_factors:
            return np.zeros((centered.shape[1], 0))
        axes = np.linalg.svd(centered, full_matrices=False)[2][: self.n_factors]
        left, sizes, _ = np.linalg.svd(axes[:, self.indicators], full_matrices=False)
        return np.asarray(axes.T @ (left * sizes))

    def represent(self, rows: Floats, factors: Floats) -> Floats:
        """Return rows with factors in place of the indicators."""
        return np.hstack([np.delete(rows, self.indicators, axis=1), rows @ factors])


def mixed_columns(table: MixedTable, kept: int) -> Draw:
    """Principal components of rows from a Gaussian copula for numeric and categorical columns.

    The levels of a category are ordered along the first principal component and drawn by
    thresholding the copula's Gaussian. The rows are represented as the table is, and the first
    ``kept`` principal components returned.
    """
    Y = table.rows - table.rows.mean(axis=0)
    n = len(Y)
    leading = np.linalg.svd(Y, full_matrices=False)[0][:, 0]
    ranks: list[Floats] = []
    samplers: list[Callable[[Floats], Any]] = []
    for first, last in table.columns:
        values, value = np.unique(Y[:, first:last], axis=0, return_inverse=True)
        if last - first == 1 and len(values) > FEW_VALUES:
            ranks.append(stats.rankdata(Y[:, first]))
            samplers.append(partial(np.interp, xp=GRID, fp=quantiles(Y[:, [first]])[0]))
            continue
        value = value.ravel()
        along = np.bincount(value, leading) / np.bincount(value)
        if last - first == 1:
            along = values[:, 0]
        ranks.append(stats.rankdata(along[value]))
        in_order = Y[np.argsort(along[value], kind="stable"), first:last]
        samplers.append(partial(_empirical, rows=in_order))
    scores = special.ndtri((np.column_stack(ranks) - 0.5) / n)
    scores /= np.maximum(scores.std(axis=0), 1e-12)
    variances, axes = np.linalg.eigh(np.cov(scores.T).reshape(len(ranks), -1))
    root = axes * np.sqrt(np.maximum(variances, 0.0))

    def draw(rng: np.random.Generator) -> Floats:
        u = special.ndtr(rng.normal(size=scores.shape) @ root.T)
        rows = np.column_stack([sample(u[:, i]) for i, sample in enumerate(samplers)])
        rows -= rows.mean(axis=0)
        rows = table.represent(rows, table.factors(rows))
        left, singular, _ = np.linalg.svd(rows, full_matrices=False)
        return left[:, :kept] * singular[:kept]

    return draw


def _empirical(u: Floats, rows: Floats) -> Floats:
    """Return the quantiles of sorted rows at the probabilities u."""
    return rows.take((u * len(rows)).astype(np.int64), axis=0, mode="clip")


def independent(Z: Floats, kept: int) -> Draw:
    """Rows that mix independent components (ICA), each with its own distribution.

    Only the first ``kept`` axes are drawn, but all of them are used to estimate the components.
    """
    from sklearn.decomposition import FastICA

    # The axes themselves if there is only one, or only rounding errors along some of them.
    components, mixing = Z, np.eye(Z.shape[1])
    if Z.shape[1] > 1:
        model = FastICA(fun="cube", max_iter=60, tol=1e-3, whiten="unit-variance", random_state=0)
        # ICA converges slowly without independent components; stopping early does no harm.
        with warnings.catch_warnings(action="ignore"), suppress(ValueError, np.linalg.LinAlgError):
            components, mixing = model.fit_transform(Z), model.mixing_
    tables = quantiles(components)

    def draw(rng: np.random.Generator) -> Floats:
        parts = np.column_stack([np.interp(rng.random(len(Z)), GRID, t) for t in tables])
        return parts @ mixing[:kept].T

    return draw
