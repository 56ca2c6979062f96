"""What is remembered of the training rows to answer for others: where they lie, and which they are.

A row that was trained on has its place already: it is recognised by a fingerprint of its values
and gets its fitted coordinates and memberships. Any other row starts from the latent points of
its nearest neighbours among (a sample of) the training rows. Where there are gaps, neighbours are
found with the expectations of missing cells (:mod:`sgpmic.learning.preparation.completion`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from sgpmic._types import Floats, Ints
from sgpmic.learning.points import falling_weights
from sgpmic.learning.preparation.completion import FactorModel, fit_factors

#: More training rows than this are sampled: starts for new rows need not be perfect.
MOST_REFERENCE_ROWS = 20_000
#: How many neighbours' latent points are considered as starts, and how many votes are averaged.
NEIGHBOURS = 5

#: Squares of distances must not overflow.
_FARTHEST = 1e120


def fingerprints(Y: Floats) -> NDArray[np.uint64]:
    """Return 64 bits that identify every row's values."""
    # Adding 0.0 turns -0.0, which is equal to 0.0 but has other bits, into 0.0.
    # All missing cells are one NaN.
    rows = np.ascontiguousarray(np.where(np.isnan(Y), np.nan, Y), dtype=np.float64) + 0.0
    digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


class Neighbours(NamedTuple):
    """What the nearest training rows say of rows."""

    starts: Floats  # (n_samples, n_neighbours, n_components) latent points to start from
    votes: Floats  # (n_samples, n_clusters)


@dataclass
class Reference:
    """Training rows (or a sample of them) with their latent points, and all fingerprints."""

    rows: Floats  # (R, P)
    points: Floats  # (R, Q)
    votes: Floats  # (R, M) what a committee said of their clusters; all equal without one
    keys: NDArray[np.uint64]  # (N,) fingerprints of all training rows, sorted
    order: Ints  # (N,) the training row each belongs to
    scale: Floats  # (P,) what features are divided by to be compared
    _tree: KDTree | None = None

    @cached_property
    def _factors(self) -> FactorModel:
        return fit_factors(self.rows / self.scale)

    def complete(self, Y: Floats) -> Floats:
        """Return rows as they are compared: scaled, and with expectations of missing cells."""
        scaled = Y / self.scale
        return self._factors.complete(scaled) if np.isnan(scaled).any() else scaled

    def neighbours(self, Y: Floats, skip: int = 0) -> Neighbours:
        """Return what the nearest training rows say of rows.

        The nearest ``skip`` are left out, if there are others.
        """
        if self._tree is None:
            self._tree = KDTree(self.complete(self.rows))
        last = min(skip + NEIGHBOURS, len(self.rows))
        first = min(skip, last - 1)
        with np.errstate(over="ignore"):
            places = np.clip(self.complete(Y), -_FARTHEST, _FARTHEST)
        distances, nearest = self._tree.query(places, k=np.arange(first + 1, last + 1))
        weights = falling_weights(distances, 1.0)
        return Neighbours(
            self.points[nearest], np.einsum("nk,nkm->nm", weights, self.votes[nearest])
        )

    def lookup(self, Y: Floats) -> Ints:
        """Return the index of the training row that each row is, −1 for rows not seen."""
        keys = fingerprints(Y)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.order[places], -1)


def answer_alike(keys: NDArray[np.uint64], *by_row: Floats) -> list[Floats]:
    """Return what is said of rows with these fingerprints, the mean for those that are equal.

    Rows that are equal get one answer, in ``fit`` and later.
    """
    _, first, place, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) == len(keys):
        return list(by_row)
    several = counts[place] > 1
    found = []
    for values in by_row:
        sums = np.zeros((len(first), *values.shape[1:]))
        np.add.at(sums, place, values)
        means = sums / counts.reshape(-1, *[1] * (values.ndim - 1))
        answer = values.copy()
        answer[several] = means[place[several]]
        found.append(answer)
    return found


def sample_numbers(n_rows: int, random_state: np.random.RandomState) -> Ints:
    """Return the numbers of the rows to remember: all, or a sample of very many."""
    if n_rows <= MOST_REFERENCE_ROWS:
        return np.arange(n_rows)
    return np.sort(random_state.choice(n_rows, MOST_REFERENCE_ROWS, replace=False))


def make_reference(
    Y: Floats,
    keys: NDArray[np.uint64],
    X: Floats,
    votes: Floats,
    scale: Floats,
    random_state: np.random.RandomState,
) -> Reference:
    """Remember training rows, their fingerprints, latent points and a committee's votes."""
    order = np.argsort(keys, kind="stable").astype(np.int64)
    rows, points, said = Y, X, votes
    if len(Y) > MOST_REFERENCE_ROWS:
        chosen = sample_numbers(len(Y), random_state)
        rows, points, said = Y[chosen], X[chosen], votes[chosen]
    return Reference(rows.copy(), points.copy(), said.copy(), keys[order], order, scale)
