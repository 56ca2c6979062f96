"""A prior over labeled clustering problems: ``make_problem(seed)`` draws one.

The judge is trained on these problems to rate partitions of real tables. No row of a real table
was used, but two facts about real data were: many shapes belong to families found in public
benchmarks (their points are redrawn, with other proportions), and the class signal in tables was
tuned, over four rounds, until the best adjusted Rand index (ARI) was below 0.3 for about half of
them, as is reported for real tables.

Kinds, with their shares:

- ``table`` (36 %): features of different units. Classes live in one to eight latent factors, as
  mixtures of one to three subclusters each or, in 10 % of the tables, as adjacent intervals of a
  nonlinear score. Informative features load on the factors; up to 80 % are uninformative. All get
  nuisance variation (correlated blocks, a size factor, batches) and independent noise. Then every
  feature gets a marginal: normal, skewed, counts, zero-inflated, bounded, rounded, binary, ordinal,
  whole years, heavy-tailed; some become compositions (percentages of a whole), one-hot categories,
  copies and sums of others.
- ``signal`` (6 %): spectra, small images and pen strokes: many features of the same unit.
- ``expression`` (5 %): log overdispersed gene counts, with more genes than half the rows.
- ``cloud`` (12 %): mixtures in 2 to 60 dimensions (120 with uninformative ones), of spherical,
  diagonal, full, tied or low-rank covariance; Gaussian, Student, Laplace, uniform, lognormal or
  gamma.
- ``warp`` (7 %): such mixtures in one to eight dimensions, mapped by a random network.
- ``subspaces`` (3 %): noisy points of linear subspaces of one to five dimensions.
- ``shape`` (23 %): rings, spirals, moons, bands, crosses, letters, chains and the like in two or
  three dimensions, sometimes with background noise, stretched, or embedded in more dimensions.
- ``noise`` (8 %): one cluster, from the same generators or uniform. Held out for testing:
  independent t(3), uniform balls, independent Poisson counts and one-hot noise.

Rows: 60 to 3000, median about 300, mostly below 1000; shapes have twice as many as the others.
Clusters: k with probability ∝ k^-1.6 from 2 to 20 (some shapes have a fixed number), sizes from
equal down to 2 %, in 20 % with one majority cluster. Overlap: the centers of clouds and of table
factors are scaled until the error rate of Gaussian discriminants has a value drawn from 0 to 35 %,
small ones more often; in tables, nuisance and noise then add to it. On 250 problems of at most 700
rows, the best of k-means, Ward, a full-covariance mixture, spectral clustering and single linkage
had a median ARI of 0.28 on tables, 0.71 on clouds and 0.86 on shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from judge.clouds import cloud, subspaces, warp
from judge.priors import (
    Floats,
    Integers,
    Rng,
    draw_labels,
    draw_n_clusters,
    draw_n_rows,
    log_uniform,
    one_of,
    rotation,
    standardized,
)
from judge.shapes import shape
from judge.tables import (
    draw_levels,
    draw_missing,
    encoded_levels,
    expression,
    scores,
    signal,
    table,
    with_marginals,
)


class Problem(NamedTuple):
    """Rows, their true labels 0 to k − 1, and how to scale the features."""

    X: Floats
    y: Integers
    kind: str
    each: bool
    """Whether features are to be standardized one by one, not divided by one number."""


Draw = Callable[[Rng, int, int], tuple[Floats, Integers]]

KINDS: dict[str, tuple[float, Draw]] = {
    "table": (0.36, table),
    "signal": (0.06, signal),
    "expression": (0.05, expression),
    "cloud": (0.12, cloud),
    "warp": (0.07, warp),
    "subspaces": (0.03, subspaces),
    "shape": (0.23, shape),
    "noise": (0.08, lambda rng, n, k: one_of(rng, NOISES)(rng, n, 1)),
}


def uniform(rng: Rng, n: int, k: int) -> tuple[Floats, Integers]:
    """Draw a uniform distribution on a randomly oriented box."""
    p = int(log_uniform(rng, 2, 30))
    edges = np.exp(rng.uniform(0, 1) * rng.normal(size=p))
    return rng.random((n, p)) * edges @ rotation(rng, p), np.zeros(n, np.int64)


NOISES: dict[str, Draw] = {
    **{f"table {number}": table for number in range(5)},
    **{f"cloud {number}": cloud for number in range(3)},
    **{function.__name__: function for function in (warp, signal, expression, shape, uniform)},
}


def without_constants(X: Floats) -> Floats:
    """Return the features with two different values."""
    varies = np.fmax.reduce(X, axis=0) > np.fmin.reduce(X, axis=0)
    return np.ascontiguousarray(X[:, varies])


def is_sound(X: Floats, y: Integers) -> bool:
    """Return whether values are finite, enough rows distinct, and no cluster constant."""
    return bool(
        X.shape[1] > 1
        and np.isfinite(X).all()
        and len(np.unique(X @ np.sqrt(np.arange(2, X.shape[1] + 2)))) > len(X) / 10
        and np.bincount(y).min() > 1
        and all((X[y == label] != X[np.argmax(y == label)]).any() for label in np.unique(y))
    )


def make_problem(seed: int) -> Problem:
    """Draw a labeled clustering problem; the same seed gives the same problem.

    Parameters
    ----------
    seed : int
        Seed of ``numpy.random.default_rng``.

    Returns
    -------
    Problem
        Rows in random order without constant features, labels, kind and scaling.
    """
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(list(KINDS), p=[share for share, _ in KINDS.values()]))
    while True:  # redraws are rare: for example, all counts zero
        n = draw_n_rows(rng)
        X, y = KINDS[kind][1](rng, n, draw_n_clusters(rng, n))
        X = X[:, np.ptp(X, axis=0) > 1e-9 * np.abs(X).max()]
        if is_sound(X, y):
            break
    order = rng.permutation(len(y))
    each = kind == "table" or (kind != "shape" and X.shape[1] > 3 and bool(rng.random() < 0.5))
    return Problem(np.ascontiguousarray(X[order]), y[order].astype(np.int64), kind, each)


def make_noise(seed: int) -> Problem:
    """Draw a table of one cluster, with correlated features of random skew and tails.

    Gaussian rows with a sinh-arcsinh transform of each feature (Jones and Pewsey). Additional
    training data for the number of clusters: other noise is rarely skewed or heavy-tailed.
    """
    rng = np.random.default_rng(seed)
    n, p = draw_n_rows(rng), int(log_uniform(rng, 2, 30))
    loadings = rng.normal(size=(int(rng.integers(1, p + 1)), p))
    Z = rng.normal(size=(n, len(loadings))) @ loadings + rng.gamma(1.0) * rng.normal(size=(n, p))
    skew = rng.uniform(0.0, 1.0) * rng.normal(size=p)
    tails = np.exp(rng.uniform(-1.0, 0.3, size=p))  # below 1: heavier than normal
    X = np.sinh((np.arcsinh(standardized(Z)) + skew) / tails)
    return Problem(X, np.zeros(n, np.int64), "unimodal", True)


def make_gaps(seed: int) -> Problem:
    """Draw a table whose clusters show in one to three features; the others are useless.

    Additional training data for the calibration: in other tables, what a single feature says alone
    is rarely a cluster.
    """
    rng = np.random.default_rng(seed)
    n = draw_n_rows(rng)
    y = draw_labels(rng, n, min(draw_n_clusters(rng, n), 6))
    k, d = int(y.max()) + 1, int(rng.integers(1, 4))
    centers = rng.normal(size=(k, d))
    distances = np.linalg.norm(centers[:, None] - centers, axis=2)[np.triu_indices(k, 1)]
    apart = log_uniform(rng, 2.5, 30) * centers / max(distances.min(), 0.1)
    widths = np.exp(0.3 * rng.normal(size=(k, d)))
    useful = apart[y] + widths[y] * rng.normal(size=(n, d))
    useless = scores(rng, np.zeros(n, np.int64), int(rng.geometric(0.25)))
    X = np.hstack([useful, with_marginals(rng, useless)])
    order = rng.permutation(n)
    return Problem(without_constants(X[order]), y[order].astype(np.int64), "gaps", True)


def make_mixed(seed: int) -> Problem:
    """Draw a table of numbers and categories in the unit of the encoder, some with missing cells.

    Additional training data for the calibration and the number of clusters: the committee sees
    factors in place of categories, and imputed cells.
    """
    rng = np.random.default_rng(seed)
    n, p = draw_n_rows(rng), int(log_uniform(rng, 3, 25))
    k = 1 if rng.random() < 0.35 else min(draw_n_clusters(rng, n), 8)
    y = draw_labels(rng, n, k)
    S = scores(rng, y, p)
    is_category = rng.random(p) < rng.uniform(0.15, 1.0)
    is_category[rng.integers(p)] = True
    has_gaps = rng.random() < 0.3
    missing = draw_missing(rng, S) if has_gaps else np.zeros(S.shape, bool)
    columns = []
    for j in range(p):
        if is_category[j]:
            column = encoded_levels(draw_levels(rng, y, S[:, j]))
        else:
            column = standardized(with_marginals(rng, S[:, [j]]))
        columns.append(np.where(missing[:, [j]], np.nan, column))
    order = rng.permutation(n)
    X = without_constants(np.hstack(columns)[order])
    return Problem(X, y[order].astype(np.int64), "mixed", False)
