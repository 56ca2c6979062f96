"""Has a table clusters at all? A test against noise that looks like the table.

Four figures say how far apart the rows lie (:func:`separations`). None of them means anything by
itself: they are compared with those of noise that looks like the table but has no clusters. No
single kind of noise will do. Rows from a cube fall into halves more clearly than Gaussian rows with
the same covariance, and rows with heavy tails have outliers that look like a second cluster. So
there are several kinds, each fitted to the table, and clusters have to stand out from all.
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

#: The chance of calling noise clusters that is accepted.
LEVEL = 0.05
#: Tables of noise of each kind, at most; 5 % of one more than these is a whole number.
DRAWS = 39
#: The p-value above which noise looks the same, and one cluster is the answer. The test is strict:
#: several kinds of noise have to be ruled out, and one in twenty tables of noise has less than 0.2.
IMPLAUSIBLE = 0.3
#: Fewer rows show nothing either way; more, and more features, are represented by a sample.
FEWEST_ROWS, MOST_ROWS, MOST_FEATURES = 20, 1000, 4000
#: Principal components that are kept, at most, and the share of variance that is enough.
MOST_AXES, VARIANCE = 50, 0.95
#: Tables of noise of each kind, at a first look.
FIRST_DRAWS = 19
#: Parts that stand out by less than this less, in standard deviations, stand out as far.
_AS_FAR = 0.05
#: After the first look: p-values above this end the test, and so does a lead of this many spreads.
HOPELESS, CLEAR = 0.18, 5.0
#: The p-value of such a lead, which is far from the true one and below all that are simulated.
EXTRAPOLATED = 1 / 80
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


@dataclass(frozen=True)
class ClusterTendency:
    """Whether a table has clusters, and how sure that is.

    Attributes
    ----------
    statistic : float
        How far the table stands out from noise, in standard deviations of the noise.
    p_value : float
        How often noise would stand out as far, for the kind of noise that does so most often.
    part : str
        What stood out most.
    noise : str
        The kind of noise that came nearest.
    draws : int
        Tables of that noise. Where the p-value is smaller than so many can show, it was
        extrapolated from a clear lead: 'p < 0.05' is all that was simulated.
    """

    statistic: float
    p_value: float
    part: str
    noise: str
    draws: int = 79  # of model files that do not say

    @property
    def supported(self) -> bool:
        """Whether the p-value is at most 0.05."""
        return self.p_value <= LEVEL

    def sentence(self) -> str:
        """Return the outcome in a sentence for people."""
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
    """Return rows centered and in their own main axes, widest first."""
    Z = Z - Z.mean(axis=0)
    return Z @ np.linalg.eigh(Z.T @ Z)[1][:, ::-1]


def main_axes(Y: Floats) -> tuple[Floats, int]:
    """Return the main axes of centered rows, as columns, and how many have 95 % of the variance."""
    _, s, axes = np.linalg.svd(Y, full_matrices=False)
    share = np.cumsum(s**2) / max(np.sum(s**2), 1e-300)
    most = max(1, min(MOST_AXES, len(Y) // 3, int(np.sum(s > 1e-6 * s[0]))))
    return axes[:most].T, min(int(np.searchsorted(share, VARIANCE)) + 1, most)


def _margin(n_rows: int, n_axes: int) -> Floats:
    """Return by how much each of the figures has to be larger than that of noise.

    This covers what fitted noise misses of the true one, such as the corners of a slanted box,
    and there is more to miss in more dimensions: two gains in nats, the log of a ratio of
    distances, a dip.
    """
    gain = float(np.clip(0.25 * (n_axes - 2), 0.0, 3.0))
    return np.array([gain, gain, 0.1, 0.05 / np.sqrt(min(n_rows, DIP_VALUES))])


def _compare(figures: Floats) -> tuple[float, float, int]:
    """Return lead and p-value of the first row of figures among all, and the part that leads.

    The table and the noise are treated alike, the table's figures enter mean and spread too: so
    the p-value is exact where the table is such noise.
    """
    standard = (figures - figures.mean(axis=0)) / (figures.std(axis=0) + 1e-12)
    largest = standard.max(axis=1)
    lead = (largest[0] - largest[1:].mean()) / (largest[1:].std() + 1e-12)
    p_value = float(np.mean(largest >= largest[0] - 1e-12))
    # Of parts that stand out as far, the first, on any machine.
    leading = standard[0] > standard[0].max() - _AS_FAR
    return float(lead), p_value, int(np.argmax(leading))


def cluster_tendency(
    Y: Floats, random_state: int = 0, *, mixed: noise.MixedTable | None = None
) -> ClusterTendency:
    """Test whether scaled rows (n, p) have clusters; the largest of the p-values counts.

    ``mixed`` is the table with its categories, where ``Y`` has its factors.
    """
    if len(Y) < FEWEST_ROWS:
        return ClusterTendency(0.0, 1.0, f"{len(Y)} rows are too few", "")
    rng = np.random.default_rng(random_state)
    Y = Y[np.lexsort(Y.T)]  # the same rows in another order: the same answer
    Y = Y[rng.permutation(len(Y))[:MOST_ROWS]]
    Y = Y - Y.mean(axis=0)
    Y = Y[:, Y.std(axis=0) > 0]
    if Y.shape[1] > MOST_FEATURES:
        Y = Y[:, np.sort(rng.permutation(Y.shape[1])[:MOST_FEATURES])]
    if Y.shape[1] == 0:
        return ClusterTendency(0.0, 1.0, "all rows are equal", "")
    all_axes, kept = main_axes(Y)
    axes = all_axes[:, :kept]
    Z = Y @ axes
    # Fitted only where the kinds before leave the question open.
    kinds: dict[str, Callable[[], noise.Draw]] = {
        "rows with the same features and correlations": lambda: noise.with_marginals(Y, axes),
        "Gaussian rows with the same covariance": lambda: noise.gaussian(Z),
        "an elliptical cloud": lambda: noise.elliptical(Z),
        "a mix of independent components": lambda: noise.independent(Y @ all_axes, kept),
    }
    scales: dict[str, Any] = dict.fromkeys(kinds, noise.axis_scales(Z, rng))
    if mixed is not None:
        like_columns = "rows with the same columns, including categories"
        kinds = {like_columns: lambda: noise.mixed_columns(mixed, kept), **kinds}
        scales[like_columns] = 1.0
    draws: dict[str, noise.Draw] = {}
    figures = dict.fromkeys(kinds, separations(_turned(Z)[None]) - _margin(*Z.shape))
    outcomes: dict[str, ClusterTendency] = {}
    for total in (FIRST_DRAWS, DRAWS):
        for kind, fit in kinds.items():
            if kind in outcomes and outcomes[kind].p_value < 1 / (FIRST_DRAWS + 1):
                continue  # clear after the first look
            draws[kind] = draws.get(kind) or fit()
            missing = total + 1 - len(figures[kind])
            tables = [_turned(draws[kind](rng) * scales[kind]) for _ in range(missing)]
            figures[kind] = np.vstack([figures[kind], separations(np.stack(tables))])
            lead, p_value, part = _compare(figures[kind])
            if p_value <= 1 / (FIRST_DRAWS + 1) and lead > CLEAR:
                p_value = EXTRAPOLATED
            n_drawn = len(figures[kind]) - 1
            outcomes[kind] = ClusterTendency(lead, p_value, PARTS[part], kind, n_drawn)
            if p_value > HOPELESS:
                return outcomes[kind]
    return max(outcomes.values(), key=lambda outcome: (outcome.p_value, -outcome.statistic))


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
    found = [np.zeros(len(x)), 0.5 * np.log(2 * np.pi * math.e * variance) - np.log(width)]
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
    cx = c * x
    total, square = cx.sum(1), (cx * x).sum(1)
    variance = square - total**2
    gains = []
    for side in (x > 0, x > 1, x < -1):
        r = np.where(side, 0.98, 0.02)
        for _ in range(EM_STEPS):
            share, first = np.einsum("ij,ij->i", c, r), np.einsum("ij,ij->i", cx, r)
            w = np.clip(share, 2.0 / n, 1.0 - 2.0 / n)
            a, b = first / (share + 1e-12), (total - first) / (1.0 - share + 1e-12)
            v = np.maximum(square - first * a - (total - first) * b, 1e-4)
            # The log odds of two Gaussians with one variance are linear in x.
            odds = np.log(w / (1.0 - w)) + (b**2 - a**2) / (2.0 * v)
            r = special.expit(((a - b) / v)[:, None] * x + odds[:, None])
        # Σ log(w N(x | a, v) + (1 − w) N(x | b, v)) less that of one Gaussian
        mixture = np.logaddexp(
            *(
                np.log(p)[:, None] - (x - m[:, None]) ** 2 / (2.0 * v[:, None])
                for p, m in ((w, a), (1.0 - w, b))
            )
        )
        gains.append((c * mixture).sum(1) - 0.5 * np.log(v / variance) + 0.5)
    return n * (np.max(gains, axis=0) - _one_group(x, c, n))


def widest_gap(Z: Floats) -> float:
    """Return the log of how far dense regions are apart, in units of distances within them.

    Single linkage on mutual reachability, as in HDBSCAN: of all merges of two groups that both
    have some rows, the one that is highest over the usual core distance of the smaller group.
    """
    Z = Z[:LINKED_ROWS]
    n = len(Z)
    k = max(3, min(10, n // 20))
    smallest = max(5, int(SMALLEST_SHARE * n))
    distances = squareform(pdist(Z))
    core = np.partition(distances, k, axis=1)[:, k]
    reach = mutual_reachability(distances, core)
    tree = linkage(squareform(reach, checks=False), method="single")
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
    # Of many values, evenly spaced order statistics.
    places = np.linspace(0, len(along[0]) - 1, min(DIP_VALUES, len(along[0]))).astype(int)
    return np.column_stack([*gains, gaps, [dip(np.sort(x)[places]) for x in along]])
