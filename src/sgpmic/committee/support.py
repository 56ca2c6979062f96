"""Has a table clusters at all? A test against noise that looks like the table.

Four figures say how far apart the rows lie (:func:`separations`). None of them means anything by
itself: they are compared with those of noise that looks like the table but has no clusters. No
single kind of noise will do. Rows from a cube fall into halves more clearly than Gaussian rows with
the same covariance, and rows with heavy tails have outliers that look like a second cluster. So
there are several kinds, each fitted to the table, and clusters have to stand out from all.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats
from scipy.cluster.hierarchy import linkage
from scipy.optimize import isotonic_regression
from scipy.spatial.distance import pdist, squareform

from sgpmic._types import Floats, Ints
from sgpmic.committee.geometry import mutual_reachability

#: The chance of calling noise clusters that is accepted.
LEVEL = 0.05
#: Tables of noise of each kind, at most.
DRAWS = 79
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
#: Draws one table of noise.
Draw = Callable[[np.random.Generator], Floats]
#: Features with so few values keep them; no curve is fitted.
FEW_VALUES = 10
_ENDS = np.geomspace(1e-5, 0.02, 60)
#: Probabilities at which quantiles are tabulated, dense at both ends.
GRID = np.concatenate([_ENDS[:-1], np.linspace(0.02, 0.98, 200), 1.0 - _ENDS[::-1][1:]])
_NORMAL = special.ndtri(GRID)
_STUDENT = {df: special.stdtrit(df, GRID) for df in (1.0, 1.5, 2.0, 3.0, 5.0, 8.0)}
#: Features whose distributions are fitted at a time: what is computed of them stays in the cache.
_TOGETHER = 256


@dataclass(frozen=True)
class Support:
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
    draws: int = DRAWS

    @property
    def supported(self) -> bool:
        """Whether the p-value is at most 0.05."""
        return self.p_value <= LEVEL

    def sentence(self) -> str:
        """Return the outcome in a sentence for people."""
        if not self.noise:
            return f"Whether there are clusters cannot be told: {self.part}."
        p = f"p = {self.p_value:.2g}"
        if self.p_value * (self.draws + 1) < 1.0 - 1e-9:
            p = f"p < {LEVEL:g}"
        p += f" ({self.draws} noise tables)"
        if self.supported:
            return (
                f"There are clusters: {self.part}, more than in noise without clusters "
                f"({self.noise}): {p}."
            )
        alike = "looks the same" if self.p_value > IMPLAUSIBLE else "comes near"
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


def structure_support(
    Y: Floats, random_state: int = 0, *, mixed: MixedTable | None = None
) -> Support:
    """Test whether scaled rows (n, p) have clusters; the largest of the p-values counts.

    ``mixed`` is the table with its categories, where ``Y`` has its factors.
    """
    if len(Y) < FEWEST_ROWS:
        return Support(0.0, 1.0, f"{len(Y)} rows are too few", "")
    rng = np.random.default_rng(random_state)
    Y = Y[np.lexsort(Y.T)]  # the same rows in another order: the same answer
    Y = Y[rng.permutation(len(Y))[:MOST_ROWS]]
    Y = Y - Y.mean(axis=0)
    Y = Y[:, Y.std(axis=0) > 0]
    if Y.shape[1] > MOST_FEATURES:
        Y = Y[:, np.sort(rng.permutation(Y.shape[1])[:MOST_FEATURES])]
    if Y.shape[1] == 0:
        return Support(0.0, 1.0, "all rows are equal", "")
    all_axes, kept = main_axes(Y)
    axes = all_axes[:, :kept]
    Z = Y @ axes
    # Fitted only where the kinds before leave the question open.
    scales = axis_scales(Z, rng)

    def scaled(draw: Draw) -> Draw:
        return lambda rng: draw(rng) * scales

    kinds: dict[str, Callable[[], Draw]] = {
        "rows with the same features and correlations": lambda: scaled(with_marginals(Y, axes)),
        "Gaussian rows with the same covariance": lambda: scaled(gaussian(Z)),
        "an elliptical cloud": lambda: scaled(elliptical(Z)),
        "a mix of independent components": lambda: scaled(independent(Y @ all_axes, kept)),
    }
    if mixed is not None:
        like_columns = "rows with the same columns, categories among them"
        kinds = {like_columns: lambda: mixed_columns(mixed, kept), **kinds}
    draws: dict[str, Draw] = {}
    figures = dict.fromkeys(kinds, separations(_turned(Z)[None]) - _margin(*Z.shape))
    outcomes: dict[str, Support] = {}
    for total in (FIRST_DRAWS, DRAWS):
        for kind, fit in kinds.items():
            if kind not in draws:
                draws[kind] = fit()
            if kind in outcomes and outcomes[kind].p_value < 1 / (FIRST_DRAWS + 1):
                continue  # clear after the first look
            missing = total + 1 - len(figures[kind])
            drawn = separations(np.stack([_turned(draws[kind](rng)) for _ in range(missing)]))
            figures[kind] = np.vstack([figures[kind], drawn])
            lead, p_value, part = _compare(figures[kind])
            if p_value <= 1 / (FIRST_DRAWS + 1) and lead > CLEAR:
                p_value = 1 / (DRAWS + 1)
            outcomes[kind] = Support(lead, p_value, PARTS[part], kind, len(figures[kind]) - 1)
            if p_value > HOPELESS:
                return outcomes[kind]
    return max(outcomes.values(), key=lambda outcome: (outcome.p_value, -outcome.statistic))


def convex_minorant(x: Floats, y: Floats) -> Ints:
    """Return the places of the points that the greatest convex minorant touches; ``x`` rises."""
    if len(x) < 2:
        return np.arange(len(x))
    steps = np.maximum(np.diff(x), 1e-300)  # radii to a high power can be equal
    # Its slopes are those between neighbors, made to rise.
    return isotonic_regression(np.diff(y) / steps, weights=steps).blocks


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


def _student_fit(X: Floats, df: float) -> tuple[Floats, Floats, Floats]:
    """Return log-likelihood, location and scale of Student's t with given degrees, by column."""
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
    """Return the quantiles (p, len(GRID)) of the likeliest simple distribution of every feature.

    Gaussian, uniform, Student's t or a lognormal of either sign, none of which has two modes.
    """
    n, p = X.shape
    tables = np.empty((p, len(GRID)))
    continuous = []
    for i in range(p):
        values, counts = np.unique(X[:, i], return_counts=True)
        if len(values) > FEW_VALUES:
            continuous.append(i)
            continue
        place = np.searchsorted(np.cumsum(counts) / n, GRID)
        tables[i] = values[np.minimum(place, len(values) - 1)]
    for first in range(0, len(continuous), _TOGETHER):
        part = continuous[first : first + _TOGETHER]
        tables[part] = _continuous_quantiles(X[:, part])
    return tables


