"""EM: E-steps, an M-step and the bound, iterated until the bound settles.

:func:`run_em` is the loop; :func:`em_iteration` is what it repeats, one compiled program:

1. E-steps: q(F) and q(S), with the mixture's closed forms in between where asked, until S settles
   or their number is up;
2. an M-step: closed forms for π, x̄, C; then SCG or L-BFGS on X, Z, log θ and log β with S and the
   mixture held fixed; then the closed forms again.

Every one of these is an ascent of the same objective, the KL-corrected bound plus the log of the
conjugate prior, so the objective can only rise from iteration to iteration.

Latent points are point estimates, or, with ``latent='variational'``, have posteriors
N(x_n, diag σ_n²), as the mixture's parameters then have (:mod:`sgpmic.model.mixture_posterior`).
With one shared mapping S is then summed out while the optimizer moves X, so that clusters can
merge; with a mapping for each cluster the data term depends on S, which is held fixed.

There is no conversation with the host inside an iteration, and neither another iteration nor
another start of the same shape compiles anything again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec

from sgpmic._types import Ints
from sgpmic.compile_cache import compiled, keepable
from sgpmic.kernels import Kernel
from sgpmic.learning.optimizers import OptimizerResult, is_finite, lbfgs, scg
from sgpmic.learning.progress import Progress, announce, print_progress
from sgpmic.learning.settings import FitSettings
from sgpmic.learning.state import (
    EMLimits,
    EMOptions,
    Parameters,
    StartFit,
    State,
    mappings_of,
)
from sgpmic.model.bound import (
    add_latent,
    data_term,
    factorize_all,
    mapping_weights,
    sums,
)
from sgpmic.model.e_step import e_step, expected_cells, responsibilities, summed_out
from sgpmic.model.gaps import count_groups, with_cells
from sgpmic.model.mixture import (
    Conjugate,
    LatentPrior,
    Mixture,
    factor_mixture,
    log_conjugate,
    log_densities,
    pooled_scatter,
    standardize,
    update_mixture,
    weighted_sum,
)
from sgpmic.model.mixture_posterior import divergence, expected_prior, update_posterior
from sgpmic.model.prediction import Posterior, make_posterior
from sgpmic.model.row_pass.sums import ROWS
from sgpmic.model.rows import Rows
from sgpmic.model.uncertain import entropy_of_points
from sgpmic.process_group import ProcessGroup

#: The standard deviations of uncertain latent points at the start, for X of variance 1.
START_X_STD = 0.3

#: The optimizers by the names that users know.
MINIMIZERS: dict[str, Callable[..., OptimizerResult]] = {
    "scg": scg.minimize,
    "lbfgs": lbfgs.minimize,
}


@keepable
class IterationInfo(NamedTuple):
    """What happened in an iteration."""

    bound_after_e: Array  # objective after the E-steps (and the mixture's closed forms)
    bound: Array  # objective at the end of the iteration
    prior: Array  # the part of it that is the conjugate prior
    e_steps: Array
    m_steps: Array  # accepted steps of the optimizer
    evaluations: Array
    largest_change: Array  # of a responsibility, over the iteration
    cluster_sizes: Array  # (M,)
    jitter: Array  # the largest relative jitter
    finite: Array  # whether every number of the new state is


def run_em(
    fit: StartFit,
    rows: Rows,
    limits: EMLimits,
    settings: FitSettings,
    group: ProcessGroup,
    *,
    start: int,
    n_starts: int,
    log_volume: float,
    save: Callable[[], None],
) -> None:
    """Iterate EM until the bound settles, updating ``fit`` in place.

    It is ``start`` (from 0) of ``n_starts``. ``log_volume`` is added to the bound of the scaled
    data, which is then in the units of the data. ``save`` is called after every iteration.
    """
    max_iter, tol = int(settings.max_iter), float(settings.tol)
    callbacks = [*settings.em.callbacks, *([print_progress] if settings.verbose else [])]
    began = time.perf_counter() - (fit.history[-1]["seconds"] if fit.history else 0.0)
    while not fit.ended and len(fit.history) < max_iter:
        number = len(fit.history) + 1
        if number == 1 and start == 0:
            announce("first round (compiling may take a while)")
        state, info = em_iteration(fit.state, rows, limits, settings.options)
        bound = float(info.bound) + log_volume
        if not (np.isfinite(bound) and bool(info.finite)):
            fit.broke_off = fit.ended = True
            break
        # Relative to the bound of the scaled data, so that units do not decide when to stop; and
        # to the number of rows where that bound is close to 0.
        change = abs(bound - fit.bound) / max(group.n_rows, abs(bound - log_volume))
        seconds = time.perf_counter() - began
        fit.state, fit.bound = state, bound
        fit.history.append(_record(info, number, start, log_volume) | {"seconds": seconds})
        progress = Progress(
            start=start,
            n_starts=n_starts,
            round=number,
            max_rounds=max_iter,
            bound=bound,
            change=float("inf") if np.isnan(change) else change,
            cluster_sizes=np.asarray(info.cluster_sizes)[: settings.n_clusters],
            seconds=seconds,
            _labels=partial(_labels, state, group),
        )
        # All callbacks are told, also when an earlier one asks to stop.
        answers = [callback(progress) for callback in callbacks]
        stop = any(isinstance(a, (bool, np.bool_)) and bool(a) for a in answers)
        fit.converged = tol > 0 and change <= tol
        # What one process is asked to do all have to, or the others would wait for ever.
        asked_to_stop = bool(group.largest(np.array(stop)))
        fit.ended = fit.converged or asked_to_stop or number == max_iter
        save()


def _labels(state: State, group: ProcessGroup) -> Ints:
    return group.own_rows(state.S).argmax(axis=1)


def _record(info: IterationInfo, number: int, start: int, log_volume: float) -> dict[str, float]:
    """Return an iteration's entries in ``history_``."""
    return {
        "start": start,
        "round": number,
        "bound_after_e": float(info.bound_after_e) + log_volume,
        "bound": float(info.bound) + log_volume,
        "log_prior": float(info.prior),
        "e_steps": int(info.e_steps),
        "m_steps": int(info.m_steps),
        "evaluations": int(info.evaluations),
        "largest_change": float(info.largest_change),
        "jitter": float(info.jitter),
    }


