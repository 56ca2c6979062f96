"""The numbers of a report: pure functions of arrays, so that each can be checked by itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import xlogy
from sklearn.metrics import adjusted_rand_score

from sgpmic.report.content import Floats, Ints

#: Effect sizes end here: a feature that is constant inside and outside a cluster would be infinite.
LARGEST_EFFECT = 100.0

# Numbers handled at a time where a whole copy of the table would be too much.
_BLOCK = 1 << 22


class Sizes(NamedTuple):
    """Rows, their share, and their mean certainty (NaN without rows), for every cluster."""

    counts: Ints
    shares: Floats
    certainty: Floats


def cluster_sizes(memberships: Floats) -> Sizes:
    """Count the rows of every cluster and average their certainty."""
    M = memberships.shape[1]
    labels = memberships.argmax(axis=1)
    counts = np.bincount(labels, minlength=M)
    sums = np.bincount(labels, weights=memberships.max(axis=1), minlength=M)
    mean = np.full(M, np.nan)
    np.divide(sums, counts, out=mean, where=counts > 0)
    return Sizes(counts, counts / len(labels), mean)


class Profiles(NamedTuple):
    """How clusters differ from the rest of the rows, feature by feature; all (M, p)."""

    means: Floats  # NaN for clusters without rows
    outside: Floats  # mean of all other rows; NaN where there are none
    effects: Floats  # Cohen's d, always finite
    order: Ints  # features by falling |d|


def cluster_profiles(values: Floats, labels: Ints, n_clusters: int) -> Profiles:
    r"""Compare every cluster with all other rows.

    The effect size is Cohen's :math:`d = (\bar y_{in} - \bar y_{out}) / s`, with the pooled
    standard deviation :math:`s^2 = (\sum_{in}(y - \bar y_{in})^2 + \sum_{out}(y -
    \bar y_{out})^2) / (n - 2)`. It is 0 for constant features and where one side has no rows, and
    never beyond ±:data:`LARGEST_EFFECT`.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples,)
    n_clusters : int
    """
    n, p = values.shape
    width = max(1, _BLOCK // max(n, 1))
    parts = [
        _profile_columns(values[:, first : first + width], labels, n_clusters)
        for first in range(0, p, width)
    ]
    empty = np.zeros((n_clusters, 0))
    means, outside, effects = (
        np.concatenate([part[k] for part in parts], axis=1) if parts else empty for k in range(3)
    )
    return Profiles(means, outside, effects, np.argsort(-abs(effects), axis=1, kind="stable"))


def _profile_columns(
    values: Floats, labels: Ints, n_clusters: int
) -> tuple[Floats, Floats, Floats]:
    """Return means inside, means outside and effect sizes for a few columns."""
    # d does not depend on units. Columns are mapped to [0, 1], by halves so that no range
    # overflows, which makes constant columns exactly 0 and rounding errors comparable.
    half = 0.5 * values
    low = half.min(axis=0)
    span = half.max(axis=0) - low
    scaled = (half - low) / np.where(span > 0, span, 1.0)
    inside = np.zeros((len(values), n_clusters))
    inside[np.arange(len(values)), labels] = 1.0
    counts = inside.sum(axis=0)[:, None]
    rest = len(values) - counts
    # Moments about the column's mean: its size must not drown its spread.
    centre = scaled.mean(axis=0)
    scaled -= centre
    sums = inside.T @ scaled
    squares = inside.T @ (scaled * scaled)
    mean_in = sums / np.maximum(counts, 1)
    mean_out = (sums.sum(axis=0) - sums) / np.maximum(rest, 1)
    scatter = squares.sum(axis=0) - counts * mean_in**2 - rest * mean_out**2
    deviation = np.sqrt(np.maximum(scatter, 0.0) / max(len(values) - 2, 1))
    # The floor, a billionth of the range, keeps d finite and lets rounding errors count as 0.
    effects = (mean_in - mean_out) / np.maximum(deviation, 1e-9)
    effects[np.broadcast_to((counts == 0) | (rest == 0), effects.shape)] = 0.0

    def in_units(means: Floats, counts: Floats) -> Floats:
        return np.where(counts > 0, 2.0 * (low + span * (means + centre)), np.nan)

    return (
        in_units(mean_in, counts),
        in_units(mean_out, rest),
        np.clip(effects, -LARGEST_EFFECT, LARGEST_EFFECT),
    )


def entropies(memberships: Floats) -> Floats:
    """Return −Σ_m s log s of every row, with 0 log 0 = 0."""
    result: Floats = -xlogy(memberships, memberships).sum(axis=1)
    return result


def doubtful_rows(memberships: Floats, count: int) -> Ints:
    """Return the rows of lowest certainty; of equal ones, those of highest entropy first."""
    certainty = memberships.max(axis=1)
    if count < len(certainty):  # sort only what can be among them
        worst = np.partition(certainty, count - 1)[count - 1] if count > 0 else -np.inf
        candidates = np.flatnonzero(certainty <= worst)
    else:
        candidates = np.arange(len(certainty))
    entropy = entropies(memberships[candidates])
    return candidates[np.lexsort((candidates, -entropy, certainty[candidates]))][:count]


def typical_rows(
    embedding: Floats, memberships: Floats, means: Floats, covariances: Floats, count: int
) -> list[Ints]:
    r"""Return, for every cluster, its rows of highest :math:`s_{nm} N(x_n|\bar x_m, C_m)`.

    Those lie deepest in the cluster's Gaussian and hardly belong anywhere else. Only rows whose
    most probable cluster it is are considered; of equal ones the first rows are taken.
    """
    labels = memberships.argmax(axis=1)
    found = []
    for m in range(memberships.shape[1]):
        mine = np.flatnonzero(labels == m)
        score = log_gaussian(embedding[mine], means[m], covariances[m])
        score = score + np.log(memberships[mine, m])
        found.append(mine[np.argsort(-score, kind="stable")[:count]])
    return found


def log_gaussian(points: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Return log N(point | mean, covariance) of every point."""
    factor = np.linalg.cholesky(positive(covariance))
    standard = np.linalg.solve(factor, (points - mean).T)
    log_det = 2.0 * np.log(np.diagonal(factor)).sum()
    result: Floats = -0.5 * (
        (standard * standard).sum(axis=0) + log_det + len(mean) * np.log(2.0 * np.pi)
    )
    return result


