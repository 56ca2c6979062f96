"""Scaled conjugate gradients (Møller, Neural Networks 6, 1993).

Møller's notation and the names used here, with r = -g the residual and p the direction:

========  ======================  ==============================================================
σ         ``eps**0.3 * reach``    finite-difference step along p for the second gradient
δ         ``curvature``           p'Hp from the difference of two gradients; here over p'p
λ         ``damping``             added to the curvature to shorten the step
μ         ``-slope``              p'r
α         ``length``              μ/δ, the step along p
Δ         ``ratio``               actual over predicted decrease
β         ``conjugate``           coefficient of p in the next direction
========  ======================  ==============================================================

A step takes two evaluations, distinguished by ``probing`` in the state: a short distance along a
new direction for its curvature, and at the end of the proposed step, which is then accepted or
rejected. After a rejection only the second is repeated, with a shorter step.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from sgpmic.learning import optimizers as base
from sgpmic.learning.optimizers import Evaluation, OptimizerResult, PyTree, or_one

# Maximum step length, as a multiple of the norm of the point plus that of a vector of ones:
# without curvature, the step would be infinite.
_LONGEST_STEP = 100.0
# The initial damping limits the first step to this multiple of the same length.
_FIRST_STEP = 10.0
# Maximum factor by which a rejected step is shortened, however bad the trial value.
_LARGEST_DAMPING_INCREASE = 100.0
# A step into a region without finite values is shortened by this factor.
_SHORTENING_AFTER_NON_FINITE = 4.0
# The finite-difference step h for the curvature, relative to the reach, is this power of eps. The
# rounding error is about r / h, with gradients of relative error r, the truncation error
# proportional to h: they balance at h = sqrt(r). A gradient that is a long sum through a
# factorization loses half of its digits, so r is taken as eps**0.6. Too short a step gives noise,
# which later steps amplify; the error of too long a step is smooth.
_PROBE = 0.3


class State(NamedTuple):
    """State of SCG between evaluations."""

    result: OptimizerResult
    probing: Array  # whether the next evaluation is for the curvature
    gradient_square: Array  # g'g
    direction: PyTree  # p
    slope: Array  # g'p
    squared_length: Array  # p'p
    reach: Array  # the step along the direction that changes the point by about its own size
    length: Array  # the next evaluation is at point + length * direction
    curvature: Array  # p'Hp / p'p
    damping: Array  # Møller's λ
    since_restart: Array  # conjugate directions since the last steepest descent


def init(start: PyTree) -> State:
    """Return the state before the first evaluation, which is at the start."""
    result = OptimizerResult.at(start)
    zeros: dict[str, Any] = dict.fromkeys(State._fields, result.value)
    return State(**zeros)._replace(
        result=result,
        probing=result.converged,
        direction=jax.tree.map(jnp.zeros_like, start),
        since_restart=result.steps,
    )


def step(state: State, found: Evaluation, tolerance: Array, dimension: Array) -> State:
    """Return the state after an evaluation: at the start, for the curvature, or of a trial."""
    before, epsilon = state.result, base.epsilon_of(found.value)
    first = before.evaluations == 0
    trial = ~first & ~state.probing
    # Inner products over all parameters are long to compute and to compile: each just once.
    square = base.vdot(found.gradient, found.gradient)
    new_slope = base.vdot(found.gradient, state.direction)
    overlap = base.vdot(found.gradient, before.gradient)
    gradient_is_finite = jnp.isfinite(square)
    # δ over p'p. The gradients are subtracted first: a difference of two slopes is less accurate.
    # Without a finite curvature, the damping alone has to limit the step.
    change = jax.tree.map(jnp.subtract, found.gradient, before.gradient)
    probed = base.vdot(state.direction, change) / (
        or_one(state.length) * or_one(state.squared_length)
    )
    probed = jnp.where(gradient_is_finite & jnp.isfinite(probed), probed, 0)
    finite = jnp.isfinite(found.value) & gradient_is_finite
    curvature = jnp.where(state.probing, probed, state.curvature)
    accept, after_trial = _judge(state, found.value, square, new_slope, finite, trial)
    damping = jnp.where(trial, after_trial, state.damping)

    moved = first | accept
    here = base.select(moved, found, before.here)
    gradient_square = jnp.where(moved, square, state.gradient_square)
    steepness = jnp.sqrt(gradient_square)
    # The length scale of a large step.
    size = jnp.sqrt(base.vdot(here.point, here.point))
    size = size + jnp.sqrt(jnp.maximum(dimension, 1).astype(size.dtype))

    # If the step was shortened until it vanished, the direction is useless: fall back to steepest
    # descent, or stop if it was steepest descent already.
    _, length = _propose(curvature, damping, state.slope, or_one(state.squared_length), size)
    vanished = trial & ~accept & (length <= epsilon * state.reach)
    stalled = vanished & (state.since_restart == 0)
    restart = first | (vanished & ~stalled)

    # The direction is βp - g after an accepted step, -g at a restart, otherwise p itself. Without
    # exact line searches a conjugate direction may point uphill.
    conjugate = (square - overlap) / or_one(-state.slope)  # β
    its_slope = conjugate * new_slope - square
    its_square = conjugate**2 * state.squared_length - 2 * conjugate * new_slope + square
    usable = (
        (state.since_restart + 1 < dimension)
        & jnp.isfinite(its_square)
        & (its_slope < -epsilon * steepness * jnp.sqrt(jnp.maximum(its_square, 0)))
    )
    steepest = restart | (accept & ~usable)
    is_new = steepest | accept
    # One formula for both new directions: steepest descent is β = 0.
    share = jnp.where(steepest, 0, conjugate)
    turned = base.add_scaled(jax.tree.map(jnp.negative, here.gradient), share, state.direction)
    direction = base.select(is_new, turned, state.direction)
    slope, squared_length = base.vdot(here.gradient, direction), base.vdot(direction, direction)

    fresh_damping = steepness / (_FIRST_STEP * size)
    damping = jnp.where(restart, fresh_damping, damping)
    blind = state.probing & ~gradient_is_finite
    damping = jnp.where(blind, jnp.maximum(damping, fresh_damping), damping)

    # Next evaluation: the curvature of a new direction, or a (shorter) trial along the old one.
    convex_damping, length = _propose(curvature, damping, slope, or_one(squared_length), size)
    # The multiple of the direction that changes the point by about its own size. It is set by the
    # largest element, so that no coordinate moves further, however many there are.
    reach = base.typical_size(here.point, direction) / or_one(base.max_norm(direction))
    reach = jnp.where(is_new, reach, state.reach)
    return State(
        result=before.after(here, tolerance, finite, trial, accept, stalled),
        probing=is_new,
        gradient_square=gradient_square,
        direction=direction,
        slope=slope,
        squared_length=squared_length,
        reach=reach,
        length=jnp.where(is_new, epsilon**_PROBE * reach, length),
        curvature=curvature,
        damping=jnp.where(is_new, damping, convex_damping),
        since_restart=jnp.where(steepest, 0, state.since_restart + accept),
    )


def _judge(
    state: State, new_value: Array, square: Array, new_slope: Array, finite: Array, trial: Array
) -> tuple[Array, Array]:
    """Return whether a trial is accepted, and the new damping."""
    value, slope, length = state.result.value, state.slope, state.length
    promised = -length * slope / 2  # αμ/2, predicted by the damped quadratic
    decrease = base.measured_decrease(value, new_value, length, slope, new_slope)
    better = base.is_better(value, state.gradient_square, new_value, square)
    accept = trial & finite & better & (decrease >= 0)

    ratio = decrease / or_one(promised)  # Δ
    stiffness = state.curvature + state.damping
    # A rejected step is at least halved, even if only rounding made it look worse.
    least_increase = jnp.where(accept, 0.0, 1.0).astype(ratio.dtype)
    increase = jnp.clip(1 - ratio, least_increase, _LARGEST_DAMPING_INCREASE)
    after_bad = state.damping + stiffness * increase
    after_wall = state.damping + stiffness * (_SHORTENING_AFTER_NON_FINITE - 1)
    after_good = jnp.where(ratio >= 0.75, state.damping / 4, state.damping)
    bad = ~accept | (ratio < 0.25)
    return accept, jnp.where(finite, jnp.where(bad, after_bad, after_good), after_wall)


def _propose(
    curvature: Array, damping: Array, slope: Array, squared_length: Array, size: Array
) -> tuple[Array, Array]:
    """Return λ, raised if the quadratic is not convex, and the step α to its minimum."""
    damping = jnp.where(curvature + damping <= 0, -2 * curvature, damping)
    least = -slope / (jnp.sqrt(squared_length) * _LONGEST_STEP * size)
    damping = jnp.maximum(damping, least - curvature)
    length = -slope / or_one((curvature + damping) * squared_length)
    return damping, length


#: :func:`sgpmic.learning.optimizers.minimize` by scaled conjugate gradients.
scg = partial(base.minimize, init, step, lambda state: state.result)