@compiled
def em_iteration(
    state: State, rows: Rows, limits: EMLimits, options: EMOptions
) -> tuple[State, IterationInfo]:
    """Make one iteration of EM: E-steps, then an M-step."""
    begun = _update_cells(_in_place(state, rows), rows, options)
    rows = with_cells(rows, begun.cells)
    settled, count = run_e_steps(begun, rows, limits, options)
    step = _m_step(settled, rows, limits, options)
    new = _in_place(step.state, rows)
    info = IterationInfo(
        bound_after_e=step.bound_before,
        bound=step.bound,
        prior=step.log_prior,
        e_steps=count,
        m_steps=step.result.accepted,
        evaluations=step.result.evaluations,
        largest_change=jnp.max(jnp.abs(new.S - state.S)),
        cluster_sizes=jnp.sum(new.S, axis=0),
        jitter=jnp.max(new.jitter),
        finite=is_finite(new),
    )
    return new, info


class _Settling(NamedTuple):
    made: Array
    change: Array
    S: Array
    mixture: Mixture
    jitter: Array


def run_e_steps(
    state: State, rows: Rows, limits: EMLimits, options: EMOptions
) -> tuple[State, Array]:
    """Make the E-steps of an iteration; return the state and their number."""
    mappings, X, x_std = state.mappings, state.parameters.X, state.parameters.x_std

    def unsettled(carry: _Settling) -> Array:
        return (carry.made < limits.e_steps) & (carry.change > limits.e_tol)

    def once(carry: _Settling) -> _Settling:
        prior = prior_of(carry.mixture, state.conjugate, rows, options)
        shared, jitter = options.shared, carry.jitter
        S, jitter = e_step(
            mappings, prior, X, carry.S, rows, shared=shared, jitter=jitter, x_std=x_std
        )
        mixture = carry.mixture
        if options.settle_mixture:
            mixture = closed_forms(mixture, X, S, state.conjugate, limits, options, x_std)
        return _Settling(carry.made + 1, jnp.max(jnp.abs(S - carry.S)), S, mixture, jitter)

    start = _Settling(
        jnp.zeros((), jnp.int32),
        jnp.asarray(jnp.inf, X.dtype),
        state.S,
        state.mixture,
        state.jitter,
    )
    end: _Settling = lax.while_loop(unsettled, once, start)
    return state._replace(S=end.S, mixture=end.mixture, jitter=end.jitter), end.made


