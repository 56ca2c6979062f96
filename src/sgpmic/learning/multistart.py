"""Learning from one or several starts, and keeping one of the fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgpmic._runtime import double_precision
from sgpmic.kernels import Kernel
from sgpmic.learning.em import Options, State
from sgpmic.learning.predictor import Units, scale_kernels
from sgpmic.learning.rounds import Callback, initial_state, run_rounds
from sgpmic.learning.snapshots import CheckpointWriter, Outcome, Snapshot, state_template
from sgpmic.learning.start_values import start_values
from sgpmic.learning.starts import Start, agreements, choose
from sgpmic.model.rows import Rows
from sgpmic.parallel.group import ProcessGroup

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StartSettings:
    """How a start is made; the estimator's parameters of the same names say more."""

    n_clusters: int
    n_components: int
    n_inducing: int
    inducing: str
    n_neighbors: int
    isomap_pieces: str
    unit_variance: bool
    kernel: Kernel
    kernel_factor: float  # the kernel's start values are multiplied by this
    prior_strength: float


@dataclass(frozen=True)
class Stopping:
    """When learning from a start ends."""

    max_rounds: int
    tolerance: float
    callbacks: Sequence[Callback]


@dataclass
class Learned:
    """All starts' fits, and which one is kept."""

    starts: list[Start]
    outcomes: list[Outcome]
    kept: int
    partitions: list[NDArray[np.int64]]
    agreement: Floats
    sizes: list[Floats]  # of every partition's clusters, over all processes

    def labels_by_size(self, number: int) -> NDArray[np.int64]:
        """Return a partition with its clusters numbered by size, as the estimator's labels are."""
        order = np.argsort(-self.sizes[number], kind="stable")
        numbers = np.empty_like(order)
        numbers[order] = np.arange(len(order))
        return numbers[self.partitions[number]]

    @property
    def outcome(self) -> Outcome:
        """The fit that is kept."""
        return self.outcomes[self.kept]

    @property
    def history(self) -> dict[str, list[float]]:
        """Every round of every start, a list for each quantity."""
        records = [record for outcome in self.outcomes for record in outcome.history]
        return {name: [record[name] for record in records] for name in records[0]}

    def listing(self) -> list[dict[str, Any]]:
        """Return a description of every start."""
        return [
            start.describe()
            | {
                "bound": outcome.bound,
                "agreement": float(self.agreement[i]),
                "n_iter": len(outcome.history),
                "converged": outcome.converged,
                "kept": i == self.kept,
                "notes": list(outcome.notes),
                "labels": self.labels_by_size(i),
            }
            for i, (start, outcome) in enumerate(zip(self.starts, self.outcomes, strict=True))
        ]


def begin(
    Y: Floats,
    group: ProcessGroup,
    start: Start,
    rows: Rows,
    options: Options,
    settings: StartSettings,
) -> tuple[State, tuple[str, ...]]:
    """Return the state that a start begins with, and what is unusual about it."""
    values = start_values(
        Y,
        group,
        start,
        n_clusters=settings.n_clusters,
        n_components=settings.n_components,
        n_inducing=min(settings.n_inducing, group.n_rows),
        inducing=settings.inducing,
        n_neighbors=settings.n_neighbors,
        pieces=settings.isomap_pieces,
        unit_variance=settings.unit_variance,
    )
    kernel = settings.kernel.for_dimensions(settings.n_components)
    n_processes = 1 if options.shared else settings.n_clusters
    kernels = scale_kernels([kernel] * n_processes, settings.kernel_factor)
    # The paper's start, β = (½ √mean(var(Y)))⁻², which is 4 once the data are scaled.
    state = initial_state(values, kernels, 4.0, rows, group, options, settings.prior_strength)
    return state, values.notes


