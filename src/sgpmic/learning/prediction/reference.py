"""What is remembered of the training rows to answer for others: where they lie, and which they are.

A row that was trained on has its place already: it is recognized by a fingerprint of its values
and gets its fitted coordinates and memberships. Any other row starts from the latent points of
its nearest neighbors among (a sample of) the training rows. Where there are gaps, neighbors are
found with the expectations of missing cells (:mod:`sgpmic.learning.gaps`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic._types import Bools, Floats, Ints
from sgpmic.learning.gaps import FactorModel, fit_factors
from sgpmic.learning.prediction.projection import Similar, average_similar
from sgpmic.model.rows import pad_rows

#: More training rows than this are sampled: starts for new rows need not be perfect.
MOST_REFERENCE_ROWS = 20_000

#: Training rows that rows with gaps are compared with, at most.
_MOST_SIMILAR = 1024
#: How soon they count more than the row's own latent point, as more of it is unknown: memberships
#: of rows with hidden cells are then closest to those of the complete rows.
_SOFTNESS = 3.0

#: Squares of distances must not overflow.
_FARTHEST = 1e120
#: Rows that are looked up at a time: what is computed of them stays in the cache.
_PART = 8192


def fingerprints(Y: Floats) -> NDArray[np.uint64]:
    """Return 64 bits that identify every row's values."""
    keys = np.empty(len(Y), np.uint64)
    for first in range(0, len(Y), _PART):
        key = keys[first : first + _PART]
        key[:] = Y.shape[1]
        for bits in np.ascontiguousarray(_canonical(Y[first : first + _PART]).T).view(np.uint64):
            # An odd factor carries bits upwards, the shift carries them down again.
            key ^= bits
            key *= np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
        key *= np.uint64(0xBF58476D1CE4E5B9)
        key ^= key >> np.uint64(32)
    return keys


def _digests(Y: Floats) -> NDArray[np.uint64]:
    """Return the fingerprints in model files from before version 1.0."""
    digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in _canonical(Y))
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _canonical(Y: Floats) -> Floats:
    """Return rows in which equal values have equal bits."""
    # Adding 0.0 turns -0.0, which is equal to 0.0 but has other bits, into 0.0.
    # All missing cells are one NaN.
    return np.ascontiguousarray(np.where(np.isnan(Y), np.nan, Y), dtype=np.float64) + 0.0


