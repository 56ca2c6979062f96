"""Learning: from settings and rows to a model.

:func:`run` is all of it: units, starts, rounds of EM from every start, the choice of one of the
fits, and the last E-step that leaves what predictions need.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic._runtime import double_precision, one_blas_thread
from sgpmic._types import Floats
from sgpmic.kernels import RBF
from sgpmic.committee.on_tables import vote_on
from sgpmic.committee.voting import Vote
from sgpmic.learning.em import State
from sgpmic.learning.preparation.canonical_order import (
    AS_GIVEN,
    ArrangedCheckpoint,
    Arrangement,
    arrange,
)
from sgpmic.learning.preparation.categories import View, committee_view
from sgpmic.learning.preparation.gaps import complete_rows, has_gaps, with_gaps
from sgpmic.learning.preparation.scaling import Scaler, all_alike, fit_scaler
from sgpmic.learning.progress import announce, listening, print_progress
from sgpmic.learning.result import Learned, Result, finish
from sgpmic.learning.rounds import Loop, run_rounds
from sgpmic.learning.settings import FitSettings, Start
from sgpmic.learning.snapshots import CheckpointWriter, Outcome, Snapshot
from sgpmic.learning.start.initial_states import InitialStates
from sgpmic.learning.start.starts import PlannedStart, agreements, choose, plan_starts
from sgpmic.committee.examination import Structure, count_components, examine
from sgpmic.process_group import ProcessGroup

#: A short fit of the model, to vote in the committee: rounds and inducing points, at most.
_OWN_ROUNDS, _OWN_INDUCING = 3, 30


class _Fit(NamedTuple):
    """What was learned and from what."""

    learned: Learned
    initial: InitialStates
    vote: Vote | None
    structure: Structure
    arrangement: Arrangement


def run(
    settings: FitSettings,
    Y: Floats,
    group: ProcessGroup,
    random_state: np.random.RandomState,
    *,
    checkpoint: CheckpointWriter | None = None,
    previous: State | None = None,
) -> Result:
    """Learn a model of the rows ``Y``.

    Parameters
    ----------
    settings : FitSettings
    Y : ndarray of shape (n_own, n_features)
        The rows of this process, in their own units.
    group : ProcessGroup
        All processes.
    random_state : RandomState
    checkpoint : CheckpointWriter or None
        Keeps learning after every round; resumes what it has kept already.
    previous : State or None
        Of an earlier result, to start from.
    """
    with one_blas_thread():  # the same numbers on any machine, whatever else runs on it
        return finish(*_fit(settings, Y, group, random_state, checkpoint, previous), random_state)


def _fit(
    settings: FitSettings,
    Y: Floats,
    group: ProcessGroup,
    random_state: np.random.RandomState,
    checkpoint: CheckpointWriter | None = None,
    previous: State | None = None,
) -> _Fit:
    """Learn, all but the last E-step."""
    asks_committee = settings.committee is not None
    arrangement = _arrange(settings, Y, group, previous)
    if arrangement is not AS_GIVEN:
        Y = arrangement.apply(Y)
        if checkpoint is not None:
            checkpoint = ArrangedCheckpoint(checkpoint, arrangement, group, Y.shape[1])
    units = fit_scaler(Y, group, settings.scale)
    gaps = has_gaps(Y, group)
    # What needs whole rows gets them; the model sees the table as it is.
    whole = complete_rows(Y, group, units) if gaps else Y
    view = View(whole, units, has_categories=False)
    if asks_committee:
        view = committee_view(Y, whole, units, group)
    structure = examine(
        view.rows,
        group,
        view.units,
        support=asks_committee and settings.n_clusters != 1,
        clusters=settings.n_clusters == "auto",
        dimensions=settings.n_components == "auto",
    )
    if structure.clusters is not None:
        settings = replace(settings, n_clusters=structure.clusters.chosen)
    if structure.dimensions is not None:
        settings = replace(settings, n_components=structure.dimensions.chosen)
    n_components = count_components(settings.n_components, units, whole, group)
    settings = replace(settings, n_components=n_components)
    loop = _make_loop(settings, Y, group, units, gaps)
    starts, n_retries = _plan(settings, random_state, previous)
    initial = InitialStates(settings, Y, whole, view, units, loop, previous)
    starts, outcomes = initial.resume(starts, checkpoint)
    vote = _vote(settings, Y, view, group)
    if vote is not None:
        initial = initial.with_votes(vote.shares)
    learned = learn(initial, starts, outcomes, n_retries, checkpoint)
    return _Fit(learned, initial, vote, structure, arrangement)


def _arrange(
    settings: FitSettings, Y: Floats, group: ProcessGroup, previous: State | None
) -> Arrangement:
    """Return the order to take the table in; as it is where something else has its order."""
    start = settings.start
    made = isinstance(start.embedding, str) and isinstance(start.memberships, str)
    if settings.committee is None or previous is not None or not made:
        return AS_GIVEN
    return arrange(Y, group)


def _make_loop(
    settings: FitSettings, Y: Floats, group: ProcessGroup, units: Scaler, gaps: bool
) -> Loop:
    """Return what the rounds of all starts have in common."""
    with double_precision():
        rows = group.lay_out_rows(Y, settings.computation.block_size, units.transform)
        rows = with_gaps(rows, Y, group) if gaps else rows
    limits = settings.limits
    if all_alike(Y, group, units):
        # Without noise and without a mapping the bound has no end, and the optimizer finds it.
        limits = limits._replace(m_steps=limits.m_steps * 0)
    log_volume = group.n_rows * units.log_volume
    if gaps:
        log_volume = float(group.total(units.log_volumes(Y).sum()))
    return Loop(
        rows,
        group,
        limits,
        settings.options,
        settings.n_clusters,
        settings.computation.batch_size,
        int(settings.max_iter),
        float(settings.tol),
        log_volume,
        [*settings.em.callbacks, *([print_progress] if settings.verbose else [])],
    )


def _plan(
    settings: FitSettings, random_state: np.random.RandomState, previous: State | None
) -> tuple[list[PlannedStart], int]:
    """Return the starts, and how many of them, at the end, are for lost clusters alone."""
    start = settings.start
    given = not (isinstance(start.embedding, str) or isinstance(start.memberships, str))
    # Clusters may merge where they have posteriors: an empty one is an answer there.
    final = previous is not None or given or settings.options.variational
    n_retries = 0 if final else start.n_retries
    starts = plan_starts(start.embedding, start.memberships, start.n_init + n_retries, random_state)
    if previous is not None:
        starts = [PlannedStart("last fit", "last fit", starts[0].seed)]
    return starts, n_retries


def _vote(settings: FitSettings, Y: Floats, view: View, group: ProcessGroup) -> Vote | None:
    """Return the committee's votes; None where it is not asked."""
    if settings.committee is None or not isinstance(settings.start.memberships, str):
        return None
    return vote_on(
        view.rows,
        group,
        view.units,
        settings.committee,
        settings.n_clusters,
        partial(_own_fit, settings),
        Y if view.has_categories else None,
    )


