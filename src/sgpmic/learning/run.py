"""Learning: from settings and rows to a model.

:func:`run` is all of it: units, starts, rounds of EM from every start, the choice of one of the
fits, and the last E-step that leaves what predictions need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from sgpmic._runtime import double_precision, with_numerics
from sgpmic.kernels import RBF, Kernel, stack
from sgpmic.learning.categories import View, committee_view
from sgpmic.learning.committee import Vote
from sgpmic.learning.em import Parameters, StartArrays, State, first_state, last_e_step
from sgpmic.learning.gaps import complete_rows, features_seen, has_gaps, with_gaps
from sgpmic.learning.options import Limits, Options
from sgpmic.learning.predictor import Predictor, pad_mixture, scale_kernels
from sgpmic.learning.progress import announce, listening, print_progress
from sgpmic.learning.reference import answer_alike, make_reference, sample_numbers
from sgpmic.learning.rounds import Loop, run_rounds
from sgpmic.learning.settings import EM, Committee, Computation, Start
from sgpmic.learning.snapshots import CheckpointWriter, Outcome, Snapshot, state_template
from sgpmic.learning.start_values import start_values
from sgpmic.learning.starts import PlannedStart, agreements, choose, plan_starts
from sgpmic.learning.structure import Structure, examine
from sgpmic.learning.units import Units, all_alike, measure_units
from sgpmic.learning.votes import vote_on
from sgpmic.model.mixture import Conjugate, Mixture
from sgpmic.model.rows import pad, padded_clusters
from sgpmic.parallel.group import ProcessGroup

Floats = NDArray[np.float64]

#: Of the Dirichlet prior of the clusters' weights, where these have a posterior.
CONCENTRATION = 1.0

# Rows whose singular values are found directly; of more, by way of their products.
_MOST_DECOMPOSED = 100_000

#: A short fit of the model, to vote in the committee: rounds and inducing points, at most.
_OWN_ROUNDS, _OWN_INDUCING = 3, 30


@dataclass(frozen=True)
class FitSettings:
    """Everything that decides a fit; the estimator's parameters of the same names say more."""

    n_clusters: Any  # a number; 'auto' until it is chosen
    n_components: int | float | str
    kernel: Kernel
    mapping: str
    covariance_type: str
    latent: str
    n_inducing: int
    scale: str
    committee: Committee | None
    max_iter: int
    tol: float
    start: Start
    em: EM
    computation: Computation
    verbose: int

    @property
    def options(self) -> Options:
        """What a compiled round depends on."""
        return Options(
            shared=self.mapping == "shared",
            covariance_type=self.covariance_type,
            optimizer=self.em.optimizer,
            settle_mixture=bool(self.em.settle_mixture),
            has_prior=self.em.prior_strength > 0,
            latent=self.latent,
        )

    @property
    def limits(self) -> Limits:
        """What a compiled round takes as numbers."""
        em = self.em
        numbers = (np.int32(em.m_steps), np.int32(em.e_steps), em.e_tol, em.covariance_floor)
        arrays: list[Any] = [np.asarray(number) for number in numbers]
        return Limits(*arrays)

    @property
    def n_mappings(self) -> int:
        """How many Gaussian processes there are."""
        return 1 if self.mapping == "shared" else self.n_clusters

    def pseudo_counts(self, n_rows: int) -> Floats:
        """Return the strength of the conjugate prior of every cluster.

        Where the mixture's parameters have posteriors, the prior is weak: clusters may merge.
        """
        if self.latent == "variational":
            return np.full(self.n_clusters, CONCENTRATION)
        return np.full(self.n_clusters, n_rows / self.n_clusters * float(self.em.prior_strength))

    def padded_clusters(self, n_rows: int) -> int:
        """Return the number of clusters that programs are compiled for.

        A cluster with a mapping of its own costs a pass over the rows: there is no padding then.
        """
        if self.mapping != "shared":
            return self.n_clusters
        return padded_clusters(self.n_clusters, n_rows)


@dataclass
class Learned:
    """All starts' fits, and which one is kept."""

    starts: list[PlannedStart]
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


