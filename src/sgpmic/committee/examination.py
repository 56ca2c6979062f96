"""Cluster tendency, number of clusters and latent dimension of a table, estimated before a fit."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.special import softmax
from sklearn.metrics.cluster import contingency_matrix

from sgpmic._runtime import announce, listening
from sgpmic._types import Floats, Ints
from sgpmic.committee import judge
from sgpmic.committee.geometry import Geometry
from sgpmic.committee.members import COVARIANCE_TYPES, MEMBERS, cluster_all, find_modes, mixture_bic
from sgpmic.committee.reference_noise import MixedTable
from sgpmic.committee.tendency import ClusterTendency, cluster_tendency
from sgpmic.committee.voting import consensus
from sgpmic.learning.preprocessing import Scaler, find_categories, parts, sample_numbers
from sgpmic.process_group import ProcessGroup

#: Maximum numbers of rows sampled, and of these for the votes on the number of clusters.
MOST_EXAMINED, MOST_VOTED_ON = 1000, 600
#: Maximum number of latent dimensions chosen.
MOST_DIMENSIONS = 10
#: Number of shuffled tables in parallel analysis, and the quantile to exceed.
_SHUFFLED, _QUANTILE = 20, 0.95
# Tables with more rows are decomposed by way of their Gram matrix instead of an SVD.
_MOST_DECOMPOSED = 100_000

#: Cache of results, newest last: a grid search fits the same rows many times.
_found: dict[Any, Any] = {}
_MOST_REMEMBERED = 64
_remembering = threading.Lock()
_R = TypeVar("_R")

#: Bounds of the largest number of clusters tried, which is otherwise the number of modes plus two.
LEAST_TRIED, MOST_TRIED = 12, 20
#: Minimum prominence of a mode (log density above its saddle): spurious modes of a density
#: estimate from ten neighbors seldom reach it.
_PROMINENT = 1.6
#: The members that do not vote on the number of clusters, because they are slow.
_SLOW = ("random starts", "subspaces", "latent classes")
VOTERS = tuple(name for name in MEMBERS if not any(each in name for each in _SLOW))
#: The members whose agreement (stability) is compared with noise.
_STABLE = ("k-means", "Ward", "Gaussian mixture, full")
#: Number of statistics for each candidate number of clusters.
N_FIGURES = 10 + len(judge.INDICES)
#: Upper limit of the BIC per row, used if no mixture could be fitted.
_MOST_BIC = 1e3
#: Fraction of categorical columns from which a table is represented by its factors.
_MANY = 0.25
#: Minimum number of factors.
_LEAST_FACTORS = 2


@dataclass(frozen=True)
class NumberOfClusters:
    """How the number of clusters was chosen; lists are in the order of the candidates."""

    chosen: int  # the candidate with the largest predicted ARI
    candidates: list[int]  # 1, 2, …
    probability: list[float]
    #: Predicted adjusted Rand index with the true clusters, whatever their number.
    expected: list[float]
    modes: int  # density modes
    shares: list[list[float]]  # relative cluster sizes for each candidate, largest first
    #: Compared with the previous candidate, the relative size of the largest cluster that splits,
    #: followed by those of its parts; empty if none does.
    splits: list[list[float]]


@dataclass(frozen=True)
class NumberOfDimensions:
    """How the number of latent dimensions was chosen."""

    chosen: int  # principal components with more variance than noise, at least one
    variance: list[float]  # explained variance ratios of the principal components
    noise: list[float]  # the same for independently shuffled features


class View(NamedTuple):
    """The representation of a table that the committee and the initialization use.

    Categories are one-hot encoded (:class:`sgpmic.TableEncoder`), so every combination of levels
    forms an island of rows, and in a neighbor graph the levels of a single category look like
    perfect clusters. But a cluster should be shared by several columns. So a table with many
    categories is represented by its principal factors (those of factor analysis of mixed data if
    the encoder has weighted the indicators), as many as parallel analysis finds, and committee
    members whose clusters are the levels of one category do not vote.
    """

    rows: Floats  # (n_own, r) rows of this process
    scaler: Scaler
    has_categories: bool = False
    mixed: MixedTable | None = None  # a sample from all processes, with its categories


def committee_view(Y: Floats, Y_imputed: Floats, scaler: Scaler, group: ProcessGroup) -> View:
    """Return the factor scores of a table with many categorical columns, else the table itself.

    ``Y`` are this process's rows with missing values, ``Y_imputed`` the same rows imputed.
    """
    numbers = sample_numbers(group.n_rows, MOST_EXAMINED)
    categories = find_categories(group.agree(group.rows_at(Y, numbers)))
    if not categories:
        return View(Y_imputed, scaler)
    sample = group.agree(scaler.transform(group.rows_at(Y_imputed, numbers)))
    # Start and end of every original column among the features.
    inner = {j for each in categories for j in range(each.first + 1, each.first + each.n_features)}
    begins = [j for j in range(Y.shape[1]) if j not in inner]
    mixed = MixedTable(sample, list(zip(begins, [*begins[1:], Y.shape[1]], strict=True)))
    # A table of binary features only, such as bits, has no categorical columns.
    bits = len(categories) == Y.shape[1]
    few = len(categories) < _MANY * len(mixed.columns)
    if few or bits or Y.shape[1] <= _LEAST_FACTORS:
        return View(Y_imputed, scaler, mixed=mixed)
    center = sample.mean(axis=0)
    _, _, axes = np.linalg.svd(sample - center, full_matrices=False)
    count = max(choose_dimensions(sample, mixed.columns).chosen, _LEAST_FACTORS)
    scores = (scaler.transform(Y_imputed) - center) @ group.agree(axes[:count]).T
    unscaled = Scaler(np.zeros(count), np.ones(count), "none", 1.0)
    return View(scores, unscaled, has_categories=True, mixed=mixed)


class Structure(NamedTuple):
    """Results of :func:`examine`; None for those not requested."""

    tendency: ClusterTendency | None
    clusters: NumberOfClusters | None
    dimensions: NumberOfDimensions | None


def examine(
    view: View, group: ProcessGroup, *, tendency: bool, clusters: bool, dimensions: bool
) -> Structure:
    """Estimate the requested properties of the table, whose rows are shared by all processes."""
    if not (tendency or clusters or dimensions):
        return Structure(None, None, None)
    numbers = sample_numbers(group.n_rows, MOST_EXAMINED)
    # Bitwise identical on all processes.
    sample = group.agree(view.scaler.transform(group.rows_at(view.rows, numbers)))
    found = number = None
    if tendency or clusters:
        announce("testing for clusters")
        found = _once(cluster_tendency, sample, mixed=view.mixed)
    if clusters and found is not None:
        number = _once(choose_number, sample, tendency=found)
    return Structure(found, number, _once(choose_dimensions, sample) if dimensions else None)


def _once(find: Callable[..., _R], sample: Floats, **options: Any) -> _R:
    """Return ``find(sample, **options)``, cached by the content of the sample."""
    digest = hashlib.sha256(sample.tobytes()).hexdigest()
    # The factor scores already determine the mixed table they were computed from.
    known = {name: value for name, value in options.items() if name != "mixed"}
    key = (find.__name__, sample.shape, digest, *known.items())
    with _remembering:
        found: _R | None = _found.get(key)
    if found is None:
        found = find(sample, **options)  # threads may compute the same twice, but never wait
        with _remembering:
            _found[key] = found
            while len(_found) > _MOST_REMEMBERED:
                del _found[next(iter(_found))]
    return found


class Evidence(NamedTuple):
    """Evidence for every number of clusters."""

    candidates: list[int]  # 1, 2, …
    inputs: Floats  # (n_candidates, d) input features of the network
    modes: int
    labels: list[Ints]  # consensus labels


def choose_number(Y: Floats, tendency: ClusterTendency) -> NumberOfClusters:
    """Choose the number of clusters of scaled rows (n, p), given the test of cluster tendency.

    For every k ≥ 2 the committee votes, and the vote yields evidence: the judge's prediction, the
    members' agreement, validity indices of the consensus, the BIC of mixtures, and the number of
    density modes. Two statistics are compared with those of Gaussian noise of the same covariance:
    the compactness of the k-means clusters (the gap statistic of Tibshirani, Walther and Hastie)
    and the agreement of the clusterings (stability). For k = 1 there is the test of cluster
    tendency. From the evidence, small neural networks predict the probability of every k and the
    ARI of its consensus with the true clusters, whatever their number (for their training see
    :mod:`sgpmic.committee.judge`). The k with the largest predicted ARI is chosen, which need not
    be the most probable one.
    """
    some = Y[sample_numbers(len(Y), MOST_VOTED_ON)]
    found = gather_evidence(Geometry(some, MOST_TRIED), tendency)
    outputs = judge.load_networks()["number of clusters"](found.inputs).mean(axis=0)
    probability, expected = softmax(outputs[:, 0]), outputs[:, 1]
    expected[0] = probability[0]  # for one cluster the ARI is either 1 or 0
    if tendency.supported and len(probability) > 1:
        # The test has rejected a single cluster.
        probability[0], expected[0] = 0.0, -np.inf
        probability /= probability.sum()
    return NumberOfClusters(
        found.candidates[int(expected.argmax())],
        found.candidates,
        probability.tolist(),
        np.clip(expected, 0.0, 1.0).tolist(),
        found.modes,
        [_shares(labels) for labels in found.labels],
        [[], *map(_split, found.labels[:-1], found.labels[1:])],
    )


def gather_evidence(geometry: Geometry, tendency: ClusterTendency) -> Evidence:
    """Collect the evidence for every number of clusters."""
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
    return Evidence([1, *range(2, most + 1)], _inputs(by_number, about), modes, labels)


def _figures(geometry: Geometry, noise: Geometry, k: int, modes: int) -> tuple[Floats, Ints]:
    """Return the statistics for one number of clusters, and the consensus labels."""
    labels, _ = cluster_all(geometry, k, VOTERS)  # never empty: Ward cannot fail
    opinion = judge.judge(geometry, labels, k)
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
            *judge.validity_indices(geometry, [outcome], k)[0],
        ]
    )
    return figures, outcome


def _shares(labels: Ints) -> list[float]:
    counts = np.sort(np.bincount(labels))[::-1]
    return (counts[counts > 0] / len(labels)).tolist()


def _split(before: Ints, after: Ints) -> list[float]:
    """Return the relative sizes of the largest cluster that splits and of its parts."""
    counts = contingency_matrix(before, after)
    sizes, parents = counts.sum(axis=0), counts.argmax(axis=0)
    families = [np.flatnonzero(parents == m) for m in range(len(counts))]
    split = [m for m, parts in enumerate(families) if len(parts) > 1]
    if not split:
        return []
    largest = max(split, key=lambda m: counts[m].sum())
    parts = np.sort(sizes[families[largest]])[::-1]
    return (np.append(counts[largest].sum(), parts) / len(before)).tolist()


def _inputs(figures: Floats, about: Floats) -> Floats:
    """Return the network's inputs, k = 1 first.

    For k = 1 these are the extremes of all statistics over k; for the others their statistics, and
    the differences from those of k − 1 and k + 1 and from the extremes.
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


