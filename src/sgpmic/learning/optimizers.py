"""Optimizers with a common ``init``/``step`` protocol, and L-BFGS.

:func:`minimize` calls the objective at a single place, in the body of a ``lax.while_loop``, so that
a large objective is compiled once, and nothing is transferred to the host between iterations.
Scaled conjugate gradients are in :mod:`sgpmic.learning.scg`.

Parameters are a pytree of arrays of one floating-point type. They are never flattened into one
array, because leaves may be sharded; inner products are computed leaf by leaf for the same reason.

The line search of L-BFGS brackets a point that satisfies the weak Wolfe conditions (Lewis and
Overton, Mathematical Programming 141, 2013): a trial without sufficient decrease becomes the far
end of the bracket, one at which the slope is still too steep becomes the near end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

PyTree = Any
ValueAndGrad = Callable[[PyTree], tuple[Array, PyTree]]

#: Number of stored correction pairs of L-BFGS. Each costs two copies of the parameters.
MEMORY = 10

_SUFFICIENT_DECREASE = 1e-4
_SLOPE_REDUCTION = 0.9
# A line search with more trials than this has met a wall or a kink: accept the near end.
_LONGEST_SEARCH = 25
# Factor on the step length after a trial at which the slope is still too steep.
_EXPANSION = 4.0


class Evaluation(NamedTuple):
    """The objective at a point."""

    point: PyTree
    value: Array
    gradient: PyTree


class OptimizerResult(NamedTuple):
    """Current point of an optimizer and its statistics."""

    point: PyTree  # the last accepted point, or the start
    value: Array  # of the objective at the point
    gradient: PyTree
    start_value: Array
    steps: Array  # accepted and rejected
    evaluations: Array  # including the one at the start
    accepted: Array  # accepted steps
    converged: Array  # the gradient is within the tolerance
    stopped: Array  # converged, or no descent is possible

    @classmethod
    def at(cls, start: PyTree) -> OptimizerResult:
        """Return the result before the first evaluation."""
        dtype = jax.tree.leaves(start)[0].dtype
        zero, none, no = (jnp.zeros((), kind) for kind in (dtype, jnp.int32, bool))
        gradient = jax.tree.map(jnp.zeros_like, start)
        return cls(start, zero, gradient, zero, none, none, none, no, no)

    @property
    def here(self) -> Evaluation:
        """The objective at the point."""
        return Evaluation(self.point, self.value, self.gradient)

    def after(
        self,
        here: Evaluation,
        tolerance: Array,
        finite: Array,
        trial: Array,
        accept: Array,
        stalled: Array,
    ) -> OptimizerResult:
        """Return the result after one more evaluation.

        A ``trial`` counts as a step, other evaluations do not; ``stalled`` says that no descent is
        possible.
        """
        first = self.evaluations == 0
        converged = finite & (first | accept) & (max_norm(here.gradient) <= tolerance)
        return OptimizerResult(
            *here,
            start_value=jnp.where(first, here.value, self.start_value),
            steps=self.steps + trial,
            evaluations=self.evaluations + 1,
            accepted=self.accepted + accept,
            converged=converged,
            stopped=converged | stalled | (first & ~finite),
        )


def minimize(
    init: Callable[[PyTree], Any],
    step: Callable[[Any, Evaluation, Array, Array], Any],
    finish: Callable[[Any], OptimizerResult],
    value_and_grad: ValueAndGrad,
    start: PyTree,
    *,
    max_steps: int | Array,
    gradient_tolerance: float | Array = 0.0,
    dimension: int | Array | None = None,
) -> OptimizerResult:
    """Minimize a smooth function; for use inside ``jax.jit``, also under ``jax.vmap``.

    The values of accepted points never increase. A trial point with a non-finite objective or
    gradient is rejected and the step shortened; a start with one is returned unchanged.

    ``init`` returns the first state, ``step`` the one after an evaluation, and ``finish`` the
    result from the last; they are bound in ``lbfgs`` and ``scg``. A state has a ``result`` and the
    ``direction`` and ``length`` of the step to the next evaluation. The search stops when no
    element of the gradient exceeds ``gradient_tolerance``, or after ``max_steps``, including
    rejected ones; a step costs one evaluation, and with SCG one more if accepted. ``dimension`` is
    the number of parameters without padding, whose values and gradients are zero.
    """
    if dimension is None:
        dimension = sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(start))
    first = init(jax.tree.map(jnp.asarray, start))
    dtype, limit = first.result.value.dtype, jnp.asarray(max_steps, jnp.int32)
    known = (jnp.asarray(gradient_tolerance, dtype), jnp.asarray(dimension, jnp.int32))

    def unfinished(state: Any) -> Array:
        result = state.result
        return (result.evaluations == 0) | (~result.stopped & (result.steps < limit))

    def advance(state: Any) -> Any:
        point = add_scaled(state.result.point, state.length, state.direction)
        return step(state, Evaluation(point, *value_and_grad(point)), *known)

    return finish(lax.while_loop(unfinished, advance, first))


# Vector algebra on pytrees.


def add_scaled(left: PyTree, factor: Array, right: PyTree) -> PyTree:
    """Return ``left + factor * right``."""
    return jax.tree.map(lambda a, b: a + factor * b, left, right)


def select(condition: Array, if_true: PyTree, if_false: PyTree) -> PyTree:
    """Return one of two trees by a scalar condition."""
    return jax.tree.map(partial(jnp.where, condition), if_true, if_false)


def vdot(left: PyTree, right: PyTree) -> Array:
    """Return the inner product of two trees."""
    # Not jnp.vdot, which ravels its arguments: a reshape can move a sharded leaf.
    products: Any = jax.tree.map(lambda a, b: jnp.sum(a * b), left, right)
    return jax.tree.reduce(jnp.add, products)


def max_norm(tree: PyTree) -> Array:
    """Return the largest absolute value of any element."""
    largest: Any = jax.tree.map(lambda leaf: jnp.max(jnp.abs(leaf), initial=0), tree)
    return jax.tree.reduce(jnp.maximum, largest)


def is_finite(tree: PyTree) -> Array:
    """Return whether every element is finite."""
    finite: Any = jax.tree.map(lambda leaf: jnp.all(jnp.isfinite(leaf)), tree)
    return jax.tree.reduce(jnp.logical_and, finite)


def or_one(number: Array) -> Array:
    """Replace zero by one, for divisors in branches not taken."""
    return jnp.where(number == 0, jnp.ones_like(number), number)


def epsilon_of(number: Array) -> float:
    """Return the machine epsilon of a number's type."""
    return float(jnp.finfo(number.dtype).eps)


