"""EM as pure steps: ``state, info = em_round(state, rows, limits, options)``.

One round is
1. E-steps: q(F) and q(S), with the mixture's closed forms in between where asked, until S settles
   or their number is up;
2. an M-step: closed forms for π, x̄, C; then SCG or L-BFGS on X, Z, log θ and log β with S and the
   mixture held fixed; then the closed forms again.

Every one of these is an ascent of the same objective, the KL-corrected bound plus the log of the
conjugate prior, so the objective can only rise from round to round.

Latent points are point estimates, or, with ``latent='variational'``, have posteriors
N(x_n, diag σ_n²), as the mixture's parameters then have (:mod:`sgpmic.learning.latent`).

A round is one compiled program: there is no conversation with the host inside it, and neither
another round nor another start of the same shape compiles anything again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec

from sgpmic.compile_cache import compiled, keepable
from sgpmic.kernels import Kernel
from sgpmic.learning.latent import closed_forms, latent_term, log_prior_of, prior_of
from sgpmic.learning.optimisers import lbfgs, scg
from sgpmic.learning.optimisers._trees import is_finite
from sgpmic.learning.optimisers.protocol import OptimiserResult
from sgpmic.learning.options import Limits, Options
from sgpmic.model.bound import (
    Mappings,
    add_latent,
    data_term,
    factorise_all,
    mapping_weights,
    sums,
)
from sgpmic.model.e_step import e_step, expected_cells, responsibilities
from sgpmic.model.gaps import count_groups, with_cells
from sgpmic.model.mixture import (
    Conjugate,
    Mixture,
    log_densities,
    pooled_scatter,
    standardise,
)
from sgpmic.model.prediction import Posterior, make_posterior
from sgpmic.model.row_pass.sums import ROWS
from sgpmic.model.rows import Rows

#: The standard deviations of uncertain latent points at the start, for X of variance 1.
START_SPREAD = 0.3

#: The optimisers by the names that users know.
MINIMISERS: dict[str, Callable[..., OptimiserResult]] = {
    "scg": scg.minimise,
    "lbfgs": lbfgs.minimise,
}


@keepable
class Parameters(NamedTuple):
    """What the optimiser moves."""

    X: Array  # (N, Q)
    Z: Array  # (U, Q)
    log_kernels: Kernel  # logarithms of the stacked kernels' parameters
    log_beta: Array
    log_spread: Array | None = None  # (N, Q) log σ of uncertain latent points

    @property
    def spread(self) -> Array | None:
        """The standard deviations of uncertain latent points."""
        return None if self.log_spread is None else jnp.exp(self.log_spread)


@keepable
class State(NamedTuple):
    """Everything a round starts from and leaves behind."""

    parameters: Parameters
    S: Array  # (N, M)
    mixture: Mixture
    conjugate: Conjugate
    #: (G,) The relative jitter of every mapping's K_uu. Where it has to be raised it stays raised:
    #: a bound with now more and now less jitter would be two functions, and could fall.
    jitter: Array
    #: 1 for each of the kernels' parameters, 0 for a bias or white part that is left out.
    present: Kernel
    cells: Array | None = None  # (N, P) posterior means of missing cells, 0 for observed ones

    @property
    def mappings(self) -> Mappings:
        """The Gaussian processes in their natural parameters."""
        return mappings_of(self.parameters, self.present)


@keepable
class RoundInfo(NamedTuple):
    """What happened in a round."""

    bound_after_e: Array  # objective after the E-steps (and the mixture's closed forms)
    bound: Array  # objective at the end of the round
    prior: Array  # the part of it that is the conjugate prior
    e_steps: Array
    m_steps: Array  # accepted steps of the optimiser
    evaluations: Array
    largest_change: Array  # of a responsibility, over the round
    cluster_sizes: Array  # (M,)
    jitter: Array  # the largest relative jitter
    finite: Array  # whether every number of the new state is


def mappings_of(parameters: Parameters, present: Kernel) -> Mappings:
    """Return the Gaussian processes in their natural parameters."""
    return Mappings(
        jax.tree.map(lambda log, there: there * jnp.exp(log), parameters.log_kernels, present),
        parameters.Z,
        jnp.exp(parameters.log_beta),
    )


class _Settling(NamedTuple):
    made: Array
    change: Array
    S: Array
    mixture: Mixture
    jitter: Array


def settle(
    state: State, rows: Rows, limits: Limits, options: Options, most: Array
) -> tuple[State, Array]:
    """Make the E-steps of a round, ``most`` at most; return the state and their number."""
    mappings, X, spread = state.mappings, state.parameters.X, state.parameters.spread

    def unsettled(carry: _Settling) -> Array:
        return (carry.made < most) & (carry.change > limits.e_tol)

    def once(carry: _Settling) -> _Settling:
        prior = prior_of(carry.mixture, state.conjugate, rows, options)
        S, jitter = e_step(
            mappings,
            prior,
            X,
            carry.S,
            rows,
            shared=options.shared,
            jitter=carry.jitter,
            spread=spread,
        )
        mixture = carry.mixture
        if options.settle_mixture:
            mixture = closed_forms(mixture, X, S, state.conjugate, limits, options, spread)
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
    result: OptimiserResult


def _maximise(state: State, rows: Rows, limits: Limits, options: Options) -> _MStep:
    """Make an M-step."""
    S, conjugate, mixture = state.S, state.conjugate, state.mixture
    X, Z, log_kernels, log_beta, log_spread = state.parameters
    if not options.settle_mixture:  # otherwise the E-steps have left it at its closed forms
        mixture = closed_forms(mixture, X, S, conjugate, limits, options, state.parameters.spread)
    prior = prior_of(mixture, conjugate, rows, options)
    T = mapping_weights(S, rows, shared=options.shared)
    # The optimiser is compiled for one vector, which takes a fraction of the time that an array for
    # each parameter takes; on several devices for two, as those of the rows lie beside their rows.
    small, unpack_small = ravel_pytree((Z, log_kernels, log_beta))
    parts = (X, log_spread), small
    start: Any
    if rows.mesh is None:
        start, unpack = ravel_pytree(parts)
    else:
        start, unpack = parts, lambda parts: parts

    def parameters_at(point: Any) -> Parameters:
        (X, log_spread), small = unpack(point)
        if options.fixes_scale:
            X = standardise(X, rows.flat_weight).X
        return Parameters(X, *unpack_small(small))._replace(log_spread=log_spread)

    def loss(point: Any) -> Array:
        parameters = parameters_at(point)
        X, log_spread = parameters.X, parameters.log_spread
        mappings = mappings_of(parameters, state.present)
        data = data_term(mappings, X, T, rows, state.jitter, parameters.spread)
        return -(data + latent_term(prior, X, log_spread, S, rows, options))

    minimise = MINIMISERS[options.optimizer]
    n_points = jnp.sum(rows.weight).astype(jnp.int32) * X.shape[1]
    result = minimise(
        jax.value_and_grad(loss),
        start,
        max_steps=limits.m_steps,
        dimension=n_points * (1 if log_spread is None else 2) + small.size,
    )
    parameters = parameters_at(result.point)
    X, spread = parameters.X, parameters.spread
    if options.sums_out:  # what the optimiser has put in for S
        S = responsibilities(log_densities(prior, X, spread) + prior.log_weights, rows)
    new_mixture = closed_forms(mixture, X, S, conjugate, limits, options, spread)

    # The optimiser saw the data term and the latent densities: the rest is added here.
    before = add_latent(jnp.zeros(()), prior, X, S, rows, spread)
    old_log_prior = log_prior_of(mixture, prior, conjugate, rows, options)
    if options.sums_out:
        rest, seen = old_log_prior, before.bound
    else:
        rest, seen = before.weights + before.entropy + old_log_prior, before.latent_prior
    new_prior = prior_of(new_mixture, conjugate, rows, options)
    after = add_latent(-result.value - seen, new_prior, X, S, rows, spread)
    log_prior = log_prior_of(new_mixture, new_prior, conjugate, rows, options)
    return _MStep(
        state._replace(parameters=parameters, S=S, mixture=new_mixture),
        rest - result.start_value,
        after.bound + log_prior,
        log_prior,
        result,
    )


@compiled
def em_round(state: State, rows: Rows, limits: Limits, options: Options) -> tuple[State, RoundInfo]:
    """Make one round of EM: E-steps, then an M-step."""
    begun = _update_cells(_in_place(state, rows), rows, options)
    rows = with_cells(rows, begun.cells)
    settled, count = settle(begun, rows, limits, options, limits.e_steps)
    step = _maximise(settled, rows, limits, options)
    new = _in_place(step.state, rows)
    info = RoundInfo(
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


def _update_cells(state: State, rows: Rows, options: Options) -> State:
    """Return the state with the posterior of missing cells that is best for q(F)."""
    if state.cells is None:
        return state
    cells = expected_cells(
        state.mappings,
        state.parameters.X,
        mapping_weights(state.S, rows, shared=options.shared),
        with_cells(rows, state.cells),
        jitter=state.jitter,
        spread=state.parameters.spread,
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
    X, log_spread = state.parameters.X, state.parameters.log_spread
    parameters = placed.parameters._replace(
        X=beside(X), log_spread=None if log_spread is None else beside(log_spread)
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
def first_state(start: StartArrays, rows: Rows, limits: Limits, options: Options) -> State:
    """Return the state that EM starts from.

    X is standardised unless unit covariances fix its scale, and Z, which lives in the same space,
    with it.
    """
    X, Z, S, kernels, beta, pseudo_counts, jitter, cells = start
    weight = rows.flat_weight
    if options.covariance_type != "unit":
        X, mean, scale = standardise(X, weight)
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
    log_spread = spread = None
    if options.variational:  # 0 for padding, as what is laid out anew has it
        log_spread = jnp.full_like(X, math.log(START_SPREAD)) * weight[:, None]
        spread = jnp.exp(log_spread)
    mixture = closed_forms(flat, X, S, conjugate, limits, options, spread)
    present = jax.tree.map(lambda leaf: (leaf > 0).astype(X.dtype), kernels)
    logs = jax.tree.map(lambda leaf: jnp.log(jnp.where(leaf > 0, leaf, 1.0)), kernels)
    # A weakly typed scalar would make the second round a program of its own.
    parameters = Parameters(X, Z, logs, jnp.log(jnp.asarray(beta, X.dtype)), log_spread)
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
def last_e_step(state: State, rows: Rows, options: Options) -> LastEStep:
    """Make one more E-step, for the responsibilities and the posterior that users see."""
    mappings, X, spread = state.mappings, state.parameters.X, state.parameters.spread
    rows = with_cells(rows, state.cells)
    prior = prior_of(state.mixture, state.conjugate, rows, options)
    S, jitter = e_step(
        mappings,
        prior,
        X,
        state.S,
        rows,
        shared=options.shared,
        jitter=state.jitter,
        spread=spread,
    )
    T = mapping_weights(S, rows, shared=options.shared)
    factors = factorise_all(mappings, *sums(mappings, X, T, rows, spread), jitter)
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
