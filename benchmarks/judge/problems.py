"""A prior over labeled clustering problems: ``make_problem(seed)`` draws one.

A judge learns from these problems how good a partition of a real table is. No row of a real table
took part in making them, but two things known of real data did: many shapes are of the families
that public benchmarks have (their points are drawn anew, with other proportions), and the
strength of the classes in tables was adjusted, over four rounds, until about half of the tables
had a best adjusted Rand index below 0.3, as is reported of real ones.

Kinds, with their shares:

- ``table`` (36 %): features of different units. Classes sit on one to eight latent factors, as
  mixtures of one to three subclusters each, or, in a tenth of the tables, as ranges of a curved
  score without any gap. Useful features load on the factors; up to 80 % are useless. All are moved
  by nuisance (blocks of correlation, a factor of size, batches) and by noise of their own. Then
  every feature gets a marginal: normal, skewed, counts, heaped at zero, bounded, rounded,
  binary, ordinal, whole years, heavy-tailed; some become percentages of a whole, indicators of a
  category, copies and sums of others.
- ``signal`` (6 %): spectra, small images and pen strokes, many features of one unit.
- ``expression`` (5 %): logarithms of overdispersed counts of genes, more than half as many as rows.
- ``cloud`` (12 %): mixtures in 2 to 60 dimensions (120 with useless ones), of spherical, diagonal,
  full, tied or low-rank covariance; Gaussian, Student, Laplace, uniform, lognormal or gamma.
- ``warp`` (7 %): such mixtures in one to eight dimensions, sent through a random network.
- ``subspaces`` (3 %): rows of linear subspaces of one to five dimensions, with noise.
- ``shape`` (23 %): rings, spirals, moons, bands, crosses, letters, chains and the like in two or
  three dimensions, at times with background noise, stretched, or embedded in more dimensions.
- ``noise`` (8 %): one cluster, from the same machinery or uniform. Left out on purpose, for
  tests of what learned from these problems: independent t(3), uniform balls, independent Poisson
  counts and one-hot noise.

Rows: 60 to 3000, median about 300, mostly below 1000; shapes have twice as many as the others.
Clusters: k with probability ∝ k^-1.6 from 2 to 20 (some shapes have a number of their own), of
sizes from equal to 2 %, in a fifth with one majority. Overlap: centers of clouds and of the
factors of tables are moved apart until Gaussian discriminants have an error drawn from 0 to 35 %,
more often small; in tables, nuisance and noise then hide more. On 250 problems of at most 700
rows, the best of k-means, Ward, a full mixture, spectral clustering and single linkage had a
median adjusted Rand index of 0.28 on tables, 0.71 on clouds and 0.86 on shapes.
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
    draw_n_clusters,
    draw_n_rows,
    log_uniform,
    one_of,
    rotation,
    standardized,
)
from judge.shapes import shape
from judge.tables import expression, signal, table


class Problem(NamedTuple):
    """Rows, their true clusters 0 to k − 1, and how the features are to be scaled."""

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
    """Draw a uniform box of any edges."""
    p = int(log_uniform(rng, 2, 30))
    edges = np.exp(rng.uniform(0, 1) * rng.normal(size=p))
    return rng.random((n, p)) * edges @ rotation(rng, p), np.zeros(n, np.int64)


NOISES: dict[str, Draw] = {
    **{f"table {number}": table for number in range(5)},
    **{f"cloud {number}": cloud for number in range(3)},
    **{function.__name__: function for function in (warp, signal, expression, shape, uniform)},
}


def is_sound(X: Floats, y: Integers) -> bool:
    """Return whether all is finite, rows differ enough, and so do two of every cluster."""
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
        Rows in random order, features without constant ones, labels, kind and scaling.
    """
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(list(KINDS), p=[share for share, _ in KINDS.values()]))
    while True:  # few are not sound: rare counts may be all zero
        n = draw_n_rows(rng)
        X, y = KINDS[kind][1](rng, n, draw_n_clusters(rng, n))
        X = X[:, np.ptp(X, axis=0) > 1e-9 * np.abs(X).max()]
        if is_sound(X, y):
            break
    order = rng.permutation(len(y))
    each = kind == "table" or (kind != "shape" and X.shape[1] > 3 and bool(rng.random() < 0.5))
    return Problem(np.ascontiguousarray(X[order]), y[order].astype(np.int64), kind, each)


def make_noise(seed: int) -> Problem:
    """Draw a table of one cluster, with correlated features of any skew and any tails.

    Gaussian rows, their features transformed by a sinh-arcsinh each (Jones and Pewsey). The number
    of clusters is learned from these besides: of skewed or heavy-tailed noise there is little else.
    """
    rng = np.random.default_rng(seed)
    n, p = draw_n_rows(rng), int(log_uniform(rng, 2, 30))
    loadings = rng.normal(size=(int(rng.integers(1, p + 1)), p))
    Z = rng.normal(size=(n, len(loadings))) @ loadings + rng.gamma(1.0) * rng.normal(size=(n, p))
    skew = rng.uniform(0.0, 1.0) * rng.normal(size=p)
    tails = np.exp(rng.uniform(-1.0, 0.3, size=p))  # below 1 they are heavier than normal
    X = np.sinh((np.arcsinh(standardized(Z)) + skew) / tails)
    return Problem(X, np.zeros(n, np.int64), "unimodal", True)