# Step acceptance, for both optimizers.


def typical_size(point: PyTree, direction: PyTree) -> Array:
    """Return one plus the mean of ``abs(point)`` weighted by ``abs(direction)``."""
    # A huge coordinate that does not move must not set the scale for the others. Dividing by the
    # largest element keeps products of huge gradients from overflowing.
    unit = 1 / or_one(max_norm(direction))
    weights = jax.tree.map(lambda leaf: jnp.abs(leaf) * unit, direction)
    total = vdot(weights, jax.tree.map(jnp.ones_like, weights))
    return 1 + vdot(jax.tree.map(jnp.abs, point), weights) / or_one(total)


def is_better(value: Array, square: Array, trial_value: Array, trial_square: Array) -> Array:
    """Return whether a trial has a lower value, or an equal one and a smaller gradient."""
    # If equal values alone were enough, steps the size of the rounding error would cycle.
    return (trial_value < value) | ((trial_value == value) & (trial_square < square))


def measured_decrease(
    value: Array, trial_value: Array, length: Array, slope: Array, trial_slope: Array
) -> Array:
    """Return the decrease of the objective over a step, from its slopes if necessary."""
    # Near an optimum, the difference of two values is lost to rounding long before the gradients
    # are; the trapezoidal rule on the slopes is then far more precise.
    difference = value - trial_value
    rounding = 8 * epsilon_of(value) * jnp.maximum(jnp.abs(value), jnp.abs(trial_value))
    by_slopes = -length * (slope + trial_slope) / 2
    return jnp.where(jnp.abs(difference) <= rounding, by_slopes, difference)


# Limited-memory BFGS.


class _Bracket(NamedTuple):
    """Bracket of the line search, as multiples of the direction."""

    near: Array  # the best point so far with sufficient decrease
    near_value: Array
    near_slope: Array
    far: Array  # a point without; infinite until there is one
    far_value: Array
    far_slope: Array


class _History(NamedTuple):
    """Ring buffer of the last steps and gradient changes, along the leading axis.

    A ring, because shifting all pairs by one slot would take a good part of an evaluation.
    """

    steps: PyTree
    changes: PyTree
    weights: Array  # 1 / (step . change), or 0 for empty slots, which thus have no effect
    pushed: Array  # total number of pairs pushed

    def pair(self, age: Array | int) -> tuple[PyTree, PyTree, Array]:
        """Return step, gradient change and weight of the pair of this age, 0 for the newest."""
        slot = (self.pushed - 1 - age) % len(self.weights)
        found: Any = jax.tree.map(lambda slots: slots[slot], self[:3])
        return found


class LBFGSState(NamedTuple):
    """State of L-BFGS between evaluations."""

    result: OptimizerResult
    direction: PyTree
    slope: Array  # of the objective along the direction
    length: Array  # the next evaluation is at point + length * direction
    bracket: _Bracket
    near_gradient: PyTree
    trials: Array  # evaluations in this line search
    history: _History

    @property
    def near(self) -> Evaluation:
        """The objective at the near end of the bracket."""
        point = add_scaled(self.result.point, self.bracket.near, self.direction)
        return Evaluation(point, self.bracket.near_value, self.near_gradient)


