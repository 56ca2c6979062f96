"""EM as pure steps: ``state, info = em_round(state, rows, options)``.

One round is
1. E-steps: q(F) and q(S), with the mixture's closed forms in between where asked, until S settles
   or their number is up;
2. an M-step: closed forms for π, x̄, C; then SCG or L-BFGS on X, Z, log θ and log β with S and the
   mixture held fixed; then the closed forms again.

Every one of these is an ascent of the same objective, the KL-corrected bound plus the log of the
conjugate prior, so the objective can only rise from round to round.

A round is one compiled program: there is no conversation with the host inside it, and neither
another round nor another start of the same shape compiles anything again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec

from sgpmic._runtime import compiled
from sgpmic.kernels import Kernel
from sgpmic.learning import lbfgs, scg
from sgpmic.learning._trees import is_finite
from sgpmic.learning.optimisers import OptimiserResult
from sgpmic.model.bound import (
    Mappings,
    data_term,
    factorise_all,
    latent_parts,
    mapping_weights,
)
from sgpmic.model.e_step import e_step
from sgpmic.model.mixture import (
    Conjugate,
    LatentPrior,
    Mixture,
    entropy,
    factor_mixture,
    log_conjugate,
    log_densities,
    pooled_scatter,
    standardise,
    update_mixture,
    weighted_sum,
)
from sgpmic.model.prediction import Posterior, make_posterior
from sgpmic.model.row_pass.sums import ROWS
from sgpmic.model.rows import Rows


@dataclass(frozen=True)
class Options:
    """What is fixed when a round is compiled.

    Attributes
    ----------
    shared : bool
        One mapping for all clusters instead of one for each.
    covariance_type : str
        One of :data:`sgpmic.model.mixture.COVARIANCE_TYPES`.
    covariance_floor : float
        The smallest eigenvalue a latent covariance may have (the overall variance of X is 1).
    optimiser : str
        'scg' or 'lbfgs'.
    m_steps : int
        Iterations of the optimiser in an M-step.
    e_steps : int
        E-steps in a round, at most.
    e_tolerance : float
        E-steps end early when no responsibility changes by more than this.
    settle_mixture : bool
        Whether the mixture's closed forms are applied between the E-steps of a round.
    jitter : float
        Relative jitter on K_uu at the start. Where it has to be raised it stays raised: a bound
        with now more and now less jitter would be two functions, and could fall.
    has_prior : bool
        Whether there is a conjugate prior; without one its terms are not even compiled.
    batch_size : int or None
        Rows in a batch; None makes rounds of full EM
        (:mod:`sgpmic.learning.minibatch` makes the others).
    """

    shared: bool
    covariance_type: str
    covariance_floor: float
    optimiser: str
    m_steps: int
    e_steps: int
    e_tolerance: float
    settle_mixture: bool
    jitter: float
    has_prior: bool = False
    batch_size: int | None = None

    @property
    def fixes_scale(self) -> bool:
        """Whether X is standardised; unit covariances fix the scale of X by themselves."""
        return self.covariance_type != "unit"


class Parameters(NamedTuple):
    """What the optimiser moves."""

    X: Array  # (N, Q)
    Z: Array  # (U, Q)
    log_kernels: Kernel  # logarithms of the stacked kernels' parameters
    log_beta: Array


class State(NamedTuple):
    """Everything a round starts from and leaves behind."""

    parameters: Parameters
    S: Array  # (N, M)
    mixture: Mixture
    conjugate: Conjugate
    jitter: Array  # (G,) the relative jitter of every mapping's K_uu so far


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


def mappings_of(parameters: Parameters) -> Mappings:
    """Return the Gaussian processes in their natural parameters."""
    return Mappings(
        jax.tree.map(jnp.exp, parameters.log_kernels),
        parameters.Z,
        jnp.exp(parameters.log_beta),
    )


def log_prior_of(
    mixture: Mixture, prior: LatentPrior, conjugate: Conjugate, options: Options
) -> Array:
    """Return the log of the conjugate prior, 0 where there is none."""
    if not options.has_prior:
        return jnp.zeros((), mixture.means.dtype)
    return log_conjugate(mixture, conjugate, prior)


class _Settling(NamedTuple):
    made: Array
    change: Array
    S: Array
    mixture: Mixture
    jitter: Array


def settle(state: State, rows: Rows, options: Options, limit: int | Array) -> tuple[State, Array]:
    """Make the E-steps of a round, ``limit`` at most; return the state and their number."""
    mappings = mappings_of(state.parameters)
    X = state.parameters.X

    def unsettled(carry: _Settling) -> Array:
        return (carry.made < limit) & (carry.change > options.e_tolerance)

    def once(carry: _Settling) -> _Settling:
        prior = factor_mixture(carry.mixture)
        S, info = e_step(
            mappings, prior, X, carry.S, rows, shared=options.shared, jitter=carry.jitter
        )
        mixture = carry.mixture
        if options.settle_mixture:
            mixture = closed_forms(mixture, X, S, state.conjugate, options)
        jitter = carry.jitter if options.shared else info["factors"].jitter
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


def closed_forms(
    mixture: Mixture, X: Array, S: Array, conjugate: Conjugate, options: Options
) -> Mixture:
    """Return the mixture that is best for X and S."""
    return update_mixture(
        mixture, X, S, conjugate, kind=options.covariance_type, floor=options.covariance_floor
    )


class _MStep(NamedTuple):
    state: State
    bound_before: Array
    bound: Array
    log_prior: Array
    result: OptimiserResult


def _maximise(state: State, rows: Rows, options: Options) -> _MStep:
    """Make an M-step."""
    mixture = state.mixture
    if not options.settle_mixture:  # otherwise the E-steps have left it at its closed forms
        mixture = closed_forms(mixture, state.parameters.X, state.S, state.conjugate, options)
    prior = factor_mixture(mixture)
    T = mapping_weights(state.S, rows, shared=options.shared)
    # The small parameters travel as one vector: the optimiser is compiled for two arrays, X and
    # the rest, instead of one for each kernel parameter, which takes much less time to compile.
    X, *small = state.parameters
    packed, unpack = ravel_pytree(tuple(small))

    def loss(point: tuple[Array, Array]) -> Array:
        X, packed = point
        if options.fixes_scale:
            X = standardise(X, rows.flat_weight)
        mappings = mappings_of(Parameters(X, *unpack(packed)))
        data = data_term(mappings, X, T, rows, state.jitter)
        return -(data + weighted_sum(state.S, log_densities(prior, X)))

    value_and_grad, start = jax.value_and_grad(loss), (X, packed)
    if options.optimiser == "lbfgs":
        result = lbfgs.minimise(value_and_grad, start, max_steps=options.m_steps)
    else:
        result = scg.minimise(value_and_grad, start, max_steps=options.m_steps)
    X, packed = result.point
    if options.fixes_scale:
        X = standardise(X, rows.flat_weight)
    new_mixture = closed_forms(mixture, X, state.S, state.conjugate, options)

    # The optimiser saw the data term and the latent densities; the rest of the bound is small.
    entropies = entropy(state.S)
    old_rest = entropies + weighted_sum(state.S, prior.log_weights[None, :])
    old_rest = old_rest + log_prior_of(mixture, prior, state.conjugate, options)
    new_prior = factor_mixture(new_mixture)
    latent, weights, _ = latent_parts(new_prior, X, state.S)
    data = -result.value - weighted_sum(state.S, log_densities(prior, X))
    log_prior = log_prior_of(new_mixture, new_prior, state.conjugate, options)
    return _MStep(
        state._replace(parameters=Parameters(X, *unpack(packed)), mixture=new_mixture),
        old_rest - result.start_value,
        data + latent + weights + entropies + log_prior,
        log_prior,
        result,
    )


@compiled(static_argnames="options")
def em_round(state: State, rows: Rows, options: Options) -> tuple[State, RoundInfo]:
    """Make one round of EM: E-steps, then an M-step."""
    settled, count = settle(_in_place(state, rows), rows, options, options.e_steps)
    step = _maximise(settled, rows, options)
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


def _in_place(state: State, rows: Rows) -> State:
    """Return the state with X and S beside their rows and the rest on every device."""
    if rows.mesh is None:
        return state
    beside_rows = NamedSharding(rows.mesh, PartitionSpec(ROWS))
    everywhere = NamedSharding(rows.mesh, PartitionSpec())
    placed: State = jax.tree.map(partial(lax.with_sharding_constraint, shardings=everywhere), state)
    X, S = (lax.with_sharding_constraint(a, beside_rows) for a in (state.parameters.X, state.S))
    return placed._replace(parameters=placed.parameters._replace(X=X), S=S)


@compiled(static_argnames=("options", "strength"))
def first_state(
    X: Array,
    Z: Array,
    kernels: Kernel,
    beta: Array,
    S: Array,
    rows: Rows,
    options: Options,
    strength: float,
) -> State:
    """Return the state that EM starts from.

    Parameters
    ----------
    X, Z, kernels, beta, S
        Start values; X is standardised here where the model fixes its scale, and Z with it.
    strength : float
        Strength of the conjugate prior: its pseudo-counts as a share of the mean cluster size.
    """
    weight = rows.flat_weight
    if options.fixes_scale:
        # The inducing inputs live in the same space: the same shift and the same factor.
        count = jnp.sum(weight)
        mean = jnp.sum(weight[:, None] * X, axis=0) / count
        centred = (X - mean) * weight[:, None]
        scale = jnp.sqrt(jnp.sum(centred**2) / (count * X.shape[1]))
        X, Z = centred / scale, (Z - mean) / scale
    M, Q = S.shape[1], X.shape[1]
    eye = jnp.eye(Q, dtype=X.dtype)
    # From the rows' first choices: fuzzy memberships would make it so broad that clusters merge.
    first_choice = jax.nn.one_hot(jnp.argmax(S, axis=1), M, dtype=X.dtype) * weight[:, None]
    omega = pooled_scatter(X, first_choice) + options.covariance_floor * eye
    conjugate = Conjugate(jnp.sum(weight) / M * strength, omega)
    flat = Mixture(
        jnp.full(M, 1.0 / M, X.dtype),
        jnp.zeros((M, Q), X.dtype),
        jnp.broadcast_to(eye, (M, Q, Q)),
    )
    mixture = closed_forms(flat, X, S, conjugate, options)
    # A weakly typed scalar would make the second round a program of its own.
    log_beta = jnp.log(jnp.asarray(beta, X.dtype))
    parameters = Parameters(X, Z, jax.tree.map(jnp.log, kernels), log_beta)
    n_mappings = jax.tree.leaves(kernels)[0].shape[0]
    jitter = jnp.full(n_mappings, options.jitter, X.dtype)
    return _in_place(State(parameters, S, mixture, conjugate, jitter), rows)


class LastEStep(NamedTuple):
    """What is left of learning."""

    S: Array  # (N, M)
    posterior: Posterior
    A_inverse: Array  # (G, U, U)
    jitter: Array  # the largest relative jitter it needed
    sizes: Array  # (M,) rows whose most probable cluster each is
    masses: Array  # (M,) sums of the responsibilities


@compiled(static_argnames="options")
def last_e_step(state: State, rows: Rows, options: Options) -> LastEStep:
    """Make one more E-step, for the responsibilities and the posterior that users see."""
    mappings = mappings_of(state.parameters)
    prior = factor_mixture(state.mixture)
    X = state.parameters.X
    S, info = e_step(mappings, prior, X, state.S, rows, shared=options.shared, jitter=state.jitter)
    jitter = state.jitter if options.shared else info["factors"].jitter
    T = mapping_weights(S, rows, shared=options.shared)
    factors, _, _ = factorise_all(mappings, X, T, rows, jitter)
    # Padding has no memberships: it would count as first choice of cluster 0.
    first_choice = jnp.argmax(S, axis=1)[:, None] == jnp.arange(S.shape[1])
    return LastEStep(
        S,
        make_posterior(mappings, factors, state.mixture),
        lax.map(lambda R_inverse: R_inverse.T @ R_inverse, factors.R_inverse),
        jnp.max(factors.jitter),
        jnp.sum(first_choice * rows.flat_weight[:, None], axis=0),
        jnp.sum(S, axis=0),
    )
