"""How many clusters: the probability of every number, learned from made-up problems.

For every number k from two on the committee votes, and the vote leaves evidence: what the judge
expects of it, how far the members agree, validity indices of the consensus, the BIC of mixtures,
the modes of the density. Two figures are compared with noise of the same covariance without
clusters: how compact the clusters of k-means are (the gap statistic of Tibshirani, Walther and
Hastie) and how far clusterings agree (stability). For a single cluster there is the test of cluster
tendency (:mod:`sgpmic.committee.support`). Small networks turn the evidence into scores, and a
softmax turns these into probabilities (:mod:`sgpmic.committee.judge` says how they learned). The
number that is chosen is the one of which most agreement with the true clusters is expected.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from sgpmic._types import Floats, Ints
from sgpmic.committee.geometry import Geometry, sample_rows
from sgpmic.committee.judge import judge, load_networks, pairwise_agreement
from sgpmic.committee.members import COVARIANCE_TYPES, MEMBERS, cluster_all, mixture_bic
from sgpmic.committee.modes import find_modes
from sgpmic.committee.outcome import Support
from sgpmic.committee.validity import INDICES, validity_indices
from sgpmic.committee.voting import consensus
from sgpmic.learning.progress import announce, listening

#: Rows that are looked at, at most.
MOST_ROWS = 600
#: Numbers of clusters that are tried, at least and at most; in between two more than modes.
LEAST_TRIED, MOST_TRIED = 12, 20
#: A mode's density is so much higher than at its saddle, in logarithms: a chance peak of an
#: estimate from ten neighbors seldom is.
_PROMINENT = 1.6
#: The members that vote: those that take longest do not.
VOTERS = tuple(name for name in MEMBERS if "random starts" not in name and name != "subspaces")
#: Those whose agreement is compared with noise.
_STABLE = ("k-means", "Ward", "Gaussian mixture, full")
#: Figures of every number of clusters.
N_FIGURES = 10 + len(INDICES)
#: The BIC per row where no mixture could be fitted.
_MOST_BIC = 1e3


@dataclass(frozen=True)
class NumberOfClusters:
    """How the number of clusters was chosen.

    Attributes
    ----------
    chosen : int
        The one of which most agreement with the true clusters is expected.
    candidates : tuple of int
        The numbers that were tried, from one on.
    probability : tuple of float
        Of each.
    expected : tuple of float
        The adjusted Rand index with the true clusters, whatever their number, expected of each.
    modes : int
        Modes of the density.
    shares : tuple of tuples of float
        Of the rows, in the clusters of each, the largest first.
    splits : tuple of tuples of float
        What becomes of the clusters of the number before: the share of the largest that splits,
        and the shares of its parts; empty where none does.
    """

    chosen: int
    candidates: tuple[int, ...]
    probability: tuple[float, ...]
    expected: tuple[float, ...]
    modes: int
    shares: tuple[tuple[float, ...], ...]
    splits: tuple[tuple[float, ...], ...]

    def listing(self) -> dict[str, Any]:
        """Return it as plain numbers and lists."""
        return {
            name: [list(v) if isinstance(v, tuple) else v for v in value]
            if isinstance(value, tuple)
            else value
            for name, value in asdict(self).items()
        }


class Evidence(NamedTuple):
    """What speaks for every number of clusters.

    Attributes
    ----------
    candidates : tuple of int
        From one on.
    inputs : ndarray of shape (n_candidates, d)
        What the network sees of each.
    trust : ndarray of shape (n_candidates,)
        The adjusted Rand index that the judge expects of the vote into each; 1 for one cluster.
    modes : int
    labels : tuple of ndarrays of shape (n_rows,)
        What the committee arrived at.
    """

    candidates: tuple[int, ...]
    inputs: Floats
    trust: Floats
    modes: int
    labels: tuple[Ints, ...]


def choose_number(Y: Floats, support: Support) -> NumberOfClusters:
    """Return the number of clusters of scaled rows (n, p), given the test of cluster tendency.

    Of more than ``MOST_ROWS`` rows, a sample is looked at, always the same.
    """
    found = gather_evidence(Geometry(Y[sample_rows(len(Y), MOST_ROWS)], MOST_TRIED), support)
    probability = softmax(load_networks()["number of clusters"](found.inputs)[..., 0].mean(axis=0))
    if support.supported and len(probability) > 1:
        probability[0] = 0.0  # the test has found more than one cluster
        probability /= probability.sum()
    expected = _expected_agreement(found, probability)
    return NumberOfClusters(
        found.candidates[int(expected.argmax())],
        found.candidates,
        tuple(probability.tolist()),
        tuple(expected.tolist()),
        found.modes,
        tuple(_shares(labels) for labels in found.labels),
        ((), *map(_split, found.labels[:-1], found.labels[1:])),
    )


def _expected_agreement(found: Evidence, probability: Floats) -> Floats:
    """Return the adjusted Rand index with the true clusters that is expected of each number.

    Where k is the true number, the clusters are about those of the vote into k, as far as the judge
    trusts these, and the vote into another number agrees with them as far as it agrees with that
    vote. Where several numbers are probable, the maximum is often between them. If there is no more
    than one cluster, only one is right.
    """
    agreement = pairwise_agreement(np.stack(found.labels), max(found.candidates))
    weighted: Floats = agreement @ (probability * found.trust)
    return weighted


def gather_evidence(geometry: Geometry, support: Support) -> Evidence:
    """Return what speaks for every number of clusters."""
    modes = count_modes(geometry)
    most = min(max(LEAST_TRIED, modes + 2), MOST_TRIED, len(geometry) // 3)
    noise = Geometry(_noise_like(geometry.Y), most)
    figures: dict[int, Floats] = {}
    labels = [np.zeros(len(geometry), np.int64)]
    for k in range(2, most + 1):
        announce(f"trying {k} of {most} clusters")
        with listening(None):
            found = _figures(geometry, noise, k, modes)
        if found is not None:
            figures[k], outcome = found
            labels.append(outcome)
    by_number = np.array(list(figures.values())).reshape(len(figures), N_FIGURES)
    about = np.array([*geometry.summary, np.log(modes), support.statistic, support.p_value])
    trust = np.append(1.0, np.clip(by_number[:, 0], 0.02, 1.0))
    return Evidence((1, *figures), _inputs(by_number, about), trust, modes, tuple(labels))


def _figures(geometry: Geometry, noise: Geometry, k: int, modes: int) -> tuple[Floats, Ints] | None:
    """Return figures of one number of clusters, and the labels of the vote.

    None where nothing could cluster the rows.
    """
    labels, _ = cluster_all(geometry, k, VOTERS)
    if not labels:
        return None
    opinion = judge(geometry, labels, k)
    w = opinion.weights
    shares = consensus(list(labels.values()), w, k)
    outcome = shares.argmax(axis=1)
    gap = _compactness(noise, k) - _compactness(geometry, k)
    stability = _stability(labels, k) - _stability(cluster_all(noise, k, _STABLE).labels, k)
    bic = min(min(mixture_bic(geometry, k, each) for each in COVARIANCE_TYPES), _MOST_BIC)
    figures = np.array(
        [
            float(w @ opinion.expected),
            float(opinion.expected.max()),
            float(w @ opinion.agreement @ w),
            float(opinion.agreement.mean()),
            float(shares.max(axis=1).mean()),
            gap,
            stability,
            bic,
            np.log(k),
            -abs(np.log(k / modes)),
            *validity_indices(geometry, [outcome], k)[0],
        ]
    )
    return figures, outcome


def _shares(labels: Ints) -> tuple[float, ...]:
    """Return the shares of the rows in every cluster that has some, the largest first."""
    counts = np.sort(np.bincount(labels))[::-1]
    return tuple((counts[counts > 0] / len(labels)).tolist())


def _split(before: Ints, after: Ints) -> tuple[float, ...]:
    """Return the share of the largest cluster that splits, and the shares of its parts."""
    counts = np.zeros((before.max() + 1, after.max() + 1))
    np.add.at(counts, (before, after), 1.0)
    sizes, parents = counts.sum(axis=0), counts.argmax(axis=0)
    families = [np.flatnonzero((parents == m) & (sizes > 0)) for m in range(len(counts))]
    split = [m for m, parts in enumerate(families) if len(parts) > 1]
    if not split:
        return ()
    largest = max(split, key=lambda m: counts[m].sum())
    parts = np.sort(sizes[families[largest]])[::-1]
    return tuple((np.append(counts[largest].sum(), parts) / len(before)).tolist())


def _inputs(figures: Floats, about: Floats) -> Floats:
    """Return what the network sees: one cluster first, then the others, side by side.

    Of one cluster the extremes of all figures; of the others their figures, beside those of the
    numbers before and after and those of the best.
    """
    n = len(figures)
    padded = figures if n else np.zeros((1, N_FIGURES))
    largest, smallest = padded.max(axis=0), padded.min(axis=0)
    before = np.vstack([figures[:1], figures[:-1]])
    after = np.vstack([figures[1:], figures[-1:]])
    others = [figures, figures - before, after - figures, figures - largest, figures - smallest]
    of_one = np.concatenate([[1.0], about, largest, smallest, np.zeros(3 * N_FIGURES)])
    of_others = np.hstack([np.zeros((n, 1)), np.tile(about, (n, 1)), *others])
    return np.vstack([of_one, of_others])


def _noise_like(Y: Floats) -> Floats:
    """Return Gaussian rows with the same covariance."""
    rng = np.random.default_rng(0)
    _, singular, axes = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)
    rows: Floats = rng.standard_normal((len(Y), len(singular))) * singular @ axes
    return rows / np.sqrt(len(Y))


def _compactness(geometry: Geometry, k: int) -> float:
    """Return the logarithm of the sum of squares within the clusters of k-means."""
    labels = MEMBERS["k-means"](geometry, k)
    indicators = np.eye(k)[labels]
    means = indicators.T @ geometry.Y / np.maximum(indicators.sum(axis=0), 1.0)[:, None]
    return float(np.log(np.sum((geometry.Y - means[labels]) ** 2) + 1e-12))


def _stability(labels: dict[str, Ints], k: int) -> float:
    """Return the mean agreement of the members that are compared with noise."""
    found = [labels[name] for name in _STABLE if name in labels]
    if len(found) < 2:
        return 0.0
    agreement = pairwise_agreement(np.stack(found), k)
    return float(agreement[np.triu_indices(len(found), 1)].mean())


def count_modes(geometry: Geometry) -> int:
    """Return the number of prominent modes of the rows' density."""
    prominence = find_modes(geometry.neighbor_distances, geometry.neighbors).prominence
    # Heights are logarithms of squared distances; a density has the dimension as their factor.
    return max(int(np.sum(0.5 * geometry.intrinsic_dimension * prominence > _PROMINENT)), 1)
