"""A committee's votes on a table of any size, on any number of processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgpmic._runtime import numerics
from sgpmic.learning.categories import find_categories
from sgpmic.learning.committee import Vote, take_vote
from sgpmic.learning.nearest import weights_of_nearest
from sgpmic.learning.settings import Committee
from sgpmic.learning.units import Units
from sgpmic.parallel.group import ProcessGroup

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Short fits of the model see at most this many rows.
_MOST_FITTED_ROWS = 1000
#: A row that was not voted on gets the votes of this many of its nearest that were.
_NEAREST = 6

#: Seed, rows, embedding, number of dimensions and memberships give labels.
SeededFit = Callable[[int, Floats, str, int, Any], Ints]


def vote_on(
    Y: Floats,
    group: ProcessGroup,
    units: Units,
    committee: Committee,
    n_clusters: int,
    seed: int,
    own_fit: SeededFit,
    mixed: Floats | None = None,
) -> Vote | None:
    """Return the committee's votes on this process's rows.

    All processes let the same rows be voted on, and agree on the outcome.

    Parameters
    ----------
    Y : ndarray of shape (n_own, n_features)
        The rows of this process, in their own units.
    group : ProcessGroup
    units : Units
    committee : Committee
    n_clusters : int
    seed : int
    own_fit : callable
        A short fit of the model.
    mixed : ndarray of shape (n_own, n_features) or None
        The rows with their categories, where ``Y`` are their factors.
    """
    if n_clusters < 2 or group.n_rows <= n_clusters:
        return None
    rng = np.random.RandomState(seed)
    numbers = np.arange(group.n_rows)
    if group.n_rows > committee.max_rows:
        numbers = np.sort(rng.choice(group.n_rows, committee.max_rows, replace=False))
    sample = units.reduce(group.rows_at(Y, numbers))
    fit = partial(_on_few_rows, partial(own_fit, seed), rng) if committee.own_fits else None
    known = [] if mixed is None else find_categories(group.rows_at(mixed, numbers))
    vote = take_vote(sample, n_clusters, rng, fit, [category.levels for category in known])
    if vote is None:
        return None
    shares = group.agree(vote.shares)
    if len(numbers) == group.n_rows:
        return replace(vote, shares=shares[group.first : group.first + group.n_own])
    nearest, weights = weights_of_nearest(sample, units.reduce(Y), _NEAREST)
    own = np.einsum("nk,nkm->nm", weights, shares[nearest])
    return replace(vote, shares=own)


def _on_few_rows(
    own_fit: Callable[[Floats, str, int, Any], Ints],
    rng: np.random.RandomState,
    Y: Floats,
    embedding: str,
    n_components: int,
    memberships: Any,
) -> Ints:
    """Return labels from a fit of some of the rows; the others get those of their nearest."""
    if len(Y) <= _MOST_FITTED_ROWS:
        return own_fit(Y, embedding, n_components, memberships)
    chosen = np.sort(rng.choice(len(Y), _MOST_FITTED_ROWS, replace=False))
    if not isinstance(memberships, str):
        memberships = memberships[chosen]
    found = own_fit(Y[chosen], embedding, n_components, memberships)
    with numerics():
        nearest, _ = weights_of_nearest(Y[chosen], Y, 1)
    return found[nearest[:, 0]]
