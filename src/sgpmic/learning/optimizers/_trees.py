"""The vector algebra of pytrees.

A parameter vector is a pytree of floating-point arrays.  It is never flattened into one long
array, because its leaves may be laid out over several devices; sums of products are taken leaf by
leaf without reshaping, for the same reason.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

PyTree = Any


def common_dtype(tree: PyTree) -> jnp.dtype:
    """Return the type that scalars computed from all leaves together have."""
    return jnp.dtype(jnp.result_type(*jax.tree.leaves(tree)))


def machine_epsilon(dtype: jnp.dtype) -> float:
    """Return the distance from one to the next larger number of a floating-point type."""
    return float(jnp.finfo(dtype).eps)


def number_of_elements(tree: PyTree) -> int:
    """Return the dimension of the vector that `tree` stands for."""
    return sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(tree))


def like(tree: PyTree, pattern: PyTree) -> PyTree:
    """Return `tree` with the leaf types of `pattern`, strongly typed."""
    return jax.tree.map(lambda leaf, p: jnp.asarray(leaf, jnp.result_type(p)), tree, pattern)


def or_one(number: jax.Array) -> jax.Array:
    """Return `number`, or one in place of zero: a divisor for branches not taken."""
    return jnp.where(number == 0, jnp.ones_like(number), number)


def zeros_like(tree: PyTree) -> PyTree:
    """Return zeros in the shape of `tree`."""
    return jax.tree.map(jnp.zeros_like, tree)


def negative(tree: PyTree) -> PyTree:
    """Return ``-tree``."""
    return jax.tree.map(jnp.negative, tree)


def subtract(left: PyTree, right: PyTree) -> PyTree:
    """Return ``left - right``."""
    return jax.tree.map(jnp.subtract, left, right)


def add_scaled(left: PyTree, factor: jax.Array, right: PyTree) -> PyTree:
    """Return ``left + factor * right``, in the leaf types of `left`."""
    return jax.tree.map(lambda a, b: a + factor.astype(a.dtype) * b, left, right)


def select(condition: jax.Array, if_true: PyTree, if_false: PyTree) -> PyTree:
    """Return one of two trees, as a scalar condition says."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), if_true, if_false)


def sum_of_products(left: PyTree, right: PyTree) -> jax.Array:
    """Return the inner product of two trees as a scalar of their common type."""
    dtype = common_dtype(left)
    # Not jnp.vdot: that ravels its arguments, and a reshape can move a sharded leaf.
    products = jax.tree.map(lambda a, b: jnp.sum(a * b).astype(dtype), left, right)
    return sum(jax.tree.leaves(products), jnp.zeros((), dtype))


def squared_norm(tree: PyTree) -> jax.Array:
    """Return the sum of the squares of all elements."""
    return sum_of_products(tree, tree)


def top(tree: PyTree) -> jax.Array:
    """Return the largest absolute value of any element, zero for a tree without elements."""
    dtype = common_dtype(tree)
    result = jnp.zeros((), dtype)
    for leaf in jax.tree.leaves(tree):
        result = jnp.maximum(result, jnp.max(jnp.abs(leaf), initial=0).astype(dtype))
    return result


def is_finite(tree: PyTree) -> jax.Array:
    """Return whether every element is finite."""
    result = jnp.ones((), bool)
    for leaf in jax.tree.leaves(tree):
        result = result & jnp.all(jnp.isfinite(leaf))
    return result


def typical_size(point: PyTree, direction: PyTree) -> jax.Array:
    """Return one plus the size of those coordinates of `point` that `direction` moves.

    The mean of ``abs(point)`` weighted by ``abs(direction)``, so that one enormous coordinate
    that stays where it is does not set the scale for the others.
    """
    dtype = common_dtype(point)
    one = jnp.ones((), dtype)
    # Dividing by the largest element keeps products of huge gradients from overflowing.
    largest = top(direction)
    unit = jnp.where(largest > 0, 1 / jnp.where(largest > 0, largest, one), one)
    weights = jax.tree.map(lambda leaf: jnp.abs(leaf) * unit.astype(leaf.dtype), direction)
    sizes = jax.tree.map(jnp.abs, point)
    total = sum_of_products(weights, jax.tree.map(jnp.ones_like, weights))
    return one + sum_of_products(sizes, weights) / jnp.where(total > 0, total, one)


def is_better(
    value: jax.Array, square: jax.Array, trial_value: jax.Array, trial_square: jax.Array
) -> jax.Array:
    """Return whether a trial has a lower value, or an equal one and a shorter gradient.

    With equal values allowed, steps as small as the rounding error would go round in circles;
    the length of the gradient, of which the squares are given, puts an end to that.
    """
    return (trial_value < value) | ((trial_value == value) & (trial_square < square))


def measured_decrease(
    value: jax.Array,
    trial_value: jax.Array,
    length: jax.Array,
    slope: jax.Array,
    trial_slope: jax.Array,
) -> jax.Array:
    """Return by how much a step lowered the objective, from its gradients where need be.

    Close to an optimum the difference of two values drowns in their rounding long before the
    gradients do.  There the integral of the slope along the step, by the trapezium rule, tells
    the decrease far more precisely.
    """
    difference = value - trial_value
    rounding = 8 * machine_epsilon(value.dtype) * jnp.maximum(jnp.abs(value), jnp.abs(trial_value))
    by_slopes = -length * (slope + trial_slope) / 2
    return jnp.where(jnp.abs(difference) <= rounding, by_slopes, difference)
