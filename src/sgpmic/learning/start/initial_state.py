"""The state that EM starts from: new, of an earlier result, or of a checkpoint.

Embedding a table takes a look at all pairs of rows, and clustering it many passes over it. Of very
many rows a sample is embedded and clustered, and every other row is put between its nearest rows in
the sample, in the latent space and in its memberships. Rough, but it only begins what learning
ends; and what every process does to its own rows is the same however many processes there are.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from sgpmic._types import Floats, Ints
from sgpmic.kernels import stack
from sgpmic.learning.em import StartArrays, first_state
from sgpmic.learning.points import weights_of_nearest
from sgpmic.learning.prediction.predictor import Predictor, pad_mixture, scale_kernels
from sgpmic.learning.preparation.categories import View
from sgpmic.learning.preparation.scaling import Scaler
from sgpmic.learning.settings import FitSettings
from sgpmic.learning.start.embeddings import PLACED_BETWEEN, SAMPLED_ROWS, embed
from sgpmic.learning.start.inducing import choose_inducing
from sgpmic.learning.start.memberships import initial_memberships
from sgpmic.learning.start.starts import PlannedStart
from sgpmic.learning.state import (
    CheckpointWriter,
    EMLimits,
    StartFit,
    State,
    by_row,
    state_template,
    with_rows,
)
from sgpmic.model.mixture import Conjugate
from sgpmic.model.rows import Rows, pad
from sgpmic.process_group import ProcessGroup

#: Of more rows than this, a start is made from a sample.
MOST_START_ROWS = 20_000

# So many rows are placed at a time, so that what is computed of them stays small.
_PART = 262_144


class StartValues(NamedTuple):
    """Arrays a start begins with."""

    X: Floats  # (n_own, Q)
    Z: Floats  # (U, Q)
    S: Floats  # (n_own, M)
    notes: tuple[str, ...]


def start_values(
    view: View,
    group: ProcessGroup,
    start: PlannedStart,
    settings: FitSettings,
    votes: Floats | None,
) -> StartValues:
    """Return the embedding and memberships of this process's rows, and the inducing points.

    ``view`` is the table that the start is made from; ``votes`` (n_own, n_clusters) are the
    committee's, None without one.
    """
    Y, n_clusters = view.rows, settings.n_clusters
    # One factor for all features changes no start but by rounding.
    scale = view.scaler.scale if view.scaler.kind == "each" else None
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
        settings.n_components,
        _of_sample(start.embedding, group, numbers),
        n_neighbors=settings.start.n_neighbors,
        pieces=settings.start.pieces,
        random_state=rng,
    )
    X = embedding.coordinates
    deviations = np.ones(X.shape[1])
    if settings.start.unit_variance:
        deviations = X.std(axis=0)
        deviations = np.where(deviations > 0, deviations, 1.0)
    X = X / deviations
    S = initial_memberships(X, n_clusters, _of_sample(memberships, group, numbers), rng)
    Z = choose_inducing(X, min(settings.n_inducing, group.n_rows), settings.start.inducing, rng)
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


def initial_state(
    values: StartValues,
    settings: FitSettings,
    scaler: Scaler,
    limits: EMLimits,
    rows: Rows,
    cells: Any,
    group: ProcessGroup,
) -> State:
    """Return the state of a new fit, laid out as ``rows`` are; ``cells`` fill their gaps."""
    factor = scaler.kernel_factor
    if not isinstance(settings.start.kernel_scale, str):
        factor = float(settings.start.kernel_scale) * scaler.mean_variance
    kernel = settings.kernel.for_dimensions(settings.n_components)
    arrays = StartArrays(
        group.lay_out(values.X, rows),
        # As NumPy arrays, small ones may go to any device.
        pad(values.Z, values.Z.shape),
        lay_out_memberships(values.S, settings, rows, group),
        stack(scale_kernels([kernel] * settings.n_mappings, factor)),
        # The paper's start, β = (½ √mean(var(Y)))⁻².
        pad(4.0 / scaler.mean_variance, ()),
        _pseudo_counts(settings, group),
        pad(settings.em.jitter, ()),
        cells,
    )
    return first_state(arrays, rows, limits, settings.options)


def continued_state(
    previous: State, settings: FitSettings, rows: Rows, cells: Any, group: ProcessGroup
) -> State:
    """Return the state of an earlier result, laid out as ``rows`` are."""
    n_clusters, n_mappings = settings.padded_clusters(group.n_rows), settings.n_mappings
    padded = previous._replace(S=pad(np.asarray(previous.S), (len(previous.S), n_clusters)))
    return _lay_out_state(padded, rows, group)._replace(
        mixture=pad_mixture(previous.mixture, n_clusters),
        conjugate=Conjugate(_pseudo_counts(settings, group), previous.conjugate.scale),
        jitter=pad(np.full(n_mappings, settings.em.jitter), (n_mappings,)),
        cells=cells,
    )


def resume(
    checkpoint: CheckpointWriter | None,
    starts: list[PlannedStart],
    settings: FitSettings,
    rows: Rows,
    group: ProcessGroup,
) -> tuple[list[PlannedStart], list[StartFit]]:
    """Return the starts, with the seeds that a checkpoint has, and its fits laid out."""
    if checkpoint is None:
        return starts, []
    template = state_template(
        settings.kernel.for_dimensions(settings.n_components),
        settings.n_mappings,
        variational=settings.options.variational,
        cells=rows.missing is not None,
    )
    snapshot = checkpoint.load(template)
    if snapshot is None:
        return starts, []
    for fit in snapshot.fits:
        fit.state = _lay_out_state(fit.state, rows, group)
    seeded = [s._replace(seed=seed) for s, seed in zip(starts, snapshot.seeds, strict=True)]
    return seeded, snapshot.fits


def lay_out_memberships(S: Any, settings: FitSettings, rows: Rows, group: ProcessGroup) -> Any:
    """Return an array of this process's rows and clusters laid out, with clusters padded."""
    shape = (len(S), settings.padded_clusters(group.n_rows))
    return group.lay_out(pad(np.asarray(S), shape), rows)


def _lay_out_state(state: State, rows: Rows, group: ProcessGroup) -> State:
    arrays = by_row(state).items()
    return with_rows(state, {k: group.lay_out(np.asarray(array), rows) for k, array in arrays})


def _pseudo_counts(settings: FitSettings, group: ProcessGroup) -> Any:
    n_clusters = settings.padded_clusters(group.n_rows)
    return pad(settings.pseudo_counts(group.n_rows), (n_clusters,))


def can_continue(
    state: State, predictor: Predictor, settings: FitSettings, Y: Floats, group: ProcessGroup
) -> bool:
    """Return whether another fit, of the rows ``Y``, can start from the state of an earlier one.

    ``predictor`` is of that earlier fit, ``settings`` of the one to come.
    """
    (n_rows, n_components), n_clusters = state.parameters.X.shape, state.S.shape[1]
    kernels, kernel = predictor.kernels, settings.kernel.for_dimensions(n_components)
    asked = settings.n_components
    return (
        Y.shape == (n_rows, len(predictor.units.offset))
        and (asked == n_components or not isinstance(asked, Integral))
        and settings.n_clusters in ("auto", n_clusters)
        and len(state.parameters.Z) == min(settings.n_inducing, group.n_rows)
        and len(kernels) == settings.n_mappings
        and type(kernels[0]) is type(kernel)
        and kernels[0].ard == kernel.ard
        and (state.parameters.log_x_std is not None) == settings.options.variational
    )
