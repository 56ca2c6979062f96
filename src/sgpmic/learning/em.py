"""EM: E-steps, an M-step and the bound, iterated until the bound converges.

:func:`run_em` is the loop, :func:`em_iteration` its body, one compiled program:

1. E-steps: q(F) and q(S), each followed by the closed forms for the mixture (π, x̄, C), until S
   converges or the maximum number of E-steps is reached;
2. an M-step: SCG or L-BFGS on X, Z, log θ and log β with S and the mixture held fixed; then the
   closed forms again.

Each of these increases the same objective, the KL-corrected bound plus the log density of the
conjugate prior, so the objective never decreases.

With ``latent='variational'``, latent points have posteriors N(x_n, diag σ_n²), and so do the
mixture parameters (:mod:`sgpmic.model.mixture`). With a shared mapping, S is then marginalized out
while the optimizer updates X, so that clusters can merge; with a mapping per cluster the data term
depends on S, which is held fixed.

Iterations involve no transfers to or from the host, and starts of the same shapes do not recompile.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec

from sgpmic._runtime import announce
from sgpmic._types import Floats, Ints
from sgpmic.compile_cache import compiled, keepable
from sgpmic.exceptions import FormerNames
from sgpmic.kernels import Kernel
from sgpmic.learning.optimizers import OptimizerResult, is_finite, lbfgs
from sgpmic.learning.preprocessing import Order, Scaler
from sgpmic.learning.scg import scg
from sgpmic.learning.settings import EMOptions, FitSettings
from sgpmic.model import mixture as latent
from sgpmic.model.bound import Mappings, add_latent, data_term, factorize_all, mapping_weights, sums
from sgpmic.model.e_step import e_step, expected_cells, responsibilities, summed_out
from sgpmic.model.prediction import Posterior, make_posterior
from sgpmic.model.row_pass.sums import ROWS
from sgpmic.model.rows import Rows, pad, with_cells
from sgpmic.model.uncertain import entropy_of_points
from sgpmic.process_group import ProcessGroup

#: Initial posterior standard deviation of latent points, for X of variance 1.
START_X_STD = 0.3


@keepable
class Parameters(NamedTuple):
    """The parameters that the optimizer updates."""

    X: Array  # (N, Q)
    Z: Array  # (U, Q)
    log_kernels: Kernel  # log parameters of the stacked kernels
    log_beta: Array
    log_x_std: Array | None = None  # (N, Q) log σ of the latent points, with 'variational'

    @property
    def x_std(self) -> Array | None:
        """Posterior standard deviations of the latent points, with 'variational'."""
        return None if self.log_x_std is None else jnp.exp(self.log_x_std)


@keepable
class State(NamedTuple):
    """State of EM between iterations."""

    parameters: Parameters
    S: Array  # (N, M)
    mixture: latent.Mixture
    conjugate: latent.Conjugate
    #: (G,) Relative jitter of each mapping's K_uu. It is never lowered: the bounds at two jitters
    #: are different functions, and the objective could then decrease.
    jitter: Array
    #: 1 for each kernel parameter in use, 0 for a bias or white term that is left out.
    present: Kernel
    cells: Array | None = None  # (N, P) posterior means of missing cells, 0 for observed ones

    @property
    def mappings(self) -> Mappings:
        """The Gaussian processes in their natural parameters."""
        _, Z, log_kernels, log_beta, _ = self.parameters
        kernels = jax.tree.map(lambda log, there: there * jnp.exp(log), log_kernels, self.present)
        return Mappings(kernels, Z, jnp.exp(log_beta))


def by_row(state: State) -> dict[str, Any]:
    """Return the per-row arrays of a state."""
    X, *_, log_x_std = state.parameters
    arrays = {"X": X, "S": state.S, "log_x_std": log_x_std, "cells": state.cells}
    return {name: array for name, array in arrays.items() if array is not None}


def with_rows(state: State, arrays: Mapping[str, Any]) -> State:
    """Return a state with new per-row arrays, named as in :func:`by_row`."""
    parameters = state.parameters._replace(X=arrays["X"], log_x_std=arrays.get("log_x_std"))
    return state._replace(parameters=parameters, S=arrays["S"], cells=arrays.get("cells"))


class Problem(NamedTuple):
    """Settings and data of a fit."""

    settings: FitSettings
    group: ProcessGroup
    rows: Rows
    cells: Any  # initial values of missing cells, laid out like the rows; None without gaps
    log_volume: float  # log Jacobian that turns the bound of the scaled data into data units
    scaler: Scaler
    order: Order  # of this process's rows and of the features

    def lay_out_memberships(self, S: Any) -> Any:
        """Lay out the memberships of this process's rows, with clusters padded."""
        n_clusters = self.settings.padded_clusters(self.group.n_rows)
        return self.group.lay_out(pad(np.asarray(S), (len(S), n_clusters)), self.rows)


