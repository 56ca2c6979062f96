"""L-BFGS and scaled conjugate gradients behind one ``init``/``step`` protocol.

An optimizer is two functions on a state of its own (:mod:`sgpmic.learning.optimizers.scg`,
:mod:`sgpmic.learning.optimizers.lbfgs`): ``init`` makes the first state, ``step`` takes the
objective at the point that the state asked for and returns the next one. :func:`minimize` calls the
objective at one place only, in the body of one ``lax.while_loop``: a large objective is compiled
once, and no number goes back to the host between iterations.

A parameter vector is a pytree of floating-point arrays. It is never flattened into one long array,
because its leaves may be sharded; sums of products are taken leaf by leaf for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

PyTree = Any
ValueAndGrad = Callable[[PyTree], tuple[jax.Array, PyTree]]


class Evaluation(NamedTuple):
    """The objective at a point."""

    point: PyTree
    value: jax.Array
    gradient: PyTree


class OptimizerResult(NamedTuple):
    """Where an optimizer is, and at the end where it stopped."""

    point: PyTree  # the best accepted one; the start itself where no step was accepted
    value: jax.Array  # of the objective at the point
    gradient: PyTree
    start_value: jax.Array
    steps: jax.Array  # accepted and rejected together
    evaluations: jax.Array  # the first one at the start included
    accepted: jax.Array  # steps
    converged: jax.Array  # the gradient's tolerance was met

    @classmethod
    def at(cls, start: PyTree) -> OptimizerResult:
        """Return the result before the first evaluation."""
        zero = jnp.zeros((), common_dtype(start))
        none = jnp.zeros((), jnp.int32)
        no = jnp.zeros((), bool)
        gradient = jax.tree.map(jnp.zeros_like, start)
        return cls(start, zero, gradient, zero, none, none, none, no)

    @property
    def here(self) -> Evaluation:
        """The objective at the point."""
        return Evaluation(self.point, self.value, self.gradient)

    def after(
        self, here: Evaluation, *, first: jax.Array, trial: jax.Array, accept: jax.Array
    ) -> OptimizerResult:
        """Return the result after one more evaluation, `converged` still to be decided.

        It was the ``first``, at the start, or a ``trial``, which counts as an iteration.
        """
        return OptimizerResult(
            *here,
            start_value=jnp.where(first, here.value, self.start_value),
            steps=self.steps + trial,
            evaluations=self.evaluations + 1,
            accepted=self.accepted + accept,
            converged=self.converged,
        )


class Settings(NamedTuple):
    """What an optimizer knows of the problem beside the objective; see :func:`minimize`."""

    gradient_tolerance: jax.Array
    dimension: jax.Array


def minimize(
    init: Callable[[PyTree], Any],
    step: Callable[[Any, Evaluation, Settings], Any],
    finish: Callable[[Any], OptimizerResult],
    value_and_grad: ValueAndGrad,
    start: PyTree,
    *,
    max_steps: int | jax.Array,
    gradient_tolerance: float | jax.Array = 0.0,
    dimension: int | jax.Array | None = None,
) -> OptimizerResult:
    """Minimize a smooth function; to be called inside ``jax.jit``, also under ``jax.vmap``.

    Values of accepted points never increase. A trial point where the objective or its gradient is
    not finite is rejected and the step shortened; a start that is not finite comes back unchanged.

    Parameters
    ----------
    init, step, finish : callables
        The algorithm: the first state, the one after an evaluation, and the result of the last.
        ``scg.minimize`` and ``lbfgs.minimize`` have theirs already. A state has a ``result``, the
        ``direction`` and ``length`` of the step from there to the next evaluation, and whether it
        has ``stopped``.
    value_and_grad : callable
        Maps a point to the scalar objective and its gradient, a tree like the point.
    start : pytree of floating-point arrays
        The search runs in the precision of these arrays.
    max_steps : int or integer scalar array
        Limit on the number of iterations, rejected ones included. One iteration costs one
        evaluation, and with SCG one more after every accepted step.
    gradient_tolerance : float, default=0.0
        Stop once no element of the gradient is larger than this in absolute value.
    dimension : int or integer scalar array, optional
        The number of real parameters, where others are padding: zeros with gradient zero. The
        course then does not depend on how much padding there is. By default all are real.
    """
    # A weakly typed leaf would change its type on the way round the loop, which makes JAX trace
    # the objective a second time.
    start = like(start, start)
    dtype = common_dtype(start)
    limit = jnp.asarray(max_steps, jnp.int32)
    if dimension is None:
        dimension = sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(start))
    settings = Settings(jnp.asarray(gradient_tolerance, dtype), jnp.asarray(dimension, jnp.int32))

    def unfinished(state: Any) -> jax.Array:
        result = state.result
        return (result.evaluations == 0) | (~state.stopped & (result.steps < limit))

    def advance(state: Any) -> Any:
        point = add_scaled(state.result.point, state.length, state.direction)
        value, gradient = value_and_grad(point)
        found = Evaluation(point, jnp.asarray(value, dtype), like(gradient, point))
        return step(state, found, settings)

    return finish(lax.while_loop(unfinished, advance, init(start)))


# The vector algebra of pytrees.


def common_dtype(tree: PyTree) -> jnp.dtype:
    """Return the type that scalars computed from all leaves together have."""
    return jnp.dtype(jnp.result_type(*jax.tree.leaves(tree)))


def like(tree: PyTree, pattern: PyTree) -> PyTree:
    """Return `tree` with the leaf types of `pattern`, strongly typed."""
    return jax.tree.map(lambda leaf, p: jnp.asarray(leaf, jnp.result_type(p)), tree, pattern)


def add_scaled(left: PyTree, factor: jax.Array, right: PyTree) -> PyTree:
    """Return ``left + factor * right``, in the leaf types of `left`."""
    return jax.tree.map(lambda a, b: a + factor.astype(a.dtype) * b, left, right)


def select(condition: jax.Array, if_true: PyTree, if_false: PyTree) -> PyTree:
    """Return one of two trees, as a scalar condition says."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), if_true, if_false)


