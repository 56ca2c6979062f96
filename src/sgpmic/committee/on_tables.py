"""A committee's votes on a table of any size, on any number of processes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sgpmic._types import Floats, Ints
from sgpmic.committee.geometry import Geometry
from sgpmic.committee.voting import Vote, take_vote
from sgpmic.learning.neighbors import interpolate
from sgpmic.learning.preprocessing import Scaler, find_categories
from sgpmic.learning.settings import Committee
from sgpmic.process_group import ProcessGroup

#: Of scaled rows. Further ones are rounding: they would decide between equal distances, of which
#: tables of whole numbers have many.
_DECIMALS = 7
#: A row that was not voted on gets the votes of this many of its nearest that were.
_NEAREST = 6


def vote_on(
    Y: Floats,
    group: ProcessGroup,
    scaler: Scaler,
    committee: Committee,
    n_clusters: int,
    mixed: Floats | None = None,
) -> Vote | None:
    """Return the committee's votes on this process's rows ``Y``, in their own units.

    All processes let the same rows be voted on, and agree on the outcome. Where ``Y`` are the
    factors of a table with categories, ``mixed`` are its rows.
    """
    if n_clusters < 2 or group.n_rows <= n_clusters:
        return None
    numbers = _some_rows(group.n_rows, committee.max_rows)
    sample = scaler.transform(group.rows_at(Y, numbers)).round(_DECIMALS)
    known = [] if mixed is None else find_categories(group.rows_at(mixed, numbers))
    vote = take_vote(Geometry(sample, n_clusters), n_clusters, [each.levels for each in known])
    if vote is None:
        return None
    shares = group.agree(vote.shares)
    if len(numbers) == group.n_rows:
        return replace(vote, shares=shares[group.first : group.first + group.n_own])
    own = interpolate(sample, shares, Y, _NEAREST, offset=scaler.offset, scale=scaler.scale)
    return replace(vote, shares=own)


def _some_rows(n_rows: int, most: int) -> Ints:
    """Return the numbers of all rows, or of so many drawn at random.

    The same ones for every seed: which rows vote would make more of a difference than any other
    draw of a fit.
    """
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.RandomState(0).choice(n_rows, most, replace=False))