def choose_dimensions(
    Y: Floats, together: Sequence[tuple[int, int]] | None = None
) -> NumberOfDimensions:
    """Choose the number of latent dimensions by Horn's parallel analysis.

    Principal components are counted up to the first whose variance does not exceed that in 95 % of
    tables with shuffled features. A weak dimension behind strong ones may be missed.

    ``together`` are half-open ranges of features that are shuffled as one; by default every
    feature is shuffled separately.
    """
    rng = np.random.RandomState(0)
    parts = [(j, j + 1) for j in range(Y.shape[1])] if together is None else together
    shuffled = [
        _variances(np.column_stack([rng.permutation(Y[:, first:last]) for first, last in parts]))
        for _ in range(_SHUFFLED)
    ]
    variance, noise = _variances(Y), np.quantile(shuffled, _QUANTILE, axis=0)
    first_below = int(np.argmin(np.append(variance > noise, False)))
    chosen = min(max(first_below, 1), MOST_DIMENSIONS)
    return NumberOfDimensions(chosen, variance.tolist(), noise.tolist())


def _variances(Y: Floats) -> Floats:
    squares: Floats = np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False) ** 2
    return squares / max(float(squares.sum()), np.finfo(float).tiny)


def count_components(n_components: Any, scaler: Scaler, Y: Floats, group: ProcessGroup) -> int:
    """Return the number of latent dimensions: as given, or for that fraction of the variance.

    As in scikit-learn's PCA, a fraction selects the smallest number of principal components of the
    scaled features whose explained variance exceeds it.
    """
    if isinstance(n_components, Integral):
        return int(n_components)
    if group.n_processes == 1 and len(Y) <= _MOST_DECOMPOSED:
        squares = np.linalg.svd(scaler.transform(Y), compute_uv=False) ** 2
    else:
        products = np.zeros((Y.shape[1], Y.shape[1]))
        for part in map(scaler.transform, parts(Y, _MOST_DECOMPOSED)):
            products += part.T @ part
        squares = np.maximum(np.linalg.eigvalsh(group.total(products))[::-1], 0.0)
    if squares.sum() == 0:
        return 1
    shares = np.cumsum(squares) / squares.sum()
    return min(int(np.searchsorted(shares, n_components, side="right")) + 1, len(shares))
