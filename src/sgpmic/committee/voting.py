"""Consensus of the committee: weighted votes for every row's cluster, and their calibration.

Votes are weighted by the quality that the judge (:mod:`sgpmic.committee.judge`) predicts for each
partition. The members' labels are matched to the current consensus (the assignment with the most
rows in common) until convergence, which gives each row's share of votes for every cluster. Members'
errors are correlated, so vote shares are not probabilities: a network, trained on synthetic data
that the judge had not seen, calibrates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import expit
from sklearn.metrics.cluster import contingency_matrix

from sgpmic._types import Floats, Ints
from sgpmic.committee import judge
from sgpmic.committee.dimensions import View
from sgpmic.committee.geometry import DECIMALS, Geometry, without_copies
from sgpmic.committee.members import cluster_all
from sgpmic.learning.neighbors import interpolate
from sgpmic.learning.preprocessing import find_categories, sample_numbers
from sgpmic.learning.settings import Committee
from sgpmic.process_group import ProcessGroup

_MOST_MATCHINGS = 50
#: A member does not vote if a known partition determines the labels of this fraction of the rows.
_REPEATED = 0.95
#: The calibration leaves at least this fraction of the lead over chance of a row's largest share.
_LEAST_LEAD = 0.2
#: Validity indices of the consensus that the calibration uses.
_CALIBRATING = (
    "raw cut",
    "silhouette",
    "overlap",
    "projected valley",
    "connected",
    "valley",
    "feature information",
    "agreement of halves",
)
#: Rows outside the sample get the votes of this many nearest neighbors in the sample.
_NEAREST = 6


class Member(NamedTuple):
    """A member's partition and its assessment."""

    name: str
    labels: Ints  # (n,)
    weight: float  # vote weight; all weights sum to 1
    expected: float  # ARI with the true clusters, predicted by the judge
    agreement: float  # ARI with the consensus
    cut: float  # fraction of neighbors in another cluster


@dataclass(frozen=True)
class Vote:
    """The result of a vote."""

    shares: Floats  # (n, k) calibrated membership probabilities, all positive
    members: Sequence[Member]
    failures: Mapping[str, str]  # why members did not vote, by name


def vote_on(
    view: View, Y: Floats, group: ProcessGroup, committee: Committee, n_clusters: int
) -> Vote:
    """Return the committee's vote on this process's rows ``Y``, represented by ``view``."""
    numbers = sample_numbers(group.n_rows, committee.max_rows)
    seen, scaler = view.rows, view.scaler
    sample = scaler.transform(group.rows_at(seen, numbers)).round(DECIMALS)
    distinct, place = without_copies(sample, view.n_factors)
    known = find_categories(group.rows_at(Y, numbers)) if view.n_factors else []
    levels = [each.levels[distinct] for each in known]
    vote = take_vote(Geometry(sample[distinct], n_clusters), n_clusters, levels)
    shares = group.agree(vote.shares)[place]
    if len(numbers) == group.n_rows:
        return replace(vote, shares=shares[group.first : group.first + group.n_own])
    own = interpolate(sample, shares, seen, _NEAREST, scaler.offset, scaler.scale)
    return replace(vote, shares=own)


def count_votes(
    geometry: Geometry, n_clusters: int, known: Sequence[Ints] = ()
) -> tuple[dict[str, Ints], judge.Opinion, Floats, dict[str, str]]:
    """Combine all members' partitions by a weighted vote, except those that repeat a known one.

    Return their labels by member, the judge's opinion of them, the vote shares (n, k), and why the
    others did not vote.
    """
    labels, failures = cluster_all(geometry, n_clusters)
    repeated = [
        name
        for (name, each), levels in product(labels.items(), known)
        if contingency_matrix(levels, each).max(axis=1).sum() >= _REPEATED * len(each)
    ]
    if len(repeated) < len(labels):
        failures |= dict.fromkeys(repeated, "its clusters are the levels of one category")
        labels = {name: each for name, each in labels.items() if name not in repeated}
    opinion = judge.penalize_small(judge.judge(geometry, labels, n_clusters))
    shares = consensus(list(labels.values()), opinion.weights, n_clusters)
    return labels, opinion, shares, failures


def take_vote(geometry: Geometry, n_clusters: int, known: Sequence[Ints] = ()) -> Vote:
    """Return the calibrated vote of all members, except those that repeat a known partition."""
    labels, opinion, shares, failures = count_votes(geometry, n_clusters, known)
    outcome = shares.argmax(axis=1)
    agreement = judge.pairwise_agreement(np.stack([outcome, *labels.values()]), n_clusters)[0, 1:]
    cuts = opinion.indices[:, judge.INDICES.index("raw cut")]
    figures = np.column_stack([opinion.weights, opinion.expected, agreement, cuts]).tolist()
    members = [
        Member(*named, *values) for named, values in zip(labels.items(), figures, strict=True)
    ]
    return Vote(calibrated(geometry, shares, opinion), members, failures)


