"""Geometry of the rows (distances, neighbors, trees, embeddings), cached for committee and judge.

Hierarchies, spanning trees and spectral embeddings serve every number of clusters, so clustering
into several numbers of clusters costs little more than into one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import cdist, squareform
from scipy.stats import rankdata

from sgpmic._types import Floats, Ints
from sgpmic.learning.preprocessing import distinct_rows, rotated

#: Number of nearest neighbors for validity indices and density modes.
N_NEIGHBORS = 10
#: A row's core distance is the distance to this neighbor.
_CORE_NEIGHBOR = 5
#: Fraction of the variance and maximum number of the principal components that are kept.
_SHARE_OF_VARIANCE, _MOST_DIMENSIONS = 0.95, 30

#: Lower limit of spacings, relative to their mean, for duplicate rows.
_SMALLEST_SPACING = 1e-2
#: Quantile bins of a feature, and maximum number of features with bins.
N_BINS, _MOST_BINNED = 8, 200
#: Decimals kept of scaled rows. Further ones are rounding errors, which would break ties between
#: values and distances; tables of integers have many ties.
DECIMALS = 7
#: A feature with at most this many distinct values is discrete.
_FEW_VALUES = 10
#: Repeated rows are copies if they are this fraction of the distinct rows, or more, and this many
#: times as frequent as coincidences of independent features.
_MANY_COPIES, _NOT_BY_CHANCE = 0.1, 100.0
_R = TypeVar("_R")


class Tree(NamedTuple):
    """A minimum spanning tree, its edges sorted by length."""

    start: Ints  # (n - 1,)
    end: Ints
    length: Floats


def spanning_tree(distances: Floats) -> Tree:
    """Return the minimum spanning tree of all pairwise distances (n, n), by Prim's algorithm."""
    # On 3000 rows it is 60 times faster than SciPy's, which sorts all pairs.
    n = len(distances)
    nearest = distances[0].copy()  # distance of every row to the tree so far; start: to which row
    start, end, length = np.zeros(n, np.int64), np.zeros(n - 1, np.int64), np.zeros(n - 1)
    outside = np.ones(n, dtype=bool)
    outside[0] = False
    nearest[0] = np.inf
    for edge in range(n - 1):
        row = int(nearest.argmin())
        end[edge], length[edge] = row, nearest[row]
        outside[row], nearest[row] = False, np.inf
        closer = outside & (distances[row] < nearest)
        nearest[closer] = distances[row][closer]
        start[closer] = row
    order = np.argsort(length, kind="stable")
    return Tree(start[end][order], end[order], length[order])


def mutual_reachability(distances: Floats, core: Floats) -> Floats:
    """Return mutual reachability distances (n, n), as in HDBSCAN."""
    reach = np.maximum(distances, core)
    return np.maximum(reach, core[:, None], out=reach)


def without_copies(rows: Floats, n_factors: int = 0) -> tuple[Ints, Ints]:
    """Return the numbers of the rows without copies, and for each row its place among these.

    A measurement that is entered several times looks like a small, dense cluster. But where
    features have few values, rows agree by chance or because they are common, and all are kept. The
    last ``n_factors`` features represent categories, which have few values.
    """
    distinct, place, _ = distinct_rows(rows.round(DECIMALS))
    n, n_copies = len(distinct), len(rows) - len(distinct)
    if n_copies >= _MANY_COPIES * n:
        measured = distinct.T[: distinct.shape[1] - n_factors]
        counts = [np.unique(column, return_counts=True)[1] for column in measured]
        fractions = [count / n for count in counts if len(count) > _FEW_VALUES]
        by_chance = n**2 * np.prod([np.sum(each**2) for each in fractions])
        if n_copies >= _NOT_BY_CHANCE * by_chance:
            return np.unique(place, return_index=True)[1], place
    return np.arange(len(rows)), np.arange(len(rows))


