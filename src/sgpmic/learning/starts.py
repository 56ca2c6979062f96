"""Multiple starts: their kinds, their initial states, and the selection of a fit.

The first start is the one requested; further ones alternate with principal components and fuzzy
c-means. The bound is not a reliable criterion between starts of different kinds, as flexible
mappings with free latent points can explain almost any partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from sgpmic import exceptions
from sgpmic._runtime import announce
from sgpmic._types import Floats, History, Ints
from sgpmic.committee.judge import adjusted_rand
from sgpmic.kernels import stack
from sgpmic.learning import em
from sgpmic.learning.neighbors import interpolate
from sgpmic.learning.preprocessing import AS_GIVEN
from sgpmic.learning.settings import EMOptions, FitSettings
from sgpmic.model.bound import Mappings
from sgpmic.model.rows import MOST_PADDED_ROWS, Rows, make_rows
from sgpmic.process_group import ProcessGroup

if TYPE_CHECKING:
    from sgpmic.committee.dimensions import View
    from sgpmic.committee.voting import Vote
    from sgpmic.storage.checkpoints import Checkpoint

#: With more rows than this, starts are computed from a sample.
MOST_START_ROWS = 20_000


class PlannedStart(NamedTuple):
    """One start: methods for the initial X and S, and its random seed."""

    embedding: Any  # a method's name or an array
    memberships: Any
    seed: int

    def describe(self) -> dict[str, str]:
        """Return the names of the methods, 'given' for arrays."""
        kinds = {"embedding": self.embedding, "memberships": self.memberships}
        return {k: kind if isinstance(kind, str) else "given" for k, kind in kinds.items()}

    def __str__(self) -> str:
        return "{embedding} and {memberships}".format(**self.describe())


def plan_starts(settings: FitSettings, random_state: np.random.RandomState) -> list[PlannedStart]:
    """Return ``n_init`` starts, the requested one first, and then the retries.

    A given array is used in every start. Once all kinds have been used, they repeat with other
    seeds.
    """
    asked = settings.start
    embeddings, memberships = [asked.embedding], [asked.memberships]
    if isinstance(asked.embedding, str):
        embeddings += [e for e in ("isomap", "pca") if e != asked.embedding]
    if isinstance(asked.memberships, str) and asked.memberships != "fcm":
        memberships.append("fcm")
    # Diagonally, so that the first two starts already differ in both respects.
    kinds = [
        (embeddings[(i + j) % len(embeddings)], memberships[i])
        for j in range(len(embeddings))
        for i in range(len(memberships))
    ]
    # With 'variational', clusters may merge: an empty one is a valid result.
    final = len(kinds) == 1 or settings.options.variational
    n_starts = asked.n_init + (0 if final else asked.n_retries)
    # The votes do not depend on a seed. Where clusters overlap, other inducing points would lead to
    # slightly different clusters.
    if settings.committee is not None:
        random_state = np.random.RandomState(0)
    seeds = random_state.randint(np.iinfo(np.int32).max, size=n_starts)
    return [PlannedStart(*kinds[i % len(kinds)], int(seed)) for i, seed in enumerate(seeds)]


@dataclass
class Starts:
    """The planned starts, the fits so far, and their checkpoint."""

    problem: em.Problem
    planned: list[PlannedStart]
    checkpoint: Checkpoint | None
    fits: list[em.StartFit] = field(default_factory=list)

    def resume(self) -> None:
        """Restore seeds and fits from the checkpoint, if it has any."""
        if self.checkpoint is None:
            return
        rows, options, values = _first_arguments(self.problem)
        first = jax.eval_shape(partial(em.first_state.function, options=options), rows, **values)
        no_rows = {name: np.zeros((0, *a.shape[1:])) for name, a in em.by_row(first).items()}
        kept = self.checkpoint.load(em.with_rows(first, no_rows), len(self.planned))
        if kept is None:
            return
        seeds, self.fits = kept
        order = self.problem.order
        self.planned = [s._replace(seed=seed) for s, seed in zip(self.planned, seeds, strict=True)]
        for fit in self.fits:
            fit.state = self._lay_out(fit.state, order.rows, order.features)

    def save(self) -> None:
        """Save the fits with rows in their original order, for any number of processes."""
        group, order, fits = self.problem.group, self.problem.order, self.fits
        if self.checkpoint is None:
            return
        if order is not AS_GIVEN:
            fits = [replace(fit) for fit in fits]
            for fit in fits:
                own = {name: group.own_rows(array) for name, array in em.by_row(fit.state).items()}
                places = order.row_places, order.feature_places
                fit.state = self._lay_out(em.with_rows(fit.state, own), *places)
        self.checkpoint.save([start.seed for start in self.planned], fits)

    def _lay_out(self, state: em.State, order: Any, features: Any) -> em.State:
        """Lay out a state with this process's rows, in another order of rows and features."""

        def laid_out(name: str, array: Any) -> Any:
            own = np.array(array)[order]
            if name == "cells" and not isinstance(features, slice):  # other columns are padding
                own[:, : len(features)] = own[:, features]
            return self.problem.group.lay_out(own, self.problem.rows)

        arrays = em.by_row(state).items()
        return em.with_rows(state, {name: laid_out(name, array) for name, array in arrays})

    def begin(self, start: PlannedStart, Y: Floats, view: View, vote: Vote | None) -> None:
        """Begin a fit from a table, the committee's view of it, and its vote."""
        X, S, mappings, notes = self._values(start, Y, view, vote)
        if len(self.fits) >= self.problem.settings.start.n_init:
            why = f"A cluster ended up empty, so another start was tried ({start})."
            notes = (why, *notes)
        self.fits.append(em.StartFit(_first_state(self.problem, X, S, mappings), notes=notes))

    def _learn(
        self, Y: Floats, X: Floats, S: Floats, mappings: Mappings, votes: Floats | None
    ) -> tuple[Floats, Mappings]:
        """Run EM on a sample of rows; return latent points and mappings, the same in all processes.

        With these, the fit of all rows takes a third fewer iterations and reaches a higher bound.
        """
        settings, group, rows, *_ = self.problem
        announce(f"learning from {len(Y)} rows first")
        few = self.problem._replace(
            settings=replace(settings, em=replace(settings.em, callbacks=()), verbose=False),
            group=ProcessGroup(len(Y), alone=True),
            rows=make_rows(self.problem.scaler.transform(Y)),
            log_volume=0.0,
        )
        if votes is not None:
            prior = few.lay_out_memberships(votes)
            weighted = replace(few.rows, assignment_prior=prior, prior_weight=rows.prior_weight)
            few = few._replace(rows=weighted)
        compile_ahead(few)
        fit = em.StartFit(_first_state(few, X, S, mappings))
        em.run_em(fit, few, start=0, n_starts=1, save=lambda: None)
        learned = few.group.own_rows(fit.state.parameters.X), fit.state.mappings
        return group.agree(jax.tree.map(np.asarray, learned))

    def _values(
        self, start: PlannedStart, Y: Floats, view: View, vote: Vote | None
    ) -> tuple[Floats, Floats, Mappings, tuple[str, ...]]:
        """Return the initial X (n_own, Q), S (n_own, M) and mappings of a start, and notes.

        For large tables, a sample is embedded and clustered, and EM is run on it first; every other
        row gets weighted means over its nearest neighbors in the sample. The result for a row does
        not depend on the number of processes.
        """
        from sgpmic.learning import initialization as make  # heavy imports that reports do not need

        settings, group, *_ = self.problem
        n_clusters, rng = settings.n_clusters, np.random.RandomState(start.seed)
        memberships = start.memberships
        if isinstance(memberships, str) and memberships == "votes":
            memberships = "fcm" if vote is None else vote.shares
        numbers = np.arange(group.n_rows)
        sampled = group.n_rows > MOST_START_ROWS
        if sampled:
            numbers = np.sort(rng.choice(group.n_rows, make.SAMPLED_ROWS, replace=False))

        def of_sample(given: Any) -> Any:
            # A method's name is returned as is; arrays are validated later.
            if isinstance(given, str) or len(given) != group.n_own:
                return given
            return group.rows_at(np.asarray(given, np.float64), numbers)

        sample = group.rows_at(view.rows, numbers)
        if view.scaler.kind == "each":  # one factor for all features changes rounding only
            sample = sample / view.scaler.scale
        X, notes = make.embed(
            sample,
            settings.n_components,
            of_sample(start.embedding),
            n_neighbors=settings.start.n_neighbors,
            pieces=settings.start.pieces,
            random_state=rng,
        )
        deviations = np.ones(X.shape[1])
        if settings.start.unit_variance:
            deviations = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
        X = X / deviations
        S = make.initial_memberships(X, n_clusters, of_sample(memberships), rng)
        n_inducing = min(settings.n_inducing, group.n_rows)
        Z = make.choose_inducing(X, n_inducing, rng)
        # Different CPU models round differently, and all processes need the same initial state.
        X, Z, S = group.agree((X, Z, S))
        mappings = _first_mappings(self.problem, Z)
        if not sampled:
            own = slice(group.first, group.first + group.n_own)
            return X[own], S[own], mappings, notes
        by_name = isinstance(start.embedding, str)
        if by_name and self.problem.rows.n_observed is None:  # there are no gaps
            votes = None if vote is None else group.rows_at(vote.shares, numbers)
            X, mappings = self._learn(group.rows_at(Y, numbers), X, S, mappings, votes)
        sample = view.scaler.transform(group.rows_at(view.rows, numbers))
        offset, scale, *_ = view.scaler
        found = interpolate(
            sample, np.hstack([X, S]), view.rows, make.PLACED_BETWEEN, offset, scale
        )
        X_own, S_own = found[:, : X.shape[1]], found[:, X.shape[1] :]
        if not by_name:
            X_own = np.asarray(start.embedding, np.float64) / deviations
        if not isinstance(memberships, str):
            S_own = make.initial_memberships(X_own, n_clusters, memberships, rng)
        return X_own, S_own, mappings, notes

    def have_all_clusters(self, number: int) -> bool:
        """Return whether any of the first ``number`` fits has no empty cluster."""
        fits = (fit for fit in self.fits[:number] if fit.history)  # others failed at once
        return any(self._partition(fit)[1].min() > 0 for fit in fits)

    def _partition(self, fit: em.StartFit) -> tuple[Ints, Floats]:
        """Return the labels of this process's rows, and the cluster sizes over all processes."""
        labels = self.problem.group.own_rows(fit.state.S).argmax(axis=1)
        return labels, count_labels(labels, self.problem.settings.n_clusters, self.problem.group)

    def select(self) -> tuple[em.StartFit, History, list[dict[str, Any]]]:
        """Select a fit; also return all histories, and descriptions of the starts.

        Labels are numbered by cluster size.
        """
        settings, group, *_, order = self.problem
        # A fit whose first iteration gave non-finite values has no history.
        numbers = [number for number, fit in enumerate(self.fits) if fit.history]
        if not numbers:
            why = (
                "The first EM iteration produced non-finite numbers. Look for features on very "
                "different scales and scale them"
            )
            jitter = f"em__jitter={100 * settings.em.jitter:g}"
            raise ValueError(exceptions.Advice(why, "scale='each'", jitter))
        fits = [self.fits[number] for number in numbers]
        partitions, sizes = zip(*map(self._partition, fits), strict=True)
        agreement = agreements(partitions, settings.n_clusters, group)
        # Fits without empty clusters first, and retries last if they did not help.
        ranks = np.array([number < settings.start.n_init for number in numbers], int)
        ranks[[each.min() > 0 or settings.options.variational for each in sizes]] = 2
        scores = np.where(ranks == ranks.max(), agreement, -np.inf)
        kept = int(np.argmax(scores >= scores.max() - 1e-12))  # the first, even if rounding differs
        records = [record for fit in fits for record in fit.history]
        history = History({name: [record[name] for record in records] for name in records[0]})
        described = []
        for i, (number, fit) in enumerate(zip(numbers, fits, strict=True)):
            by_size = np.argsort(np.argsort(-sizes[i], kind="stable"))
            outcome = {
                "bound": fit.bound,
                "agreement": float(agreement[i]),
                "n_iter": len(fit.history),
                "converged": fit.converged,
                "kept": i == kept,
                "notes": list(fit.notes),
                "labels": by_size[partitions[i]][order.row_places],
            }
            described.append(self.planned[number].describe() | outcome)
        return fits[kept], history, described