@dataclass
class Reference:
    """Training rows (or a sample of them) with their latent points, and all fingerprints."""

    rows: Floats  # (R, P)
    points: Floats  # (R, Q)
    votes: Floats  # (R, M) what a committee said of their clusters; all equal without one
    keys: NDArray[np.uint64]  # (N,) fingerprints of all training rows, sorted
    order: Ints  # (N,) the training row each belongs to
    scale: Floats  # (P,) what features are divided by to be compared

    @cached_property
    def _factors(self) -> FactorModel:
        return fit_factors(self.rows / self.scale)

    @cached_property
    def _center(self) -> Floats:
        return np.median(self._completed(self.rows), axis=0)

    @cached_property
    def _identify(self) -> Callable[[Floats], NDArray[np.uint64]]:
        """What made the keys; rows of the reference are among those that have one."""
        mine = fingerprints(self.rows[:1])[0]
        place = min(int(np.searchsorted(self.keys, mine)), len(self.keys) - 1)
        return fingerprints if self.keys[place] == mine else _digests

    def _completed(self, Y: Floats) -> Floats:
        scaled = Y / self.scale
        return self._factors.complete(scaled) if np.isnan(scaled).any() else scaled

    def complete(self, Y: Floats) -> Floats:
        """Return rows as they are compared: scaled, with expectations of missing cells."""
        with np.errstate(over="ignore"):
            return np.clip(self._completed(Y) - self._center, -_FARTHEST, _FARTHEST)

    @cached_property
    def _compared(self) -> tuple[Floats, Ints, float]:
        """Rows that others are compared with, their numbers, and the variance of the table."""
        rows = self.complete(self.rows)
        numbers = np.arange(len(rows))
        if len(rows) > _MOST_SIMILAR:
            numbers = np.linspace(0, len(rows) - 1, _MOST_SIMILAR).astype(np.int64)
        padding = np.full(_MOST_SIMILAR - len(numbers), -2)
        variance = float(rows.var(axis=0).sum()) or 1.0
        return pad_rows(rows[numbers], _MOST_SIMILAR), np.append(numbers, padding), variance

    def soften(
        self, S: Floats, theirs: Floats, whole: Floats, observed: Bools, own: Ints
    ) -> Floats:
        """Return memberships of rows with gaps, as uncertain as the missing cells leave them.

        The latent point that suits a row best says little where many others would do as well.

        Parameters
        ----------
        S : ndarray of shape (n, M)
            Memberships at the rows' own latent points.
        theirs : ndarray of shape (R, M)
            Those of the training rows remembered here.
        whole, observed : ndarrays of shape (n, P)
            The rows, completed, and which cells they have.
        own : ndarray of shape (n,)
            Which of the training rows they are, or -1.
        """
        rows, numbers, variance = self._compared
        similar = Similar(rows, theirs[numbers], numbers, variance)
        mean, unknown = average_similar(similar, whole, observed.astype(np.float64), own)
        doubt = 1.0 - (1.0 - unknown[:, None]) ** _SOFTNESS
        return S + doubt * (mean - S)

    def lookup(self, Y: Floats) -> Ints:
        """Return the index of the training row that each row is, −1 for rows not seen."""
        keys = self._identify(Y)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.order[places], -1)


class SortedKeys(NamedTuple):
    """Fingerprints of rows, sorted, and the row that each belongs to."""

    keys: NDArray[np.uint64]
    order: Ints


def sorted_fingerprints(Y: Floats) -> SortedKeys:
    """Return the fingerprints of rows in their order; those of equal rows as the rows come."""
    keys = fingerprints(Y)
    order = np.argsort(keys, kind="stable").astype(np.int64)
    return SortedKeys(keys[order], order)


def answer_alike(rows: SortedKeys, *by_row: Floats) -> list[Floats]:
    """Return what is said of rows with these fingerprints, the mean for those that are equal.

    Rows that are equal get one answer, in ``fit`` and later.
    """
    keys, order = rows
    is_new = np.append(True, keys[1:] != keys[:-1])
    if is_new.all():
        return list(by_row)
    firsts = np.flatnonzero(is_new)
    counts = np.diff(firsts, append=len(keys))
    several = np.repeat(counts > 1, counts)
    found = []
    for values in by_row:
        sums = np.add.reduceat(values[order], firsts)
        means = sums / counts.reshape(-1, *[1] * (values.ndim - 1))
        answer = values.copy()
        answer[order[several]] = np.repeat(means, counts, axis=0)[several]
        found.append(answer)
    return found


def sample_numbers(n_rows: int, random_state: np.random.RandomState) -> Ints:
    """Return the numbers of the rows to remember: all, or a sample of very many."""
    if n_rows <= MOST_REFERENCE_ROWS:
        return np.arange(n_rows)
    return np.sort(random_state.choice(n_rows, MOST_REFERENCE_ROWS, replace=False))


def make_reference(
    Y: Floats,
    known: SortedKeys,
    X: Floats,
    votes: Floats,
    scale: Floats,
    random_state: np.random.RandomState,
) -> Reference:
    """Remember training rows, their fingerprints, latent points and a committee's votes."""
    rows, points, said = Y, X, votes
    if len(Y) > MOST_REFERENCE_ROWS:
        chosen = sample_numbers(len(Y), random_state)
        rows, points, said = Y[chosen], X[chosen], votes[chosen]
    return Reference(rows.copy(), points.copy(), said.copy(), *known, scale)