class Result(NamedTuple):
    """What :func:`run` returns.

    Attributes
    ----------
    predictor : Predictor
    X, S : ndarrays of shape (n_own, n_components) and (n_own, n_clusters)
        Latent points and responsibilities of this process's rows.
    sizes : ndarray of shape (n_clusters,)
        How many rows of all processes have each for their most probable cluster.
    learned : Learned
    state : State
        To start another fit from: of this process's rows, without padding.
    spread : ndarray of shape (n_own, n_components) or None
        Standard deviations of the latent points, where they are uncertain.
    vote : Vote or None
        The committee's; shares are of this process's rows, members of the rows that were voted on.
    structure : Structure
        What the table supports.
    """

    predictor: Predictor
    X: Floats
    S: Floats
    sizes: Floats
    learned: Learned
    state: State
    spread: Floats | None
    vote: Vote | None = None
    structure: Structure = Structure(None, None, None)

    def committee_listing(self) -> list[dict[str, Any]]:
        """Return a description of every member of the committee, the weightiest first."""
        members = () if self.vote is None else self.vote.members
        return [
            {"name": m.name, "weight": m.weight, "cut": m.cut, "agreement": m.agreement}
            for m in sorted(members, key=lambda member: -member.weight)
        ]


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
    start = settings.start
    units = measure_units(Y, group, settings.scale)
    gaps = has_gaps(Y, group)
    # What needs whole rows gets them; the model sees the table as it is.
    whole = complete_rows(Y, group, units) if gaps else Y
    view = View(whole, units, has_categories=False)
    if settings.committee is not None:
        view = committee_view(Y, whole, units, group)
    structure = examine(
        view.rows,
        group,
        view.units,
        support=settings.committee is not None and settings.n_clusters != 1,
        clusters=settings.n_clusters == "auto",
        dimensions=settings.n_components == "auto",
    )
    if structure.clusters is not None:
        settings = replace(settings, n_clusters=structure.clusters.chosen)
    if structure.dimensions is not None:
        settings = replace(settings, n_components=structure.dimensions.chosen)
    n_components = count_components(settings.n_components, units, whole, group)
    with double_precision():
        rows = group.lay_out_rows(Y, settings.computation.block_size, units.reduce)
        rows = with_gaps(rows, Y, group) if gaps else rows
    callbacks = [*settings.em.callbacks, *([print_progress] if settings.verbose else [])]
    limits = settings.limits
    if all_alike(Y, group, units):
        # Without noise and without a mapping the bound has no end, and the optimiser finds it.
        limits = limits._replace(m_steps=limits.m_steps * 0)
    loop = Loop(
        rows,
        group,
        limits,
        settings.options,
        settings.n_clusters,
        settings.computation.batch_size,
        int(settings.max_iter),
        float(settings.tol),
        group.n_rows * units.log_volume
        if not gaps
        else float(group.total(np.sum(units.log_volumes(Y) * np.ones(len(Y))))),
        callbacks,
    )
    n_retries = 0
    if previous is None and (
        isinstance(start.embedding, str) or isinstance(start.memberships, str)
    ):
        # Clusters may merge where they have posteriors: an empty one is an answer there.
        n_retries = 0 if settings.options.variational else start.n_retries
    starts = plan_starts(start.embedding, start.memberships, start.n_init + n_retries, random_state)
    if previous is not None:
        starts = [PlannedStart("last fit", "last fit", starts[0].seed)]
    first = _FirstStates(settings, Y, whole, view, units, n_components, loop, previous)
    starts, outcomes = first.resume(starts, checkpoint)
    vote = None
    if settings.committee is not None and isinstance(start.memberships, str):
        vote = vote_on(
            view.rows,
            group,
            view.units,
            settings.committee,
            settings.n_clusters,
            starts[0].seed,
            partial(_own_fit, settings),
            Y if view.has_categories else None,
        )
    if vote is not None:
        first = first.with_votes(vote.shares)
    learned = learn(first, starts, outcomes, n_retries, checkpoint)
    return finish(learned, first, random_state)._replace(vote=vote, structure=structure)


