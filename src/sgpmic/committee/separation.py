"""How far apart the rows of a table lie: figures that are large where there are clusters.

None of them means anything by itself; ``support.py`` compares them with those of noise.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.optimize import isotonic_regression
from scipy.spatial.distance import pdist, squareform
from scipy.special import expit

from sgpmic._types import Floats, Ints

#: What the figures of ``separations`` measure, in their order.
PARTS = (
    "two groups along the widest direction",
    "two groups along a direction of any width",
    "a gap between dense regions",
    "a valley along the widest direction",
)
#: The rows whose distances to each other are computed.
LINKED_ROWS = 300
#: A smaller share of the rows is no dense region of its own.
SMALLEST_SHARE = 0.05
#: The values that a dip is computed of; more are represented by their quantiles.
DIP_VALUES = 400
BINS = 100
EM_STEPS = 30
LLOYD_STEPS = 12
#: How far a lognormal begins before the first row, in standard deviations of the rows.
LOGNORMAL_SHIFTS = (0.03, 0.1, 0.3, 1.0, 3.0)


def convex_minorant(x: Floats, y: Floats) -> Ints:
    """Return the places of the points that the greatest convex minorant touches; ``x`` rises."""
    if len(x) < 2:
        return np.arange(len(x))
    steps = np.maximum(np.diff(x), 1e-300)  # radii to a high power can be equal
    # Its slopes are those between neighbors, made to rise.
    places: Ints = isotonic_regression(np.diff(y) / steps, weights=steps).blocks
    return places


def dip(values: Floats) -> float:
    """Return the dip: the distance of the empirical distribution to the nearest unimodal one.

    Hartigan and Hartigan (1985). The interval that has the mode shrinks until the convex minorant
    and the concave majorant within it are as near to each other as the distribution outside is to
    them. Our own code, as the package diptest is under the GPL.
    """
    x, counts = np.unique(values, return_counts=True)
    n = len(values)
    after = np.cumsum(counts) / n  # the empirical distribution behind each step and before it
    before = after - counts / n
    first, last, twice = 0, len(x) - 1, 1.0 / n
    while last > first:
        inside = slice(first, last + 1)
        at, low, high = x[inside], before[inside], after[inside]
        below, above = convex_minorant(at, low), convex_minorant(at, -high)
        minorant = np.interp(at, at[below], low[below])
        majorant = np.interp(at, at[above], high[above])
        apart = majorant - minorant
        if apart[above].max() > apart[below].max():
            right = above[np.flatnonzero(apart[above] == apart[above].max())[-1]]
            left = below[below <= right][-1]
        else:
            left = below[np.argmax(apart[below])]
            right = above[above >= left][0]
        if apart[below].max() <= twice and apart[above].max() <= twice:
            break
        # The mode itself may have a step, so its two ends do not count.
        outside_left = np.max((high - minorant)[:left], initial=0.0)
        outside_right = np.max((majorant - low)[right + 1 :], initial=0.0)
        twice = max(twice, outside_left, outside_right)
        if left == 0 and right == last - first:
            break
        first, last = first + left, first + right
    return twice / 2.0


def halves(tables: Floats) -> Floats:
    """Return the directions (T, p) between the two clusters of 2-means, of every centered table."""
    n_tables, n, p = tables.shape
    first = tables[:, :, 0]
    spread = first.std(axis=1, keepdims=True)
    starts = [first > 0, first > spread, first < -spread]
    if p > 1:
        starts.append(tables[:, :, 1] > 0)
    sides = np.stack(starts, axis=1)  # (T, starts, n)
    best, directions = np.full(n_tables, -1.0), np.tile(np.eye(p)[0], (n_tables, 1))
    for _ in range(LLOYD_STEPS):
        size = np.count_nonzero(sides, axis=2)
        two = (size > 0) & (size < n)
        # The means are total / size and −total / (n − size).
        total = sides.astype(np.float64) @ tables
        square = np.sum(total**2, axis=2)
        here, there = 1.0 / np.maximum(size, 1), 1.0 / np.maximum(n - size, 1)
        between = np.where(two, square * (here + there), -1.0)
        top = (np.arange(n_tables), between.argmax(axis=1))
        better = between[top] > best
        best = np.where(better, between[top], best)
        directions[better] = (total[top] * (here + there)[top][:, None])[better]
        border = (square * (here - there) / 2.0)[:, :, None]
        moved = np.where(two[:, :, None], total @ tables.swapaxes(1, 2) > border, sides)
        if np.array_equal(moved, sides):
            break
        sides = moved
    return directions


def _binned(x: Floats) -> tuple[Floats, Floats]:
    """Return the centers and shares of equal bins of a standardized variable."""
    x = (x - x.mean()) / max(x.std(), 1e-300)
    low, width = x.min(), max(np.ptp(x), 1e-300)
    places = np.minimum(((x - low) / width * BINS).astype(int), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    middles = low + (np.arange(BINS) + 0.5) * width / BINS
    sums = np.bincount(places, x, minlength=BINS)
    return np.where(counts > 0, sums / np.maximum(counts, 1), middles), counts / len(x)


def _one_group(x: Floats, c: Floats, n: float) -> Floats:
    """Return mean log-likelihoods of the likeliest law with one mode, less the Gaussian's.

    Gaussian, uniform, or a shifted lognormal of either sign: flat and skewed projections are
    better described by two Gaussians than by one, and yet have no second group.
    """
    variance = (c * x**2).sum(1) - (c * x).sum(1) ** 2
    low, high = x.min(axis=1), x.max(axis=1)
    width = (high - low) * (n + 1) / (n - 1)
    found = [np.zeros(len(x)), 0.5 * np.log(2 * np.pi * np.e * variance) - np.log(width)]
    for y in (x - low[:, None], high[:, None] - x):
        for shift in LOGNORMAL_SHIFTS:
            logs = np.log(y + shift)
            mean = (c * logs).sum(1)
            spread = (c * (logs - mean[:, None]) ** 2).sum(1)
            found.append(0.5 * np.log(variance / spread) - mean)
    return np.max(found, axis=0)


def two_group_gain(projections: Floats) -> Floats:
    """Return log-likelihood gains of two Gaussians with one variance over a law with one mode.

    One for each projection of the rows, all by EM at once; bins take the place of the rows.
    """
    parts = [_binned(x) for x in projections]
    x, c = np.stack([p[0] for p in parts]), np.stack([p[1] for p in parts])
    n = float(projections.shape[1])
    variance = (c * x**2).sum(1) - (c * x).sum(1) ** 2
    gains = []
    for side in (x > 0, x > 1, x < -1):
        r = np.where(side, 0.98, 0.02)
        for _ in range(EM_STEPS):
            cr, cs = c * r, c * (1.0 - r)
            w = np.clip(cr.sum(1), 2.0 / n, 1.0 - 2.0 / n)[:, None]
            a = ((cr * x).sum(1) / (cr.sum(1) + 1e-12))[:, None]
            b = ((cs * x).sum(1) / (cs.sum(1) + 1e-12))[:, None]
            da, db = (x - a) ** 2, (x - b) ** 2
            v = np.maximum((cr * da + cs * db).sum(1), 1e-4)[:, None]
            r = expit(np.log(w / (1.0 - w)) + (db - da) / (2.0 * v))
        # Σ log(w N(x | a, v) + (1 − w) N(x | b, v)) less that of one Gaussian
        mixture = np.logaddexp(np.log(w) - da / (2.0 * v), np.log1p(-w) - db / (2.0 * v))
        gains.append((c * mixture).sum(1) - 0.5 * np.log(v[:, 0] / variance) + 0.5)
    return n * (np.max(gains, axis=0) - _one_group(x, c, n))


@lru_cache(maxsize=4)
def _pairs(n: int) -> tuple[Ints, Ints]:
    return np.triu_indices(n, 1)


def widest_gap(Z: Floats) -> float:
    """Return the log of how far dense regions are apart, in units of distances within them.

    Single linkage on mutual reachability, as in HDBSCAN: of all merges of two groups that both
    have some rows, the one that is highest over the usual core distance of the smaller group.
    """
    Z = Z[:LINKED_ROWS]
    n = len(Z)
    k = max(3, min(10, n // 20))
    smallest = max(5, int(SMALLEST_SHARE * n))
    distances = pdist(Z)
    core = np.partition(squareform(distances), k, axis=1)[:, k]
    one, other = _pairs(n)
    tree = linkage(np.maximum(distances, np.maximum(core[one], core[other])), method="single")
    sizes = np.concatenate([np.ones(n), tree[:, 3]])
    merged = tree[:, :2].astype(np.int64)
    smaller = np.where(sizes[merged[:, 0]] < sizes[merged[:, 1]], merged[:, 0], merged[:, 1])
    # Equal rows have no distance: without a floor two of them would be infinitely dense.
    floor = 1e-3 * np.median(tree[:, 2]) + 1e-300
    best = 0.0
    for merge in np.flatnonzero(sizes[smaller] >= smallest):
        inner = np.median(core[_members(tree, smaller[merge])])
        best = max(best, float(np.log((tree[merge, 2] + floor) / (inner + floor))))
    return best


def _members(tree: Floats, node: int) -> list[int]:
    n, found, open_ = len(tree) + 1, [], [node]
    while open_:
        at = open_.pop()
        if at < n:
            found.append(at)
        else:
            open_ += [int(tree[at - n, 0]), int(tree[at - n, 1])]
    return found


def separations(tables: Floats) -> Floats:
    """Return the figures (T, 4) of ``PARTS`` for tables (T, n, p), centered, in their main axes."""
    spread = tables.std(axis=1, keepdims=True)
    white = tables / np.maximum(spread, 1e-6 * spread.max(axis=2, keepdims=True))
    along, across = ((Z @ halves(Z)[:, :, None])[:, :, 0] for Z in (tables, white))
    gains = two_group_gain(np.concatenate([along, across])).reshape(2, len(tables))
    gaps = [widest_gap(Z) for Z in tables]
    return np.column_stack([*gains, gaps, [dip(_thinned(x)) for x in along]])


def _thinned(x: Floats) -> Floats:
    """Return evenly spaced order statistics, at most ``DIP_VALUES``."""
    if len(x) <= DIP_VALUES:
        return x
    return np.sort(x)[np.linspace(0, len(x) - 1, DIP_VALUES).astype(int)]
