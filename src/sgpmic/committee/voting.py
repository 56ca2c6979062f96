"""Votes of the committee: shares of every row's cluster, and what they are worth.

**Weights.** A judge (:mod:`sgpmic.committee.judge`) expects more of one partition than of another;
votes are weighted by it.

**Consensus.** The members' labels are matched to the vote so far (the assignment with the most rows
in common) until nothing changes. A row's share of votes for every cluster follows.

**Calibration.** Members have errors in common, so shares are not probabilities. What a share is
worth was learned from made-up problems that the judge had not seen: from the shares, the row's
neighbors, the separation of its two best clusters and what the judge expects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import expit
from sklearn.metrics.cluster import contingency_matrix

from sgpmic._types import Floats, Ints
from sgpmic.committee import judge
from sgpmic.committee.geometry import Geometry
from sgpmic.committee.members import cluster_all
from sgpmic.learning.neighbors import interpolate
from sgpmic.learning.preprocessing import find_categories, sample_numbers
from sgpmic.learning.settings import Committee
from sgpmic.process_group import ProcessGroup

if TYPE_CHECKING:
    from sgpmic.committee.examination import View

_MOST_MATCHINGS = 50
#: The share of rows whose label has to follow from a known partition for a member not to vote.
_REPEATED = 0.95
#: Validity indices of the consensus that its calibration looks at.
_CALIBRATING = ("raw cut", "silhouette", "overlap", "projected valley", "connected", "valley")
#: Of scaled rows. Further ones are rounding: they would decide between equal distances, of which
#: tables of whole numbers have many.
_DECIMALS = 7
#: A row that was not voted on gets the votes of this many of its nearest that were.
_NEAREST = 6


class Member(NamedTuple):
    """One clustering of the committee."""

    name: str
    labels: Ints  # (n,)
    weight: float  # what its vote counts; all weights add up to 1
    expected: float  # adjusted Rand index with the true clusters that the judge expects
    agreement: float  # adjusted Rand index with the outcome of the vote
    cut: float  # share of neighbors that lie in another cluster


@dataclass(frozen=True)
class Vote:
    """The outcome of a vote."""

    shares: Floats  # (n, k) every row's calibrated memberships; none is 0
    members: tuple[Member, ...]
    failures: Mapping[str, str]  # why a member did not vote, by its name


def vote_on(
    view: View, Y: Floats, group: ProcessGroup, committee: Committee, n_clusters: int
) -> Vote | None:
    """Return the committee's votes on this process's rows ``Y``, of which it has a view.

    All processes let the same rows be voted on, and agree on the outcome.
    """
    if n_clusters < 2 or group.n_rows <= n_clusters:
        return None
    numbers = sample_numbers(group.n_rows, committee.max_rows)
    seen, scaler = view.rows, view.scaler
    sample = scaler.transform(group.rows_at(seen, numbers)).round(_DECIMALS)
    known = find_categories(group.rows_at(Y, numbers)) if view.has_categories else []
    vote = take_vote(Geometry(sample, n_clusters), n_clusters, [each.levels for each in known])
    shares = group.agree(vote.shares)
    if len(numbers) == group.n_rows:
        return replace(vote, shares=shares[group.first : group.first + group.n_own])
    own = interpolate(sample, shares, seen, _NEAREST, scaler.offset, scaler.scale)
    return replace(vote, shares=own)


def take_vote(geometry: Geometry, n_clusters: int, known: Sequence[Ints] = ()) -> Vote:
    """Let all members cluster the rows and count their votes.

    Partitions that are ``known`` say nothing new: members whose labels follow from one of them, for
    most rows, do not vote.
    """
    labels, failures = cluster_all(geometry, n_clusters)
    repeated = dict.fromkeys(
        name
        for (name, each), levels in product(labels.items(), known)
        if contingency_matrix(levels, each).max(axis=1).sum() >= _REPEATED * len(each)
    )
    if len(repeated) < len(labels):
        failures |= dict.fromkeys(repeated, "its clusters are the levels of one category")
        labels = {name: each for name, each in labels.items() if name not in repeated}
    opinion = judge.judge(geometry, labels, n_clusters)
    shares = consensus(list(labels.values()), opinion.weights, n_clusters)
    outcome = shares.argmax(axis=1)
    agreement = judge.pairwise_agreement(np.stack([outcome, *labels.values()]), n_clusters)[0, 1:]
    cuts = opinion.indices[:, judge.INDICES.index("raw cut")]
    figures = np.column_stack([opinion.weights, opinion.expected, agreement, cuts]).tolist()
    by_member = zip(labels.items(), figures, strict=True)
    members = tuple(Member(*named, *values) for named, values in by_member)
    return Vote(calibrated(geometry, shares, opinion), members, failures)


#: What is found by the kinds of members, by how their names begin.
_KINDS = {
    ("k-means", "Ward"): ("k-means and Ward's method", "round clusters"),
    ("Gaussian mixture",): ("Gaussian mixtures", "elongated clouds that may overlap"),
    ("spectral", "modes", "Genie"): (
        "Spectral clustering, Genie and modes of the density",
        "clusters of any shape, separated by gaps or valleys",
    ),
    ("subspaces",): ("Subspace clustering", "clusters that are linear subspaces"),
}
#: A kind of member counts most from this weight on, where an equal share would be less.
_MOST_WEIGHT = 0.5


def explain_vote(committee: Sequence[Mapping[str, Any]]) -> str:
    """Return in a sentence why a vote, ``SGPMIC.committee_``, went as it did; '' without one."""
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
    """Return every row's share of votes for every cluster, with labels matched to the vote."""
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
    """Return shares of votes as probabilities: the largest is how often such a row is right."""
    n, k = shares.shape
    inputs = calibration_inputs(geometry, shares, opinion)
    right = expit(judge.load_networks()["calibration"](inputs)[..., 0].mean(axis=0))
    # Nothing is quite certain, and no cluster becomes less probable than by chance.
    right = np.clip(right, 1.0 / k + 1e-6, 1.0 - 1.0 / (n + 1.0))
    top = shares.argmax(axis=1)
    largest = shares[np.arange(n), top]
    # Toward equal shares where they claim too much, toward the winner where too little.
    doubt = np.clip((largest - right) / np.maximum(largest - 1.0 / k, 1e-12), 0.0, 1.0)[:, None]
    found = (1.0 - doubt) * shares + doubt / k
    lift = np.clip((right - largest) / np.maximum(1.0 - largest, 1e-12), 0.0, 1.0)[:, None]
    found = (1.0 - lift) * found + lift * np.eye(k)[top]
    found = np.maximum(found, 1e-9)
    return found / found.sum(axis=1, keepdims=True)


def calibration_inputs(geometry: Geometry, shares: Floats, opinion: judge.Opinion) -> Floats:
    """Return what the calibration sees of every row (n, d)."""
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