def compile_ahead(problem: em.Problem) -> None:
    """Compile the programs of EM in the background, as soon as their arrays' shapes are known."""
    settings, group, rows, *_ = problem
    is_padded = settings.mapping == "shared" and group.n_rows <= MOST_PADDED_ROWS
    if settings.n_clusters == "auto" and is_padded:
        settings = replace(settings, n_clusters=2)  # the same arrays as up to LEAST_CLUSTERS
        problem = problem._replace(settings=settings)
    sizes = settings.n_clusters, settings.n_components
    on_one_cpu = rows.mesh is None and not rows.gpu_memory
    if not on_one_cpu or not all(isinstance(size, Integral) for size in sizes):
        return
    rows, options, values = _first_arguments(problem)
    if not em.first_state.prepare(rows, options, **values):
        return
    state = jax.eval_shape(partial(em.first_state.function, options=options), rows, **values)
    for program in (em.em_iteration, em.last_e_step):
        program.prepare(state, rows, options)


def _first_arguments(problem: em.Problem) -> tuple[Rows, EMOptions, dict[str, Any]]:
    """Return arguments of :func:`sgpmic.learning.em.first_state` with the shapes of X and S."""
    settings, group, rows, *_ = problem
    like = partial(jax.ShapeDtypeStruct, dtype=np.float64)
    X = like((rows.n_padded, settings.n_components))
    S: Any = like((rows.n_padded, settings.padded_clusters(group.n_rows)))
    Z = np.zeros((min(settings.n_inducing, group.n_rows), settings.n_components))
    if settings.takes_votes(group.n_rows):
        rows = replace(rows, assignment_prior=S, prior_weight=np.float64(1.0))
    values = _first_values(problem, X, S, _first_mappings(problem, Z))
    return rows, settings.options, values


