r"""EM in batches of rows, for tables where passes over all rows are too slow.

An iteration is an epoch: every row is visited once, in batches drawn at random. What the rows share
is learned many times an epoch instead of once; what belongs to a row is found by itself.

Given q(F), rows are independent. It comes from running sums Φ and Ψ, the same two small matrices
that full EM makes in a pass over all rows. For every batch:

1. **X and S of its rows**, by maximizing for each row

   .. math:: \log \sum_m \exp\left[\langle\log p(y_n|f_m(x_n))\rangle_{q(F)}
             + \log N(x_n|\bar x_m, C_m) + \log\pi_m\right],

   which is the standard variational bound with the best S put in; S is then its softmax, the
   exact E-step (with votes, as :mod:`sgpmic.model.e_step` has it). With one shared mapping the
   first term is the same for all m. The first epoch leaves S as the E-steps before it did, as the
   first iteration of full EM does: q(F) has to learn something first.
2. **The mixture**, in closed form from its moments; the rows' old share of those is taken out and
   the new one put in (incremental EM, Neal and Hinton, 1998), which keeps them exact.
3. **Z, the kernels and β**, by a few steps of the optimizer on the batch's own KL-corrected bound,
   its rows weighted N/B, X and S fixed; of the way it went, half is gone (:data:`SHARE`), which
   averages over the last few batches. The optimum for B rows costs about (number of
   parameters) / 2B nats a row against the one for all rows. Adam with unbiased gradients was
   tried and was far worse: thousands of small noisy steps, where curvature asks for a few long
   ones.
4. **The sums**, carried over to the new kernels (:mod:`sgpmic.model.updated_sums`) and moved
   towards the batch's, weighted N/B, by its share of the rows (stepwise EM, Cappé and Moulines,
   2009).
   Not by exchange of the batch's old share: as kernels have changed since, what is left would not
   have to be positive definite. In the first epoch, which begins with kernels that have learned
   nothing, they are the mean over the batches so far.

An epoch begins with exact sums over all rows and ends with the objective of full EM, over all
rows too: two passes of the cheap kind. Nothing is kept from epoch to epoch but the state that full
EM has, and the order of the rows comes from the start's seed and the number of the epoch: so a
checkpoint needs nothing else.

The objective is not certain to rise. Each of these steps raises some bound for some rows, but
what a batch teaches about Z, the kernels and β may not be true of the others.

The scale of X (:mod:`sgpmic.model.mixture`) is restored once an epoch, with the kernels' length
scales, so that no kernel value changes. In between it is kept from drifting: in terms of X as it
stands, the objective of standardized points has an additional N Q log σ(X), whose derivative by
x_n is (x_n − mean) / σ². Its linear approximation is added to the row's objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from sgpmic.compile_cache import compiled
from sgpmic.kernels import stacked_like
from sgpmic.learning.em import MINIMIZERS, IterationInfo, run_e_steps
from sgpmic.learning.latent import closed_forms, log_prior_of
from sgpmic.learning.optimizers._trees import is_finite, select
from sgpmic.learning.optimizers.protocol import OptimizerResult
from sgpmic.learning.state import EMLimits, EMOptions, Parameters, State, mappings_of
from sgpmic.model.bound import (
    Mappings,
    add_latent,
    data_from_sums,
    data_term,
    factorize_all,
    mapping_weights,
    sums,
)
from sgpmic.model.collapsed import Factors
from sgpmic.model.e_step import expected_log_likelihoods, log_votes
from sgpmic.model.mixture import (
    LatentPrior,
    Mixture,
    Moments,
    factor_mixture,
    log_densities,
    mixture_of_moments,
    moments,
    standardize,
    weighted_sum,
)
from sgpmic.model.rows import Rows, block_shape
from sgpmic.model.updated_sums import updated_sums

#: Steps of the optimizer for the X of a batch, each row by itself, at most.
ROW_STEPS = 5
#: Steps of the optimizer for what the rows share, a batch, at most.
SHARED_STEPS = 5
#: Of the way that a batch wants to go with Z, the kernels and β.
SHARE = 0.5
#: Rows of a batch that go through the optimizer together.
BLOCK = 512


def draw_batches(
    n_rows: int, batch_size: int, n_padded: int, seed: int, epoch: int
) -> NDArray[np.int32]:
    """Return the numbers of the rows in every batch of an epoch, (n_batches, n_blocks, block).

    In an order that depends on seed and epoch alone, and in batches of as equal a size as can be.
    Where a batch has no row stands ``n_padded``, the number of no row.
    """
    n_batches, size = block_shape(n_rows, batch_size)
    n_blocks, block = block_shape(size, BLOCK)
    numbers = np.full((n_batches, n_blocks * block), n_padded, np.int32)
    order = np.random.default_rng([seed, epoch]).permutation(n_rows)
    for batch, part in zip(numbers, np.array_split(order, n_batches), strict=True):
        batch[: len(part)] = part
    return numbers.reshape(n_batches, n_blocks, block)


class _Sums(NamedTuple):
    """What q(F) and the mixture are made of."""

    phi: Array  # (G, U, U)
    psi: Array  # (G, U, P)
    moments: Moments


class _Carry(NamedTuple):
    X: Array
    S: Array
    packed: Array  # Z, log kernels, log β
    sums: _Sums
    mixture: Mixture
    jitter: Array


class _Epoch(NamedTuple):
    """What stays the same over the batches of an epoch."""

    state: State  # at its beginning
    rows: Rows
    limits: EMLimits
    options: EMOptions
    unpack: Callable[[Array], Any]
    first: Array  # whether it is the first
    n_batches: int

    def mappings(self, packed: Array) -> Mappings:
        """Return the mappings from the small parameters as one vector."""
        parameters = Parameters(self.state.parameters.X, *self.unpack(packed))
        return mappings_of(parameters, self.state.present)


class _Placed(NamedTuple):
    X: Array
    S: Array
    evaluations: Array


def place_rows(
    mappings: Mappings,
    factors: Factors,
    prior: LatentPrior,
    X: Array,
    S: Array,
    pull: Array,
    batch: Rows,
    *,
    optimizer: str,
    m_steps: Array,
    keep_S: Array,
) -> _Placed:
    """Return the X and S of rows given q(F), and the most evaluations that a row took.

    ``pull`` (B, Q) is a force on every row, besides its own objective. With ``keep_S``, S stays as
    it is, and X is found for it.
    """
    minimize = MINIMIZERS[optimizer]
    steps = jnp.minimum(m_steps, ROW_STEPS)
    n_blocks, block = batch.weight.shape
    votes, strength = jnp.zeros_like(S), jnp.ones(())
    if batch.votes is not None:
        votes, strength = log_votes(batch.votes, batch.flat_weight), batch.strength

    def log_p(x: Array, y: Array) -> Array:
        """Return log p_nm for x (B, Q) and y (P, B)."""
        own = replace(batch, Y=y[None])
        likelihoods = expected_log_likelihoods(mappings, factors, x, own)
        return log_densities(prior, x) + prior.log_weights + likelihoods

    def one(start: Array, s: Array, v: Array, y: Array, force: Array) -> tuple[Array, Array]:
        def loss(x: Array) -> Array:
            values = log_p(x[None], y[:, None])[0]
            best = strength * jax.nn.logsumexp(v + values / strength)
            value = jnp.where(keep_S, weighted_sum(s, values), best)
            return -value - force @ x

        found = minimize(jax.value_and_grad(loss), start, max_steps=steps)
        return found.point, found.evaluations

    def place_block(values: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        x, s, v, y, force = values
        x, evaluations = jax.vmap(one, in_axes=(0, 0, 0, 1, 0))(x, s, v, y, force)
        s = jnp.where(keep_S, s, jax.nn.softmax(v + log_p(x, y) / strength, axis=1))
        return x, s, jnp.max(evaluations)

    x, s, v, forces = (a.reshape(n_blocks, block, -1) for a in (X, S, votes, pull))
    new_X, new_S, made = lax.map(place_block, (x, s, v, batch.Y, forces))
    new_S = new_S.reshape(S.shape) * batch.flat_weight[:, None]
    return _Placed(new_X.reshape(X.shape), new_S, jnp.max(made))


def _outward(X: Array, sums: Moments) -> Array:
    """Return the derivative of N Q log σ(X) by every row, from the moments of all rows."""
    count = jnp.sum(sums.counts)
    mean = jnp.sum(sums.firsts, axis=0) / count
    mean_square = jnp.trace(jnp.sum(sums.seconds, axis=0)) / count
    return (X - mean) * X.shape[1] / (mean_square - mean @ mean)


def _take(rows: Rows, numbers: Array) -> tuple[Rows, Array]:
    """Return some rows, (n_blocks, block) numbers, and where they are among all of them."""
    weight = (numbers < rows.n_padded).astype(rows.Y.dtype)
    at = jnp.where(weight > 0, numbers, 0)
    size = rows.weight.shape[1]
    Y = rows.Y[at // size, :, at % size].swapaxes(1, 2) * weight[:, None, :]
    at_rows = at.reshape(-1)
    votes = None if rows.votes is None else rows.votes[at_rows] * weight.reshape(-1, 1)
    norm2 = jnp.sum(Y * Y, axis=1)
    batch = Rows(Y, weight, norm2, rows.n_features, votes=votes, strength=rows.strength)
    return batch, at_rows


def _standardized(state: State, weight: Array) -> State:
    """Return the state with X of mean 0 and variance 1, and everything else to go with it."""
    X, Z, log_kernels, log_beta, _ = state.parameters
    X, mean, scale = standardize(X, weight)
    field = log_kernels.dimension_field  # of the dimension 1/x², for every kernel
    log_kernels = stacked_like(
        log_kernels, {field: getattr(log_kernels, field) + 2.0 * jnp.log(scale)}
    )
    weights, means, covariances = state.mixture
    return state._replace(
        parameters=Parameters(X, (Z - mean) / scale, log_kernels, log_beta),
        mixture=Mixture(weights, (means - mean) / scale, covariances / scale**2),
    )


class _Objective(NamedTuple):
    value: Array
    log_prior: Array
    sums: tuple[Array, Array]


def _objective(state: State, rows: Rows, options: EMOptions) -> _Objective:
    """Return the objective over all rows, its prior and its sums."""
    mappings, X = state.mappings, state.parameters.X
    T = mapping_weights(state.S, rows, shared=options.shared)
    phi, psi = sums(mappings, X, T, rows)
    prior = factor_mixture(state.mixture)
    data = data_from_sums(mappings, phi, psi, T, rows, state.jitter)
    log_prior = log_prior_of(state.mixture, prior, state.conjugate, rows, options)
    value = add_latent(data, prior, X, state.S, rows).bound + log_prior
    return _Objective(value, log_prior, (phi, psi))


def _place_batch(
    epoch: _Epoch, carry: _Carry, batch: Rows, at: Array, factors: Factors
) -> tuple[_Placed, Moments]:
    """Find X and S of a batch (step 1); return them with the moments of all rows (step 2)."""
    weight = batch.flat_weight[:, None]
    old_X, old_S = carry.X[at] * weight, carry.S[at] * weight
    pull = jnp.zeros_like(old_X)
    if epoch.options.fixes_scale:
        pull = _outward(old_X, carry.sums.moments)
    placed = place_rows(
        epoch.mappings(carry.packed),
        factors,
        factor_mixture(carry.mixture),
        old_X,
        old_S,
        pull,
        batch,
        optimizer=epoch.options.optimizer,
        m_steps=epoch.limits.m_steps,
        keep_S=epoch.first,
    )
    # A row that gets lost stays where it was.
    found = jnp.isfinite(jnp.sum(placed.X, axis=1) + jnp.sum(placed.S, axis=1))[:, None]
    new_X = jnp.where(found, placed.X, old_X) * weight
    new_S = jnp.where(found, placed.S, old_S)
    running: Moments = jax.tree.map(
        lambda now, out, into: now - out + into,
        carry.sums.moments,
        moments(old_X, old_S),
        moments(new_X, new_S),
    )
    return _Placed(new_X, new_S, placed.evaluations), running


def _learn_shared(
    epoch: _Epoch, carry: _Carry, batch: Rows, placed: _Placed, jitter: Array, place: Array
) -> tuple[OptimizerResult, tuple[Array, Array, Array]]:
    """Learn Z, the kernels and β (step 3), and bring the sums up to date (step 4)."""
    times = jnp.sum(epoch.rows.weight) / jnp.sum(batch.weight)
    T = times * mapping_weights(placed.S, batch, shared=epoch.options.shared)

    def loss(packed: Array) -> Array:
        return -data_term(epoch.mappings(packed), placed.X, T, batch, jitter)

    steps = jnp.minimum(epoch.limits.m_steps, SHARED_STEPS)
    minimize = MINIMIZERS[epoch.options.optimizer]
    result = minimize(jax.value_and_grad(loss), carry.packed, max_steps=steps)
    # The whole table at once has no noise to be averaged.
    share = SHARE if epoch.n_batches > 1 else 1.0
    packed = carry.packed + share * (result.point - carry.packed)

    before, after = epoch.mappings(carry.packed), epoch.mappings(packed)
    carried = updated_sums(before, after, carry.sums.phi, carry.sums.psi)
    own = sums(after, placed.X, T, batch)
    rate = jnp.where(epoch.first, jnp.maximum(1.0 / times, 1.0 / (place + 1.0)), 1.0 / times)
    phi, psi = (old + rate * (new - old) for old, new in zip(carried, own, strict=True))
    return result, (packed, phi, psi)


def _learn_batch(
    epoch: _Epoch, carry: _Carry, step: tuple[Array, Array]
) -> tuple[_Carry, tuple[Array, Array]]:
    """Learn from one batch, its number and the numbers of its rows; say how many steps it took."""
    place, numbers = step
    batch, at = _take(epoch.rows, numbers)
    mappings = epoch.mappings(carry.packed)
    factors = factorize_all(mappings, carry.sums.phi, carry.sums.psi, carry.jitter)
    placed, running = _place_batch(epoch, carry, batch, at, factors)
    mixture = mixture_of_moments(
        carry.mixture,
        running,
        epoch.state.conjugate,
        kind=epoch.options.covariance_type,
        floor=epoch.limits.covariance_floor,
    )
    result, learned = _learn_shared(epoch, carry, batch, placed, factors.jitter, place)

    # A batch whose numbers are not finite has taught nothing.
    mixture = select(is_finite(mixture), mixture, carry.mixture)
    shared = (*learned, factors.jitter)
    unlearned = (carry.packed, carry.sums.phi, carry.sums.psi, carry.jitter)
    packed, phi, psi, jitter = select(is_finite(shared), shared, unlearned)
    target = numbers.reshape(-1)  # where there is no row, beyond the last: dropped
    new = _Carry(
        carry.X.at[target].set(placed.X, mode="drop"),
        carry.S.at[target].set(placed.S, mode="drop"),
        packed,
        _Sums(phi, psi, running),
        mixture,
        jitter,
    )
    return new, (result.accepted, placed.evaluations + result.evaluations)


@compiled
def epoch(
    state: State, rows: Rows, numbers: Array, first: Array, limits: EMLimits, options: EMOptions
) -> tuple[State, IterationInfo]:
    """Make one epoch over the rows of every batch, as :func:`draw_batches` returns them.

    The first begins, as full EM does, with E-steps until the assignments have settled, and learns
    the mapping for these; its running sums forget faster.
    """
    begun, settled_in = run_e_steps(
        state, rows, limits, options, jnp.where(first, limits.e_steps, 0)
    )
    X, *small = begun.parameters
    packed, unpack = ravel_pytree(tuple(small))
    n_batches = numbers.shape[0]
    fixed = _Epoch(begun, rows, limits, options, unpack, first, n_batches)

    before = _objective(begun, rows, options)
    start = _Carry(
        X, begun.S, packed, _Sums(*before.sums, moments(X, begun.S)), begun.mixture, begun.jitter
    )
    places = jnp.arange(n_batches, dtype=X.dtype)
    end, (accepted, evaluations) = lax.scan(
        lambda carry, step: _learn_batch(fixed, carry, step), start, (places, numbers)
    )

    new = begun._replace(
        parameters=Parameters(end.X, *unpack(end.packed)),
        S=end.S,
        mixture=end.mixture,
        jitter=end.jitter,
    )
    if options.fixes_scale:
        new = _standardized(new, rows.flat_weight)
    mixture = closed_forms(new.mixture, new.parameters.X, new.S, new.conjugate, limits, options)
    new = new._replace(mixture=mixture)
    after = _objective(new, rows, options)
    info = IterationInfo(
        bound_after_e=before.value,
        bound=after.value,
        prior=after.log_prior,
        e_steps=settled_in + 1,
        m_steps=jnp.sum(accepted),
        evaluations=jnp.sum(evaluations) // n_batches,
        largest_change=jnp.max(jnp.abs(new.S - state.S)),
        cluster_sizes=jnp.sum(new.S, axis=0),
        jitter=jnp.max(new.jitter),
        finite=is_finite(new),
    )
    return new, info
