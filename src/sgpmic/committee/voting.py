"""A committee: different clusterings of the rows, whose votes start and hold the fit.

No clustering is good at everything: k-means and mixtures find round and elongated clusters,
spectral partitions and modes of the density find strands and rings. So all of them vote.

A member's **weight** comes from the neighbour graph: the more links between neighbours a partition
cuts, the less it says. With c the share of a row's neighbours that lie in another cluster, averaged
over every cluster and then over the clusters, the weight is a power of (min c + ε) / (c + ε). Where
some member finds clusters that hardly touch (c near 0), the power is 2 and that member decides;
where even the best cuts many links, it is near 1 and all count. A cluster of less than a fifth of
an equal share of the rows counts as cut off whole: a handful of outliers has few neighbours
elsewhere and says nothing of the others.

**Shares.** The members' labels are matched to the vote so far (the assignment with the most rows in
common) until nothing moves. A row's share of votes for every cluster is its membership. Members
share their errors, so shares are too sure of themselves; they are drawn towards equal shares as far
as the vote's own clusters touch: by twice the share of neighbours that lie in another cluster.

**No draws.** k-means starts from Ward's clusters and the mixtures from those of k-means, once each:
as good as the best of several random starts, quicker, and the votes on a table do not depend on a
seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

from sgpmic._types import Floats, Ints
from sgpmic.committee.modes import cluster_by_modes
from sgpmic.learning.progress import announce
from sgpmic.learning.start.starts import rand_index

#: Neighbours that the weights, and the modes, look at.
N_NEIGHBORS = 10
#: Neighbours in the graph of the spectral partition.
_SPECTRAL_NEIGHBORS = 20
#: What keeps a cut of 0 from deciding everything.
LEAST_CUT = 0.001
#: The least cut at which the power of weights is halfway between 2 and 1.
_TOUCHING = 0.02
#: A cluster is small with less than this part of an equal share of the rows.
_SMALL = 0.2
#: Shares are drawn towards equal ones by this many times the vote's cut, at most this far.
_DOUBT, _MOST_DOUBT = 2.0, 0.9
#: Mixtures see the principal components with this share of the variance, at most this many.
_SHARE_OF_VARIANCE, _MOST_DIMENSIONS = 0.95, 100
#: Covariances of the mixtures.
MIXTURES = ("full", "tied", "diag")
#: Added to the variances of mixtures.
_LEAST_VARIANCE = 1e-4
_MOST_MATCHINGS = 50
#: The share of rows whose label has to follow from a known partition for a member not to vote.
_REPEATED = 0.95


class Member(NamedTuple):
    """One clustering that votes.

    Attributes
    ----------
    name : str
    labels : ndarray of shape (n_samples,)
    cut : float
        The share of neighbours that lie in another cluster, with 1 added for small clusters.
    weight : float
        What its vote counts; all weights add up to 1.
    agreement : float
        Adjusted Rand index with the outcome of the vote.
    """

    name: str
    labels: Ints
    cut: float
    weight: float
    agreement: float


@dataclass(frozen=True)
class Vote:
    """The outcome of a vote.

    Attributes
    ----------
    shares : ndarray of shape (n_samples, n_clusters)
        Every row's memberships; none is 0.
    members : tuple of Member
    cut : float
        The share of neighbours that lie in another cluster of the outcome.
    """

    shares: Floats
    members: tuple[Member, ...]
    cut: float

    @property
    def labels(self) -> Ints:
        """The cluster with the most votes."""
        labels: Ints = self.shares.argmax(axis=1)
        return labels

    @property
    def certainty(self) -> float:
        """The mean of the rows' largest shares."""
        return float(self.shares.max(axis=1).mean())