def lbfgs_init(start: PyTree) -> LBFGSState:
    """Return the state before the first evaluation, which is at the start."""
    result = OptimizerResult.at(start)
    zero, nowhere = result.value, jax.tree.map(jnp.zeros_like, start)
    slots = jax.tree.map(lambda leaf: jnp.zeros((MEMORY, *leaf.shape), leaf.dtype), start)
    return LBFGSState(
        result=result,
        direction=nowhere,
        slope=zero,
        length=zero,
        bracket=_open_bracket(zero, zero),
        near_gradient=nowhere,
        trials=result.steps,
        history=_History(slots, slots, jnp.zeros(MEMORY, zero.dtype), result.steps),
    )


def lbfgs_step(
    state: LBFGSState, found: Evaluation, tolerance: Array, dimension: Array
) -> LBFGSState:
    """Return the state after an evaluation: at the start, or of a trial of the line search."""
    before = state.result
    first = before.evaluations == 0
    finite = jnp.isfinite(found.value) & is_finite(found.gradient)
    searched, next_length, accept, failed = _search(state, found, finite, ~first)
    stalled = failed & (state.history.pair(0)[2] == 0)

    # The accepted point is the near end of the bracket, whether this trial or an earlier one.
    near = searched.near
    here = select(accept, near, select(first, found, before.here))
    result = before.after(here, tolerance, finite, ~first, accept, stalled)
    step_taken = jax.tree.map(jnp.subtract, near.point, before.point)
    change = jax.tree.map(jnp.subtract, near.gradient, before.gradient)
    history = _remember(state.history, accept, step_taken, change)
    history = history._replace(weights=jnp.where(failed, 0, history.weights))
    is_new = first | accept | failed
    direction, slope, length, history = _turn(state, history, result.gradient, is_new, next_length)
    return LBFGSState(
        result=result,
        direction=direction,
        slope=slope,
        length=length,
        bracket=select(is_new, _open_bracket(result.value, slope), searched.bracket),
        near_gradient=searched.near_gradient,
        trials=jnp.where(is_new, 0, state.trials + 1),
        history=history,
    )


def lbfgs_finish(state: LBFGSState) -> OptimizerResult:
    """Return the result, even if the steps ran out in the middle of a line search."""
    better = state.bracket.near > 0
    here = select(better, state.near, state.result.here)
    return state.result._replace(**here._asdict(), accepted=state.result.accepted + better)


def _search(
    state: LBFGSState, found: Evaluation, finite: Array, trial: Array
) -> tuple[LBFGSState, Array, Array, Array]:
    """Return the state with a new bracket, the length to try, and whether to accept or give up."""
    before = state.result
    slope = vdot(found.gradient, state.direction)
    squares = vdot(before.gradient, before.gradient), vdot(found.gradient, found.gradient)
    better = is_better(before.value, squares[0], found.value, squares[1])
    # The weak Wolfe conditions: sufficient decrease, and curvature.
    decrease = measured_decrease(before.value, found.value, state.length, state.slope, slope)
    low_enough = decrease >= -_SUFFICIENT_DECREASE * state.length * state.slope
    lower = finite & better & low_enough
    flatter = slope >= _SLOPE_REDUCTION * state.slope
    nearer = state.bracket._replace(near=state.length, near_value=found.value, near_slope=slope)
    closed = state.bracket._replace(
        far=state.length,
        # An infinite value marks an end that cannot be used for interpolation.
        far_value=jnp.where(finite, found.value, jnp.full_like(found.value, jnp.inf)),
        far_slope=jnp.where(finite, slope, 0),
    )
    bracket = select(lower, nearer, closed)

    # The search ends at a trial that satisfies both conditions, or at the near end if the bracket
    # has vanished or the maximum number of trials is reached.
    next_length = _interpolate(bracket)
    epsilon = epsilon_of(found.value)
    smallest_move = epsilon * typical_size(before.point, state.direction)
    not_vanished = (next_length - bracket.near) * max_norm(state.direction) > smallest_move
    impatient = state.trials + 1 >= _LONGEST_SEARCH
    exhausted = trial & (~not_vanished | impatient | ~jnp.isfinite(next_length))
    accept = trial & ((lower & flatter) | (exhausted & (bracket.near > 0)))
    near_gradient = select(trial & lower, found.gradient, state.near_gradient)
    searched = state._replace(bracket=bracket, near_gradient=near_gradient)
    return searched, next_length, accept, exhausted & ~accept