def positive(covariance: Floats) -> Floats:
    """Return the covariance, its eigenvalues raised where it has no Cholesky factor."""
    try:
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        # Files may hold rounded covariances; a report should still be drawn.
        values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
        floor = max(1e-9 * abs(values).max(), 1e-12)
        raised: Floats = (vectors * np.maximum(values, floor)) @ vectors.T
        return raised
    return covariance


class Confusion(NamedTuple):
    """Clusters against given labels."""

    names: list[str]  # given labels, the most frequent first
    table: Ints  # (n_clusters, number of names)
    ari: float  # adjusted Rand index
    purity: float  # share of rows whose given label is the commonest of their cluster


def confusion(labels: Ints, given: list[str], n_clusters: int) -> Confusion:
    """Count how clusters and given labels go together."""
    names, codes = code_labels(given)
    table = np.zeros((n_clusters, len(names)), dtype=np.int64)
    np.add.at(table, (labels, codes), 1)
    return Confusion(
        names,
        table,
        float(adjusted_rand_score(codes, labels)),
        float(table.max(axis=1).sum() / len(labels)),
    )


def code_labels(given: list[str]) -> tuple[list[str], Ints]:
    """Return the different labels, the most frequent first, and the place of every row's."""
    names, codes, counts = np.unique(
        np.asarray(given, dtype=object), return_inverse=True, return_counts=True
    )
    order = np.argsort(-counts, kind="stable")
    return [str(names[i]) for i in order], np.argsort(order)[codes]