def learn(
    Y: Floats,
    group: ProcessGroup,
    rows: Rows,
    units: Units,
    options: Options,
    starts: list[Start],
    settings: StartSettings,
    stopping: Stopping,
    selection: str,
    going_on: State | None = None,
    checkpoint_writer: CheckpointWriter | None = None,
    n_retries: int = 0,
) -> Learned:
    """Learn from every start and choose a fit, if possible one that has not lost a cluster.

    Parameters
    ----------
    Y : ndarray of shape (n_samples, n_features)
        The data of this process, in their own units.
    group : ProcessGroup
        All processes.
    rows : Rows
        The same, centred, scaled and in blocks.
    units : Units
    options : Options
    starts : list of Start
    settings : StartSettings
    stopping : Stopping
    selection : str
        How the fit is chosen (:mod:`sgpmic.learning.starts`).
    going_on : State or None
        An earlier fit's state to go on from, instead of making ``starts``.
    checkpoint_writer : CheckpointWriter or None
        Keeps learning after every round; what it has kept already is gone on from.
    n_retries : int
        The last so many ``starts`` are made only as long as all before them have lost a cluster.
    """
    n_planned = len(starts) - n_retries
    starts, outcomes = _resumed(starts, rows, group, options, settings, checkpoint_writer)
    for number, start in enumerate(starts):
        if number >= n_planned and any(_is_whole(o, settings, group) for o in outcomes[:number]):
            break
        if number >= len(outcomes):
            notes: tuple[str, ...] = ()
            state = going_on
            if state is None:
                state, notes = begin(Y, group, start, rows, options, settings)
            if number >= n_planned:
                notes = (start.retry_note(), *notes)
            outcomes.append(Outcome(state, bound=float("nan"), converged=False, notes=notes))

        def keep() -> None:
            if checkpoint_writer is not None:
                checkpoint_writer.save(Snapshot([each.seed for each in starts], outcomes))

        run_rounds(
            outcomes[number],
            rows,
            group,
            options,
            max_rounds=stopping.max_rounds,
            tolerance=stopping.tolerance,
            constant=group.n_rows * units.log_volume,
            callbacks=stopping.callbacks,
            start=number,
            n_starts=max(n_planned, number + 1),
            seed=start.seed,
            keep=keep,
        )
    # One whose very first round gave numbers that are not finite has no history.
    survivors = [i for i, outcome in enumerate(outcomes) if outcome.history]
    if not survivors:
        raise ValueError(
            "The first round of learning gave numbers that are not finite. Look for features of "
            f"very different sizes and scale them, or raise jitter above {options.jitter:g}."
        )
    outcomes = [outcomes[i] for i in survivors]
    partitions = [group.own_rows(o.state.S).argmax(axis=1) for o in outcomes]
    sizes = [_sizes(partition, settings.n_clusters, group) for partition in partitions]
    agreement = agreements(partitions, settings.n_clusters, group)
    eligible = np.array([each.min() > 0 for each in sizes])
    if not eligible.any():  # spare starts have not helped: as if they had not been made
        eligible = np.array(survivors) < n_planned
    if not eligible.any():  # but they are all there is where the others broke off at once
        eligible = np.ones(len(survivors), dtype=bool)
    kept = choose(selection, np.array([o.bound for o in outcomes]), agreement, eligible)
    return Learned([starts[i] for i in survivors], outcomes, kept, partitions, agreement, sizes)


def _sizes(partition: NDArray[np.int64], n_clusters: int, group: ProcessGroup) -> Floats:
    """Return how many rows of all processes every cluster has."""
    return group.total(np.bincount(partition, minlength=n_clusters).astype(np.float64))


def _is_whole(outcome: Outcome, settings: StartSettings, group: ProcessGroup) -> bool:
    """Return whether every cluster has a row."""
    partition = group.own_rows(outcome.state.S).argmax(axis=1)
    sizes = _sizes(partition, settings.n_clusters, group)
    return bool(outcome.history) and bool(sizes.min() > 0)


def _resumed(
    starts: list[Start],
    rows: Rows,
    group: ProcessGroup,
    options: Options,
    settings: StartSettings,
    checkpoint_writer: CheckpointWriter | None,
) -> tuple[list[Start], list[Outcome]]:
    """Return the starts, with the seeds they had, and what was made of them before."""
    if checkpoint_writer is None:
        return starts, []
    kernel = settings.kernel.for_dimensions(settings.n_components)
    n_mappings = 1 if options.shared else settings.n_clusters
    snapshot = checkpoint_writer.load(state_template(kernel, n_mappings))
    if snapshot is None:
        return starts, []
    for outcome in snapshot.outcomes:
        state = outcome.state
        with double_precision():
            X, S = (group.lay_out(np.asarray(a), rows) for a in (state.parameters.X, state.S))
        outcome.state = state._replace(parameters=state.parameters._replace(X=X), S=S)
    seeded = [s._replace(seed=seed) for s, seed in zip(starts, snapshot.seeds, strict=True)]
    return seeded, snapshot.outcomes