def _turn(
    state: LBFGSState, history: _History, gradient: PyTree, is_new: Array, next_length: Array
) -> tuple[PyTree, Array, Array, _History]:
    """Return the next direction, its slope, the length to try, and the history."""
    steepness = jnp.sqrt(vdot(gradient, gradient))
    epsilon = epsilon_of(steepness)
    quasi_newton = _direction(history, gradient)
    quasi_newton_slope = vdot(quasi_newton, gradient)
    usable = is_finite(quasi_newton) & (
        quasi_newton_slope < -epsilon * steepness * jnp.sqrt(vdot(quasi_newton, quasi_newton))
    )
    history = history._replace(weights=jnp.where(is_new & ~usable, 0, history.weights))
    # Also after a failed line search, which has emptied the history.
    steepest = history.pair(0)[2] == 0
    proposal = select(steepest, jax.tree.map(jnp.negative, gradient), quasi_newton)
    proposal_slope = jnp.where(steepest, -(steepness**2), quasi_newton_slope)
    # A gradient says nothing about the step length: the first step has at most length one.
    cautious = jnp.minimum(1, 1 / or_one(steepness))
    return (
        select(is_new, proposal, state.direction),
        jnp.where(is_new, proposal_slope, state.slope),
        jnp.where(is_new, jnp.where(steepest, cautious, 1), next_length).astype(steepness.dtype),
        history,
    )


def _open_bracket(value: Array, slope: Array) -> _Bracket:
    """Return the initial bracket of a line search, without a far end."""
    zero, infinity = jnp.zeros_like(value), jnp.full_like(value, jnp.inf)
    return _Bracket(zero, value, slope, infinity, infinity, zero)


def _interpolate(bracket: _Bracket) -> Array:
    """Return the next trial: beyond the near end, or between the two ends."""
    near, far = bracket.near, bracket.far
    is_open = ~jnp.isfinite(far)
    width = jnp.where(is_open, 1, far - near)
    # Cubic interpolation of both values and slopes, in units of the width from the near end.
    rise = bracket.far_value - bracket.near_value
    near_slope = bracket.near_slope * width
    far_slope = bracket.far_slope * width
    inner = near_slope + far_slope - 3 * rise
    root = jnp.sqrt(jnp.maximum(inner**2 - near_slope * far_slope, 0))
    fraction = 1 - (far_slope + root - inner) / (far_slope - near_slope + 2 * root)
    # Away from the ends, so that the bracket shrinks by at least a tenth; a quarter if the far end
    # has no value to interpolate.
    fraction = jnp.where(jnp.isfinite(bracket.far_value), jnp.clip(fraction, 0.1, 0.9), 0.25)
    fraction = jnp.where(jnp.isnan(fraction), 0.5, fraction)
    return jnp.where(is_open, _EXPANSION * near, near + fraction * width)


def _remember(history: _History, accepted: Array, step: PyTree, change: PyTree) -> _History:
    """Add a pair to the history if it has positive curvature."""
    product = vdot(step, change)
    lengths = jnp.sqrt(vdot(step, step)) * jnp.sqrt(vdot(change, change))
    keep = accepted & (product > epsilon_of(product) ** 0.5 * lengths)
    slot = history.pushed % len(history.weights)

    def push(slots: Array, newest: Array) -> Array:
        return slots.at[slot].set(jnp.where(keep, newest, slots[slot]))

    weight = 1 / jnp.where(keep, product, 1)
    steps, changes, weights = jax.tree.map(push, history[:3], (step, change, weight))
    return _History(steps, changes, weights, history.pushed + keep)


def _direction(history: _History, gradient: PyTree) -> PyTree:
    """Return the direction by the two-loop recursion (Nocedal and Wright, 2006, algorithm 7.4)."""
    count = jnp.minimum(history.pushed, len(history.weights))

    def backward(age: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        vector, alphas = carry
        step, change, weight = history.pair(age)
        alpha = weight * vdot(step, vector)
        return add_scaled(vector, -alpha, change), alphas.at[age].set(alpha)

    def forward(turn: Array, vector: PyTree) -> PyTree:
        age = count - 1 - turn
        step, change, weight = history.pair(age)
        beta = weight * vdot(change, vector)
        return add_scaled(vector, alphas[age] - beta, step)

    start = jax.tree.map(jnp.negative, gradient), jnp.zeros_like(history.weights)
    vector, alphas = lax.fori_loop(0, count, backward, start)
    _, newest_change, newest_weight = history.pair(0)
    curvature = newest_weight * vdot(newest_change, newest_change)
    scale = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), 1)
    vector = jax.tree.map(lambda leaf: scale * leaf, vector)
    return lax.fori_loop(0, count, forward, vector)


#: :func:`minimize` by L-BFGS.
lbfgs = partial(minimize, lbfgs_init, lbfgs_step, lbfgs_finish)