class _MStep(NamedTuple):
    state: State
    bound_before: Array
    bound: Array
    log_prior: Array
    result: OptimizerResult


def _m_step(state: State, rows: Rows, limits: EMLimits, options: EMOptions) -> _MStep:
    """Make an M-step."""
    S, conjugate, mixture = state.S, state.conjugate, state.mixture
    X, Z, log_kernels, log_beta, log_x_std = state.parameters
    if not options.settle_mixture:  # otherwise the E-steps have left it at its closed forms
        mixture = closed_forms(mixture, X, S, conjugate, limits, options, state.parameters.x_std)
    prior = prior_of(mixture, conjugate, rows, options)
    T = mapping_weights(S, rows, shared=options.shared)
    # The optimizer is compiled for one vector, which takes a fraction of the time that an array for
    # each parameter takes; on several devices for two, as those of the rows lie beside their rows.
    small, unpack_small = ravel_pytree((Z, log_kernels, log_beta))
    parts = (X, log_x_std), small
    start: Any
    if rows.mesh is None:
        start, unpack = ravel_pytree(parts)
    else:
        start, unpack = parts, lambda parts: parts

    def parameters_at(point: Any) -> Parameters:
        (X, log_x_std), small = unpack(point)
        if options.fixes_scale:
            X = standardize(X, rows.flat_weight).X
        return Parameters(X, *unpack_small(small))._replace(log_x_std=log_x_std)

    def loss(point: Any) -> Array:
        parameters = parameters_at(point)
        X, log_x_std = parameters.X, parameters.log_x_std
        mappings = mappings_of(parameters, state.present)
        data = data_term(mappings, X, T, rows, state.jitter, parameters.x_std)
        return -(data + latent_term(prior, X, log_x_std, S, rows, options))

    minimize = MINIMIZERS[options.optimizer]
    n_points = jnp.sum(rows.weight).astype(jnp.int32) * X.shape[1]
    result = minimize(
        jax.value_and_grad(loss),
        start,
        max_steps=limits.m_steps,
        dimension=n_points * (1 if log_x_std is None else 2) + small.size,
    )
    parameters = parameters_at(result.point)
    X, x_std = parameters.X, parameters.x_std
    if options.sums_out:  # what the optimizer has put in for S
        S = responsibilities(log_densities(prior, X, x_std) + prior.log_weights, rows)
    new_mixture = closed_forms(mixture, X, S, conjugate, limits, options, x_std)

    # The optimizer saw the data term and the latent densities: the rest is added here.
    before = add_latent(jnp.zeros(()), prior, X, S, rows, x_std)
    old_log_prior = log_prior_of(mixture, prior, conjugate, rows, options)
    if options.sums_out:
        rest, seen = old_log_prior, before.bound
    else:
        rest, seen = before.weights + before.entropy + old_log_prior, before.latent_prior
    new_prior = prior_of(new_mixture, conjugate, rows, options)
    after = add_latent(-result.value - seen, new_prior, X, S, rows, x_std)
    log_prior = log_prior_of(new_mixture, new_prior, conjugate, rows, options)
    return _MStep(
        state._replace(parameters=parameters, S=S, mixture=new_mixture),
        rest - result.start_value,
        after.bound + log_prior,
        log_prior,
        result,
    )