def _first_state(problem: em.Problem, X: Floats, S: Floats, mappings: Mappings) -> em.State:
    settings, group, rows, *_ = problem
    laid_out = group.lay_out(X, rows), problem.lay_out_memberships(S)
    return em.first_state(rows, settings.options, **_first_values(problem, *laid_out, mappings))


def _first_values(problem: em.Problem, X: Any, S: Any, mappings: Mappings) -> dict[str, Any]:
    """Return the arguments of :func:`sgpmic.learning.em.first_state`, given laid-out X and S."""
    settings, group, _, cells, *_ = problem
    return mappings._asdict() | {
        "X": X,
        "S": S,
        "pseudo_counts": settings.pseudo_counts(group.n_rows),
        "jitter": np.asarray(settings.em.jitter),
        "cells": cells,
    }


def _first_mappings(problem: em.Problem, Z: Floats) -> Mappings:
    settings, scaler = problem.settings, problem.scaler
    factor = float(scaler.scale[0]) ** -2  # from the units of the data, for a common scale
    if not isinstance(settings.start.kernel_scale, str):
        factor = float(settings.start.kernel_scale) * scaler.mean_variance
    kernel = settings.kernel.for_dimensions(settings.n_components)
    sizes = {name: getattr(kernel, name) * factor for name in ("variance", "bias", "white")}
    kernels = stack([replace(kernel, **sizes)] * settings.n_mappings)
    # NumPy arrays are not committed to a device. The paper's initial precision is
    # β = (½ √mean(var(Y)))⁻².
    arrays: Any = np.asarray(Z), np.asarray(4.0 / scaler.mean_variance)
    return Mappings(kernels, *arrays)