def _own_fit(
    settings: FitSettings, Y: Floats, embedding: str, n_components: int, memberships: Any
) -> NDArray[np.int64]:
    """Return the labels of a short fit of the model itself, as a member of the committee."""
    short = replace(
        settings,
        n_components=n_components,
        # One with a length scale for each dimension is for another number of them.
        kernel=RBF() if settings.kernel.ard else settings.kernel,
        mapping="shared",
        n_inducing=min(settings.n_inducing, _OWN_INDUCING),
        scale="none",
        committee=None,
        max_iter=_OWN_ROUNDS,
        start=Start(embedding=embedding, memberships=memberships, n_retries=0),
        em=replace(settings.em, callbacks=()),
        computation=replace(settings.computation, batch_size=None, checkpoint=None),
        verbose=0,
    )
    group = ProcessGroup(len(Y), alone=True)
    with listening(None):  # a round of this one is none of the fit's
        learned = _fit(short, Y, group, np.random.RandomState(0)).learned
    return learned.partitions[learned.kept]


def learn(
    initial: InitialStates,
    starts: list[PlannedStart],
    outcomes: list[Outcome],
    n_retries: int,
    checkpoint: CheckpointWriter | None,
) -> Learned:
    """Learn from every start and choose a fit, if possible one that has not lost a cluster.

    ``outcomes`` are what was made of the starts before, if anything. The last ``n_retries`` of the
    starts are made only as long as all before them have lost a cluster.
    """
    settings, loop = initial.settings, initial.loop
    n_planned = len(starts) - n_retries

    def keep() -> None:
        if checkpoint is not None:
            checkpoint.save(Snapshot([each.seed for each in starts], outcomes))

    for number, start in enumerate(starts):
        if number >= n_planned and any(_is_whole(o, settings, loop) for o in outcomes[:number]):
            break
        if number >= len(outcomes):
            kind = start.describe()
            which = f"start {number + 1}" if n_planned > 1 or number else "start"
            announce(f"{which}: {kind['embedding']} and {kind['memberships']}")
            state, notes = initial.make(start)
            if number >= n_planned:
                notes = (start.retry_note(), *notes)
            outcomes.append(Outcome(state, bound=float("nan"), converged=False, notes=notes))
        run_rounds(
            outcomes[number],
            loop,
            start=number,
            n_starts=max(n_planned, number + 1),
            seed=start.seed,
            keep=keep,
        )
    return _choose_fit(starts, outcomes, n_planned, settings, loop)


