"""Test of cluster tendency: does a table have clusters at all?

A Monte Carlo test with four statistics of separation (:func:`separations`), which are compared
with their values on noise that resembles the table but has no clusters. No single null model will
do: a uniform cube splits into halves more clearly than Gaussian data with the same covariance, and
heavy tails produce outliers that look like a second cluster. So several null models are fitted to
the table, and all of them have to be rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform

from sgpmic._types import Floats
from sgpmic.committee import reference_noise as noise
from sgpmic.committee.geometry import mutual_reachability

#: Significance level.
LEVEL = 0.05
#: Maximum number of noise tables per null model; 5 % of DRAWS + 1 is an integer.
DRAWS = 39
#: The p-value above which noise looks the same and the answer is one cluster. The test is
#: conservative: all null models have to be rejected, and only one noise table in 20 has p < 0.2.
IMPLAUSIBLE = 0.3
#: With fewer rows the test has no power; larger tables are subsampled.
FEWEST_ROWS, MOST_ROWS, MOST_FEATURES = 20, 1000, 4000
#: Maximum number of principal components kept, and the fraction of variance that is enough.
MOST_AXES, VARIANCE = 50, 0.95
#: Noise tables per null model in the first stage.
FIRST_DRAWS = 19
#: Statistics that differ by less than this, in standard deviations, are tied.
_AS_FAR = 0.05
#: The test stops early at a p-value above this.
HOPELESS = 0.18
#: A null model is rejected after the first stage if the statistic is above all of its noise, by at
#: least this many standard deviations. The p-values reported then are not estimates, only smaller
#: than what the first stage can show.
CLEAR = {5.0: 1 / 80, 3.0: 1 / 40}
#: What the statistics of ``separations`` measure, in order.
PARTS = (
    "two groups along the widest direction",
    "two groups along a direction of any width",
    "a gap between dense regions",
    "a valley along the widest direction",
)
#: Maximum number of rows for single linkage.
LINKED_ROWS = 300
#: Minimum size of a dense region, as a fraction of the rows.
SMALLEST_SHARE = 0.05
#: Maximum number of values for the dip statistic; larger samples are reduced to quantiles.
DIP_VALUES = 400
BINS = 100
EM_STEPS = 30
LLOYD_STEPS = 12
#: Distances from a lognormal's origin to the smallest value, in standard deviations.
LOGNORMAL_SHIFTS = (0.03, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class ClusterTendency:
    """Result of the test of cluster tendency."""

    statistic: float  # distance of the table from the noise, in standard deviations of the noise
    p_value: float  # the largest over all null models
    part: str  # the most extreme statistic, in words
    noise: str  # the null model with the largest p-value
    #: Number of noise tables drawn from it; 79 in model files without this entry. A p-value below
    #: ``1 / (draws + 1)`` was extrapolated from a clear lead: the simulation only shows p < 0.05.
    draws: int = 79

    @property
    def supported(self) -> bool:
        """Whether the p-value is at most 0.05."""
        return self.p_value <= LEVEL

    def sentence(self) -> str:
        """Return the result as a sentence."""
        if not self.noise:
            return f"Whether there are clusters cannot be determined: {self.part}."
        p = f"p = {self.p_value:.2g}"
        if self.p_value * (self.draws + 1) < 1.0 - 1e-9:
            p = f"p < {LEVEL:g}"
        p += f" ({self.draws} simulated tables)"
        if self.supported:
            return (
                f"There are clusters: {self.part}, clearer than in noise without clusters "
                f"({self.noise}): {p}."
            )
        alike = "looks the same" if self.p_value > IMPLAUSIBLE else "looks similar"
        return f"There may be no clusters: noise without any ({self.noise}) {alike}: {p}."


def _turned(Z: Floats) -> Floats:
    """Return the principal component scores of the rows."""
    Z = Z - Z.mean(axis=0)
    return Z @ np.linalg.eigh(Z.T @ Z)[1][:, ::-1]


def _margin(n_rows: int, n_axes: int) -> Floats:
    """Return the margins by which the four statistics have to exceed those of noise.

    They allow for misfit of the null models, such as the corners of a rotated box, which grows
    with the dimension. Units: nats for the two gains, a log ratio of distances, a dip.
    """
    gain = float(np.clip(0.25 * (n_axes - 2), 0.0, 3.0))
    return np.array([gain, gain, 0.1, 0.05 / np.sqrt(min(n_rows, DIP_VALUES))])


def _compare(figures: Floats) -> tuple[float, float, int]:
    """Return lead, p-value and most extreme statistic of the table (first row of ``figures``).

    The table's own statistics also enter the mean and standard deviation, so that the p-value is
    exact under the null model.
    """
    standard = (figures - figures.mean(axis=0)) / (figures.std(axis=0) + 1e-12)
    largest = standard.max(axis=1)
    lead = (largest[0] - largest[1:].mean()) / (largest[1:].std() + 1e-12)
    p_value = float(np.mean(largest >= largest[0] - 1e-12))
    # Break ties by order, so that the result does not depend on the machine.
    leading = standard[0] > standard[0].max() - _AS_FAR
    return float(lead), p_value, int(np.argmax(leading))


def cluster_tendency(
    Y: Floats, random_state: int = 0, *, mixed: noise.MixedTable | None = None
) -> ClusterTendency:
    """Test whether scaled rows (n, p) have clusters; return the result with the largest p-value.

    If ``Y`` represents a table with categories, ``mixed`` is that table.
    """
    if len(Y) < FEWEST_ROWS:
        return ClusterTendency(0.0, 1.0, f"{len(Y)} rows are too few", "")
    rng = np.random.default_rng(random_state)
    Y = Y[np.lexsort(Y.T)]  # makes the result independent of the row order
    Y = Y[rng.permutation(len(Y))[:MOST_ROWS]]
    Y = Y - Y.mean(axis=0)
    Y = Y[:, Y.std(axis=0) > 0]
    if Y.shape[1] > MOST_FEATURES:
        Y = Y[:, np.sort(rng.permutation(Y.shape[1])[:MOST_FEATURES])]
    if Y.shape[1] == 0:
        return ClusterTendency(0.0, 1.0, "all rows are equal", "")
    _, sizes, right = np.linalg.svd(Y, full_matrices=False)
    share = np.cumsum(sizes**2) / max(np.sum(sizes**2), 1e-300)
    most = max(1, min(MOST_AXES, len(Y) // 3, int(np.sum(sizes > 1e-6 * sizes[0]))))
    kept = min(int(np.searchsorted(share, VARIANCE)) + 1, most)
    all_axes, axes = right[:most].T, right[:kept].T
    Z = Y @ axes
    # Lazily fitted: a null model is not needed if an earlier one ends the test.
    kinds: dict[str, Callable[[], noise.Draw]] = {
        "rows with the same features and correlations": lambda: noise.with_marginals(Y, axes),
        "Gaussian rows with the same covariance": lambda: noise.gaussian(Z),
        "an elliptical cloud": lambda: noise.elliptical(Z),
        "a mix of independent components": lambda: noise.independent(Y @ all_axes, kept),
    }
    scales: dict[str, Any] = dict.fromkeys(kinds, noise.axis_scales(Z, rng))
    if mixed is not None:
        like_columns = "rows with columns of the same values and correlations"
        kinds = {like_columns: lambda: noise.mixed_columns(mixed, kept), **kinds}
        scales[like_columns] = 1.0
    draws: dict[str, noise.Draw] = {}
    figures = dict.fromkeys(kinds, separations(_turned(Z)[None]) - _margin(*Z.shape))
    outcomes: dict[str, ClusterTendency] = {}
    for total in (FIRST_DRAWS, DRAWS):
        for kind, fit in kinds.items():
            if kind in outcomes and outcomes[kind].p_value < 1 / (FIRST_DRAWS + 1):
                continue  # rejected in the first stage
            draws[kind] = draws.get(kind) or fit()
            missing = total + 1 - len(figures[kind])
            tables = [_turned(draws[kind](rng) * scales[kind]) for _ in range(missing)]
            figures[kind] = np.vstack([figures[kind], separations(np.stack(tables))])
            lead, p_value, part = _compare(figures[kind])
            n_drawn = len(figures[kind]) - 1
            if p_value * (n_drawn + 1) < 1.5:  # above all noise
                clearly = (p for least, p in CLEAR.items() if lead > least)
                p_value = min(next(clearly, p_value), p_value)
            outcomes[kind] = ClusterTendency(lead, p_value, PARTS[part], kind, n_drawn)
            if p_value > HOPELESS:
                return outcomes[kind]
    return max(outcomes.values(), key=lambda outcome: (outcome.p_value, -outcome.statistic))


def dip(values: Floats) -> float:
    """Return the dip statistic of Hartigan and Hartigan (1985); the diptest package is GPL.

    It is the distance of the empirical distribution function to the nearest unimodal one. The modal
    interval shrinks until the greatest convex minorant and the least concave majorant within it are
    as close to each other as the distribution function outside is to them.
    """
    x, counts = np.unique(values, return_counts=True)
    n = len(values)
    after = np.cumsum(counts) / n  # the empirical CDF after and before each step
    before = after - counts / n
    first, last, twice = 0, len(x) - 1, 1.0 / n
    while last > first:
        inside = slice(first, last + 1)
        at, low, high = x[inside], before[inside], after[inside]
        below, above = noise.convex_minorant(at, low), noise.convex_minorant(at, -high)
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
        # The unimodal CDF may jump at the mode, so the interval's end points do not count.
        outside_left = np.max((high - minorant)[:left], initial=0.0)
        outside_right = np.max((majorant - low)[right + 1 :], initial=0.0)
        twice = max(twice, outside_left, outside_right)
        if left == 0 and right == last - first:
            break
        first, last = first + left, first + right
    return twice / 2.0


def halves(tables: Floats) -> Floats:
    """Return the directions (T, p) between the two centers of 2-means, for every centered table."""
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
    """Return bin centers and relative frequencies of a standardized variable."""
    x = (x - x.mean()) / max(x.std(), 1e-300)
    low, width = x.min(), max(np.ptp(x), 1e-300)
    places = np.minimum(((x - low) / width * BINS).astype(int), BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    middles = low + (np.arange(BINS) + 0.5) * width / BINS
    sums = np.bincount(places, x, minlength=BINS)
    return np.where(counts > 0, sums / np.maximum(counts, 1), middles), counts / len(x)


def _one_group(x: Floats, c: Floats, n: float) -> Floats:
    """Return the mean log-likelihood of the best unimodal distribution, minus the Gaussian's.

    Candidates are the Gaussian, the uniform and shifted lognormals of either sign: two Gaussians
    fit flat and skewed projections better than one does, though there is no second group.
    """
    variance = (c * x**2).sum(1) - (c * x).sum(1) ** 2
    low, high = x.min(axis=1), x.max(axis=1)
    width = (high - low) * (n + 1) / (n - 1)
    found = [np.zeros(len(x)), 0.5 * np.log(2 * np.pi * math.e * variance) - np.log(width)]
    for y in (x - low[:, None], high[:, None] - x):
        for shift in LOGNORMAL_SHIFTS:
            logs = np.log(y + shift)
            mean = (c * logs).sum(1)
            spread = (c * (logs - mean[:, None]) ** 2).sum(1)
            found.append(0.5 * np.log(variance / spread) - mean)
    return np.max(found, axis=0)


def two_group_gain(projections: Floats) -> Floats:
    """Return log-likelihood gains of two Gaussians with equal variances over a unimodal fit."""
    x, c = map(np.stack, zip(*map(_binned, projections), strict=True))
    n = float(projections.shape[1])
    cx = c * x
    total, square = cx.sum(1), (cx * x).sum(1)
    variance = square - total**2
    gains = []
    for side in (x > 0, x > 1, x < -1):
        r = np.where(side, 0.98, 0.02)  # EM on the bins
        for _ in range(EM_STEPS):
            share, first = np.einsum("ij,ij->i", c, r), np.einsum("ij,ij->i", cx, r)
            w = np.clip(share, 2.0 / n, 1.0 - 2.0 / n)
            a, b = first / (share + 1e-12), (total - first) / (1.0 - share + 1e-12)
            v = np.maximum(square - first * a - (total - first) * b, 1e-4)
            # The log odds of two Gaussians with equal variances are linear in x.
            odds = np.log(w / (1.0 - w)) + (b**2 - a**2) / (2.0 * v)
            r = special.expit(((a - b) / v)[:, None] * x + odds[:, None])
        # Σ log(w N(x | a, v) + (1 − w) N(x | b, v)) minus that of one Gaussian
        one, other = (
            np.log(p)[:, None] - (x - m[:, None]) ** 2 / (2.0 * v[:, None])
            for p, m in ((w, a), (1.0 - w, b))
        )
        gains.append((c * np.logaddexp(one, other)).sum(1) - 0.5 * np.log(v / variance) + 0.5)
    return n * (np.max(gains, axis=0) - _one_group(x, c, n))


def widest_gap(Z: Floats) -> float:
    """Return the log ratio of the distance between dense regions to the distances within them.

    Single linkage on mutual reachability distances, as in HDBSCAN: the largest ratio of merge
    height to the smaller cluster's median core distance, over merges of two large enough clusters.
    """
    Z = Z[:LINKED_ROWS]
    n = len(Z)
    k = max(3, min(10, n // 20))
    smallest = max(5, int(SMALLEST_SHARE * n))
    distances = squareform(pdist(Z))
    core = np.partition(distances, k, axis=1)[:, k]
    reach = mutual_reachability(distances, core)
    tree = linkage(squareform(reach, checks=False), method="single")
    # Without a floor, duplicate rows would be infinitely dense.
    floor = 1e-3 * np.median(tree[:, 2]) + 1e-300
    sizes = np.append(np.ones(n), tree[:, 3])
    children = tree[:, :2].astype(int)
    best = 0.0
    for merge in np.flatnonzero(sizes[children].min(axis=1) >= smallest):
        one, other = children[merge]
        nodes = [one if sizes[one] < sizes[other] else other]  # the second in a tie
        for node in nodes:
            nodes += children[node - n].tolist() if node >= n else []
        inner = np.median(core[[node for node in nodes if node < n]])
        best = max(best, float(np.log((tree[merge, 2] + floor) / (inner + floor))))
    return best


def separations(tables: Floats) -> Floats:
    """Return the statistics (T, 4) in ``PARTS`` for tables (T, n, p) of principal components."""
    spread = tables.std(axis=1, keepdims=True)
    white = tables / np.maximum(spread, 1e-6 * spread.max(axis=2, keepdims=True))
    along, across = ((Z @ halves(Z)[:, :, None])[:, :, 0] for Z in (tables, white))
    gains = two_group_gain(np.concatenate([along, across])).reshape(2, len(tables))
    gaps = [widest_gap(Z) for Z in tables]
    # Large samples are reduced to evenly spaced order statistics.
    places = np.linspace(0, len(along[0]) - 1, min(DIP_VALUES, len(along[0]))).astype(int)
    return np.column_stack([*gains, gaps, [dip(np.sort(x)[places]) for x in along]])
