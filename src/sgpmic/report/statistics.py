"""Statistics for the report: pure functions of arrays, so that each can be tested by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import entr
from sklearn.metrics import adjusted_rand_score

from sgpmic._types import Bools, Floats, Ints
from sgpmic.learning.preprocessing import sample_numbers, usual_range
from sgpmic.tables.kinds import read_label

#: Effect sizes are clipped here: for a feature constant inside and outside, d would be infinite.
LARGEST_EFFECT = 100.0

# Integers, and other numbers, with more distinct values than this are not classes.
_MOST_CLASSES, _MOST_STEPS = 20, 10

# Size of the sample of rows that determines which values are outliers.
_SAMPLED = 1000

# Block size in numbers, to avoid a copy of the whole table.
_BLOCK = 1 << 22


class Sizes(NamedTuple):
    """Number of rows, share, and mean certainty (NaN without rows) of every cluster."""

    counts: Ints
    shares: Floats
    certainty: Floats


def cluster_sizes(memberships: Floats, total: Callable[[Floats], Floats] = np.asarray) -> Sizes:
    """Return cluster sizes and mean certainties; ``total`` sums over processes."""
    M, labels = memberships.shape[1], memberships.argmax(axis=1)
    counts = total(np.bincount(labels, minlength=M).astype(np.float64)).astype(np.int64)
    sums = total(np.bincount(labels, memberships.max(axis=1), M).astype(np.float64))
    with np.errstate(invalid="ignore"):
        return Sizes(counts, counts / counts.sum(), sums / counts)


class Profiles(NamedTuple):
    """Differences between clusters and all other rows; all arrays are (M, n_features)."""

    inside: Floats  # mean of a feature, or share of rows; NaN if none has a value
    outside: Floats  # the same for all other rows
    effects: Floats  # Cohen's d of means, h of shares; always finite
    certain: Floats  # confidence limit of the effect nearer to 0
    known: Floats  # number of rows of the cluster that have a value


def cluster_profiles(values: Floats, labels: Ints, n_clusters: int) -> Profiles:
    r"""Compare every cluster with all other rows.

    The effect size is Cohen's :math:`d = (\bar y_{in} - \bar y_{out}) / s`, with the pooled
    standard deviation :math:`s^2 = (\sum_{in}(y - \bar y_{in})^2 + \sum_{out}(y -
    \bar y_{out})^2) / (n - 2)`. It is 0 for constant features and if one side has no rows, and
    clipped to ±:data:`LARGEST_EFFECT`. Missing values (NaN) are ignored, and outliers clipped: a
    single wrong value could hide the differences of all others. Means are those of the table,
    unless outliers reverse the sign of their difference.
    """
    n, p = values.shape
    width = max(1, _BLOCK // max(n, 1))
    low, high = clip_limits(values)
    found = np.zeros((5, n_clusters, p))
    for some in (slice(first, first + width) for first in range(0, p, width)):
        block = np.where(np.isfinite(values[:, some]), values[:, some], np.nan)
        usual = np.clip(block, low[some], high[some])
        found[:, :, some] = part = _profile_columns(usual, labels, n_clusters)
        if not np.array_equal(usual, block, equal_nan=True):
            means = _profile_columns(block, labels, n_clusters)[:2]
            agree = (means[0] > means[1]) == (part[0] > part[1])
            found[:2, :, some] = np.where(agree, means, part[:2])
    return Profiles(*found)


def clip_limits(values: Floats) -> tuple[Floats, Floats]:
    """Return for each column the limits to which outliers are clipped."""
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite range has no outliers
        return usual_range(values[sample_numbers(len(values), _SAMPLED)])


def strongest_first(effects: Floats) -> Ints:
    """Rank the features by their largest absolute effect in any cluster."""
    return np.argsort(-abs(effects).max(axis=0, initial=0.0), kind="stable")


def _profile_columns(values: Floats, labels: Ints, n_clusters: int) -> Floats:
    """Return the fields of `Profiles` for a few columns."""
    # d is scale-invariant. Columns are mapped to [0, 1], after halving so that no range overflows,
    # which makes constant columns exactly 0 and rounding errors comparable.
    seen = np.isfinite(values)
    half = 0.5 * np.where(seen, values, 0.0)
    some = seen.any(axis=0)
    low = np.where(some, half.min(axis=0, where=seen, initial=np.inf), 0.0)
    high = np.where(some, half.max(axis=0, where=seen, initial=-np.inf), 0.0)
    span = high - low
    scaled = np.where(seen, half - low, 0.0) / np.where(span > 0, span, 1.0)
    inside = np.eye(n_clusters)[labels]
    counts = inside.T @ seen
    n_seen = counts.sum(axis=0)
    rest = n_seen - counts
    # Moments about the column's mean, to avoid cancellation.
    center = scaled.sum(axis=0) / np.maximum(n_seen, 1)
    scaled = np.where(seen, scaled - center, 0.0)
    sums = inside.T @ scaled
    mean_in = sums / np.maximum(counts, 1)
    mean_out = (sums.sum(axis=0) - sums) / np.maximum(rest, 1)
    squares = (inside.T @ (scaled * scaled)).sum(axis=0)
    scatter = squares - counts * mean_in**2 - rest * mean_out**2
    deviation = np.sqrt(np.maximum(scatter, 0.0) / np.maximum(n_seen - 2, 1))
    # The floor, a billionth of the range, keeps d finite and suppresses rounding errors.
    effects = (mean_in - mean_out) / np.maximum(deviation, 1e-9)
    effects = np.clip(effects, -LARGEST_EFFECT, LARGEST_EFFECT)
    effects[(counts == 0) | (rest == 0)] = 0.0
    certain = _certain(effects, counts, rest, effects**2 / (2.0 * np.maximum(n_seen, 1)))
    # Clip means to the range of the data: with rounding errors, the largest could overflow.
    means = (
        np.where(n > 0, 2.0 * np.clip(low + span * (mean + center), low, high), np.nan)
        for mean, n in ((mean_in, counts), (mean_out, rest))
    )
    return np.stack([*means, effects, certain, counts])


def _certain(effects: Floats, n_in: Floats, n_out: Floats, more: Floats | float = 0.0) -> Floats:
    """Return the 95 % confidence limits nearer to 0; Cohen's d has ``more`` variance than h."""
    variance = 1.0 / np.maximum(n_in, 1) + 1.0 / np.maximum(n_out, 1) + more
    return np.sign(effects) * np.maximum(abs(effects) - 1.96 * np.sqrt(variance), 0.0)