@dataclass
class StartFit:
    """The fit from one start, finished or not."""

    state: State
    bound: float = float("nan")
    converged: bool = False
    history: list[dict[str, float]] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    broke_off: bool = False  # an iteration gave non-finite values; the previous one is kept
    ended: bool = False  # no further iterations
    interrupted: bool = False  # by the user; the last finished iteration is kept


@keepable
class IterationInfo(NamedTuple):
    """Diagnostics of an iteration; ``history_`` has all but the last two."""

    bound_after_e: Array  # objective after the E-steps (and closed forms of the mixture)
    bound: Array  # objective at the end of the iteration
    log_prior: Array  # its conjugate prior term
    e_steps: Array
    m_steps: Array  # accepted steps of the optimizer
    evaluations: Array
    largest_change: Array  # of a responsibility, over the iteration
    jitter: Array  # the largest relative jitter
    cluster_sizes: Array  # (M,)
    finite: Array  # whether all values of the new state are


@dataclass(frozen=True)
class Progress(FormerNames):
    """Progress of a fit, passed to callbacks after every iteration.

    Attributes
    ----------
    start, n_starts : int
        Index of the current start (from 0), and the number of starts.
    iteration, max_iter : int
        Number of the iteration just finished (from 1), and the maximum.
    bound, change : float
        The objective (``lower_bound_``), and its relative change, infinite after the first.
    cluster_sizes : ndarray of shape (n_clusters,)
        Expected number of rows in each cluster.
    seconds : float
        Time since the current start began.
    """

    start: int
    n_starts: int
    iteration: int
    max_iter: int
    bound: float
    change: float
    cluster_sizes: Floats
    seconds: float
    _labels: Callable[[], Ints] = field(repr=False, compare=False)

    _former: ClassVar = {"round": "iteration", "max_rounds": "max_iter"}

    @property
    def labels(self) -> Ints:
        """The most probable cluster of each row, numbered as in ``cluster_sizes``.

        Computed on access, as it copies all memberships. With several processes, each gets the
        labels of its own rows.
        """
        return self._labels()

    def __str__(self) -> str:
        sizes = " ".join(f"{size:.0f}" for size in self.cluster_sizes)
        return (
            f"start {self.start + 1}/{self.n_starts}  iteration {self.iteration}/{self.max_iter}  "
            f"bound {self.bound:.4f}  change {self.change:.1e}  clusters {sizes}  "
            f"{self.seconds:.1f} s"
        )


