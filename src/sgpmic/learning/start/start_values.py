"""The arrays a start begins with: of all rows, or of a sample with the others placed among it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sgpmic._types import Floats, Ints
from sgpmic.learning.nearest import weights_of_nearest
from sgpmic.learning.settings import Start
from sgpmic.learning.start.embeddings import PLACED_BETWEEN, SAMPLED_ROWS, embed
from sgpmic.learning.start.inducing import choose_inducing
from sgpmic.learning.start.memberships import initial_memberships
from sgpmic.learning.start.starts import PlannedStart
from sgpmic.process_group import ProcessGroup

#: Of more rows than this, a start is made from a sample.
MOST_START_ROWS = 20_000

# So many rows are placed at a time, so that what is computed of them stays small.
_PART = 262_144


class StartValues(NamedTuple):
    """Arrays a start begins with."""

    X: Floats
    Z: Floats
    S: Floats
    notes: tuple[str, ...]


def start_values(
    Y: Floats,
    group: ProcessGroup,
    start: PlannedStart,
    settings: Start,
    *,
    votes: Floats | None,
    scale: Floats | None,
    n_clusters: int,
    n_components: int,
    n_inducing: int,
) -> StartValues:
    """Return the embedding and memberships of this process's rows, and the inducing points.

    Embedding a table takes a look at all pairs of rows, and clustering it many passes over it. Of
    very many rows a sample is embedded and clustered, and every other row is put between its
    nearest rows in the sample, in the latent space and in its memberships. Rough, but it only
    begins what learning ends; and what every process does to its own rows is the same however
    many processes there are.

    ``votes`` (n_own, n_clusters) are the committee's, None without one.
    ``scale`` (n_features,) divides the features where each has a unit of its own; otherwise None:
    one factor for all changes no start but by rounding.
    """
    rng = np.random.RandomState(start.seed)
    memberships = start.memberships
    if isinstance(memberships, str) and memberships == "votes":
        memberships = "fcm" if votes is None else votes
    numbers = np.arange(group.n_rows)
    sampled = group.n_rows > MOST_START_ROWS
    if sampled:
        numbers = np.sort(rng.choice(group.n_rows, SAMPLED_ROWS, replace=False))
    sample = _scaled(group.rows_at(Y, numbers), scale)
    embedding = embed(
        sample,
        n_components,
        _of_sample(start.embedding, group, numbers),
        n_neighbors=settings.n_neighbors,
        pieces=settings.pieces,
        random_state=rng,
    )
    X = embedding.coordinates
    deviations = np.ones(X.shape[1])
    if settings.unit_variance:
        deviations = X.std(axis=0)
        deviations = np.where(deviations > 0, deviations, 1.0)
    X = X / deviations
    S = initial_memberships(X, n_clusters, _of_sample(memberships, group, numbers), rng)
    Z = choose_inducing(X, n_inducing, settings.inducing, rng)
    # Processors of different makes round differently, and all have to start from one state.
    X, Z, S = group.agree((X, Z, S))
    if not sampled:
        own = slice(group.first, group.first + group.n_own)
        return StartValues(X[own], Z, S[own], embedding.notes)
    note = (
        f"The start was made from {len(numbers)} of the {group.n_rows} rows, drawn at random; the "
        "others were placed between their nearest rows among them."
    )
    X_own, S_own = np.empty((len(Y), X.shape[1])), np.empty((len(Y), n_clusters))
    for first in range(0, len(Y), _PART):
        part = slice(first, first + _PART)
        nearest = weights_of_nearest(sample, _scaled(Y[part], scale), PLACED_BETWEEN)
        X_own[part], S_own[part] = (_mean_of(known, *nearest) for known in (X, S))
    if not isinstance(start.embedding, str):
        X_own = np.asarray(start.embedding, np.float64) / deviations
    if not isinstance(memberships, str):
        S_own = initial_memberships(X_own, n_clusters, memberships, rng)
    return StartValues(X_own, Z, S_own, (note, *embedding.notes))


def _scaled(Y: Floats, scale: Floats | None) -> Floats:
    return Y if scale is None else Y / scale


def _of_sample(given: Any, group: ProcessGroup, numbers: Ints) -> Any:
    """Return a method's name as it is, and of an array the rows of the sample."""
    if isinstance(given, str) or len(given) != group.n_own:  # what is wrong with it is said later
        return given
    return group.rows_at(np.asarray(given, np.float64), numbers)


def _mean_of(known: Floats, nearest: Ints, weights: Floats) -> Floats:
    """Return Σ_k weights[:, k] known[nearest[:, k]], without an array of all the terms."""
    mean = np.zeros((len(nearest), known.shape[1]))
    for k in range(nearest.shape[1]):
        mean += weights[:, k, None] * known[nearest[:, k]]
    return mean