def _continuous_quantiles(X: Floats) -> Floats:
    n = len(X)
    spread, half = X.std(axis=0), n / 2 * (1 + np.log(2 * np.pi))
    low, high = X.min(axis=0), X.max(axis=0)
    likelihood = -n * np.log(spread) - half
    tables = _moved(_NORMAL, X.mean(axis=0), spread)
    width = (high - low) * (n + 1) / (n - 1)
    found = [(-n * np.log(width), _moved(GRID - 0.5, (low + high) / 2, width))]
    for df, table in _STUDENT.items():
        fit, at, scale = _student_fit(X, df)
        found.append((fit - 1.0, _moved(table, at, scale)))  # less 1: one parameter more
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
    for fit, candidates in found:
        better = fit > likelihood
        likelihood[better], tables[better] = fit[better], candidates[better]
    return tables


def _moved(table: Floats, at: Floats, scale: Floats) -> Floats:
    """Return a table of quantiles for every location and scale."""
    return at[:, None] + scale[:, None] * table


def axis_scales(Z: Floats, rng: np.random.Generator) -> Floats:
    """Return factors for the axes under which samples of noise have the table's variances.

    Variances along the main axes of a sample differ more than those it was drawn with. Drawn with
    the sample's, noise would be narrower than the table in all but the first directions, and have
    fewer directions in which chance makes groups.
    """
    seen = np.linalg.norm(Z, axis=0)
    drawn_with = seen.copy()
    if len(seen) == 1:
        return np.ones(1)
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
    """Rows from the likeliest elliptical density that falls from its center outwards."""
    n, p = Z.shape
    center, scatter = np.median(Z, axis=0), np.diag(Z.var(axis=0) + 1e-12)
    for _ in range(15):  # the scatter of Student's t with three degrees: outliers count little
        D = Z - center
        weight = (3.0 + p) / (3.0 + np.sum(D * np.linalg.solve(scatter, D.T).T, axis=1))
        center = weight @ Z / weight.sum()
        D = Z - center
        scatter = D.T @ (D * weight[:, None]) / n
        scatter += 1e-9 * np.trace(scatter) / p * np.eye(p)
    root = np.linalg.cholesky(scatter)
    radii = np.sort(np.linalg.norm(np.linalg.solve(root, (Z - center).T), axis=0))
    # A density that falls with the radius has a concave distribution of r^p (Grenander).
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
    """Rows with each feature's distribution and their rank correlations (a Gaussian copula)."""
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
    """Scaled rows of a table with categories.

    ``columns`` are where each of the user's columns begins and ends among the features: several
    indicators are one category.
    """

    rows: Floats
    columns: Sequence[tuple[int, int]]