def take_vote(
    Y: Floats,
    n_clusters: int,
    known: Sequence[Ints] = (),
) -> Vote | None:
    """Let all members cluster the rows and count their votes.

    Parameters
    ----------
    Y : ndarray of shape (n_samples, n_features)
        Scaled rows.
    n_clusters : int
    known : sequence of ndarrays of shape (n_samples,)
        Partitions that say nothing new: members whose labels follow from one of them do not vote.

    Returns
    -------
    vote : Vote or None
        None where no member could cluster the rows.
    """
    distances, neighbours = nearest_others(Y)
    partitions: dict[str, Ints] = {}
    for name, make in _members(Y, n_clusters, distances, neighbours):
        announce(f"committee: {name}")
        _try(partitions, name, make)
    partitions = _without(partitions, known)
    if not partitions:
        return None
    return count(partitions, n_clusters, neighbours)


def _without(partitions: dict[str, Ints], known: Sequence[Ints]) -> dict[str, Ints]:
    """Return the partitions that no known one tells, or all if each is told by one."""
    kept = {
        name: labels
        for name, labels in partitions.items()
        if all(_told_by(other, labels) < _REPEATED for other in known)
    }
    return kept or partitions


def _told_by(known: Ints, labels: Ints) -> float:
    """Return the share of rows that have the commonest label of their known part."""
    return float(_in_common(known, labels).max(axis=1).sum() / len(labels))


def _in_common(one: Ints, other: Ints) -> Floats:
    """Return how many rows every two clusters of two partitions have in common."""
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), 1.0)
    return table


def nearest_others(Y: Floats) -> tuple[Floats, Ints]:
    """Return the distances and numbers of every row's nearest others."""
    n_neighbors = min(N_NEIGHBORS, len(Y) - 1)
    found: tuple[Floats, Ints] = NearestNeighbors(n_neighbors=n_neighbors).fit(Y).kneighbors()
    return found


def _members(
    Y: Floats, k: int, distances: Floats, neighbours: Ints
) -> Iterator[tuple[str, Callable[[], Ints]]]:
    """Yield the members: a name and what makes the labels."""

    @cache
    def ward() -> Ints:
        return np.asarray(AgglomerativeClustering(k).fit_predict(Y))

    @cache
    def k_means() -> Ints:
        return np.asarray(KMeans(k, init=_centres(Y, ward(), k), n_init=1).fit_predict(Y))

    def mixture(shape: str) -> Ints:
        return np.asarray(fit_mixture(Z, k_means(), shape).predict(Z))

    yield "k-means", k_means
    Z = principal_components(Y)
    for shape in MIXTURES:
        yield f"Gaussian mixture, {shape}", partial(mixture, shape)
    yield "Ward", ward
    spectral = SpectralClustering(
        k,
        affinity="nearest_neighbors",
        n_neighbors=min(_SPECTRAL_NEIGHBORS, len(Y) - 1),
        random_state=0,
    )
    yield "spectral", partial(spectral.fit_predict, Y)
    yield "modes of the density", partial(cluster_by_modes, Y, distances, neighbours, k)


def _centres(Y: Floats, labels: Ints, k: int) -> Floats:
    return np.stack([Y[labels == cluster].mean(axis=0) for cluster in range(k)])


def fit_mixture(Z: Floats, labels: Ints, shape: str) -> GaussianMixture:
    """Fit a Gaussian mixture that starts from clusters.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, n_dimensions)
    labels : ndarray of shape (n_samples,)
        None of the clusters is empty.
    shape : str
        One of ``MIXTURES``.
    """
    k = int(labels.max()) + 1
    means, shares = _centres(Z, labels, k), np.eye(k)[labels]
    off_centre = Z - means[labels]
    floor = _LEAST_VARIANCE * np.eye(Z.shape[1])
    precisions: NDArray[np.floating[Any]]
    if shape == "tied":
        precisions = np.linalg.inv(off_centre.T @ off_centre / len(Z) + floor)
    else:
        sizes = shares.sum(axis=0)[:, None, None]
        covariances = np.einsum("nm,np,nq->mpq", shares, off_centre, off_centre, optimize=True)
        covariances = covariances / sizes + floor
        precisions = np.linalg.inv(covariances)
        if shape == "diag":
            precisions = 1.0 / np.einsum("mpp->mp", covariances)
    mixture = GaussianMixture(
        k,
        covariance_type=shape,
        reg_covar=_LEAST_VARIANCE,
        weights_init=shares.mean(axis=0),
        means_init=means,
        precisions_init=precisions,
        random_state=0,
    )
    return mixture.fit(Z)