def _choose_fit(
    starts: list[PlannedStart],
    outcomes: list[Outcome],
    n_planned: int,
    settings: FitSettings,
    loop: Loop,
) -> Learned:
    """Compare the fits and choose one; ``n_planned`` are the starts that are no retries."""
    # One whose very first round gave numbers that are not finite has no history.
    survivors = [i for i, outcome in enumerate(outcomes) if outcome.history]
    if not survivors:
        raise ValueError(
            "The first round of learning gave numbers that are not finite. Look for features of "
            "very different sizes and scale them (scale='each'), or raise the jitter (em__jitter) "
            f"above {settings.em.jitter:g}."
        )
    outcomes = [outcomes[i] for i in survivors]
    partitions = [_partition(outcome, loop) for outcome in outcomes]
    sizes = [_sizes(partition, settings, loop) for partition in partitions]
    agreement = agreements(partitions, settings.n_clusters, loop.group)
    eligible = np.array([each.min() > 0 or loop.options.variational for each in sizes])
    if not eligible.any():  # retries have not helped: as if they had not been made
        eligible = np.array(survivors) < n_planned
    if not eligible.any():  # but they are all there is where the others broke off at once
        eligible = np.ones(len(survivors), dtype=bool)
    bounds = np.array([outcome.bound for outcome in outcomes])
    kept = choose(settings.start.selection, bounds, agreement, eligible)
    return Learned([starts[i] for i in survivors], outcomes, kept, partitions, agreement, sizes)


def _partition(outcome: Outcome, loop: Loop) -> NDArray[np.int64]:
    """Return the most probable cluster of this process's rows."""
    labels: NDArray[np.int64] = loop.group.own_rows(outcome.state.S).argmax(axis=1)
    return labels


def _sizes(partition: NDArray[np.int64], settings: FitSettings, loop: Loop) -> Floats:
    """Return how many rows of all processes every cluster has."""
    counts = np.bincount(partition, minlength=settings.n_clusters)
    return loop.group.total(counts.astype(np.float64))


def _is_whole(outcome: Outcome, settings: FitSettings, loop: Loop) -> bool:
    """Return whether every cluster has a row."""
    sizes = _sizes(_partition(outcome, loop), settings, loop)
    return bool(outcome.history) and bool(sizes.min() > 0)
