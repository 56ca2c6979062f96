"""Every optimiser on every problem, against known optima and against SciPy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from sgpmic.learning.optimisers import lbfgs, scg
from sgpmic.learning.optimisers.protocol import OptimiserResult

Objective = Callable[[Any], jax.Array]

every_solver = pytest.mark.parametrize("solver", [scg, lbfgs], ids=["scg", "lbfgs"])


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


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
def program(solver: ModuleType, alternatives: tuple[Objective, ...]) -> Any:
    def solve(point: Any, which: jax.Array, options: dict[str, jax.Array]) -> OptimiserResult:
        value_and_grad = jax.value_and_grad(lambda x: jax.lax.switch(which, alternatives, x))
        result: OptimiserResult = solver.minimise(value_and_grad, point, **options)
        return result

    return jax.jit(solve)


def run(
    solver: ModuleType,
    objective: Objective,
    start: Any,
    *,
    max_steps: int,
    gradient_tolerance: float = 0.0,
    value_tolerance: float = 0.0,
) -> Any:
    """Return what `solver` finds, compiled, on the host."""
    options = {
        "max_steps": max_steps,
        "gradient_tolerance": gradient_tolerance,
        "value_tolerance": value_tolerance,
    }
    small = objective in SMALL_PROBLEMS and jnp.shape(start) == (3,)
    alternatives = SMALL_PROBLEMS if small else (objective,)
    solve = program(solver, alternatives)
    return jax.device_get(solve(start, alternatives.index(objective), options))


@every_solver
def test_ill_conditioned_quadratic(solver: ModuleType) -> None:
    objective, optimum = convex_quadratic(dimension=20, condition=1e4, seed=1)
    result = run(solver, objective, np.zeros(20), max_steps=2000, gradient_tolerance=1e-9)
    assert result.converged
    np.testing.assert_allclose(result.point, optimum, rtol=0, atol=1e-8)
    assert result.value < 1e-17


@every_solver
@pytest.mark.parametrize("dimension", [2, 10])
def test_rosenbrock(solver: ModuleType, dimension: int) -> None:
    result = run(
        solver, rosenbrock, rosenbrock_start(dimension), max_steps=500, gradient_tolerance=1e-9
    )
    assert result.converged
    # In ten dimensions there is a second, worse minimum; from this start both find the best one.
    np.testing.assert_allclose(result.point, np.ones(dimension), rtol=0, atol=1e-7)


@every_solver
def test_logistic_regression_agrees_with_scipy(solver: ModuleType) -> None:
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
def test_few_evaluations_are_wasted(solver: ModuleType) -> None:
    """A guard against changes that keep the answers and lose the speed."""
    result = run(solver, rosenbrock, rosenbrock_start(2), max_steps=500, gradient_tolerance=1e-9)
    assert result.evaluations <= 150
    assert result.accepted >= 0.7 * result.steps


@every_solver
def test_the_optimum_lies_behind_a_region_without_values(solver: ModuleType) -> None:
    result = run(
        solver, log_barrier, np.array([50.0, 3.0, 1e-3]), max_steps=500, gradient_tolerance=1e-9
    )
    assert result.converged
    assert result.steps > result.accepted, "no step ever met the region: the test is idle"
    np.testing.assert_allclose(result.point, np.ones(3), rtol=0, atol=1e-8)


@every_solver
def test_a_wall_on_the_way_down_is_approached_and_not_crossed(solver: ModuleType) -> None:
    result = run(solver, slope_to_a_wall, np.zeros(3), max_steps=500, value_tolerance=1e-9)
    assert np.all(result.point < 1)
    assert np.all(result.point > 1 - 1e-6)
    assert not result.converged
    assert result.steps < 500, "it has to notice that it cannot get any further"


@every_solver
def test_infinite_gradient_with_a_finite_value_is_rejected(solver: ModuleType) -> None:
    def objective(x: jax.Array) -> jax.Array:
        return jnp.sum((x - 1) ** 2)

    def value_and_grad(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(objective)(x)
        return value, jnp.where(jnp.all(x < 1.5), gradient, jnp.inf)

    result = jax.jit(
        lambda x: solver.minimise(value_and_grad, x, max_steps=200, gradient_tolerance=1e-9)
    )(jnp.asarray([-30.0, 1.0]))
    assert result.converged
    np.testing.assert_allclose(result.point, np.ones(2), rtol=0, atol=1e-8)


@every_solver
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_start_without_a_value_comes_back_unchanged(solver: ModuleType, bad: float) -> None:
    start = np.array([2.0, 1.0, bad])
    result = run(solver, log_barrier, start, max_steps=10, gradient_tolerance=1e9)
    np.testing.assert_array_equal(result.point, start)
    assert not np.isfinite(result.value)
    assert not result.converged
    assert (result.steps, result.evaluations, result.accepted) == (0, 1, 0)


def as_tree(x: Any) -> dict[str, Any]:
    return {"scalar": x[0], "matrix": x[1:7].reshape(2, 3), "rest": (x[7:9], x[9:])}


def as_vector(tree: dict[str, Any]) -> jax.Array:
    return jnp.concatenate([jnp.ravel(tree["scalar"]), jnp.ravel(tree["matrix"]), *tree["rest"]])


@every_solver
def test_a_tree_of_arrays_equals_the_same_numbers_in_one(solver: ModuleType) -> None:
    start = rosenbrock_start(10)
    flat = run(solver, rosenbrock, start, max_steps=40)
    tree = run(solver, lambda t: rosenbrock(as_vector(t)), as_tree(start), max_steps=40)
    jax.tree.map(lambda *_: None, tree.point, as_tree(start))  # the same structure
    assert tree.point["scalar"].shape == ()
    # Sums over the leaves round differently, and forty steps amplify that.
    np.testing.assert_allclose(as_vector(tree.point), flat.point, rtol=1e-6)
    np.testing.assert_allclose(as_vector(tree.gradient), flat.gradient, rtol=1e-4, atol=1e-6)
    assert (tree.steps, tree.accepted) == (flat.steps, flat.accepted)


@every_solver
def test_leaves_keep_their_own_precision(solver: ModuleType) -> None:
    start = {"single": np.full(3, 2.0, np.float32), "double": -1.0, "empty": np.zeros((0, 4))}

    def objective(tree: dict[str, jax.Array]) -> jax.Array:
        return jnp.sum((tree["single"] - 1) ** 2) + 10 * tree["double"] ** 2

    result = run(solver, objective, start, max_steps=100, gradient_tolerance=1e-5)
    assert result.converged
    assert result.point["single"].dtype == np.float32
    assert result.point["double"].dtype == np.float64
    assert result.value.dtype == np.float64
    assert result.point["empty"].shape == (0, 4)
    np.testing.assert_allclose(result.point["single"], 1, atol=1e-5)
    np.testing.assert_allclose(result.point["double"], 0, atol=1e-5)


def _scaled_rosenbrock(
    solver: ModuleType, start: jax.Array, scale: jax.Array, steps: jax.Array
) -> Any:
    return solver.minimise(
        jax.value_and_grad(lambda x: scale * rosenbrock(x)),
        start,
        max_steps=steps,
        gradient_tolerance=1e-3,
    )


def _batch() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    starts = np.random.default_rng(2).normal(size=(6, 4))
    starts[3] = np.nan
    starts[4] = 1.0  # at the optimum from the beginning
    return starts, np.logspace(-1, 1, 6), np.array([25, 40, 3, 30, 30, 0], np.int32)


@every_solver
def test_a_member_does_not_depend_on_its_batch(solver: ModuleType) -> None:
    """To the last digit: predictions for a row rely on it."""
    batch = _batch()
    solve = jax.jit(jax.vmap(functools.partial(_scaled_rosenbrock, solver)))
    together = jax.device_get(solve(*batch))
    for member in range(6):
        for place in (0, 5):
            # The same member among others: copies of itself, and in another place.
            others = [np.repeat(part[member : member + 1], 6, axis=0) for part in batch]
            others[0][1 - place] = 0.5
            found = jax.device_get(solve(*others))
            jax.tree.map(
                lambda a, b, member=member, place=place: np.testing.assert_array_equal(
                    a[member], b[place]
                ),
                together,
                found,
            )


@every_solver
def test_batched_equals_one_by_one(solver: ModuleType) -> None:
    """Two programs round differently; what that does to a few dozen steps is the tolerance.

    SCG takes its curvature over a distance of eps**0.3, which leaves it a relative rounding error
    of eps**0.7, some 1e-11, and every step carries it further.
    """
    starts, scales, limits = _batch()
    together = jax.device_get(
        jax.jit(jax.vmap(functools.partial(_scaled_rosenbrock, solver)))(starts, scales, limits)
    )
    alone = jax.jit(functools.partial(_scaled_rosenbrock, solver))
    for member in range(6):
        expected = jax.device_get(alone(starts[member], scales[member], limits[member]))
        found = jax.tree.map(lambda leaf, member=member: leaf[member], together)
        assert found.steps <= limits[member]
        for name in ("steps", "evaluations", "accepted", "converged"):
            assert getattr(found, name) == getattr(expected, name)
        np.testing.assert_allclose(found.start_value, expected.start_value, rtol=1e-14)
        np.testing.assert_allclose(found.value, expected.value, rtol=1e-9)
        np.testing.assert_allclose(found.point, expected.point, rtol=1e-9, atol=1e-9)


@every_solver
def test_padding_does_not_change_the_course(solver: ModuleType) -> None:
    """Zeros with gradient zero, where the number of real parameters is known.

    Sums over longer arrays round differently: the tolerance is that of the test above.
    """
    start = rosenbrock_start(6)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, None, 0))
    def solve(point: dict[str, jax.Array], dimension: jax.Array, steps: jax.Array) -> Any:
        return solver.minimise(
            jax.value_and_grad(lambda tree: rosenbrock(tree["x"][:6])),
            point,
            max_steps=steps,
            dimension=dimension,
        )

    limits = np.arange(15, dtype=np.int32)  # more than six: SCG restarts on the way
    expected = jax.device_get(solve({"x": start}, 6, limits))
    longer = {"x": np.append(start, np.zeros(37)), "more": np.zeros((50, 2))}
    found = jax.device_get(solve(longer, 6, limits))
    np.testing.assert_array_equal(found.point["x"][:, 6:], 0)
    np.testing.assert_array_equal(found.accepted, expected.accepted)
    np.testing.assert_allclose(found.value[:4], expected.value[:4], rtol=1e-12)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-9)
    np.testing.assert_allclose(found.point["x"][:, :6], expected.point["x"], rtol=1e-9)


def test_scg_takes_padding_for_parameters_unless_told() -> None:
    """Otherwise the test above would show nothing."""
    result = {}
    for dimension in (2, None):
        solve = jax.jit(
            lambda x, dimension=dimension: scg.minimise(
                jax.value_and_grad(lambda x: rosenbrock(x[:2])),
                x,
                max_steps=10,
                dimension=dimension,
            )
        )
        result[dimension] = solve(np.append(rosenbrock_start(2), np.zeros(50))).point[:2]
    assert np.abs(result[2] - result[None]).max() > 1e-3


@every_solver
def test_values_never_increase(solver: ModuleType) -> None:
    limits = np.arange(60, dtype=np.int32)
    zero = jnp.zeros(60)
    options = {"max_steps": limits, "gradient_tolerance": zero, "value_tolerance": zero}
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
@pytest.mark.parametrize("batched", [False, True])
def test_the_objective_is_traced_and_compiled_once(solver: ModuleType, batched: bool) -> None:
    traces = 0

    def value_and_grad(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        nonlocal traces
        traces += 1
        # An operation that the solvers do not use themselves, to be counted below.
        return jnp.sum(jnp.atan2(x, x[0])), x

    def solve(start: jax.Array, steps: jax.Array) -> OptimiserResult:
        result: OptimiserResult = solver.minimise(value_and_grad, start, max_steps=steps)
        return result

    if batched:
        lowered = jax.jit(jax.vmap(solve, in_axes=(0, None))).lower(np.ones((3, 4)), 5)
    else:
        lowered = jax.jit(solve).lower(np.ones(4), 5)
    assert traces == 1
    assert lowered.as_text().count("stablehlo.atan2") == 1


@every_solver
def test_single_precision_stays_single(solver: ModuleType) -> None:
    with jax.enable_x64(False):
        result = run(
            solver,
            rosenbrock,
            rosenbrock_start(2).astype(np.float32),
            max_steps=300,
            gradient_tolerance=1e-3,
        )
    assert result.converged
    assert {leaf.dtype for leaf in (result.point, result.value, result.gradient)} == {
        np.dtype(np.float32)
    }
    np.testing.assert_allclose(result.point, np.ones(2), atol=1e-2)


@every_solver
def test_single_precision_below_its_rounding_stops_by_itself(solver: ModuleType) -> None:
    objective, optimum = convex_quadratic(dimension=6, condition=100.0, seed=3)
    with jax.enable_x64(False):
        result = run(solver, lambda x: objective(x) + 1000, np.zeros(6, np.float32), max_steps=5000)
    assert result.steps < 1000
    np.testing.assert_allclose(result.point, optimum, atol=1e-3)


@every_solver
def test_value_tolerance(solver: ModuleType) -> None:
    objective = logistic_regression()
    best = run(solver, objective, np.zeros(8), max_steps=1000)
    loose = run(solver, objective, np.zeros(8), max_steps=1000, value_tolerance=1e-3)
    tight = run(solver, objective, np.zeros(8), max_steps=1000, value_tolerance=1e-9)
    assert loose.converged
    assert tight.converged
    assert loose.steps < tight.steps < best.steps
    assert loose.value - best.value < 0.5
    assert tight.value - best.value < 1e-6


@every_solver
def test_started_at_the_optimum(solver: ModuleType) -> None:
    objective = logistic_regression()
    optimum = run(solver, objective, np.zeros(8), max_steps=1000).point
    again = run(solver, objective, optimum, max_steps=1000, value_tolerance=1e-6)
    assert again.converged
    assert again.steps < 60
    flat = run(solver, bowl, np.zeros(3), max_steps=10)
    assert flat.converged
    assert (flat.steps, flat.evaluations) == (0, 1)


@every_solver
def test_no_steps_returns_the_start_with_its_value(solver: ModuleType) -> None:
    start = rosenbrock_start(2)
    result = run(solver, rosenbrock, start, max_steps=0)
    np.testing.assert_array_equal(result.point, start)
    np.testing.assert_allclose(result.value, rosenbrock(jnp.asarray(start)))
    np.testing.assert_allclose(result.gradient, jax.grad(rosenbrock)(start))
    assert (result.steps, result.evaluations, result.accepted) == (0, 1, 0)
    assert not result.converged


@every_solver
def test_unbounded_below_is_followed_without_overflow(solver: ModuleType) -> None:
    result = run(solver, plane, np.zeros(3), max_steps=30)
    assert np.isfinite(result.value)
    assert result.value < -1e3


@every_solver
def test_a_saddle_is_left(solver: ModuleType) -> None:
    result = run(solver, saddle, np.array([1.0, 1e-3, 0.1]), max_steps=200, gradient_tolerance=1e-9)
    assert result.converged
    np.testing.assert_allclose(np.abs(result.point), [0, np.sqrt(2), 0], atol=1e-8)


@every_solver
def test_deterministic(solver: ModuleType) -> None:
    first = run(solver, rosenbrock, rosenbrock_start(10), max_steps=50)
    compiled_again = program.__wrapped__(solver, (rosenbrock,))
    options = {"max_steps": 50, "gradient_tolerance": 0.0, "value_tolerance": 0.0}
    second = jax.device_get(compiled_again(rosenbrock_start(10), 0, options))
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_lbfgs_direction_equals_dense_bfgs() -> None:
    """The newest pairs, no more than the memory holds, give the textbook inverse Hessian."""
    memory, dimension = 3, 6
    generator = np.random.default_rng(7)
    root = generator.normal(size=(dimension, dimension))
    hessian = root @ root.T + np.eye(dimension)
    steps = generator.normal(size=(5, dimension))
    changes = steps @ hessian
    history = lbfgs._empty_history(jnp.zeros(dimension), memory, jnp.dtype("float64"))
    remember = jax.jit(lbfgs._remember)
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
    direction = jax.jit(lbfgs._direction)(history, gradient)
    np.testing.assert_allclose(direction, -inverse @ gradient, rtol=1e-10)


# Compiled once: Hypothesis then only changes the numbers.
_DIMENSION = 5


def _solve_quadratic(
    solver: ModuleType, hessian: jax.Array, optimum: jax.Array, start: jax.Array
) -> Any:
    def objective(x: jax.Array) -> jax.Array:
        return 0.5 * (x - optimum) @ hessian @ (x - optimum)

    return solver.minimise(
        jax.value_and_grad(objective), start, max_steps=3000, gradient_tolerance=1e-7
    )


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
    solver: ModuleType, seed: int, condition: float, scale: float, distance: float
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
