"""Examination of a table before a fit: cluster tendency, numbers of clusters and dimensions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.special import softmax

from sgpmic._runtime import announce, listening
from sgpmic._types import Floats, Ints
from sgpmic.committee import judge
from sgpmic.committee.dimensions import NumberOfDimensions, View, choose_dimensions, sampled
from sgpmic.committee.geometry import Geometry, without_copies
from sgpmic.committee.members import MEMBERS, best_bic, cluster_all, find_modes
from sgpmic.committee.tendency import IMPLAUSIBLE, ClusterTendency, cluster_tendency
from sgpmic.committee.voting import consensus
from sgpmic.learning.preprocessing import sample_numbers
from sgpmic.process_group import ProcessGroup

#: Maximum number of rows for the votes on the number of clusters.
MOST_VOTED_ON = 600

#: Cache of results: a grid search fits the same rows many times.
_found: dict[Any, Any] = {}
_MOST_REMEMBERED = 64
_R = TypeVar("_R")

#: Bounds of the largest number of clusters tried, which is otherwise the number of modes plus two.
LEAST_TRIED, MOST_TRIED = 12, 20
#: Minimum prominence of a mode (log density above its saddle), which spurious ones seldom reach.
_PROMINENT = 1.6
#: The members that do not vote on the number of clusters, because they are slow.
_SLOW = ("random starts", "subspaces", "latent classes")
VOTERS = tuple(name for name in MEMBERS if not any(each in name for each in _SLOW))
#: The members whose agreement (stability) is compared with noise.
_STABLE = ("k-means", "Ward", "Gaussian mixture, full")
#: Number of statistics for each candidate number of clusters.
N_FIGURES = 10 + len(judge.INDICES)
#: Minimum probability of one cluster where noise with the same categories looks the same.
_ONE_CLUSTER = 0.5


@dataclass(frozen=True)
class NumberOfClusters:
    """How the number of clusters was chosen; lists are in the order of the candidates."""

    chosen: int  # the candidate with the largest predicted ARI
    candidates: list[int]  # 1, 2, …
    probability: list[float]
    #: Predicted adjusted Rand index with the true clusters, whatever their number.
    expected: list[float]
    modes: int  # density modes


class Structure(NamedTuple):
    """Results of :func:`examine`; None for those not requested."""

    tendency: ClusterTendency | None
    clusters: NumberOfClusters | None
    dimensions: NumberOfDimensions | None


def examine(
    view: View, group: ProcessGroup, *, tendency: bool, clusters: bool, dimensions: bool
) -> Structure:
    """Estimate the requested properties of the table, whose rows are shared by all processes.

    With missing cells, drawn ones decide whether there are clusters, as imputation can invent some.
    But draws can also blur them: imputed rows decide how many there are.
    """
    if not (tendency or clusters or dimensions):
        return Structure(None, None, None)
    sample, _ = distinct_sample(view, group)
    found = number = None
    if tendency or clusters:
        announce("testing for clusters")
        found, tested = find_tendency(view, sample, group)
        options = {"tendency": found, "has_categories": view.n_factors > 0}
        if clusters and tested is not sample and not found.supported:
            number = _once(choose_number, tested, **options)
        if clusters and (number is None or number.chosen > 1):
            number = _once(choose_number, sample, **options)
    return Structure(found, number, _once(choose_dimensions, sample) if dimensions else None)


def distinct_sample(view: View, group: ProcessGroup) -> tuple[Floats, Ints]:
    """Return scaled rows of all processes without copies, and their indices in the sample."""
    sample = view.scaler.transform(sampled(view.rows, group))
    distinct, _ = without_copies(sample, view.n_factors)
    return sample[distinct], distinct


def find_tendency(
    view: View, sample: Floats, group: ProcessGroup
) -> tuple[ClusterTendency, Floats]:
    """Test whether the sample has clusters; return also the tested rows, with drawn cells."""
    mixed = view.mixed
    if view.drawn is not None:
        sample = group.agree(view.drawn.scaler.transform(view.drawn.rows))
        mixed = view.drawn.mixed
    return _once(cluster_tendency, sample, mixed=mixed), sample


def _once(find: Callable[..., _R], sample: Floats, **options: Any) -> _R:
    """Return ``find(sample, **options)``, cached by the content of the sample."""
    digest = hashlib.sha256(sample.tobytes()).hexdigest()
    # The sample already determines the mixed table that it represents.
    known = [item for item in options.items() if item[0] != "mixed"]
    key = (find.__name__, sample.shape, digest, *known)
    found: _R | None = _found.get(key)
    if found is None:
        found = find(sample, **options)  # threads may compute the same twice, but never wait
        if len(_found) >= _MOST_REMEMBERED:
            _found.clear()
        _found[key] = found
    return found


def choose_number(
    Y: Floats, tendency: ClusterTendency, *, has_categories: bool = False
) -> NumberOfClusters:
    """Choose the number of clusters of scaled rows (n, p), given the test of cluster tendency.

    From evidence for every k (:func:`gather_evidence`), small neural networks predict its
    probability and the ARI of its consensus with the true clusters, whatever their number (for
    their training see :mod:`sgpmic.committee.judge`). The k with the largest predicted ARI is
    chosen, which need not be the most probable one.
    """
    some = Y[sample_numbers(len(Y), MOST_VOTED_ON)]
    inputs, modes, _ = gather_evidence(Geometry(some, MOST_TRIED), tendency)
    outputs = judge.load_networks()["number of clusters"](inputs).mean(axis=0)
    probability, expected = softmax(outputs[:, 0]), outputs[:, 1]
    expected[0] = probability[0]  # for one cluster the ARI is either 1 or 0
    if tendency.supported and len(probability) > 1:
        # The test has rejected a single cluster.
        probability[0], expected[0] = 0.0, -np.inf
        probability /= probability.sum()
    elif has_categories and tendency.p_value > IMPLAUSIBLE and probability[0] < _ONE_CLUSTER:
        # The test's null model knows better what noise with categories looks like.
        rest = (1.0 - _ONE_CLUSTER) / (1.0 - probability[0])
        probability, expected = rest * probability, rest * expected
        probability[0] = expected[0] = _ONE_CLUSTER
    return NumberOfClusters(
        int(expected.argmax()) + 1,
        list(range(1, len(probability) + 1)),
        probability.tolist(),
        np.clip(expected, 0.0, 1.0).tolist(),
        modes,
    )


def gather_evidence(
    geometry: Geometry, tendency: ClusterTendency
) -> tuple[Floats, int, list[Ints]]:
    """Return the network's inputs for 1, 2, … clusters, the number of modes, and the partitions.

    For every k ≥ 2 the committee votes: the judge's prediction, the members' agreement, validity
    indices of the consensus, the BIC of mixtures, and the number of density modes. The compactness
    of the k-means clusters (the gap statistic of Tibshirani, Walther and Hastie) and the agreement
    of the clusterings (stability) are compared with those of Gaussian noise.
    """
    Y = geometry.Y
    prominence = find_modes(geometry.neighbor_distances, geometry.neighbors).prominence
    # Heights are −log r² of the neighbor distances r; a log density is −d log r in d dimensions.
    modes = max(int(np.sum(0.5 * geometry.intrinsic_dimension * prominence > _PROMINENT)), 1)
    most = min(max(LEAST_TRIED, modes + 2), MOST_TRIED, len(geometry) // 3)
    # Gaussian rows with the same covariance.
    _, singular, axes = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)
    drawn = np.random.default_rng(0).standard_normal((len(Y), len(singular)))
    noise = Geometry(drawn * singular @ axes / np.sqrt(len(Y)), most)
    figures, labels = [], [np.zeros(len(geometry), np.int64)]
    for k in range(2, most + 1):
        announce(f"trying {k} of {most} clusters")
        with listening(None):
            found, outcome = _figures(geometry, noise, k, modes)
        figures.append(found)
        labels.append(outcome)
    by_number = np.array(figures).reshape(-1, N_FIGURES)
    about = np.array([*geometry.summary, np.log(modes), tendency.statistic, tendency.p_value])
    return _inputs(by_number, about), modes, labels


def _figures(geometry: Geometry, noise: Geometry, k: int, modes: int) -> tuple[Floats, Ints]:
    """Return the statistics for one number of clusters, and the consensus labels."""
    labels, _ = cluster_all(geometry, k, VOTERS)  # never empty: Ward cannot fail
    opinion = judge.judge(geometry, labels, k)
    w = opinion.weights
    shares = consensus(list(labels.values()), w, k)
    outcome = shares.argmax(axis=1)
    gap = _compactness(noise, k) - _compactness(geometry, k)
    stability = _stability(labels, k) - _stability(cluster_all(noise, k, _STABLE)[0], k)
    figures = np.array(
        [
            float(w @ opinion.expected),
            float(opinion.expected.max()),
            float(w @ opinion.agreement @ w),
            float(opinion.agreement.mean()),
            float(shares.max(axis=1).mean()),
            gap,
            stability,
            best_bic(geometry, k),
            np.log(k),
            -abs(np.log(k / modes)),
            *judge.validity_indices(geometry, [outcome], k)[0],
        ]
    )
    return figures, outcome


def _inputs(figures: Floats, about: Floats) -> Floats:
    """Return the network's inputs, k = 1 first, for which they are the extremes over all k."""
    n = len(figures)
    padded = figures if n else np.zeros((1, N_FIGURES))
    largest, smallest = padded.max(axis=0), padded.min(axis=0)
    before = np.vstack([figures[:1], figures[:-1]])
    after = np.vstack([figures[1:], figures[-1:]])
    others = [figures, figures - before, after - figures, figures - largest, figures - smallest]
    of_one = np.concatenate([[1.0], about, largest, smallest, np.zeros(3 * N_FIGURES)])
    of_others = np.hstack([np.zeros((n, 1)), np.tile(about, (n, 1)), *others])
    return np.vstack([of_one, of_others])


def _compactness(geometry: Geometry, k: int) -> float:
    """Return the log of the within-cluster sum of squares of k-means."""
    labels = MEMBERS["k-means"](geometry, k)
    indicators = np.eye(k)[labels]
    means = indicators.T @ geometry.Y / np.maximum(indicators.sum(axis=0), 1.0)[:, None]
    return float(np.log(np.sum((geometry.Y - means[labels]) ** 2) + 1e-12))


def _stability(labels: dict[str, Ints], k: int) -> float:
    """Return the mean pairwise ARI of the members in ``_STABLE``."""
    found = [labels[name] for name in _STABLE if name in labels]  # at least two
    agreement = judge.pairwise_agreement(np.stack(found), k)
    return float(agreement[np.triu_indices(len(found), 1)].mean())