def prior_of(mixture: Mixture, conjugate: Conjugate, rows: Rows, options: EMOptions) -> LatentPrior:
    """Return the factorized mixture, or expectations under the posteriors of its parameters."""
    if not options.variational:
        return factor_mixture(mixture)
    return expected_prior(mixture, conjugate, jnp.sum(rows.weight), kind=options.covariance_type)


def log_prior_of(
    mixture: Mixture, prior: LatentPrior, conjugate: Conjugate, rows: Rows, options: EMOptions
) -> Array:
    """Return the log density of the conjugate prior, or minus the divergence from it."""
    if options.variational:
        n_rows = jnp.sum(rows.weight)
        return -divergence(mixture, conjugate, n_rows, kind=options.covariance_type)
    if not options.has_prior:
        return jnp.zeros((), mixture.means.dtype)
    return log_conjugate(mixture, conjugate, prior)


def closed_forms(
    mixture: Mixture,
    X: Array,
    S: Array,
    conjugate: Conjugate,
    limits: EMLimits,
    options: EMOptions,
    x_std: Array | None = None,
) -> Mixture:
    """Return the optimal mixture, or posterior of its parameters, for X and S."""
    if x_std is not None:
        return update_posterior(X, x_std, S, conjugate, kind=options.covariance_type)
    return update_mixture(
        mixture, X, S, conjugate, kind=options.covariance_type, floor=limits.covariance_floor
    )


def latent_term(
    prior: LatentPrior, X: Array, log_x_std: Array | None, S: Array, rows: Rows, options: EMOptions
) -> Array:
    """Return the part of the bound's second line that the optimizer sees."""
    if log_x_std is None:
        return weighted_sum(S, log_densities(prior, X))
    entropy = entropy_of_points(log_x_std, rows.flat_weight)
    densities = log_densities(prior, X, jnp.exp(log_x_std))
    if not options.sums_out:
        return weighted_sum(S, densities) + entropy
    return jnp.sum(summed_out(densities + prior.log_weights, rows)) + entropy


def _update_cells(state: State, rows: Rows, options: EMOptions) -> State:
    """Return the state with the optimal posterior of missing cells for q(F)."""
    if state.cells is None:
        return state
    cells = expected_cells(
        state.mappings,
        state.parameters.X,
        mapping_weights(state.S, rows, shared=options.shared),
        with_cells(rows, state.cells),
        jitter=state.jitter,
        x_std=state.parameters.x_std,
    )
    return state._replace(cells=cells)


def _in_place(state: State, rows: Rows) -> State:
    """Return the state with X and S beside their rows and the rest on every device."""
    if rows.mesh is None:
        return state
    beside_rows = NamedSharding(rows.mesh, PartitionSpec(ROWS))
    everywhere = NamedSharding(rows.mesh, PartitionSpec())
    placed: State = jax.tree.map(partial(lax.with_sharding_constraint, shardings=everywhere), state)
    beside = partial(lax.with_sharding_constraint, shardings=beside_rows)
    X, log_x_std = state.parameters.X, state.parameters.log_x_std
    parameters = placed.parameters._replace(
        X=beside(X), log_x_std=None if log_x_std is None else beside(log_x_std)
    )
    cells = None if state.cells is None else beside(state.cells)
    return placed._replace(parameters=parameters, S=beside(state.S), cells=cells)


class StartArrays(NamedTuple):
    """What :func:`first_state` starts from, laid out and padded."""

    X: Array  # (N, Q)
    Z: Array  # (U, Q)
    S: Array  # (N, M)
    kernels: Kernel  # stacked
    beta: Array
    pseudo_counts: Array  # (M,), 0 for padding
    jitter: Array
    cells: Array | None = None  # (N, P) first values of missing cells