def count_labels(labels: Ints, n_clusters: int, group: ProcessGroup) -> Floats:
    """Return the number of rows with each label, over all processes."""
    return group.total(np.bincount(labels, minlength=n_clusters).astype(np.float64))


def agreements(partitions: Sequence[Ints], k: int, group: ProcessGroup) -> Floats:
    """Return the mean adjusted Rand index of each partition with the others (1 if only one)."""
    n = len(partitions)
    if n == 1:
        return np.ones(1)
    # From contingency tables, which add up over processes; scikit-learn's function needs labels.
    pairs = [np.bincount(i * k + j, minlength=k**2) for i, j in product(partitions, repeat=2)]
    common = np.reshape(pairs, (n, n, k, k)).swapaxes(1, 2).astype(np.float64)
    table = adjusted_rand(group.total(common), group.n_rows)
    np.fill_diagonal(table, 0.0)
    return table.sum(axis=1) / (n - 1)


def explain_choice(starts: Sequence[dict[str, Any]]) -> str:
    """Return a sentence on why one of ``SGPMIC.starts_`` was selected; '' if only one."""
    if len(starts) < 2:
        return ""
    number, kept = next((i, start) for i, start in enumerate(starts, 1) if start["kept"])
    return (
        f"Kept: start {number} of {len(starts)} ({kept['embedding']} and {kept['memberships']}), "
        "whose clusters agree best with those of the others (mean adjusted Rand index "
        f"{kept['agreement']:.2f}); fits without empty clusters come first."
    )
