"""Clusters as the hills of a density: the modes of a nearest-neighbour estimate.

Every row climbs the neighbour graph to a peak. Two hills meet at a pass, and the lower of them is
as prominent as its peak is high above the pass (in logarithms). The most prominent hills are the
clusters; every other one belongs to the higher hill that it leans on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sgpmic._types import Floats, Ints


class Hills(NamedTuple):
    """The hills of a density on a neighbour graph."""

    hill: Ints  # (n,) the hill every row is on
    prominence: Floats  # (n_hills,) the highest hill of a piece of the graph has an infinite one
    leans_on: Ints  # (n_hills,) the higher hill it meets first, itself where there is none


def find_hills(distances: Floats, neighbours: Ints) -> Hills:
    """Return the hills of the density of rows."""
    n = len(neighbours)
    # The density goes with a power of the distance: its logarithm but for factors, all of which
    # leave the order of prominences as it is.
    squares = np.mean(distances**2, axis=1)
    height = -np.log(np.maximum(squares, 1e-12 * squares.mean() + np.finfo(float).tiny))
    rank = np.empty(n, np.int64)
    rank[np.lexsort((np.arange(n), -height))] = np.arange(n)
    # Links both ways; each is as high as its lower end.
    one = np.repeat(np.arange(n), neighbours.shape[1])
    start, end = (
        np.concatenate([one, neighbours.ravel()]),
        np.concatenate([neighbours.ravel(), one]),
    )
    uphill = np.arange(n)
    best = rank.copy()
    np.minimum.at(best, start, rank[end])
    by_rank = np.argsort(rank)
    uphill = by_rank[best]
    peak = uphill.copy()
    for row in by_rank:  # from the top, so that a row's way up is known
        peak[row] = peak[uphill[row]] if uphill[row] != row else row
    peaks, hill = np.unique(peak, return_inverse=True)
    prominence, leans_on = _meet(hill, height, height[peaks], start, end)
    return Hills(hill, prominence, leans_on)


def _meet(hill: Ints, height: Floats, tops: Floats, start: Ints, end: Ints) -> tuple[Floats, Ints]:
    """Return every hill's prominence and what it leans on, from the passes between hills."""
    n_hills = len(tops)
    across = hill[start] < hill[end]
    passes = np.minimum(height[start[across]], height[end[across]])
    pairs = hill[start[across]], hill[end[across]]
    prominence, leans_on = np.full(n_hills, np.inf), np.arange(n_hills)
    root = np.arange(n_hills)

    def top_of(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = int(root[number])
        return number

    for link in np.argsort(-passes, kind="stable"):
        a, b = top_of(int(pairs[0][link])), top_of(int(pairs[1][link]))
        if a == b:
            continue
        lower, higher = (a, b) if tops[a] < tops[b] else (b, a)
        prominence[lower] = tops[lower] - passes[link]
        leans_on[lower] = root[lower] = higher
    return prominence, leans_on


def cluster_by_modes(Y: Floats, distances: Floats, neighbours: Ints, n_clusters: int) -> Ints:
    """Return labels of rows: the ``n_clusters`` most prominent hills, or as many as there are.

    Distances and neighbours (N, k) are those of every row's nearest others.
    """
    hills = find_hills(distances, neighbours)
    sizes = np.bincount(hills.hill)
    # Of pieces of the graph that fall apart, the larger ones come first.
    order = np.lexsort((-sizes, -hills.prominence))
    kept = np.zeros(len(sizes), dtype=bool)
    kept[order[:n_clusters]] = True
    target = np.arange(len(sizes))
    for number in range(len(sizes)):
        place = number
        while not kept[place] and hills.leans_on[place] != place:
            place = int(hills.leans_on[place])
        target[number] = place
    found = target[hills.hill]
    lost = ~kept[found]  # on small pieces of the graph, which lean on nothing
    if lost.any():
        from scipy.spatial import KDTree

        _, nearest = KDTree(Y[~lost]).query(Y[lost])
        found[lost] = found[~lost][nearest]
    return np.unique(found, return_inverse=True)[1]
