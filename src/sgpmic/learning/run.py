"""Learning: from settings and rows to a model.

:func:`run` is all of it: order and scale the table, examine it, let the committee vote, iterate EM
from every start, choose one of the fits, and make the last E-step that leaves what predictions
need.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sgpmic._runtime import with_numerics
from sgpmic._types import Floats
from sgpmic.committee.examination import Structure, count_components, examine
from sgpmic.committee.voting import Vote, vote_on
from sgpmic.learning.em import CheckpointWriter, StartFit, State, run_em
from sgpmic.learning.gaps import first_cells, impute_rows, with_gaps
from sgpmic.learning.initialization import View, committee_view, start_values
from sgpmic.learning.preprocessing import (
    AS_GIVEN,
    Scaler,
    all_rows_equal,
    canonical_order,
    fit_scaler,
    total_log_volume,
)
from sgpmic.learning.progress import announce
from sgpmic.learning.result import Result, finish
from sgpmic.learning.settings import FitSettings
from sgpmic.learning.starts import (
    continued_state,
    has_all_clusters,
    initial_state,
    lay_out_memberships,
    plan_starts,
    resume,
    save,
    select_fit,
)
from sgpmic.model.rows import Rows
from sgpmic.process_group import ProcessGroup


@with_numerics  # with one BLAS thread: the same numbers on any machine, whatever else runs on it
def run(
    settings: FitSettings,
    Y: Floats,
    group: ProcessGroup,
    random_state: np.random.RandomState,
    *,
    checkpoint: CheckpointWriter | None = None,
    previous: State | None = None,
) -> Result:
    """Learn a model of the rows ``Y`` (n_own, n_features) of this process, in their own units.

    A checkpoint keeps learning after every iteration, and resumes what it has kept already;
    ``previous`` is the state of an earlier result to start from.
    """
    # Order and scale the table; impute it for what needs complete rows.
    order = canonical_order(Y, group) if _may_reorder(settings, previous) else AS_GIVEN
    Y = order.apply(Y)
    scaler = fit_scaler(Y, group, settings.scale)
    Y_imputed = impute_rows(Y, group, scaler)

    # Examine it, and let the committee vote.
    view = View(Y_imputed, scaler)
    if settings.committee is not None:
        view = committee_view(Y, Y_imputed, scaler, group)
    structure = _examine(settings, view, group)
    settings = _with_chosen(settings, structure, scaler, Y_imputed, group)
    vote = _vote(settings, Y, view, group)
    votes = None if vote is None else vote.shares

    # What EM works on: the rows in blocks, with gaps and the votes as assignment prior.
    rows = _lay_out(settings, Y, group, scaler, votes)
    cells = first_cells(Y_imputed, scaler, rows, group)
    log_volume = total_log_volume(Y, group, scaler)
    if all_rows_equal(Y, group, scaler):
        # Without noise and without a mapping the bound is unbounded and the optimizer diverges.
        settings = replace(settings, em=replace(settings.em, m_steps=0))

    # Make starts, and iterate EM from each of them.
    starts = plan_starts(settings, random_state, continues=previous is not None)
    starts, fits = resume(checkpoint, starts, settings, order, rows, group)
    if previous is not None:
        fits = [StartFit(continued_state(previous, settings, rows, cells, group))]

    def keep() -> None:
        if checkpoint is not None:
            save(checkpoint, starts, fits, order, group)

    n_planned = sum(not start.is_retry for start in starts)
    try:
        for number, start in enumerate(starts):
            if start.is_retry and any(has_all_clusters(f, settings, group) for f in fits[:number]):
                break
            if number == len(fits):
                which = f"start {number + 1}" if n_planned > 1 or number else "start"
                announce(f"{which}: {start}")
                values = start_values(view, group, start, settings, votes)
                state = initial_state(values, settings, scaler, rows, cells, group)
                fits.append(StartFit(state, notes=(*start.notes, *values.notes)))
            where = {"start": number, "n_starts": max(n_planned, number + 1)}
            run_em(fits[number], rows, settings, group, **where, log_volume=log_volume, save=keep)
    except KeyboardInterrupt:  # Ctrl-C: what has been learned is kept, if anything has
        # Not where it can resume from a checkpoint, or where other processes wait for this one.
        can_resume = checkpoint is not None or group.n_processes > 1
        if can_resume or not any(fit.history for fit in fits):
            raise
        for fit in fits:
            fit.interrupted = True

    # Choose one of the fits, and finish it.
    selection = select_fit(starts, fits, settings, group)
    return finish(
        selection,
        settings,
        Y,
        rows,
        group,
        random_state,
        scaler=scaler,
        order=order,
        vote=vote,
        structure=structure,
    )


def _may_reorder(settings: FitSettings, previous: State | None) -> bool:
    """Return whether rows may be put into another order, and something is gained by it."""
    start = settings.start
    by_name = isinstance(start.embedding, str) and isinstance(start.memberships, str)
    return settings.committee is not None and previous is None and by_name


def _examine(settings: FitSettings, view: View, group: ProcessGroup) -> Structure:
    """Return what the table supports, as far as the settings ask."""
    return examine(
        view.rows,
        group,
        view.scaler,
        support=settings.committee is not None and settings.n_clusters != 1,
        clusters=settings.n_clusters == "auto",
        dimensions=settings.n_components == "auto",
        mixed=view.mixed,
    )


def _with_chosen(
    settings: FitSettings,
    structure: Structure,
    scaler: Scaler,
    Y_imputed: Floats,
    group: ProcessGroup,
) -> FitSettings:
    """Return the settings with the numbers of clusters and latent dimensions that were chosen."""
    n_clusters, n_components = settings.n_clusters, settings.n_components
    if structure.clusters is not None:
        n_clusters = structure.clusters.chosen
    if structure.dimensions is not None:
        n_components = structure.dimensions.chosen
    n_components = count_components(n_components, scaler, Y_imputed, group)
    return replace(settings, n_clusters=n_clusters, n_components=n_components)


def _vote(settings: FitSettings, Y: Floats, view: View, group: ProcessGroup) -> Vote | None:
    """Return the committee's votes; None where it is not asked."""
    if settings.committee is None or not isinstance(settings.start.memberships, str):
        return None
    mixed = Y if view.has_categories else None
    return vote_on(view.rows, group, view.scaler, settings.committee, settings.n_clusters, mixed)


def _lay_out(
    settings: FitSettings, Y: Floats, group: ProcessGroup, scaler: Scaler, votes: Floats | None
) -> Rows:
    """Return the scaled rows of all processes as the model reads them."""
    rows = group.lay_out_rows(Y, settings.computation.block_size, scaler.transform)
    rows = with_gaps(rows, Y, group)
    if votes is None or settings.committee is None:
        return rows
    prior = lay_out_memberships(votes, settings, rows, group)
    weight = np.float64(settings.committee.strength)
    return replace(rows, assignment_prior=prior, prior_weight=weight)
