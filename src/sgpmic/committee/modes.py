"""Clusters as modes of the density, merged by prominence on a neighbor graph.

Every row climbs the graph to a mode. Two modes meet at a saddle; the lower one is as prominent as
its density is above the saddle's (in logarithms). The most prominent modes are the clusters, every
other one is merged into its parent, the higher mode that it meets first. This is ToMATo (Chazal,
Guibas, Oudot and Skraba, *Persistence-based clustering in Riemannian manifolds*, J. ACM 60, 2013)
with a nearest-neighbor estimate of the density.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sgpmic._types import Floats, Ints


class Modes(NamedTuple):
    """The modes of a density on a neighbor graph."""

    mode: Ints  # (n,) the mode that every row climbs to
    prominence: Floats  # (n_modes,) infinite for the highest mode of a connected piece
    parent: Ints  # (n_modes,) the mode it is merged into, itself where there is none


def find_modes(distances: Floats, neighbors: Ints) -> Modes:
    """Return the modes of the density of rows."""
    n = len(neighbors)
    # The density goes with a power of the distance: its logarithm but for factors, all of which
    # leave the order of prominences as it is.
    squares = np.mean(distances**2, axis=1)
    height = -np.log(np.maximum(squares, 1e-12 * squares.mean() + np.finfo(float).tiny))
    rank = np.empty(n, np.int64)
    rank[np.lexsort((np.arange(n), -height))] = np.arange(n)
    # Links both ways; each is as high as its lower end.
    one = np.repeat(np.arange(n), neighbors.shape[1])
    start, end = (
        np.concatenate([one, neighbors.ravel()]),
        np.concatenate([neighbors.ravel(), one]),
    )
    uphill = np.arange(n)
    best = rank.copy()
    np.minimum.at(best, start, rank[end])
    by_rank = np.argsort(rank)
    uphill = by_rank[best]
    peak = uphill.copy()
    for row in by_rank:  # from the top, so that a row's way up is known
        peak[row] = peak[uphill[row]] if uphill[row] != row else row
    peaks, mode = np.unique(peak, return_inverse=True)
    prominence, parent = _meet(mode, height, height[peaks], start, end)
    return Modes(mode, prominence, parent)


def _meet(mode: Ints, height: Floats, tops: Floats, start: Ints, end: Ints) -> tuple[Floats, Ints]:
    """Return every mode's prominence and parent, from the saddles between modes."""
    n_modes = len(tops)
    across = mode[start] < mode[end]
    saddles = np.minimum(height[start[across]], height[end[across]])
    pairs = mode[start[across]], mode[end[across]]
    prominence, parent = np.full(n_modes, np.inf), np.arange(n_modes)
    root = np.arange(n_modes)

    def top_of(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = int(root[number])
        return number

    for link in np.argsort(-saddles, kind="stable"):
        a, b = top_of(int(pairs[0][link])), top_of(int(pairs[1][link]))
        if a == b:
            continue
        lower, higher = (a, b) if tops[a] < tops[b] else (b, a)
        prominence[lower] = tops[lower] - saddles[link]
        parent[lower] = root[lower] = higher
    return prominence, parent


def cluster_by_modes(Y: Floats, distances: Floats, neighbors: Ints, n_clusters: int) -> Ints:
    """Return labels of rows: the ``n_clusters`` most prominent modes, or as many as there are.

    Distances and neighbors (N, k) are those of every row's nearest others.
    """
    modes = find_modes(distances, neighbors)
    sizes = np.bincount(modes.mode)
    # Of pieces of the graph that fall apart, the larger ones come first.
    order = np.lexsort((-sizes, -modes.prominence))
    kept = np.zeros(len(sizes), dtype=bool)
    kept[order[:n_clusters]] = True
    target = np.arange(len(sizes))
    for number in range(len(sizes)):
        place = number
        while not kept[place] and modes.parent[place] != place:
            place = int(modes.parent[place])
        target[number] = place
    found = target[modes.mode]
    lost = ~kept[found]  # on small pieces of the graph, which have no parent
    if lost.any():
        from scipy.spatial import KDTree

        _, nearest = KDTree(Y[~lost]).query(Y[lost])
        found[lost] = found[~lost][nearest]
    return np.unique(found, return_inverse=True)[1]