def level_shares(codes: Ints, n_levels: int, labels: Ints, n_clusters: int) -> Profiles:
    """Compare the level frequencies of a category, -1 where missing, with all other rows."""
    table = np.zeros((n_clusters, n_levels))
    seen = codes >= 0
    np.add.at(table, (labels[seen], codes[seen]), 1.0)
    return _compare_shares(table, table.sum(axis=1, keepdims=True))


def missing_shares(missing: Bools, labels: Ints, n_clusters: int) -> Profiles:
    """Compare the share of missing cells between clusters and all other rows, by column."""
    sizes = np.bincount(labels, minlength=n_clusters).astype(np.float64)
    return _compare_shares(np.eye(n_clusters)[labels].T @ missing, sizes[:, None])


def _compare_shares(counts: Floats, sizes: Floats) -> Profiles:
    r"""Return shares and Cohen's :math:`h = 2 \arcsin\sqrt p_{in} - 2 \arcsin\sqrt p_{out}`.

    h is 0 if one side has no rows. The thresholds for small and large effects are those of d.
    """
    sizes = np.broadcast_to(sizes, counts.shape)
    rest, others = (whole.sum(axis=0) - whole for whole in (sizes, counts))
    with np.errstate(invalid="ignore"):
        inside, outside = counts / sizes, others / rest
    known = (sizes > 0) & (rest > 0)

    def cohens_h(p: Floats, q: Floats) -> Floats:
        # Rounding may leave a share slightly above 1.
        p, q = (np.clip(np.where(known, share, 0.0), 0.0, 1.0) for share in (p, q))
        return 2.0 * (np.arcsin(np.sqrt(p)) - np.arcsin(np.sqrt(q)))

    # Jeffreys prior: two equal cells do not imply a share of 1.
    shrunken = cohens_h((counts + 0.5) / (sizes + 1.0), (others + 0.5) / (rest + 1.0))
    certain = _certain(shrunken, sizes, rest)
    return Profiles(inside, outside, cohens_h(inside, outside), certain, sizes)