def principal_components(Y: Floats) -> Floats:
    """Return the principal components that mixtures see."""
    left, singular, _ = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)
    explained = np.cumsum(singular**2)
    number = int(np.searchsorted(explained, _SHARE_OF_VARIANCE * explained[-1])) + 1
    components: Floats = (left * singular)[:, : min(number, _MOST_DIMENSIONS)]
    return components


def _try(partitions: dict[str, Ints], name: str, make: Callable[[], Ints]) -> None:
    """Add a member, unless it cannot cluster these rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a member that did not settle; its weight says so
        try:
            labels = make()
        except (ValueError, np.linalg.LinAlgError, FloatingPointError):
            return
    partitions[name] = np.asarray(labels, np.int64)


def cut_of(labels: Ints, neighbours: Ints, n_clusters: int) -> float:
    """Return the share of neighbours in another cluster, every cluster counting the same.

    Clusters that are small, or missing, count as 1.
    """
    elsewhere = np.mean(labels[neighbours] != labels[:, None], axis=1)
    sizes = np.bincount(labels, minlength=n_clusters)
    sums = np.bincount(labels, weights=elsewhere, minlength=n_clusters)
    small = sizes < _SMALL * len(labels) / n_clusters
    shares = sums / np.maximum(sizes, 1)
    return float(np.mean(np.where(small, shares + 1.0, shares)))


def count(partitions: dict[str, Ints], n_clusters: int, neighbours: Ints) -> Vote:
    """Count the votes of partitions.

    Parameters
    ----------
    partitions : dict of str to ndarray of shape (n_samples,)
        Labels by the names of members.
    n_clusters : int
    neighbours : ndarray of shape (n_samples, n_neighbors)
    """
    cuts = np.array([cut_of(labels, neighbours, n_clusters) for labels in partitions.values()])
    power = 1.0 + 1.0 / (1.0 + (cuts.min() / _TOUCHING) ** 2)
    weights = ((cuts.min() + LEAST_CUT) / (cuts + LEAST_CUT)) ** power
    weights /= weights.sum()
    shares = _shares(list(partitions.values()), weights, n_clusters)
    outcome = shares.argmax(axis=1)
    cut = cut_of(outcome, neighbours, n_clusters)
    doubt = min(_DOUBT * float(np.mean(outcome[neighbours] != outcome[:, None])), _MOST_DOUBT)
    # A vote without a dissenter is no certainty either.
    doubt = max(doubt, 1.0 / (len(outcome) + 1.0))
    members = tuple(
        Member(name, labels, float(c), float(w), rand_index(_in_common(outcome, labels)))
        for (name, labels), c, w in zip(partitions.items(), cuts, weights, strict=True)
    )
    return Vote((1.0 - doubt) * shares + doubt / n_clusters, members, cut)


def _shares(partitions: list[Ints], weights: Floats, n_clusters: int) -> Floats:
    """Return every row's share of votes for every cluster, with labels matched to the vote."""
    ballots = [np.eye(n_clusters)[labels] for labels in partitions]
    shares = ballots[int(np.argmax(weights))]
    for _ in range(_MOST_MATCHINGS):
        before, shares = shares, np.zeros_like(shares)
        for ballot, weight in zip(ballots, weights, strict=True):
            _, place = linear_sum_assignment(-(ballot.T @ before))
            shares[:, place] += weight * ballot
        if np.allclose(shares, before, atol=1e-9):
            break
    return shares
