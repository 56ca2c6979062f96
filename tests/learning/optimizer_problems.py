"""What optimizers are tried on, and a way to run them that compiles little."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgpmic.learning.optimizers import OptimizerResult, lbfgs
from sgpmic.learning.scg import scg

Objective = Callable[[Any], jax.Array]
Solver = Callable[..., OptimizerResult]

every_solver = pytest.mark.parametrize("solver", [scg, lbfgs], ids=["scg", "lbfgs"])


def rosenbrock(x: jax.Array) -> jax.Array:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock_start(dimension: int) -> np.ndarray:
    return np.resize([-1.2, 1.0], dimension)


def convex_quadratic(dimension: int, condition: float, seed: int) -> tuple[Objective, np.ndarray]:
    """Return a quadratic in rotated axes and the point where it is least."""
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(dimension, dimension)))
    hessian = (rotation * np.logspace(0, np.log10(condition), dimension)) @ rotation.T
    optimum = generator.normal(size=dimension)
    return lambda x: 0.5 * (x - optimum) @ jnp.asarray(hessian) @ (x - optimum), optimum


@functools.cache
def logistic_regression() -> Objective:
    generator = np.random.default_rng(5)
    inputs = generator.normal(size=(200, 8)) * np.logspace(-1, 1, 8)
    labels = np.where(inputs @ generator.normal(size=8) + generator.normal(size=200) > 0, 1.0, -1.0)

    def loss(weights: jax.Array) -> jax.Array:
        margins = jnp.asarray(labels) * (jnp.asarray(inputs) @ weights)
        return jnp.sum(jnp.logaddexp(0.0, -margins)) + 0.5 * jnp.sum(weights**2)

    return loss


def log_barrier(x: jax.Array) -> jax.Array:
    """NaN where any x is negative; least at one."""
    return jnp.sum(x - jnp.log(x))


def slope_to_a_wall(x: jax.Array) -> jax.Array:
    """Downhill all the way to one, and NaN from there on."""
    return -jnp.sum(jnp.where(x < 1, x, jnp.nan))


def many_minima(x: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sin(3 * x) + 0.1 * x**2)


def saddle(x: jax.Array) -> jax.Array:
    """Have a saddle at the origin, between two minima."""
    return x[0] ** 2 - x[1] ** 2 + 0.25 * x[1] ** 4 + x[2] ** 2


def plane(x: jax.Array) -> jax.Array:
    return jnp.sum(x)


def bowl(x: jax.Array) -> jax.Array:
    return jnp.sum(x**2)


# Compiling takes far longer than solving here.  So one program serves all limits and tolerances,
# and also all of these problems, as alternatives within one objective.
SMALL_PROBLEMS = (rosenbrock, log_barrier, slope_to_a_wall, many_minima, saddle, plane, bowl)


@functools.cache
def program(solver: Solver, alternatives: tuple[Objective, ...]) -> Any:
    def solve(point: Any, which: jax.Array, options: dict[str, jax.Array]) -> OptimizerResult:
        value_and_grad = jax.value_and_grad(lambda x: jax.lax.switch(which, alternatives, x))
        result: OptimizerResult = solver(value_and_grad, point, **options)
        return result

    return jax.jit(solve)


def run(
    solver: Solver,
    objective: Objective,
    start: Any,
    *,
    max_steps: int,
    gradient_tolerance: float = 0.0,
) -> Any:
    """Return what `solver` finds, compiled, on the host."""
    options = {"max_steps": max_steps, "gradient_tolerance": gradient_tolerance}
    small = objective in SMALL_PROBLEMS and jnp.shape(start) == (3,)
    alternatives = SMALL_PROBLEMS if small else (objective,)
    solve = program(solver, alternatives)
    return jax.device_get(solve(start, alternatives.index(objective), options))