#: Kinds of members by prefix of their names: description, and the clusters they find.
_KINDS = {
    ("k-means", "Ward"): ("k-means and Ward's method", "round clusters"),
    ("Gaussian mixture",): ("Gaussian mixtures", "elongated clouds that may overlap"),
    ("spectral", "modes", "Genie"): (
        "Spectral clustering, Genie and modes of the density",
        "clusters of any shape, separated by gaps or valleys",
    ),
    ("latent classes", "sparse k-means"): (
        "Latent classes and sparse k-means",
        "clusters in some of the features, whatever their distributions",
    ),
    ("subspaces",): ("Subspace clustering", "clusters that are linear subspaces"),
}
#: Minimum total weight for a kind of member to be named as dominant.
_MOST_WEIGHT = 0.5


def explain_vote(committee: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence that explains a vote (``SGPMIC.committee_``); '' if there was none."""
    if not committee:
        return ""
    weights = {
        kind: sum(m["weight"] for m in committee if str(m["name"]).startswith(beginnings))
        for beginnings, kind in _KINDS.items()
    }
    names, found = max(weights, key=lambda kind: weights[kind])
    if weights[names, found] < _MOST_WEIGHT:
        return "No kind of clustering stands out here: the votes of different ones were averaged."
    return f"{names} count most here ({100 * weights[names, found]:.0f} %): {found}."


def consensus(partitions: Sequence[Ints], weights: Floats, n_clusters: int) -> Floats:
    """Return vote shares (n, k) after matching the partitions' labels to the consensus."""
    ballots = [np.eye(n_clusters)[labels] for labels in partitions]
    shares = ballots[int(np.argmax(weights))]
    for _ in range(_MOST_MATCHINGS):
        before, shares = shares, np.zeros_like(shares)
        for ballot, weight in zip(ballots, weights, strict=True):
            _, cluster = linear_sum_assignment(-(ballot.T @ before))
            shares[:, cluster] += weight * ballot
        if np.allclose(shares, before, atol=1e-9):
            break
    return shares


def calibrated(geometry: Geometry, shares: Floats, opinion: judge.Opinion) -> Floats:
    """Calibrate vote shares: the largest becomes the predicted probability of being correct."""
    n, k = shares.shape
    inputs = calibration_inputs(geometry, shares, opinion)
    right = expit(judge.load_networks()["calibration"](inputs)[..., 0].mean(axis=0))
    top = shares.argmax(axis=1)
    largest = shares[np.arange(n), top]
    # Never fully certain, and never at chance: the model would decide alone, and could empty a
    # cluster that all members have found.
    least = 1.0 / k + np.maximum(_LEAST_LEAD * (largest - 1.0 / k), 1e-6)
    right = np.clip(right, least, 1.0 - 1.0 / (n + 1.0))
    # Shrink overconfident shares toward 1/k, and underconfident ones toward the winner.
    doubt = np.clip((largest - right) / np.maximum(largest - 1.0 / k, 1e-12), 0.0, 1.0)[:, None]
    found = (1.0 - doubt) * shares + doubt / k
    lift = np.clip((right - largest) / np.maximum(1.0 - largest, 1e-12), 0.0, 1.0)[:, None]
    found = (1.0 - lift) * found + lift * np.eye(k)[top]
    found = np.maximum(found, 1e-9)
    return found / found.sum(axis=1, keepdims=True)


def calibration_inputs(geometry: Geometry, shares: Floats, opinion: judge.Opinion) -> Floats:
    """Return the input features (n, d) of the calibration network."""
    n, k = shares.shape
    order = np.argsort(shares, axis=1)
    top, second = order[:, -1], order[:, -2]
    ranked = np.sort(shares, axis=1)
    largest, margin = ranked[:, -1], ranked[:, -1] - ranked[:, -2]
    entropy = -np.sum(shares * np.log(shares + 1e-12), axis=1) / np.log(k)
    near = geometry.neighbors
    same = np.mean(top[near] == top[:, None], axis=1)
    sizes = np.bincount(top, minlength=k)
    overlap = judge.cluster_overlaps(geometry, top, k)
    indices = dict(zip(judge.INDICES, judge.validity_indices(geometry, [top], k)[0], strict=True))
    w = opinion.weights
    vote = [
        float(w @ opinion.expected),
        float(opinion.expected.max()),
        float(w @ opinion.agreement @ w),
        float(-np.sum(w * np.log(w + 1e-12))),
        float(largest.mean()),
        np.log(k),
        *geometry.summary,
        *(indices[name] for name in _CALIBRATING),
    ]
    return np.column_stack(
        [
            largest,
            margin,
            entropy,
            same,
            largest[near].mean(axis=1),
            overlap[top, second],
            overlap[top].sum(axis=1),
            np.log(sizes[top] * k / n),
            np.tile(vote, (n, 1)),
        ]
    )
