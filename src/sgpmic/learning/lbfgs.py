"""Limited-memory BFGS, compiled as one loop.

The objective is called at one place only, in the body of a single ``lax.while_loop``: first at
the start, and from then on at the trial points of a line search.  The line search brackets a
point that satisfies the weak Wolfe conditions (Lewis and Overton, Mathematical Programming 141,
2013): a trial that does not lower the objective enough becomes the far end of the bracket, one
from which it still goes steeply down becomes the near end.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from sgpmic.learning import _trees as trees
from sgpmic.learning._trees import OptimiserResult, PyTree, ValueAndGrad

__all__ = ["OptimiserResult", "minimise"]

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


class _State(NamedTuple):
    first: jax.Array
    point: PyTree
    value: jax.Array
    start_value: jax.Array
    gradient: PyTree
    direction: PyTree
    slope: jax.Array
    length: jax.Array  # the next evaluation is at point + length * direction
    bracket: _Bracket
    near_gradient: PyTree
    trials: jax.Array  # evaluations in this line search
    history: _History
    steps: jax.Array
    evaluations: jax.Array
    accepted: jax.Array
    converged: jax.Array
    stopped: jax.Array


def minimise(
    value_and_grad: ValueAndGrad,
    start: PyTree,
    *,
    max_steps: int | jax.Array,
    gradient_tolerance: float | jax.Array = 0.0,
    value_tolerance: float | jax.Array = 0.0,
    memory: int = 10,
) -> OptimiserResult:
    """Minimise a smooth function by limited-memory BFGS.

    To be called inside ``jax.jit``, and also under ``jax.vmap``: every member of the batch then
    takes its own course, as if it were alone.

    Parameters
    ----------
    value_and_grad : callable
        Maps a point to the scalar objective and its gradient, a tree like the point.
    start : pytree of floating-point arrays
        Where to begin.  The search runs in the precision of these arrays.
    max_steps : int or integer scalar array
        Limit on the number of trial points, rejected ones included; each costs one evaluation.
    gradient_tolerance : float, default=0.0
        Stop once no element of the gradient is larger than this in absolute value.
    value_tolerance : float, default=0.0
        Stop once an accepted step has lowered the objective by at most
        ``value_tolerance * max(1, abs(value))``, or no lower value is left to be found.  Zero
        switches this off.
    memory : int, default=10
        How many past steps the curvature is estimated from.  Each costs two copies of the
        parameters.

    Returns
    -------
    OptimiserResult
        The best point found.  Values of accepted points never increase.  A trial point where
        the objective or its gradient is not finite is rejected and the step shortened; a start
        that is not finite comes back unchanged with ``converged`` false.
    """
    if memory < 1:
        raise ValueError(f"memory is {memory}, but L-BFGS needs at least 1: pass memory=10, say")
    start = trees.as_float_tree(start)
    dtype = trees.common_dtype(start)
    epsilon = trees.machine_epsilon(dtype)
    limit = jnp.asarray(max_steps, jnp.int32)
    smallest_gradient = jnp.asarray(gradient_tolerance, dtype)
    smallest_decrease = jnp.asarray(value_tolerance, dtype)

    def unfinished(state: _State) -> jax.Array:
        return state.first | (~state.stopped & (state.steps < limit))

    def advance(state: _State) -> _State:
        candidate = trees.add_scaled(state.point, state.length, state.direction)
        raw_value, raw_gradient = value_and_grad(candidate)
        found_value = jnp.asarray(raw_value, dtype)
        found_gradient = trees.like(raw_gradient, state.point)
        finite = jnp.isfinite(found_value) & trees.is_finite(found_gradient)
        is_trial = ~state.first

        # Judge the trial.
        found_slope = trees.sum_of_products(found_gradient, state.direction)
        better = trees.is_better(state.value, state.gradient, found_value, found_gradient)
        lower = finite & better & _is_low_enough(state, found_value, found_slope)
        flatter = found_slope >= _SLOPE_REDUCTION * state.slope
        bracket = _narrow(state.bracket, lower, finite, state.length, found_value, found_slope)
        near_gradient = trees.select(is_trial & lower, found_gradient, state.near_gradient)
        trials = state.trials + 1

        # The search ends at a trial that satisfies both conditions, or at the near end where
        # the bracket has vanished or patience is at an end.
        next_length = _interpolate(bracket)
        largest = trees.top(state.direction)
        smallest_move = epsilon * trees.typical_size(state.point, state.direction)
        not_vanished = (next_length - bracket.near) * largest > smallest_move
        exhausted = is_trial & (
            ~not_vanished | (trials >= _LONGEST_SEARCH) | ~jnp.isfinite(next_length)
        )
        accept = is_trial & ((lower & flatter) | (exhausted & (bracket.near > 0)))
        failed = is_trial & exhausted & ~accept
        empty_history = state.history.weights[-1] == 0
        stalled = failed & empty_history

        # The accepted point is the near end of the bracket, be it this trial or an earlier one.
        arrival = trees.add_scaled(state.point, bracket.near, state.direction)
        point = trees.select(accept, arrival, trees.select(state.first, candidate, state.point))
        value = jnp.where(accept, bracket.near_value, state.value)
        value = jnp.where(state.first, found_value, value)
        gradient = trees.select(accept, near_gradient, state.gradient)
        gradient = trees.select(state.first, found_gradient, gradient)

        history = _remember(
            state.history,
            accept,
            trees.subtract(arrival, state.point),
            trees.subtract(near_gradient, state.gradient),
        )
        history = history._replace(weights=jnp.where(failed, 0, history.weights))

        # The next direction; after one that is not downhill, or led nowhere, steepest descent.
        steepness = jnp.sqrt(trees.squared_norm(gradient))
        quasi_newton = _direction(history, gradient)
        quasi_newton_slope = trees.sum_of_products(quasi_newton, gradient)
        usable = trees.is_finite(quasi_newton) & (
            quasi_newton_slope < -epsilon * steepness * jnp.sqrt(trees.squared_norm(quasi_newton))
        )
        turn = state.first | accept | failed
        history = history._replace(weights=jnp.where(turn & ~usable, 0, history.weights))
        steepest = history.weights[-1] == 0
        proposal = trees.select(steepest, trees.negative(gradient), quasi_newton)
        direction = trees.select(turn, proposal, state.direction)
        proposal_slope = jnp.where(steepest, -(steepness**2), quasi_newton_slope)
        slope = jnp.where(turn, proposal_slope, state.slope)
        # A gradient says nothing about the distance: the first step has at most length one.
        cautious = jnp.minimum(1, 1 / jnp.where(steepness > 0, steepness, 1))
        length = jnp.where(turn, jnp.where(steepest, cautious, 1), next_length)

        flat = finite & (state.first | accept) & (trees.top(gradient) <= smallest_gradient)
        threshold = smallest_decrease * jnp.maximum(1, jnp.abs(value))
        quiet = accept & (smallest_decrease > 0) & (state.value - value <= threshold)
        # A step cut short by a wall or a long search says nothing about convergence; steepest
        # descent that finds no lower value among finite ones has met the rounding error.
        converged = flat | (quiet & lower & flatter)
        converged = converged | (stalled & finite & (smallest_decrease > 0))

        return _State(
            first=jnp.zeros((), bool),
            point=point,
            value=value,
            start_value=jnp.where(state.first, found_value, state.start_value),
            gradient=gradient,
            direction=direction,
            slope=slope,
            length=length.astype(dtype),
            bracket=_select_bracket(turn, _open_bracket(value, slope), bracket),
            near_gradient=near_gradient,
            trials=jnp.where(turn, 0, trials),
            history=history,
            steps=state.steps + is_trial,
            evaluations=state.evaluations + 1,
            accepted=state.accepted + accept,
            converged=converged,
            stopped=converged | stalled | (state.first & ~finite),
        )

    zero = jnp.zeros((), dtype)
    none = jnp.zeros((), jnp.int32)
    no = jnp.zeros((), bool)
    state = lax.while_loop(
        unfinished,
        advance,
        _State(
            first=jnp.ones((), bool),
            point=start,
            value=zero,
            start_value=zero,
            gradient=trees.zeros_like(start),
            direction=trees.zeros_like(start),
            slope=zero,
            length=zero,
            bracket=_open_bracket(zero, zero),
            near_gradient=trees.zeros_like(start),
            trials=none,
            history=_empty_history(start, memory, dtype),
            steps=none,
            evaluations=none,
            accepted=none,
            converged=no,
            stopped=no,
        ),
    )

    # The steps may have run out in the middle of a search that had already found a better point.
    better = state.bracket.near > 0
    arrival = trees.add_scaled(state.point, state.bracket.near, state.direction)
    return OptimiserResult(
        point=trees.select(better, arrival, state.point),
        value=jnp.where(better, state.bracket.near_value, state.value),
        gradient=trees.select(better, state.near_gradient, state.gradient),
        start_value=state.start_value,
        steps=state.steps,
        evaluations=state.evaluations,
        accepted=state.accepted + better,
        converged=state.converged,
    )


def _is_low_enough(state: _State, value: jax.Array, slope: jax.Array) -> jax.Array:
    """Return whether a trial lowers the objective enough for its length."""
    decrease = trees.measured_decrease(state.value, value, state.length, state.slope, slope)
    return decrease >= -_SUFFICIENT_DECREASE * state.length * state.slope


def _open_bracket(value: jax.Array, slope: jax.Array) -> _Bracket:
    """Return the bracket at the beginning of a line search, without a far end."""
    zero = jnp.zeros_like(value)
    infinity = jnp.full_like(value, jnp.inf)
    return _Bracket(zero, value, slope, infinity, infinity, zero)


def _select_bracket(condition: jax.Array, if_true: _Bracket, if_false: _Bracket) -> _Bracket:
    """Return one of two brackets, as a scalar condition says."""
    return _Bracket(*(jnp.where(condition, a, b) for a, b in zip(if_true, if_false, strict=True)))


def _narrow(
    bracket: _Bracket,
    lower: jax.Array,
    finite: jax.Array,
    length: jax.Array,
    value: jax.Array,
    slope: jax.Array,
) -> _Bracket:
    """Return the bracket with one end moved to the trial."""
    infinity = jnp.full_like(value, jnp.inf)
    nearer = bracket._replace(near=length, near_value=value, near_slope=slope)
    closed = bracket._replace(
        far=length,
        # An infinite value marks an end that is of no use for interpolation.
        far_value=jnp.where(finite, value, infinity),
        far_slope=jnp.where(finite, slope, 0),
    )
    return _select_bracket(lower, nearer, closed)


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

    def slots(leaf: jax.Array) -> jax.Array:
        return jnp.broadcast_to(jnp.zeros_like(leaf), (memory, *leaf.shape))

    return _History(
        jax.tree.map(slots, start), jax.tree.map(slots, start), jnp.zeros(memory, dtype)
    )


def _remember(history: _History, accepted: jax.Array, step: PyTree, change: PyTree) -> _History:
    """Return the history with a pair added, where the pair shows positive curvature."""
    product = trees.sum_of_products(step, change)
    lengths = jnp.sqrt(trees.squared_norm(step)) * jnp.sqrt(trees.squared_norm(change))
    keep = accepted & (product > trees.machine_epsilon(product.dtype) ** 0.5 * lengths)

    def push(slots: jax.Array, newest: jax.Array) -> jax.Array:
        return jnp.where(keep, jnp.concatenate([slots[1:], newest[None]]), slots)

    weight = 1 / jnp.where(keep, product, 1)
    return _History(
        jax.tree.map(push, history.steps, step),
        jax.tree.map(push, history.changes, change),
        push(history.weights, weight),
    )


def _direction(history: _History, gradient: PyTree) -> PyTree:
    """Return minus the inverse Hessian estimate times the gradient, by the two-loop recursion."""

    def backward(
        vector: PyTree, pair: tuple[PyTree, PyTree, jax.Array]
    ) -> tuple[PyTree, jax.Array]:
        step, change, weight = pair
        share = weight * trees.sum_of_products(step, vector)
        return trees.add_scaled(vector, -share, change), share

    def forward(
        vector: PyTree, pair: tuple[PyTree, PyTree, jax.Array, jax.Array]
    ) -> tuple[PyTree, None]:
        step, change, weight, share = pair
        excess = share - weight * trees.sum_of_products(change, vector)
        return trees.add_scaled(vector, excess, step), None

    pairs = (history.steps, history.changes, history.weights)
    vector, shares = lax.scan(backward, trees.negative(gradient), pairs, reverse=True)

    newest_change = jax.tree.map(lambda slots: slots[-1], history.changes)
    newest_weight = history.weights[-1]
    curvature = newest_weight * trees.squared_norm(newest_change)
    scale = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), 1)
    vector = jax.tree.map(lambda leaf: scale.astype(leaf.dtype) * leaf, vector)

    vector, _ = lax.scan(forward, vector, (*pairs, shares))
    return vector
