"""Scaled conjugate gradients (Møller, Neural Networks 6, 1993), compiled as one loop.

The objective is called at one place only, in the body of a single ``lax.while_loop``.  What the
call is for is a phase that travels with the state:

``first``
    at the start;
``curvature``
    a little way along the search direction, to get the curvature along it from the difference of
    two gradients;
``trial``
    at the end of the proposed step, which is then accepted or rejected.

So a large objective is compiled once, and no number goes back to the host between iterations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from sgpmic.learning import _trees as trees
from sgpmic.learning._trees import OptimiserResult, PyTree, ValueAndGrad

__all__ = ["OptimiserResult", "minimise"]

_FIRST, _CURVATURE, _TRIAL = 0, 1, 2

# No step is longer than this many times the size of the point (plus one per coordinate), so that
# a direction without curvature does not ask for an infinite step.
_LONGEST_STEP = 100.0
# The damping at the start limits the first step to this many times the same size.
_FIRST_STEP = 10.0
# A rejected step is shortened at most by this factor at once, however bad the value found.
_LARGEST_DAMPING_INCREASE = 100.0
# A step into a region without finite values is shortened by this factor.
_SHORTENING_AFTER_NON_FINITE = 4.0


class _State(NamedTuple):
    phase: jax.Array
    point: PyTree
    value: jax.Array
    start_value: jax.Array
    gradient: PyTree
    gradient_square: jax.Array  # g'g
    direction: PyTree
    slope: jax.Array  # g'd
    squared_length: jax.Array  # d'd
    reach: jax.Array  # the step along the direction that changes the point by about itself
    offset: jax.Array  # the next evaluation is at point + offset * direction
    curvature: jax.Array  # d'Hd / d'd along the direction
    damping: jax.Array  # Møller's lambda, added to the curvature
    since_restart: jax.Array  # conjugate directions since the last steepest descent
    quiet: jax.Array  # successive accepted steps that changed the value by less than asked
    steps: jax.Array
    evaluations: jax.Array
    accepted: jax.Array
    converged: jax.Array
    stopped: jax.Array


class _Step(NamedTuple):
    damping: jax.Array
    length: jax.Array


def minimise(
    value_and_grad: ValueAndGrad,
    start: PyTree,
    *,
    max_steps: int | jax.Array,
    gradient_tolerance: float | jax.Array = 0.0,
    value_tolerance: float | jax.Array = 0.0,
    gradient_error: float | None = None,
) -> OptimiserResult:
    """Minimise a smooth function by scaled conjugate gradients.

    To be called inside ``jax.jit``, and also under ``jax.vmap``: every member of the batch then
    takes its own course, as if it were alone.

    Parameters
    ----------
    value_and_grad : callable
        Maps a point to the scalar objective and its gradient, a tree like the point.
    start : pytree of floating-point arrays
        Where to begin.  The search runs in the precision of these arrays.
    max_steps : int or integer scalar array
        Limit on the number of iterations, rejected ones included.  One iteration costs one
        evaluation, and one more after every accepted step.
    gradient_tolerance : float, default=0.0
        Stop once no element of the gradient is larger than this in absolute value.
    value_tolerance : float, default=0.0
        Stop once two successive accepted steps have each lowered the objective, and promised to
        lower it, by at most ``value_tolerance * max(1, abs(value))``.  Zero switches this off.
    gradient_error : float or None
        The relative error of a gradient, where it is larger than the precision of the point
        would let it be: the curvature is then taken over a longer way.

    Returns
    -------
    OptimiserResult
        The best point found.  Values of accepted points never increase.  A trial point where
        the objective or its gradient is not finite is rejected and the step shortened; a start
        that is not finite comes back unchanged with ``converged`` false.
    """
    start = trees.as_float_tree(start)
    dtype = trees.common_dtype(start)
    epsilon = trees.machine_epsilon(dtype)
    dimension = trees.number_of_elements(start)
    limit = jnp.asarray(max_steps, jnp.int32)
    smallest_gradient = jnp.asarray(gradient_tolerance, dtype)
    smallest_decrease = jnp.asarray(value_tolerance, dtype)

    def unfinished(state: _State) -> jax.Array:
        return (state.phase == _FIRST) | (~state.stopped & (state.steps < limit))

    def advance(state: _State) -> _State:
        candidate = trees.add_scaled(state.point, state.offset, state.direction)
        raw_value, raw_gradient = value_and_grad(candidate)
        found_value = jnp.asarray(raw_value, dtype)
        found_gradient = trees.like(raw_gradient, state.point)

        is_first = state.phase == _FIRST
        is_curvature = state.phase == _CURVATURE
        is_trial = state.phase == _TRIAL

        # Few sums over all parameters, each used wherever it serves: fewer passes over large
        # arrays, and much less to compile.
        found_square = trees.squared_norm(found_gradient)
        found_slope = trees.sum_of_products(found_gradient, state.direction)
        overlap = trees.sum_of_products(found_gradient, state.gradient)
        gradient_is_finite = jnp.isfinite(found_square)
        finite = jnp.isfinite(found_value) & gradient_is_finite
        slope, squared_length = state.slope, _or_one(state.squared_length)

        # Curvature: what the two gradients say; where there is none to be had, the damping
        # alone has to limit the step.
        # The difference of the gradients first: the difference of two slopes has fewer digits.
        gradient_change = trees.subtract(found_gradient, state.gradient)
        measured = trees.sum_of_products(state.direction, gradient_change) / (
            _or_one(state.offset) * squared_length
        )
        measured = jnp.where(gradient_is_finite & jnp.isfinite(measured), measured, 0)
        curvature = jnp.where(is_curvature, measured, state.curvature)

        # Trial: compare the decrease with the one that the damped quadratic predicts. Among
        # equal values a shorter gradient is better: without that, steps as small as the rounding
        # error would go round in circles.
        promised = -state.offset * slope / 2
        decrease = trees.measured_decrease(
            state.value, found_value, state.offset, slope, found_slope
        )
        better = (found_value < state.value) | (
            (found_value == state.value) & (found_square < state.gradient_square)
        )
        accept = is_trial & finite & better & (decrease >= 0)
        damping = jnp.where(
            is_trial,
            _next_damping(state, finite, accept, decrease / _or_one(promised)),
            state.damping,
        )

        moved = is_first | accept
        point = trees.select(moved, candidate, state.point)
        value = jnp.where(moved, found_value, state.value)
        gradient = trees.select(moved, found_gradient, state.gradient)
        gradient_square = jnp.where(moved, found_square, state.gradient_square)
        size = _size(point, dimension)
        steepness = jnp.sqrt(gradient_square)

        # Where the step had to be shortened until it vanished, the direction is of no use: fall
        # back on steepest descent, and stop where it was steepest descent already.
        length = _propose(curvature, damping, slope, squared_length, size).length
        vanished = is_trial & ~accept & (length <= epsilon * state.reach)
        stalled = vanished & (state.since_restart == 0)
        restart = is_first | (vanished & ~stalled)

        # The next conjugate direction is c d - g with g the gradient just found.
        conjugate = (found_square - overlap) / _or_one(-slope)
        along_slope = conjugate * found_slope - found_square
        along_square = (
            conjugate**2 * state.squared_length - 2 * conjugate * found_slope + found_square
        )
        # Without exact line searches a conjugate direction may point uphill.
        usable = (
            (state.since_restart + 1 < dimension)
            & jnp.isfinite(along_square)
            & (along_slope < -epsilon * steepness * jnp.sqrt(jnp.maximum(along_square, 0)))
        )
        restart = restart | (accept & ~usable)
        # One formula for all three cases: steepest descent is c = 0, going on is the direction.
        turned = trees.add_scaled(
            trees.negative(gradient), jnp.where(restart, 0, conjugate), state.direction
        )
        new_direction = restart | accept
        direction = trees.select(new_direction, turned, state.direction)
        slope = trees.sum_of_products(gradient, direction)
        square = trees.squared_norm(direction)
        since_restart = jnp.where(
            restart, 0, jnp.where(accept, state.since_restart + 1, state.since_restart)
        )
        fresh_damping = steepness / (_FIRST_STEP * size)
        damping = jnp.where(is_first | (vanished & ~stalled), fresh_damping, damping)
        blind = is_curvature & ~gradient_is_finite
        damping = jnp.where(blind, jnp.maximum(damping, fresh_damping), damping)

        # What comes next: a new direction needs its curvature, any other a (shorter) trial.
        phase = jnp.where(new_direction, _CURVATURE, _TRIAL)
        step = _propose(curvature, damping, slope, _or_one(square), size)
        damping = jnp.where(new_direction, damping, step.damping)
        reach = jnp.where(new_direction, _reach(point, direction), state.reach)
        offset = jnp.where(new_direction, _probe(dtype, gradient_error) * reach, step.length)

        # Convergence.
        flat = finite & moved & (trees.top(gradient) <= smallest_gradient)
        threshold = smallest_decrease * jnp.maximum(1, jnp.abs(value))
        # What the quadratic without damping promises at its minimum along the direction: small
        # steps under heavy damping must not pass for convergence.
        undamped = state.slope**2 / _or_one(2 * curvature * squared_length)
        little_to_gain = (smallest_decrease > 0) & (curvature > 0) & (undamped <= threshold)
        quiet_step = little_to_gain & (state.value - found_value <= threshold)
        quiet = jnp.where(accept, jnp.where(quiet_step, state.quiet + 1, 0), state.quiet)
        converged = flat | (accept & (quiet >= 2)) | (stalled & finite & little_to_gain)

        return _State(
            phase=phase.astype(jnp.int32),
            point=point,
            value=value,
            start_value=jnp.where(is_first, found_value, state.start_value),
            gradient=gradient,
            gradient_square=gradient_square,
            direction=direction,
            slope=slope,
            squared_length=square,
            reach=reach,
            offset=offset,
            curvature=curvature,
            damping=damping,
            since_restart=since_restart,
            quiet=quiet,
            steps=state.steps + is_trial,
            evaluations=state.evaluations + 1,
            accepted=state.accepted + accept,
            converged=converged,
            stopped=converged | stalled | (is_first & ~finite),
        )

    zero = jnp.zeros((), dtype)
    none = jnp.zeros((), jnp.int32)
    no = jnp.zeros((), bool)
    state = lax.while_loop(
        unfinished,
        advance,
        _State(
            phase=jnp.asarray(_FIRST, jnp.int32),
            point=start,
            value=zero,
            start_value=zero,
            gradient=trees.zeros_like(start),
            gradient_square=zero,
            direction=trees.zeros_like(start),
            slope=zero,
            squared_length=zero,
            reach=zero,
            offset=zero,
            curvature=zero,
            damping=zero,
            since_restart=none,
            quiet=none,
            steps=none,
            evaluations=none,
            accepted=none,
            converged=no,
            stopped=no,
        ),
    )
    return OptimiserResult(
        point=state.point,
        value=state.value,
        gradient=state.gradient,
        start_value=state.start_value,
        steps=state.steps,
        evaluations=state.evaluations,
        accepted=state.accepted,
        converged=state.converged,
    )


def _or_one(number: jax.Array) -> jax.Array:
    """Return `number`, or one in place of zero: a divisor for branches not taken."""
    return jnp.where(number == 0, jnp.ones_like(number), number)


def _size(point: PyTree, dimension: int) -> jax.Array:
    """Return a length that counts as large for a step from `point`."""
    return jnp.sqrt(trees.squared_norm(point)) + math.sqrt(max(dimension, 1))


def _reach(point: PyTree, direction: PyTree) -> jax.Array:
    """Return the multiple of `direction` that changes `point` by about its own size.

    The largest element of the direction sets it, so that no single coordinate moves further,
    however many there are.
    """
    return trees.typical_size(point, direction) / _or_one(trees.top(direction))


def _probe(dtype: jnp.dtype, gradient_error: float | None) -> float:
    """Return how far to go for the curvature, relative to the reach.

    The difference of two gradients over a distance h carries a rounding error of about
    r / h, where r is the relative error of a gradient, and a truncation error proportional to h.
    They balance at h = sqrt(r), relative to the size of the coordinates that move.  A gradient
    that is a long sum through a factorisation loses half of its digits, so r is taken as
    eps**0.6: what is too short is noise that the following steps amplify, and rows in blocks of
    another size then end elsewhere; what is too long is smooth.
    """
    if gradient_error is not None:
        return math.sqrt(gradient_error)
    return trees.machine_epsilon(dtype) ** 0.3


def _propose(
    curvature: jax.Array,
    damping: jax.Array,
    slope: jax.Array,
    squared_length: jax.Array,
    size: jax.Array,
) -> _Step:
    """Return the step to the minimum of the damped quadratic, made convex where it is not."""
    damping = jnp.where(curvature + damping <= 0, -2 * curvature, damping)
    least = -slope / (jnp.sqrt(squared_length) * _LONGEST_STEP * size)
    damping = jnp.maximum(damping, least - curvature)
    length = -slope / _or_one((curvature + damping) * squared_length)
    return _Step(damping, length)


def _next_damping(
    state: _State, finite: jax.Array, accept: jax.Array, ratio: jax.Array
) -> jax.Array:
    """Return the damping after a trial whose decrease was `ratio` times the predicted one."""
    stiffness = state.curvature + state.damping
    # A rejected step has at least to be halved, also where rounding alone made it look worse.
    least_increase = jnp.where(accept, 0.0, 1.0).astype(ratio.dtype)
    increase = jnp.clip(1 - ratio, least_increase, _LARGEST_DAMPING_INCREASE)
    after_bad = state.damping + stiffness * increase
    after_wall = state.damping + stiffness * (_SHORTENING_AFTER_NON_FINITE - 1)
    after_good = jnp.where(ratio >= 0.75, state.damping / 4, state.damping)
    bad = ~accept | (ratio < 0.25)
    return jnp.where(finite, jnp.where(bad, after_bad, after_good), after_wall)