def vdot(left: PyTree, right: PyTree) -> jax.Array:
    """Return the inner product of two trees as a scalar of their common type."""
    dtype = common_dtype(left)
    # Not jnp.vdot: that ravels its arguments, and a reshape can move a sharded leaf.
    products = jax.tree.map(lambda a, b: jnp.sum(a * b).astype(dtype), left, right)
    return sum(jax.tree.leaves(products), jnp.zeros((), dtype))


def squared_norm(tree: PyTree) -> jax.Array:
    """Return the squared Euclidean norm."""
    return vdot(tree, tree)


def max_norm(tree: PyTree) -> jax.Array:
    """Return the largest absolute value of any element, zero for a tree without elements."""
    dtype = common_dtype(tree)
    largest = (jnp.max(jnp.abs(leaf), initial=0).astype(dtype) for leaf in jax.tree.leaves(tree))
    return reduce(jnp.maximum, largest, jnp.zeros((), dtype))


def is_finite(tree: PyTree) -> jax.Array:
    """Return whether every element is finite."""
    finite = (jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree))
    return reduce(jnp.logical_and, finite, jnp.ones((), bool))


def or_one(number: jax.Array) -> jax.Array:
    """Return `number`, or one in place of zero: a divisor for branches not taken."""
    return jnp.where(number == 0, jnp.ones_like(number), number)


def epsilon_of(number: jax.Array) -> float:
    """Return the machine epsilon of a number's type."""
    return float(jnp.finfo(number.dtype).eps)


# What both optimizers judge a step by.


def typical_size(point: PyTree, direction: PyTree) -> jax.Array:
    """Return one plus the mean of ``abs(point)`` weighted by ``abs(direction)``.

    So one enormous coordinate that stays where it is does not set the scale for the others.
    """
    dtype = common_dtype(point)
    one = jnp.ones((), dtype)
    # Dividing by the largest element keeps products of huge gradients from overflowing.
    largest = max_norm(direction)
    unit = jnp.where(largest > 0, 1 / jnp.where(largest > 0, largest, one), one)
    weights = jax.tree.map(lambda leaf: jnp.abs(leaf) * unit.astype(leaf.dtype), direction)
    sizes = jax.tree.map(jnp.abs, point)
    total = vdot(weights, jax.tree.map(jnp.ones_like, weights))
    return one + vdot(sizes, weights) / jnp.where(total > 0, total, one)


def is_better(
    value: jax.Array, square: jax.Array, trial_value: jax.Array, trial_square: jax.Array
) -> jax.Array:
    """Return whether a trial has a lower value, or an equal one and a smaller gradient.

    With equal values alone, steps as small as the rounding error would cycle.
    """
    return (trial_value < value) | ((trial_value == value) & (trial_square < square))


def measured_decrease(
    value: jax.Array,
    trial_value: jax.Array,
    length: jax.Array,
    slope: jax.Array,
    trial_slope: jax.Array,
) -> jax.Array:
    """Return the decrease of the objective over a step, where need be from its slopes.

    Close to an optimum the difference of two values is lost in rounding long before the gradients
    are: there the trapezoidal rule over the slopes is far more precise.
    """
    difference = value - trial_value
    rounding = 8 * epsilon_of(value) * jnp.maximum(jnp.abs(value), jnp.abs(trial_value))
    by_slopes = -length * (slope + trial_slope) / 2
    return jnp.where(jnp.abs(difference) <= rounding, by_slopes, difference)