def run_em(
    fit: StartFit, problem: Problem, *, start: int, n_starts: int, save: Callable[[], None]
) -> None:
    """Iterate EM until the bound converges, updating ``fit`` in place.

    ``start`` (from 0) of ``n_starts`` is for reports; ``save`` is called after every iteration.
    """
    settings, group, rows, _, log_volume, *_ = problem
    max_iter, tol = settings.max_iter, settings.tol
    callbacks: list[Callable[[Progress], object]] = list(settings.em.callbacks)
    callbacks += [partial(print, flush=True)] if settings.verbose else []
    began = time.perf_counter() - (fit.history[-1]["seconds"] if fit.history else 0.0)
    while not fit.ended and len(fit.history) < max_iter:
        number = len(fit.history) + 1
        if number == 1 and start == 0:
            announce("first iteration (compiling may take a while)")
        state, info = em_iteration(fit.state, rows, settings.options)
        bound = float(info.bound) + log_volume
        if not (np.isfinite(bound) and bool(info.finite)):
            fit.broke_off = fit.ended = True
            break
        # Relative to the bound of the scaled data, so that convergence does not depend on units,
        # or to the number of rows if that bound is close to 0.
        change = abs(bound - fit.bound) / max(group.n_rows, abs(bound - log_volume))
        seconds = time.perf_counter() - began
        fit.state, fit.bound = state, bound
        record = {k: np.asarray(v).item() for k, v in list(info._asdict().items())[:-2]}
        record["bound_after_e"] += log_volume
        fit.history.append(
            {"start": start, "iteration": number, **record, "bound": bound, "seconds": seconds}
        )
        progress = Progress(
            start=start,
            n_starts=n_starts,
            iteration=number,
            max_iter=max_iter,
            bound=bound,
            change=float("inf") if np.isnan(change) else change,
            cluster_sizes=np.asarray(info.cluster_sizes)[: settings.n_clusters],
            seconds=seconds,
            _labels=partial(lambda state: group.own_rows(state.S).argmax(axis=1), state),
        )
        # Every callback is called, even if an earlier one asks to stop.
        answers = [callback(progress) for callback in callbacks]
        stop = any(isinstance(a, (bool, np.bool_)) and bool(a) for a in answers)
        fit.converged = tol > 0 and change <= tol
        # If one process stops, all have to, or the others would wait forever.
        asked_to_stop = bool(group.largest(np.array(stop)))
        fit.ended = fit.converged or asked_to_stop or number == max_iter
        save()


@compiled
def em_iteration(state: State, rows: Rows, options: EMOptions) -> tuple[State, IterationInfo]:
    """Run one iteration of EM: E-steps, then an M-step."""
    begun = _in_place(state, rows)
    if begun.cells is not None:  # the optimal posterior of missing cells for q(F)
        cells = expected_cells(
            begun.mappings,
            begun.parameters.X,
            mapping_weights(begun.S, rows, shared=options.shared),
            with_cells(rows, begun.cells),
            jitter=begun.jitter,
            x_std=begun.parameters.x_std,
        )
        begun = begun._replace(cells=cells)
    rows = with_cells(rows, begun.cells)
    settled, count = run_e_steps(begun, rows, options)
    new, bounds, result = _m_step(settled, rows, options)
    new = _in_place(new, rows)
    info = IterationInfo(
        *bounds,
        e_steps=count,
        m_steps=result.accepted,
        evaluations=result.evaluations,
        largest_change=jnp.max(jnp.abs(new.S - state.S)),
        jitter=jnp.max(new.jitter),
        cluster_sizes=jnp.sum(new.S, axis=0),
        finite=is_finite(new),
    )
    return new, info


