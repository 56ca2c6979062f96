"""Every optimizer on every problem, against known optima and against SciPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning.optimizer_problems import (
    SMALL_PROBLEMS,
    Solver,
    bowl,
    convex_quadratic,
    every_solver,
    log_barrier,
    logistic_regression,
    many_minima,
    plane,
    program,
    rosenbrock,
    rosenbrock_start,
    run,
    saddle,
    slope_to_a_wall,
)

from sgpmic.learning import optimizers
from sgpmic.learning.optimizers import lbfgs
from sgpmic.learning.scg import scg

pytestmark = pytest.mark.usefixtures("double_precision")


@every_solver
def test_ill_conditioned_quadratic(solver: Solver) -> None:
    objective, optimum = convex_quadratic(dimension=20, condition=1e4, seed=1)
    result = run(solver, objective, np.zeros(20), max_steps=2000, gradient_tolerance=1e-9)
    assert result.converged
    np.testing.assert_allclose(result.point, optimum, rtol=0, atol=1e-8)
    assert result.value < 1e-17


@every_solver
@pytest.mark.parametrize("dimension", [2, 10])
def test_rosenbrock(solver: Solver, dimension: int) -> None:
    result = run(
        solver, rosenbrock, rosenbrock_start(dimension), max_steps=500, gradient_tolerance=1e-9
    )
    assert result.converged
    # In ten dimensions there is a second, worse minimum; from this start both find the best one.
    np.testing.assert_allclose(result.point, np.ones(dimension), rtol=0, atol=1e-7)


@every_solver
def test_logistic_regression_agrees_with_scipy(solver: Solver) -> None:
    objective = logistic_regression()
    value_and_grad = jax.jit(jax.value_and_grad(objective))
    reference = scipy.optimize.minimize(
        lambda w: tuple(np.asarray(part) for part in value_and_grad(w)),
        np.zeros(8),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 0.0, "gtol": 1e-7, "maxiter": 10_000},
    )
    result = run(solver, objective, np.zeros(8), max_steps=1000, gradient_tolerance=1e-6)
    assert result.converged
    np.testing.assert_allclose(result.value, reference.fun, rtol=1e-13)
    np.testing.assert_allclose(result.point, reference.x, rtol=0, atol=1e-6)


@every_solver
def test_few_evaluations_are_wasted(solver: Solver) -> None:
    """A guard against changes that keep the answers and lose the speed."""
    result = run(solver, rosenbrock, rosenbrock_start(2), max_steps=500, gradient_tolerance=1e-9)
    assert result.evaluations <= 150
    assert result.accepted >= 0.7 * result.steps


@every_solver
def test_the_optimum_lies_behind_a_region_without_values(solver: Solver) -> None:
    result = run(
        solver, log_barrier, np.array([50.0, 3.0, 1e-3]), max_steps=500, gradient_tolerance=1e-9
    )
    assert result.converged
    assert result.steps > result.accepted, "no step ever met the region: the test is idle"
    np.testing.assert_allclose(result.point, np.ones(3), rtol=0, atol=1e-8)


@every_solver
def test_a_wall_on_the_way_down_is_approached_and_not_crossed(solver: Solver) -> None:
    result = run(solver, slope_to_a_wall, np.zeros(3), max_steps=500)
    assert np.all(result.point < 1)
    assert np.all(result.point > 1 - 1e-6)
    assert not result.converged
    assert result.steps < 500, "it has to notice that it cannot get any further"


@every_solver
def test_infinite_gradient_with_a_finite_value_is_rejected(solver: Solver) -> None:
    def objective(x: jax.Array) -> jax.Array:
        return jnp.sum((x - 1) ** 2)

    def value_and_grad(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(objective)(x)
        return value, jnp.where(jnp.all(x < 1.5), gradient, jnp.inf)

    result = jax.jit(lambda x: solver(value_and_grad, x, max_steps=200, gradient_tolerance=1e-9))(
        jnp.asarray([-30.0, 1.0])
    )
    assert result.converged
    np.testing.assert_allclose(result.point, np.ones(2), rtol=0, atol=1e-8)


@every_solver
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_start_without_a_value_comes_back_unchanged(solver: Solver, bad: float) -> None:
    start = np.array([2.0, 1.0, bad])
    result = run(solver, log_barrier, start, max_steps=10, gradient_tolerance=1e9)
    np.testing.assert_array_equal(result.point, start)
    assert not np.isfinite(result.value)
    assert not result.converged
    assert (result.steps, result.evaluations, result.accepted) == (0, 1, 0)


@every_solver
def test_values_never_increase(solver: Solver) -> None:
    limits = np.arange(60, dtype=np.int32)
    zero = jnp.zeros(60)
    options = {"max_steps": limits, "gradient_tolerance": zero}
    solve = jax.jit(jax.vmap(program(solver, SMALL_PROBLEMS), in_axes=(None, None, 0)))
    for objective, start in [
        (rosenbrock, [-1.2, 1.0, -1.2]),
        (log_barrier, [50.0, 3.0, 1e-3]),
        (slope_to_a_wall, [0.0, 0.5, -10.0]),
        (many_minima, [4.0, -2.0, 0.3]),
    ]:
        results = jax.device_get(solve(np.array(start), SMALL_PROBLEMS.index(objective), options))
        assert np.all(np.diff(results.value) <= 0)
        assert results.value[-1] < results.value[0]
        np.testing.assert_array_equal(results.start_value, results.value[0])
        assert np.all(results.steps <= limits)
        values, gradients = jax.jit(jax.vmap(jax.value_and_grad(objective)))(results.point)
        np.testing.assert_allclose(results.value, values, rtol=1e-9, atol=1e-25)
        np.testing.assert_allclose(results.gradient, gradients, rtol=1e-6, atol=1e-6)


@every_solver
def test_started_at_the_optimum(solver: Solver) -> None:
    objective = logistic_regression()
    optimum = run(solver, objective, np.zeros(8), max_steps=1000).point
    again = run(solver, objective, optimum, max_steps=1000, gradient_tolerance=1e-6)
    assert again.converged
    assert again.steps < 60
    flat = run(solver, bowl, np.zeros(3), max_steps=10)
    assert flat.converged
    assert (flat.steps, flat.evaluations) == (0, 1)


@every_solver
def test_no_steps_returns_the_start_with_its_value(solver: Solver) -> None:
    start = rosenbrock_start(2)
    result = run(solver, rosenbrock, start, max_steps=0)
    np.testing.assert_array_equal(result.point, start)
    np.testing.assert_allclose(result.value, rosenbrock(jnp.asarray(start)))
    np.testing.assert_allclose(result.gradient, jax.grad(rosenbrock)(start))
    assert (result.steps, result.evaluations, result.accepted) == (0, 1, 0)
    assert not result.converged


@every_solver
def test_unbounded_below_is_followed_without_overflow(solver: Solver) -> None:
    result = run(solver, plane, np.zeros(3), max_steps=30)
    assert np.isfinite(result.value)
    assert result.value < -1e3


@every_solver
def test_a_saddle_is_left(solver: Solver) -> None:
    result = run(solver, saddle, np.array([1.0, 1e-3, 0.1]), max_steps=200, gradient_tolerance=1e-9)
    assert result.converged
    np.testing.assert_allclose(np.abs(result.point), [0, np.sqrt(2), 0], atol=1e-8)


def test_lbfgs_direction_equals_dense_bfgs() -> None:
    """The newest pairs, no more than the memory holds, give the textbook inverse Hessian."""
    memory, dimension = 3, 6
    generator = np.random.default_rng(7)
    root = generator.normal(size=(dimension, dimension))
    hessian = root @ root.T + np.eye(dimension)
    steps = generator.normal(size=(5, dimension))
    changes = steps @ hessian
    slots = jnp.zeros((memory, dimension))
    history = optimizers._History(slots, slots, jnp.zeros(memory), jnp.zeros((), jnp.int32))
    remember = jax.jit(optimizers._remember)
    for step, change in zip(steps, changes, strict=True):
        history = remember(history, True, step, change)
        history = remember(history, False, change, step)  # not accepted
        history = remember(history, True, step, -change)  # negative curvature
    step, change = steps[-1], changes[-1]
    inverse = np.eye(dimension) * (step @ change) / (change @ change)
    for step, change in zip(steps[-memory:], changes[-memory:], strict=True):
        weight = 1 / (step @ change)
        left = np.eye(dimension) - weight * np.outer(step, change)
        inverse = left @ inverse @ left.T + weight * np.outer(step, step)
    gradient = generator.normal(size=dimension)
    direction = jax.jit(optimizers._direction)(history, gradient)
    np.testing.assert_allclose(direction, -inverse @ gradient, rtol=1e-10)


# Compiled once: Hypothesis then only changes the numbers.
_DIMENSION = 5


def _solve_quadratic(
    solver: Solver, hessian: jax.Array, optimum: jax.Array, start: jax.Array
) -> Any:
    def objective(x: jax.Array) -> jax.Array:
        return 0.5 * (x - optimum) @ hessian @ (x - optimum)

    return solver(jax.value_and_grad(objective), start, max_steps=3000, gradient_tolerance=1e-7)


_quadratic_solver = {
    solver: jax.jit(lambda *args, solver=solver: _solve_quadratic(solver, *args))
    for solver in (scg, lbfgs)
}


@every_solver
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    condition=st.floats(0, 5),
    scale=st.floats(-3, 3),
    distance=st.floats(-2, 3),
)
def test_random_convex_quadratics(
    solver: Solver, seed: int, condition: float, scale: float, distance: float
) -> None:
    generator = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(generator.normal(size=(_DIMENSION, _DIMENSION)))
    eigenvalues = 10.0 ** (scale + condition * generator.uniform(size=_DIMENSION))
    hessian = (rotation * eigenvalues) @ rotation.T
    optimum = generator.normal(size=_DIMENSION)
    start = optimum + 10.0**distance * generator.normal(size=_DIMENSION)
    result = jax.device_get(_quadratic_solver[solver](hessian, optimum, start))
    assert result.converged
    error = np.linalg.norm(result.point - optimum)
    # |error| <= |gradient| / smallest eigenvalue.
    assert error <= 1.01 * np.sqrt(_DIMENSION) * 1e-7 / eigenvalues.min()