def compare_labels(
    labels: Ints, given: list[str] | None, n_clusters: int
) -> Confusion | NumberByCluster | None:
    """Compare clusters with given labels, without rows whose label is empty; None if all are."""
    if given is None or not any(given):
        return None
    if (numbers := continuous_labels(given)) is not None:
        return number_by_cluster(numbers, labels, n_clusters)
    counts = Counter(filter(None, sorted(given)))  # ties are in alphabetical order
    names = [name for name, _ in counts.most_common()]
    places = {name: place for place, name in enumerate(names)}
    codes = np.array([places.get(label, -1) for label in given])
    known = codes >= 0
    table = np.zeros((n_clusters, len(names)), dtype=np.int64)
    np.add.at(table, (labels[known], codes[known]), 1)
    purity = float(table.max(axis=1).sum() / known.sum())
    ari = float(adjusted_rand_score(codes[known], labels[known]))
    return Confusion(names, table, ari, purity, codes)


class Confusion(NamedTuple):
    """Contingency table of clusters and given labels."""

    names: list[str]  # given labels, the most frequent first
    table: Ints  # (n_clusters, number of names)
    ari: float  # adjusted Rand index
    purity: float  # share of labeled rows with the most common label of their cluster
    codes: Ints  # (n_rows,): index of every row's label in names, -1 where missing


class NumberByCluster(NamedTuple):
    """Summary of a continuous variable by cluster, and the variance the clusters explain."""

    counts: Ints  # rows with a value
    means: Floats  # NaN without any
    deviations: Floats  # standard deviations (n - 1); NaN with fewer than two
    eta_squared: float  # correlation ratio: share of the variance between clusters
    values: Floats  # (n_rows,), NaN where missing


def continuous_labels(given: list[str]) -> Floats | None:
    """Return labels as numbers if they are continuous rather than classes, else None.

    Many distinct numbers or dates are, unless they are consecutive from 0 or 1, as class codes are.
    """
    numbers = read_label(given)[1]
    values = np.unique(numbers[~np.isnan(numbers)])
    whole = (values == np.round(values)).all()
    if len(values) <= (_MOST_CLASSES if whole else _MOST_STEPS):
        return None
    coded = whole and values[0] in (0.0, 1.0) and values[-1] - values[0] == len(values) - 1
    return None if coded else numbers


def number_by_cluster(values: Floats, labels: Ints, n_clusters: int) -> NumberByCluster:
    r"""Summarize a non-constant variable (:func:`continuous_labels`) by cluster.

    The correlation ratio is :math:`\eta^2 = \sum_m n_m (\bar y_m - \bar y)^2 / \sum_n (y_n -
    \bar y)^2`.
    """
    seen = np.isfinite(values)
    groups = [values[seen & (labels == m)] for m in range(n_clusters)]
    counts = np.array([len(group) for group in groups])
    means = np.array([group.mean() if len(group) else np.nan for group in groups])
    deviations = np.array([group.std(ddof=1) if len(group) > 1 else np.nan for group in groups])
    between = np.nansum(counts * (means - values[seen].mean()) ** 2)
    eta_squared = float(between / (seen.sum() * values[seen].var()))
    return NumberByCluster(counts, means, deviations, eta_squared, values)


def doubtful_rows(memberships: Floats, count: int) -> Ints:
    """Return the rows with the lowest certainty; ties are broken by highest entropy."""
    return np.lexsort((-entr(memberships).sum(axis=1), memberships.max(axis=1)))[:count]


def typical_rows(
    embedding: Floats, memberships: Floats, means: Floats, covariances: Floats, count: int
) -> list[Ints]:
    r"""Return, for every cluster, its rows with the highest :math:`s_{nm} N(x_n|\bar x_m, C_m)`.

    Those are most central in the cluster's Gaussian and least ambiguous.
    """
    labels, found = memberships.argmax(axis=1), []
    for m, normal in enumerate(zip(means, covariances, strict=True)):
        mine = np.flatnonzero(labels == m)
        score = log_gaussian(embedding[mine], *normal) + np.log(memberships[mine, m])
        found.append(mine[np.argsort(-score, kind="stable")[:count]])
    return found


def log_gaussian(points: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Return log N(point | mean, covariance) for every point."""
    root = square_root(covariance)
    standard = np.linalg.solve(root, (points - mean).T)
    log_det = 2.0 * np.linalg.slogdet(root)[1]
    return -0.5 * ((standard * standard).sum(axis=0) + log_det + len(mean) * np.log(2.0 * np.pi))


def square_root(covariance: Floats) -> Floats:
    """Return R with R Rᵀ = covariance, after raising the eigenvalues that are not positive."""
    # Files may hold rounded covariances; a report should still be drawn.
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, max(1e-9 * abs(values).max(), 1e-12)))