def run_e_steps(state: State, rows: Rows, options: EMOptions) -> tuple[State, Array]:
    """Run the E-steps of an iteration; return the state and their number."""

    # Carry: the number of E-steps, the last one's largest change of S, and S, mixture, jitter.
    def unsettled(carry: tuple[Any, ...]) -> Array:
        made, change, *_ = carry
        return (made < options.e_steps) & (change > options.e_tol)

    def once(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        made, _, before, mixture, jitter = carry
        new = _e_step(state._replace(S=before, mixture=mixture, jitter=jitter), rows, options)
        # With the mixture updated in between, assignments settle in the latent space first.
        mixture = closed_forms(new, options)
        return made + 1, jnp.max(jnp.abs(new.S - before)), new.S, mixture, new.jitter

    none, infinite = jnp.zeros((), jnp.int32), jnp.asarray(jnp.inf, state.S.dtype)
    start = (none, infinite, state.S, state.mixture, state.jitter)
    made, _, S, mixture, jitter = lax.while_loop(unsettled, once, start)
    return state._replace(S=S, mixture=mixture, jitter=jitter), made


def _e_step(state: State, rows: Rows, options: EMOptions) -> State:
    S, jitter = e_step(
        state.mappings,
        prior_of(state, rows, options),
        state.parameters.X,
        state.S,
        rows,
        shared=options.shared,
        jitter=state.jitter,
        x_std=state.parameters.x_std,
    )
    return state._replace(S=S, jitter=jitter)


def _m_step(
    state: State, rows: Rows, options: EMOptions
) -> tuple[State, tuple[Array, Array, Array], OptimizerResult]:
    """Run an M-step.

    Returns the new state; the objective before and after, and its new log prior term; and the
    optimizer's result.
    """
    X, Z, log_kernels, log_beta, log_x_std = state.parameters
    S, prior = state.S, prior_of(state, rows, options)
    T = mapping_weights(S, rows, shared=options.shared)
    # One flat vector compiles in a fraction of the time that separate arrays take; on several
    # devices there are two, because per-row parameters are sharded with their rows.
    small, unpack_small = ravel_pytree((Z, log_kernels, log_beta))
    parts = (X, log_x_std), small
    start: Any
    if rows.mesh is None:
        start, unpack = ravel_pytree(parts)
    else:
        start, unpack = parts, lambda parts: parts

    def parameters_at(point: Any) -> Parameters:
        (X, log_x_std), small = unpack(point)
        # Unless unit covariances, or the priors of 'variational', fix the scale of X already.
        if options.covariance_type != "unit" and not options.variational:
            X = latent.standardize(X, rows.flat_weight)[0]
        return Parameters(X, *unpack_small(small))._replace(log_x_std=log_x_std)

    def loss(point: Any) -> Array:
        parameters = parameters_at(point)
        mappings = state._replace(parameters=parameters).mappings
        data = data_term(mappings, parameters.X, T, rows, state.jitter, parameters.x_std)
        return -(data + latent_term(prior, parameters, S, rows, options))

    minimize = {"lbfgs": lbfgs, "scg": scg}[options.optimizer]
    n_points = jnp.sum(rows.weight).astype(jnp.int32) * X.shape[1]
    result = minimize(
        jax.value_and_grad(loss),
        start,
        max_steps=options.m_steps,
        dimension=n_points * (1 if log_x_std is None else 2) + small.size,
    )
    parameters = parameters_at(result.point)
    X, x_std = parameters.X, parameters.x_std
    if options.sums_out:  # the S implied by the marginalized objective
        S = responsibilities(latent.log_densities(prior, X, x_std) + prior.log_weights, rows)
    new = state._replace(parameters=parameters, S=S)
    new = new._replace(mixture=closed_forms(new, options))

    # The optimizer's objective has the data term and the latent densities; add the rest.
    before = add_latent(jnp.zeros(()), prior, X, S, rows, x_std)
    rest, seen = log_prior_of(state, prior, rows, options), before.bound
    if not options.sums_out:
        rest, seen = before.weights + before.entropy + rest, before.latent_prior
    prior = prior_of(new, rows, options)
    after = add_latent(-result.value - seen, prior, X, S, rows, x_std)
    log_prior = log_prior_of(new, prior, rows, options)
    return new, (rest - result.start_value, after.bound + log_prior, log_prior), result


def prior_of(state: State, rows: Rows, options: EMOptions) -> latent.LatentPrior:
    """Return the factorized mixture, or its expectations under the parameters' posteriors."""
    if not options.variational:
        return latent.factor_mixture(state.mixture)
    n_rows, kind = jnp.sum(rows.weight), options.covariance_type
    return latent.expected_prior(state.mixture, state.conjugate, n_rows, kind=kind)


def log_prior_of(state: State, prior: latent.LatentPrior, rows: Rows, options: EMOptions) -> Array:
    """Return the log density of the conjugate prior, or minus the KL divergence from it."""
    if options.variational:
        n_rows, kind = jnp.sum(rows.weight), options.covariance_type
        return -latent.divergence(state.mixture, state.conjugate, n_rows, kind=kind)
    if not options.has_prior:
        return jnp.zeros((), state.mixture.means.dtype)
    return latent.log_conjugate(state.mixture, state.conjugate, prior)


def closed_forms(state: State, options: EMOptions) -> latent.Mixture:
    """Return the optimal mixture, or the posterior of its parameters, given X and S."""
    X, x_std, kind = state.parameters.X, state.parameters.x_std, options.covariance_type
    if x_std is not None:
        return latent.update_posterior(X, x_std, state.S, state.conjugate, kind=kind)
    floor = options.covariance_floor
    return latent.update_mixture(state.mixture, X, state.S, state.conjugate, kind=kind, floor=floor)


def latent_term(
    prior: latent.LatentPrior, parameters: Parameters, S: Array, rows: Rows, options: EMOptions
) -> Array:
    """Return the terms of the bound's second line that are in the optimizer's objective."""
    X, *_, log_x_std = parameters
    if log_x_std is None:
        return latent.weighted_sum(S, latent.log_densities(prior, X))
    entropy = entropy_of_points(log_x_std, rows.flat_weight)
    densities = latent.log_densities(prior, X, jnp.exp(log_x_std))
    if not options.sums_out:
        return latent.weighted_sum(S, densities) + entropy
    return jnp.sum(summed_out(densities + prior.log_weights, rows)) + entropy


def _in_place(state: State, rows: Rows) -> State:
    """Constrain the sharding: per-row arrays along the rows, all others replicated."""
    mesh = rows.mesh
    if mesh is None:
        return state

    def placed(tree: Any, *axes: str) -> Any:
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.tree.map(partial(lax.with_sharding_constraint, shardings=sharding), tree)

    return with_rows(placed(state), placed(by_row(state), ROWS))


@compiled
def first_state(
    rows: Rows,
    options: EMOptions,
    *,
    X: Array,
    Z: Array,
    S: Array,
    kernels: Kernel,
    beta: Array,
    pseudo_counts: Array,
    jitter: Array,
    cells: Array | None = None,
) -> State:
    """Return the initial state of EM.

    X and Z are standardized, unless unit covariances fix the scale of X. Kernels are stacked;
    ``cells`` (N, P) are initial values of missing cells; padding clusters have no pseudo-counts.
    """
    weight = rows.flat_weight
    if options.covariance_type != "unit":
        X, mean, scale = latent.standardize(X, weight)
        Z = (Z - mean) / scale
    M, Q = S.shape[1], X.shape[1]
    eye = jnp.eye(Q, dtype=X.dtype)
    # From hard assignments: fuzzy memberships would make it so broad that clusters merge.
    first_choice = jax.nn.one_hot(jnp.argmax(S, axis=1), M, dtype=X.dtype) * weight[:, None]
    omega = latent.pooled_scatter(X, first_choice) + options.covariance_floor * eye
    equal, zeros = jnp.full(M, 1.0 / M, X.dtype), jnp.zeros((M, Q), X.dtype)
    flat = latent.Mixture(equal, zeros, jnp.broadcast_to(eye, (M, Q, Q)))
    log_x_std = None
    if options.variational:  # 0 for padding, as in arrays that are laid out again
        log_x_std = jnp.full_like(X, math.log(START_X_STD)) * weight[:, None]
    present = jax.tree.map(lambda leaf: (leaf > 0).astype(X.dtype), kernels)
    logs = jax.tree.map(lambda leaf: jnp.log(jnp.where(leaf > 0, leaf, 1.0)), kernels)
    # A weakly typed scalar would make the second iteration recompile.
    parameters = Parameters(X, Z, logs, jnp.log(jnp.asarray(beta, X.dtype)), log_x_std)
    n_mappings = jax.tree.leaves(kernels)[0].shape[0]
    conjugate = latent.Conjugate(pseudo_counts, omega)
    jitters = jnp.full(n_mappings, jitter, X.dtype)
    state = State(parameters, S, flat, conjugate, jitters, present, cells)
    return _in_place(state._replace(mixture=closed_forms(state, options)), rows)


@keepable
class LastEStep(NamedTuple):
    """Result of the last E-step."""

    S: Array  # (N, M)
    posterior: Posterior
    A_inverse: Array  # (G, U, U), or (G, C, U, U) with C groups of features
    jitter: Array  # the largest relative jitter
    masses: Array  # (M,) sums of the responsibilities


@compiled
def last_e_step(state: State, rows: Rows, options: EMOptions) -> LastEStep:
    """Run a final E-step for the reported responsibilities and posterior."""
    rows = with_cells(rows, state.cells)
    state = _e_step(state, rows, options)
    mappings, S, X, x_std = state.mappings, state.S, state.parameters.X, state.parameters.x_std
    T = mapping_weights(S, rows, shared=options.shared)
    factors = factorize_all(mappings, *sums(mappings, X, T, rows, x_std), state.jitter)
    inverses = jnp.einsum("gvu,gvw->guw", factors.R_inverse, factors.R_inverse)
    if rows.groups is not None:
        inverses = inverses.reshape(-1, rows.n_groups, *inverses.shape[1:])
    return LastEStep(
        S,
        make_posterior(mappings, factors, state.mixture, rows),
        inverses,
        jnp.max(factors.jitter),
        jnp.sum(S, axis=0),
    )
