"""Limited-memory BFGS.

The line search brackets a point that satisfies the weak Wolfe conditions (Lewis and Overton,
Mathematical Programming 141, 2013): a trial that does not lower the objective enough becomes the
far end of the bracket, one from which it still goes steeply down becomes the near end.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from sgpmic.learning import optimizers as base
from sgpmic.learning.optimizers import Evaluation, OptimizerResult, PyTree, Settings, or_one

#: How many past steps the curvature is estimated from. Each costs two copies of the parameters.
MEMORY = 10

_SUFFICIENT_DECREASE = 1e-4
_SLOPE_REDUCTION = 0.9
# A line search longer than this has met a wall or a kink: take the near end of its bracket.
_LONGEST_SEARCH = 25
# How much longer the next trial is after one from which the objective still goes steeply down.
_EXPANSION = 4.0


class _Bracket(NamedTuple):
    """Multiples of the direction between which the line search looks.

    The near end is the best point so far that lowers the objective enough, the far end one that
    does not; the far end is infinite as long as there is none.
    """

    near: jax.Array
    near_value: jax.Array
    near_slope: jax.Array
    far: jax.Array
    far_value: jax.Array
    far_slope: jax.Array


class _History(NamedTuple):
    """The last steps and gradient changes, the newest last along the leading axis.

    `weights` holds ``1 / (step . change)``, and zero in slots that are empty, which makes those
    drop out of the two-loop recursion.
    """

    steps: PyTree
    changes: PyTree
    weights: jax.Array


class State(NamedTuple):
    """Everything a step starts from and leaves behind."""

    result: OptimizerResult
    direction: PyTree
    slope: jax.Array  # of the objective along the direction
    length: jax.Array  # the next evaluation is at point + length * direction
    bracket: _Bracket
    near_gradient: PyTree
    trials: jax.Array  # evaluations in this line search
    history: _History
    stopped: jax.Array


def init(start: PyTree) -> State:
    """Return the state before the first evaluation, which is at the start."""
    result = OptimizerResult.at(start)
    zero = result.value
    nowhere = jax.tree.map(jnp.zeros_like, start)
    return State(
        result=result,
        direction=nowhere,
        slope=zero,
        length=zero,
        bracket=_open_bracket(zero, zero),
        near_gradient=nowhere,
        trials=result.steps,
        history=_empty_history(start, MEMORY, zero.dtype),
        stopped=result.converged,
    )


def step(state: State, found: Evaluation, settings: Settings) -> State:
    """Return the state after an evaluation: at the start, or of a trial of the line search."""
    before = state.result
    first = before.evaluations == 0
    finite = jnp.isfinite(found.value) & base.is_finite(found.gradient)
    bracket, near_gradient, next_length, accept, failed = _search(state, found, finite, ~first)
    stalled = failed & (state.history.weights[-1] == 0)

    # The accepted point is the near end of the bracket, be it this trial or an earlier one.
    near = Evaluation(
        base.add_scaled(before.point, bracket.near, state.direction),
        bracket.near_value,
        near_gradient,
    )
    here = base.select(accept, near, base.select(first, found, before.here))
    result = before.after(here, first=first, trial=~first, accept=accept)
    step_taken = jax.tree.map(jnp.subtract, near.point, before.point)
    change = jax.tree.map(jnp.subtract, near.gradient, before.gradient)
    history = _remember(state.history, accept, step_taken, change)
    history = history._replace(weights=jnp.where(failed, 0, history.weights))
    is_new = first | accept | failed
    direction, slope, length, history = _turn(state, history, result.gradient, is_new, next_length)

    moved = first | accept
    flat = base.max_norm(result.gradient) <= settings.gradient_tolerance
    converged = finite & moved & flat
    return State(
        result=result._replace(converged=converged),
        direction=direction,
        slope=slope,
        length=length,
        bracket=base.select(is_new, _open_bracket(result.value, slope), bracket),
        near_gradient=near_gradient,
        trials=jnp.where(is_new, 0, state.trials + 1),
        history=history,
        stopped=converged | stalled | (first & ~finite),
    )


def finish(state: State) -> OptimizerResult:
    """Return the result, where the steps may have run out in the middle of a line search."""
    result, bracket = state.result, state.bracket
    better = bracket.near > 0
    arrival = base.add_scaled(result.point, bracket.near, state.direction)
    return result._replace(
        point=base.select(better, arrival, result.point),
        value=jnp.where(better, bracket.near_value, result.value),
        gradient=base.select(better, state.near_gradient, result.gradient),
        accepted=result.accepted + better,
    )


def _search(
    state: State, found: Evaluation, finite: jax.Array, trial: jax.Array
) -> tuple[_Bracket, PyTree, jax.Array, jax.Array, jax.Array]:
    """Return how the line search stands after an evaluation.

    The bracket and the gradient at its near end; the next length to try; whether the near end
    becomes the new point; and whether there is no better point in this direction.
    """
    before = state.result
    slope = base.vdot(found.gradient, state.direction)
    squares = base.squared_norm(before.gradient), base.squared_norm(found.gradient)
    better = base.is_better(before.value, squares[0], found.value, squares[1])
    # The two weak Wolfe conditions: low enough for the length of the step, and flatter.
    decrease = base.measured_decrease(before.value, found.value, state.length, state.slope, slope)
    low_enough = decrease >= -_SUFFICIENT_DECREASE * state.length * state.slope
    lower = finite & better & low_enough
    flatter = slope >= _SLOPE_REDUCTION * state.slope
    nearer = state.bracket._replace(near=state.length, near_value=found.value, near_slope=slope)
    closed = state.bracket._replace(
        far=state.length,
        # An infinite value marks an end that is of no use for interpolation.
        far_value=jnp.where(finite, found.value, jnp.full_like(found.value, jnp.inf)),
        far_slope=jnp.where(finite, slope, 0),
    )
    bracket = base.select(lower, nearer, closed)

    # The search ends at a trial that satisfies both conditions, or at the near end where the
    # bracket has vanished or patience is at an end.
    next_length = _interpolate(bracket)
    epsilon = base.epsilon_of(found.value)
    smallest_move = epsilon * base.typical_size(before.point, state.direction)
    not_vanished = (next_length - bracket.near) * base.max_norm(state.direction) > smallest_move
    impatient = state.trials + 1 >= _LONGEST_SEARCH
    exhausted = trial & (~not_vanished | impatient | ~jnp.isfinite(next_length))
    accept = trial & ((lower & flatter) | (exhausted & (bracket.near > 0)))
    near_gradient = base.select(trial & lower, found.gradient, state.near_gradient)
    return bracket, near_gradient, next_length, accept, exhausted & ~accept


def _turn(
    state: State, history: _History, gradient: PyTree, is_new: jax.Array, next_length: jax.Array
) -> tuple[PyTree, jax.Array, jax.Array, _History]:
    """Return the next direction, its slope, the length to try, and the history.

    After a direction that is not downhill, or led nowhere, it is that of steepest descent.
    """
    steepness = jnp.sqrt(base.squared_norm(gradient))
    epsilon = base.epsilon_of(steepness)
    quasi_newton = _direction(history, gradient)
    quasi_newton_slope = base.vdot(quasi_newton, gradient)
    usable = base.is_finite(quasi_newton) & (
        quasi_newton_slope < -epsilon * steepness * jnp.sqrt(base.squared_norm(quasi_newton))
    )
    history = history._replace(weights=jnp.where(is_new & ~usable, 0, history.weights))
    steepest = history.weights[-1] == 0
    proposal = base.select(steepest, jax.tree.map(jnp.negative, gradient), quasi_newton)
    proposal_slope = jnp.where(steepest, -(steepness**2), quasi_newton_slope)
    # A gradient says nothing about the distance: the first step has at most length one.
    cautious = jnp.minimum(1, 1 / or_one(steepness))
    return (
        base.select(is_new, proposal, state.direction),
        jnp.where(is_new, proposal_slope, state.slope),
        jnp.where(is_new, jnp.where(steepest, cautious, 1), next_length).astype(steepness.dtype),
        history,
    )


def _open_bracket(value: jax.Array, slope: jax.Array) -> _Bracket:
    """Return the bracket at the beginning of a line search, without a far end."""
    zero, infinity = jnp.zeros_like(value), jnp.full_like(value, jnp.inf)
    return _Bracket(zero, value, slope, infinity, infinity, zero)


def _interpolate(bracket: _Bracket) -> jax.Array:
    """Return the next trial: beyond the near end, or between the two ends."""
    near, far = bracket.near, bracket.far
    is_open = ~jnp.isfinite(far)
    beyond = _EXPANSION * near

    width = jnp.where(is_open, 1, far - near)
    # The cubic through both values and slopes, in units of the width from the near end.
    rise = bracket.far_value - bracket.near_value
    near_slope = bracket.near_slope * width
    far_slope = bracket.far_slope * width
    inner = near_slope + far_slope - 3 * rise
    root = jnp.sqrt(jnp.maximum(inner**2 - near_slope * far_slope, 0))
    fraction = 1 - (far_slope + root - inner) / (far_slope - near_slope + 2 * root)
    # Away from the ends, so that the bracket shrinks by a tenth at the least; a quarter where
    # the far end has no value to interpolate.
    fraction = jnp.where(jnp.isfinite(bracket.far_value), jnp.clip(fraction, 0.1, 0.9), 0.25)
    fraction = jnp.where(jnp.isnan(fraction), 0.5, fraction)
    return jnp.where(is_open, beyond, near + fraction * width)


def _empty_history(start: PyTree, memory: int, dtype: jnp.dtype) -> _History:
    """Return a history without any pairs."""
    slots = jax.tree.map(
        lambda leaf: jnp.broadcast_to(jnp.zeros_like(leaf), (memory, *leaf.shape)), start
    )
    return _History(slots, slots, jnp.zeros(memory, dtype))


def _remember(history: _History, accepted: jax.Array, step: PyTree, change: PyTree) -> _History:
    """Return the history with a pair added, where the pair shows positive curvature."""
    product = base.vdot(step, change)
    lengths = jnp.sqrt(base.squared_norm(step)) * jnp.sqrt(base.squared_norm(change))
    keep = accepted & (product > base.epsilon_of(product) ** 0.5 * lengths)

    def push(slots: jax.Array, newest: jax.Array) -> jax.Array:
        return jnp.where(keep, jnp.concatenate([slots[1:], newest[None]]), slots)

    weight = 1 / jnp.where(keep, product, 1)
    return _History(
        jax.tree.map(push, history.steps, step),
        jax.tree.map(push, history.changes, change),
        push(history.weights, weight),
    )


def _direction(history: _History, gradient: PyTree) -> PyTree:
    """Return minus the inverse Hessian estimate times the gradient, by the two-loop recursion.

    Nocedal and Wright, Numerical Optimization (2006), algorithm 7.4.
    """

    def backward(vector: PyTree, pair: Any) -> tuple[PyTree, jax.Array]:
        step, change, weight = pair
        alpha = weight * base.vdot(step, vector)
        return base.add_scaled(vector, -alpha, change), alpha

    def forward(vector: PyTree, pair: Any) -> tuple[PyTree, None]:
        step, change, weight, alpha = pair
        beta = weight * base.vdot(change, vector)
        return base.add_scaled(vector, alpha - beta, step), None

    pairs = (history.steps, history.changes, history.weights)
    vector, alphas = lax.scan(backward, jax.tree.map(jnp.negative, gradient), pairs, reverse=True)

    newest_change = jax.tree.map(lambda slots: slots[-1], history.changes)
    newest_weight = history.weights[-1]
    curvature = newest_weight * base.squared_norm(newest_change)
    scale = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), 1)
    vector = jax.tree.map(lambda leaf: scale.astype(leaf.dtype) * leaf, vector)

    vector, _ = lax.scan(forward, vector, (*pairs, alphas))
    return vector


#: :func:`sgpmic.learning.optimizers.minimize` by limited-memory BFGS.
minimize = partial(base.minimize, init, step, finish)