@compiled
def first_state(start: StartArrays, rows: Rows, limits: EMLimits, options: EMOptions) -> State:
    """Return the state that EM starts from; X is standardized, and Z with it.

    Not where unit covariances fix the scale of X.
    """
    X, Z, S, kernels, beta, pseudo_counts, jitter, cells = start
    weight = rows.flat_weight
    if options.covariance_type != "unit":
        X, mean, scale = standardize(X, weight)
        Z = (Z - mean) / scale
    M, Q = S.shape[1], X.shape[1]
    eye = jnp.eye(Q, dtype=X.dtype)
    # From the rows' first choices: fuzzy memberships would make it so broad that clusters merge.
    first_choice = jax.nn.one_hot(jnp.argmax(S, axis=1), M, dtype=X.dtype) * weight[:, None]
    omega = pooled_scatter(X, first_choice) + limits.covariance_floor * eye
    conjugate = Conjugate(pseudo_counts, omega)
    flat = Mixture(
        jnp.full(M, 1.0 / M, X.dtype),
        jnp.zeros((M, Q), X.dtype),
        jnp.broadcast_to(eye, (M, Q, Q)),
    )
    log_x_std = x_std = None
    if options.variational:  # 0 for padding, as what is laid out anew has it
        log_x_std = jnp.full_like(X, math.log(START_X_STD)) * weight[:, None]
        x_std = jnp.exp(log_x_std)
    mixture = closed_forms(flat, X, S, conjugate, limits, options, x_std)
    present = jax.tree.map(lambda leaf: (leaf > 0).astype(X.dtype), kernels)
    logs = jax.tree.map(lambda leaf: jnp.log(jnp.where(leaf > 0, leaf, 1.0)), kernels)
    # A weakly typed scalar would make the second iteration a program of its own.
    parameters = Parameters(X, Z, logs, jnp.log(jnp.asarray(beta, X.dtype)), log_x_std)
    n_mappings = jax.tree.leaves(kernels)[0].shape[0]
    jitters = jnp.full(n_mappings, jitter, X.dtype)
    return _in_place(State(parameters, S, mixture, conjugate, jitters, present, cells), rows)


@keepable
class LastEStep(NamedTuple):
    """What is left of learning."""

    S: Array  # (N, M)
    posterior: Posterior
    A_inverse: Array  # (G, U, U), or (G, C, U, U) of C groups of features
    jitter: Array  # the largest relative jitter it needed
    sizes: Array  # (M,) rows whose most probable cluster each is
    masses: Array  # (M,) sums of the responsibilities


@compiled
def last_e_step(state: State, rows: Rows, options: EMOptions) -> LastEStep:
    """Make one more E-step, for the responsibilities and the posterior that users see."""
    mappings, X, x_std = state.mappings, state.parameters.X, state.parameters.x_std
    rows = with_cells(rows, state.cells)
    prior = prior_of(state.mixture, state.conjugate, rows, options)
    shared, jitter = options.shared, state.jitter
    S, jitter = e_step(mappings, prior, X, state.S, rows, shared=shared, jitter=jitter, x_std=x_std)
    T = mapping_weights(S, rows, shared=shared)
    factors = factorize_all(mappings, *sums(mappings, X, T, rows, x_std), jitter)
    inverses = jnp.einsum("gvu,gvw->guw", factors.R_inverse, factors.R_inverse)
    if rows.groups is not None:
        inverses = inverses.reshape(-1, count_groups(rows), *inverses.shape[1:])
    # Padding has no memberships: it would count as first choice of cluster 0.
    first_choice = jnp.argmax(S, axis=1)[:, None] == jnp.arange(S.shape[1])
    return LastEStep(
        S,
        make_posterior(mappings, factors, state.mixture, rows),
        inverses,
        jnp.max(factors.jitter),
        jnp.sum(first_choice * rows.flat_weight[:, None], axis=0),
        jnp.sum(S, axis=0),
    )