def _own_fit(
    settings: FitSettings, seed: int, Y: Floats, embedding: str, n_components: int, memberships: Any
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
        result = run(short, Y, group, np.random.RandomState(seed))
    labels: NDArray[np.int64] = result.S.argmax(axis=1)
    return labels


@dataclass(frozen=True)
class _FirstStates:
    """Makes the state that EM starts from."""

    settings: FitSettings
    Y: Floats
    whole: Floats  # Y with expectations of missing cells
    view: View  # what the start is made from
    units: Units
    n_components: int
    loop: Loop
    previous: State | None
    votes: Floats | None = None

    def with_votes(self, votes: Floats) -> _FirstStates:
        """Return the same with a committee's votes on this process's rows."""
        committee, group = self.settings.committee, self.loop.group
        assert committee is not None  # for the type checker: there are votes
        n_clusters = self.settings.padded_clusters(group.n_rows)
        with double_precision():
            rows = replace(
                self.loop.rows,
                votes=group.lay_out(pad(votes, (len(votes), n_clusters)), self.loop.rows),
                strength=np.float64(committee.strength),
            )
        return replace(self, loop=replace(self.loop, rows=rows), votes=votes)

    def make(self, start: PlannedStart) -> tuple[State, tuple[str, ...]]:
        """Return a start's state, and what is unusual about it."""
        if self.previous is not None:
            return self._continue(self.previous), ()
        settings, group = self.settings, self.loop.group
        units = self.view.units
        values = start_values(
            self.view.rows,
            group,
            start,
            settings.start,
            votes=self.votes,
            scale=units.scale if units.kind == "each" else None,
            n_clusters=settings.n_clusters,
            n_components=self.n_components,
            n_inducing=min(settings.n_inducing, group.n_rows),
        )
        scale = settings.start.kernel_scale
        factor = self.units.kernel_factor
        if not isinstance(scale, str):
            factor = float(scale) * self.units.mean_variance
        kernel = settings.kernel.for_dimensions(self.n_components)
        kernels = stack(scale_kernels([kernel] * settings.n_mappings, factor))
        # The paper's start, β = (½ √mean(var(Y)))⁻².
        beta = 4.0 / self.units.mean_variance
        return self._first_state(values.X, values.Z, values.S, kernels, beta), values.notes

    @with_numerics
    def _first_state(self, X: Floats, Z: Floats, S: Floats, kernels: Kernel, beta: float) -> State:
        loop, n_rows = self.loop, self.loop.group.n_rows
        n_clusters = self.settings.padded_clusters(n_rows)
        arrays = StartArrays(
            loop.group.lay_out(X, loop.rows),
            # As NumPy arrays, small ones may go to any device.
            pad(Z, Z.shape),
            loop.group.lay_out(pad(S, (len(S), n_clusters)), loop.rows),
            kernels,
            pad(beta, ()),
            pad(self.settings.pseudo_counts(n_rows), (n_clusters,)),
            pad(self.settings.em.jitter, ()),
            self._cells(),
        )
        return first_state(arrays, loop.rows, loop.limits, loop.options)

    def _cells(self) -> Any:
        """Return the first values of missing cells, laid out, where these have a posterior."""
        rows = self.loop.rows
        if rows.missing is None:
            return None
        values = pad(self.units.reduce(self.whole), (len(self.Y), rows.Y.shape[1]))
        return self.loop.group.lay_out(values, rows) * rows.missing

    @with_numerics
    def _continue(self, state: State) -> State:
        """Return an earlier result's state, laid out and padded as now."""
        loop, settings = self.loop, self.settings
        n_rows = loop.group.n_rows
        n_clusters = settings.padded_clusters(n_rows)
        S = np.asarray(state.S)
        pseudo_counts = pad(settings.pseudo_counts(n_rows), (n_clusters,))
        return state._replace(
            parameters=self._lay_out(state.parameters),
            S=loop.group.lay_out(pad(S, (len(S), n_clusters)), loop.rows),
            mixture=pad_mixture(state.mixture, n_clusters),
            conjugate=Conjugate(pseudo_counts, state.conjugate.scale),
            jitter=pad(np.full(settings.n_mappings, settings.em.jitter), (settings.n_mappings,)),
            cells=self._cells(),
        )

    def _lay_out(self, parameters: Parameters) -> Parameters:
        """Return parameters with what belongs to this process's rows laid out among all."""

        def laid_out(array: Any) -> Any:
            return self.loop.group.lay_out(np.asarray(array), self.loop.rows)

        log_spread = parameters.log_spread
        return parameters._replace(
            X=laid_out(parameters.X),
            log_spread=None if log_spread is None else laid_out(log_spread),
        )

    def resume(
        self, starts: list[PlannedStart], checkpoint: CheckpointWriter | None
    ) -> tuple[list[PlannedStart], list[Outcome]]:
        """Return the starts, with the seeds they had, and what was made of them before."""
        if checkpoint is None:
            return starts, []
        kernel = self.settings.kernel.for_dimensions(self.n_components)
        template = state_template(
            kernel,
            self.settings.n_mappings,
            variational=self.loop.options.variational,
            cells=self.loop.rows.missing is not None,
        )
        snapshot = checkpoint.load(template)
        if snapshot is None:
            return starts, []
        for outcome in snapshot.outcomes:
            state = outcome.state
            with double_precision():
                S = self.loop.group.lay_out(np.asarray(state.S), self.loop.rows)
                parameters = self._lay_out(state.parameters)
                cells: Any = state.cells
                if cells is not None:
                    cells = self.loop.group.lay_out(np.asarray(cells), self.loop.rows)
            outcome.state = state._replace(parameters=parameters, S=S, cells=cells)
        seeded = [s._replace(seed=seed) for s, seed in zip(starts, snapshot.seeds, strict=True)]
        return seeded, snapshot.outcomes


def learn(
    first: _FirstStates,
    starts: list[PlannedStart],
    outcomes: list[Outcome],
    n_retries: int,
    checkpoint: CheckpointWriter | None,
) -> Learned:
    """Learn from every start and choose a fit, if possible one that has not lost a cluster.

    ``outcomes`` are what was made of the starts before, if anything. The last ``n_retries`` of the
    starts are made only as long as all before them have lost a
    cluster.
    """
    settings, loop = first.settings, first.loop
    n_planned = len(starts) - n_retries
    for number, start in enumerate(starts):
        if number >= n_planned and any(_is_whole(o, settings, loop) for o in outcomes[:number]):
            break
        if number >= len(outcomes):
            kind = start.describe()
            which = f"start {number + 1}" if len(starts) - n_retries > 1 or number else "start"
            announce(f"{which}: {kind['embedding']} and {kind['memberships']}")
            state, notes = first.make(start)
            if number >= n_planned:
                notes = (start.retry_note(), *notes)
            outcomes.append(Outcome(state, bound=float("nan"), converged=False, notes=notes))

        def keep() -> None:
            if checkpoint is not None:
                checkpoint.save(Snapshot([each.seed for each in starts], outcomes))

        run_rounds(
            outcomes[number],
            loop,
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
            "very different sizes and scale them (scale='each'), or raise the jitter (em__jitter) "
            f"above {settings.em.jitter:g}."
        )
    outcomes = [outcomes[i] for i in survivors]
    partitions = [loop.group.own_rows(o.state.S).argmax(axis=1) for o in outcomes]
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


def _sizes(partition: NDArray[np.int64], settings: FitSettings, loop: Loop) -> Floats:
    """Return how many rows of all processes every cluster has."""
    counts = np.bincount(partition, minlength=settings.n_clusters)
    return loop.group.total(counts.astype(np.float64))


def _is_whole(outcome: Outcome, settings: FitSettings, loop: Loop) -> bool:
    """Return whether every cluster has a row."""
    partition = loop.group.own_rows(outcome.state.S).argmax(axis=1)
    return bool(outcome.history) and bool(_sizes(partition, settings, loop).min() > 0)


@with_numerics
def finish(learned: Learned, first: _FirstStates, random_state: np.random.RandomState) -> Result:
    """Make the last E-step and keep what predictions need, the largest cluster first.

    A process by itself remembers all the rows it was trained on. Of several, each keeps to itself
    what it found for its rows, and all remember the same sample of everybody's.
    """
    announce("last E-step")
    state, loop, M = learned.outcome.state, first.loop, first.settings.n_clusters
    group, shared = loop.group, loop.options.shared
    last = last_e_step(state, loop.rows, loop.options)
    # NumPy arrays, which outlive any device and any precision context.
    posterior = jax.tree.map(np.asarray, last.posterior)
    # Sorted by the labels that users will see, so that an empty cluster comes last.
    order = np.lexsort([-np.asarray(last.masses)[:M], -np.asarray(last.sizes)[:M]])

    def sort(leaf: Any) -> Any:
        return np.asarray(leaf)[order]

    def sort_rows(S: Any) -> Any:
        return np.array(group.own_rows(S)[:, order])

    def sort_mappings(tree: Any) -> Any:
        return jax.tree.map(np.asarray if shared else sort, tree)

    X: Any = np.array(group.own_rows(state.parameters.X))
    S, state_S = (sort_rows(a) for a in (last.S, state.S))
    log_spread: Any = state.parameters.log_spread
    if log_spread is not None:
        log_spread = np.array(group.own_rows(log_spread))
    mixture = Mixture(*map(sort, posterior.mixture))
    P = first.Y.shape[1]
    posterior = posterior._replace(
        mappings=posterior.mappings._replace(kernels=sort_mappings(posterior.mappings.kernels)),
        mean_weights=sort_mappings(posterior.mean_weights)[:, :, :P],
        precision_loss=sort_mappings(posterior.precision_loss),
        mixture=mixture,
        groups=None if posterior.groups is None else posterior.groups[:, :P],
    )
    votes = np.ones_like(S) if first.votes is None else first.votes[:, order]
    spread = None if log_spread is None else np.exp(log_spread)
    points, S = answer_alike(first.Y, X, S)
    known: Any = (first.Y, points, S, votes, spread)
    if group.n_processes > 1:
        numbers = sample_numbers(group.n_rows, random_state)
        known = tuple(None if a is None else group.rows_at(a, numbers) for a in known)
    predictor = Predictor(
        first.units,
        posterior,
        known[1],
        known[2],
        make_reference(known[0], known[1], known[3], first.units.scale, random_state),
        sort_mappings(last.A_inverse),
        float(last.jitter),
        1.0 if loop.rows.strength is None else float(loop.rows.strength),
        known[4],
        features_seen(first.Y, group),
    )
    parameters = state.parameters
    state = State(
        parameters._replace(
            X=X, log_kernels=sort_mappings(parameters.log_kernels), log_spread=log_spread
        ),
        state_S,
        Mixture(*map(sort, state.mixture)),
        Conjugate(sort(state.conjugate.pseudo_counts), state.conjugate.scale),
        sort_mappings(state.jitter),
        sort_mappings(state.present),
    )
    return Result(predictor, points, S, sort(last.sizes), learned, state, spread)


def count_components(n_components: Any, units: Units, Y: Floats, group: ProcessGroup) -> int:
    """Return the number of latent dimensions: as given, or enough for that share of variance.

    As in scikit-learn's PCA of the scaled features: the smallest number of principal components
    whose explained variance exceeds the share.
    """
    if isinstance(n_components, Integral):
        return int(n_components)
    squares = _principal_squares(units, Y, group)
    if squares.sum() == 0:
        return 1
    shares = np.cumsum(squares) / squares.sum()
    return min(int(np.searchsorted(shares, n_components, side="right")) + 1, len(shares))


def _principal_squares(units: Units, Y: Floats, group: ProcessGroup) -> Floats:
    """Return the squared singular values of the centred, scaled table of all processes."""
    if group.n_processes == 1 and len(Y) <= _MOST_DECOMPOSED:
        return np.asarray(np.linalg.svd(units.reduce(Y), compute_uv=False) ** 2, np.float64)
    products = np.zeros((Y.shape[1], Y.shape[1]))
    for first in range(0, len(Y), _MOST_DECOMPOSED):
        part = units.reduce(Y[first : first + _MOST_DECOMPOSED])
        products += part.T @ part
    values = np.linalg.eigvalsh(group.total(products))[::-1]
    squares: Floats = np.maximum(values, 0.0)
    return squares