def mixed_columns(table: MixedTable, kept: int) -> Draw:
    """Rows with each column's distribution and their rank correlations, categories included.

    The levels of a category are ranked along the first principal component, and are drawn as
    thresholds of a Gaussian copula would give them. Returned are the first ``kept`` principal
    components of what was drawn.
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
        in_order = np.argsort(along[value], kind="stable")
        samplers.append(partial(_picked, rows=Y[in_order, first:last]))
    scores = special.ndtri((np.column_stack(ranks) - 0.5) / n)
    scores /= np.maximum(scores.std(axis=0), 1e-12)
    variances, axes = np.linalg.eigh(np.cov(scores.T).reshape(len(ranks), -1))
    root = axes * np.sqrt(np.maximum(variances, 0.0))

    def draw(rng: np.random.Generator) -> Floats:
        u = special.ndtr(rng.normal(size=scores.shape) @ root.T)
        rows = np.column_stack([sample(u[:, i]) for i, sample in enumerate(samplers)])
        left, singular, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
        return left[:, :kept] * singular[:kept]

    return draw


def _picked(u: Floats, rows: Floats) -> Floats:
    """Return the rows, which are in their order, at these probabilities."""
    return rows[np.minimum((u * len(rows)).astype(np.int64), len(rows) - 1)]


def independent(Z: Floats, kept: int) -> Draw:
    """Rows that mix independent components (ICA), each with its own distribution.

    Only the first ``kept`` axes are drawn, but more of them show what the components are.
    """
    from sklearn.decomposition import FastICA

    if Z.shape[1] == 1:
        (table,) = quantiles(Z)
        return lambda rng: np.interp(rng.random(Z.shape), GRID, table)
    model = FastICA(fun="cube", max_iter=60, tol=1e-3, whiten="unit-variance", random_state=0)
    with warnings.catch_warnings():
        # Rows without independent components need many steps, and nothing is lost there.
        warnings.simplefilter("ignore")
        try:
            components, mixing = model.fit_transform(Z), model.mixing_
        except (ValueError, np.linalg.LinAlgError):
            # An axis along which nothing varies but rounding errors: the axes themselves, then.
            components, mixing = Z, np.eye(Z.shape[1])
    tables = quantiles(components)

    def draw(rng: np.random.Generator) -> Floats:
        parts = np.column_stack([np.interp(rng.random(len(Z)), GRID, t) for t in tables])
        return parts @ mixing[:kept].T

    return draw
