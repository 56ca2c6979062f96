"""Which starts are tried, and which fit is kept.

The first start is always the one the user asked for (ISOMAP and the committee's votes unless told
otherwise). Further ones go through other embeddings and clusterings, so that they differ in kind.

Which one is kept. The bound is not a safe judge between starts of different kinds: flexible
mappings with free latent points can explain almost any partition, and the highest bounds often
belong to poor ones. So the default is **consensus**: the fit whose partition agrees best with the
partitions of all the other starts (highest mean adjusted Rand index; the earlier start wins a
tie). A start that went astray agrees with nobody. ``bound`` keeps the highest bound, which is
sensible where all starts are of one kind. Either way a fit in which every cluster has rows goes
before one that has lost a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic._types import Bools, Floats
from sgpmic.process_group import ProcessGroup

#: The order in which kinds of starts are tried after the one asked for.
_EMBEDDINGS = ("isomap", "pca", "ppca", "spectral")
_MEMBERSHIPS = ("fcm", "gmm", "kmeans")


class PlannedStart(NamedTuple):
    """One start: how X and S begin, and the seed of everything random in it."""

    embedding: Any  # a method's name or an array
    memberships: Any
    seed: int

    def describe(self) -> dict[str, str]:
        """Return the kind of start in words."""
        return {
            "embedding": self.embedding if isinstance(self.embedding, str) else "given",
            "memberships": self.memberships if isinstance(self.memberships, str) else "given",
        }

    def retry_note(self) -> str:
        """Return what to say of a fit from this start, where those before it lost a cluster."""
        kind = self.describe()
        return (
            "A cluster ended without rows, so another start was made "
            f"({kind['embedding']} and {kind['memberships']})."
        )


def plan_starts(
    embedding: Any, memberships: Any, number: int, random_state: np.random.RandomState
) -> list[PlannedStart]:
    """Return a number of starts, the one asked for first.

    A given array is kept in every start. When all kinds have been used they come round again
    with other seeds.
    """
    embeddings = [embedding]
    if isinstance(embedding, str):
        embeddings += [e for e in _EMBEDDINGS if e != embedding]
    groupings = [memberships]
    if isinstance(memberships, str):
        groupings += [g for g in _MEMBERSHIPS if g != memberships]
    # Diagonally, so that the first few starts already differ in both respects.
    kinds = [
        (embeddings[(i + j) % len(embeddings)], groupings[i % len(groupings)])
        for j in range(len(embeddings))
        for i in range(len(groupings))
    ]
    seeds = random_state.randint(np.iinfo(np.int32).max, size=number)
    return [PlannedStart(*kinds[i % len(kinds)], int(seed)) for i, seed in enumerate(seeds)]


def agreements(
    partitions: Sequence[NDArray[np.integer[Any]]], n_clusters: int, group: ProcessGroup
) -> Floats:
    """Return every partition's mean adjusted Rand index with the others (1 if it is alone)."""
    n = len(partitions)
    if n == 1:
        return np.ones(1)
    table = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            pairs = partitions[i].astype(np.int64) * n_clusters + partitions[j]
            counts = np.bincount(pairs, minlength=n_clusters**2).reshape(n_clusters, n_clusters)
            table[i, j] = table[j, i] = rand_index(group.total(counts.astype(np.float64)))
    return table.sum(axis=1) / (n - 1)


def rand_index(counts: Floats) -> float:
    """Return the adjusted Rand index of two partitions from how many rows they have in common.

    From the counts, which add up over processes; scikit-learn's function wants the labels.
    """

    def pairs(sizes: Floats) -> float:
        return float(np.sum(sizes * (sizes - 1.0)) / 2.0)

    together = pairs(counts)
    first, second = pairs(counts.sum(axis=1)), pairs(counts.sum(axis=0))
    expected = first * second / max(pairs(counts.sum()), 1.0)
    most = (first + second) / 2.0
    # Two partitions that are both one cluster, or both single rows, agree.
    return 1.0 if most == expected else (together - expected) / (most - expected)


def choose(
    selection: str,
    bounds: Floats,
    agreement: Floats,
    eligible: Bools,
) -> int:
    """Return the index of the fit to keep, one of the eligible."""
    scores = np.where(eligible, agreement if selection == "consensus" else bounds, -np.inf)
    # Rounding must not decide a tie: the earlier start wins.
    close = np.flatnonzero(scores >= scores.max() - 1e-12 * max(1.0, abs(scores.max())))
    return int(close[0])


def explain_choice(starts: Sequence[dict[str, Any]], selection: str) -> str:
    """Return why one of several starts was kept, in a sentence or two; '' where there was one.

    ``starts`` are as ``SGPMIC.starts_``, with or without the labels.
    """
    if len(starts) < 2:
        return ""
    kept = next(i for i, start in enumerate(starts) if start["kept"])
    mine = starts[kept]
    name = f"start {kept + 1} of {len(starts)} ({mine['embedding']} and {mine['memberships']})"
    bounds, agreement = ([float(start[key]) for start in starts] for key in ("bound", "agreement"))
    judged, what = (agreement, "agreement") if selection == "consensus" else (bounds, "bound")
    among = ""
    if judged[kept] < max(judged) - 1e-9 * max(1.0, abs(max(judged))):
        among = " of those in which every cluster has rows"
    if what == "bound":
        return f"Kept: {name}, for the highest bound{among}."
    sentence = (
        f"Kept: {name}, whose clusters agree best with those of the others{among} (mean adjusted "
        f"Rand index {agreement[kept]:.2f})"
    )
    level = [a for a in agreement if abs(a - agreement[kept]) <= 1e-9]
    if len(level) > 1 and not among:
        sentence += "; of equals the first is kept"
    if bounds[kept] < max(bounds):
        better = bounds.index(max(bounds)) + 1
        sentence += (
            f". Start {better} has a higher bound, which does not decide: a flexible mapping can "
            "explain poor clusters well"
        )
    return sentence + "."