class Geometry:
    """Distances, neighbors, trees and embeddings of n ≥ 2 scaled rows (n, p), computed lazily.

    ``most_clusters`` is the largest number of clusters that will be requested.
    """

    def __init__(self, Y: Floats, most_clusters: int) -> None:
        self.features = np.ascontiguousarray(Y, np.float64)
        self.Y = rotated(self.features)
        self.most_clusters = min(most_clusters, len(Y) - 1)
        self._made: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self.Y)

    @cached_property
    def distances(self) -> Floats:
        """Pairwise Euclidean distances (n, n)."""
        return cdist(self.Y, self.Y)

    @cached_property
    def neighbors(self) -> Ints:
        """Indices of the nearest neighbors (n, k)."""
        k = min(N_NEIGHBORS, len(self) - 1)
        apart = self.distances.copy()
        np.fill_diagonal(apart, np.inf)
        some = np.argpartition(apart, k - 1, axis=1)[:, :k]
        some.sort(axis=1)  # break ties by row index
        order = np.argsort(np.take_along_axis(apart, some, axis=1), axis=1, kind="stable")
        return np.take_along_axis(some, order, axis=1)

    @cached_property
    def neighbor_distances(self) -> Floats:
        """Distances to the nearest neighbors (n, k), in ascending order."""
        return np.take_along_axis(self.distances, self.neighbors, axis=1)

    @cached_property
    def tree(self) -> Tree:
        """The minimum spanning tree."""
        return spanning_tree(self.distances)

    @cached_property
    def reachability_tree(self) -> Tree:
        """The minimum spanning tree of the mutual reachability distances."""
        near = self.neighbor_distances[:, :_CORE_NEIGHBOR]
        return spanning_tree(mutual_reachability(self.distances, near[:, -1]))

    @cached_property
    def ward_merges(self) -> Ints:
        """Merges (n - 1, 2) of Ward's method, numbered as in SciPy's ``linkage``."""
        found = linkage(squareform(self.distances, checks=False), "ward")
        return np.asarray(found[:, :2], np.int64)

    @cached_property
    def components(self) -> Floats:
        """The leading principal components (n, q)."""
        left, singular, _ = np.linalg.svd(self.Y - self.Y.mean(axis=0), full_matrices=False)
        explained = np.cumsum(singular**2)
        number = int(np.searchsorted(explained, _SHARE_OF_VARIANCE * explained[-1])) + 1
        return (left * singular)[:, : min(number, _MOST_DIMENSIONS)]

    @cached_property
    def bins(self) -> Floats:
        """Indicators (n, features · N_BINS) of each feature's quantile bins; ties share one."""
        n, p = self.features.shape
        some = self.features[:, np.linspace(0, p - 1, min(p, _MOST_BINNED)).astype(int)]
        number = N_BINS * (rankdata(some.round(DECIMALS), axis=0) - 0.5) / n
        return np.eye(N_BINS)[number.astype(np.int64)].reshape(n, -1)

    @cached_property
    def log_spacing(self) -> Floats:
        """Log mean distance to the nearest neighbors (n,), with a floor for duplicate rows."""
        spacing = self.neighbor_distances.mean(axis=1)
        floor = _SMALLEST_SPACING * float(spacing.mean()) + np.finfo(float).tiny
        return np.log(np.maximum(spacing, floor))

    @cached_property
    def intrinsic_dimension(self) -> float:
        """Levina and Bickel's estimate from the nearest neighbors."""
        near = self.neighbor_distances
        floor = _SMALLEST_SPACING * float(near.mean()) + np.finfo(float).tiny
        logs = np.log(np.maximum(near, floor))
        rises = logs[:, -1:] - logs[:, :-1]
        rise = float(rises.sum()) / max(rises.size, 1)  # two rows have one neighbor each
        return 1.0 / rise if rise > 0 else 1.0

    @cached_property
    def summary(self) -> tuple[float, ...]:
        """Features of the table: logs of sizes and dimensions, discreteness, tails."""
        variances = self.components.var(axis=0)
        effective = variances.sum() ** 2 / max(float(np.sum(variances**2)), 1e-300)
        n_values = [len(np.unique(column)) for column in self.features.T]
        squares = self.features**2
        kurtosis = np.mean(squares**2, axis=0) / np.maximum(np.mean(squares, axis=0) ** 2, 1e-300)
        return (
            float(np.log(len(self))),
            float(np.log(self.features.shape[1])),
            float(np.log(self.components.shape[1])),
            float(np.log(max(effective, 1.0))),
            float(np.log(min(max(self.intrinsic_dimension, 0.1), 100.0))),
            float(np.mean(np.array(n_values) <= _FEW_VALUES)),
            float(self.log_spacing.std()),
            float(np.log(np.median(kurtosis) + 1.0)),
        )

    def once(self, make: Callable[..., _R], *args: Hashable) -> _R:
        """Return ``make(self, *args)``, cached."""
        key = (make.__name__, *args)
        if key not in self._made:
            self._made[key] = make(self, *args)
        return self._made[key]
