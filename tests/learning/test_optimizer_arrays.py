"""Optimizers and their arrays: trees, batches, padding, precision, and what is compiled."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.learning.optimizer_problems import (
    Solver,
    convex_quadratic,
    every_solver,
    program,
    rosenbrock,
    rosenbrock_start,
    run,
)

from sgpmic.learning.optimizers import OptimizerResult
from sgpmic.learning.scg import scg

pytestmark = pytest.mark.usefixtures("double_precision")


def as_tree(x: Any) -> dict[str, Any]:
    return {"scalar": x[0], "matrix": x[1:7].reshape(2, 3), "rest": (x[7:9], x[9:])}


def as_vector(tree: dict[str, Any]) -> jax.Array:
    return jnp.concatenate([jnp.ravel(tree["scalar"]), jnp.ravel(tree["matrix"]), *tree["rest"]])


@every_solver
def test_a_tree_of_arrays_equals_the_same_numbers_in_one(solver: Solver) -> None:
    start = rosenbrock_start(10)
    flat = run(solver, rosenbrock, start, max_steps=40)
    tree = run(solver, lambda t: rosenbrock(as_vector(t)), as_tree(start), max_steps=40)
    jax.tree.map(lambda *_: None, tree.point, as_tree(start))  # the same structure
    assert tree.point["scalar"].shape == ()
    # Sums over the leaves round differently, and forty steps amplify that.
    np.testing.assert_allclose(as_vector(tree.point), flat.point, rtol=1e-6)
    np.testing.assert_allclose(as_vector(tree.gradient), flat.gradient, rtol=1e-4, atol=1e-6)
    assert (tree.steps, tree.accepted) == (flat.steps, flat.accepted)


def _scaled_rosenbrock(solver: Solver, start: jax.Array, scale: jax.Array, steps: jax.Array) -> Any:
    return solver(
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
def test_a_member_does_not_depend_on_its_batch(solver: Solver) -> None:
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
def test_batched_equals_one_by_one(solver: Solver) -> None:
    """Two programs round differently; what that does to a few dozen steps is the tolerance.

    SCG takes its curvature over a distance of eps**0.3, which leaves it a relative rounding error
    of eps**0.7, some 1e-11, and every step carries it further. A value far below the one it began
    with still has the rounding of that one.
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
        rounding = 1e-11 * expected.start_value
        np.testing.assert_allclose(found.value, expected.value, rtol=1e-9, atol=rounding)
        np.testing.assert_allclose(found.point, expected.point, rtol=1e-9, atol=1e-9)


@every_solver
def test_padding_does_not_change_the_course(solver: Solver) -> None:
    """Zeros with gradient zero, where the number of real parameters is known.

    Sums over longer arrays round differently: the tolerance is that of the test above.
    """
    start = rosenbrock_start(6)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, None, 0))
    def solve(point: dict[str, jax.Array], dimension: jax.Array, steps: jax.Array) -> Any:
        return solver(
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
            lambda x, dimension=dimension: scg(
                jax.value_and_grad(lambda x: rosenbrock(x[:2])),
                x,
                max_steps=10,
                dimension=dimension,
            )
        )
        result[dimension] = solve(np.append(rosenbrock_start(2), np.zeros(50))).point[:2]
    assert np.abs(result[2] - result[None]).max() > 1e-3


@every_solver
@pytest.mark.parametrize("batched", [False, True])
def test_the_objective_is_traced_and_compiled_once(solver: Solver, batched: bool) -> None:
    traces = 0

    def value_and_grad(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        nonlocal traces
        traces += 1
        # An operation that the solvers do not use themselves, to be counted below.
        return jnp.sum(jnp.atan2(x, x[0])), x

    def solve(start: jax.Array, steps: jax.Array) -> OptimizerResult:
        result: OptimizerResult = solver(value_and_grad, start, max_steps=steps)
        return result

    if batched:
        lowered = jax.jit(jax.vmap(solve, in_axes=(0, None))).lower(np.ones((3, 4)), 5)
    else:
        lowered = jax.jit(solve).lower(np.ones(4), 5)
    assert traces == 1
    assert lowered.as_text().count("stablehlo.atan2") == 1


@every_solver
def test_single_precision_stays_single(solver: Solver) -> None:
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
def test_single_precision_below_its_rounding_stops_by_itself(solver: Solver) -> None:
    objective, optimum = convex_quadratic(dimension=6, condition=100.0, seed=3)
    with jax.enable_x64(False):
        result = run(solver, lambda x: objective(x) + 1000, np.zeros(6, np.float32), max_steps=5000)
    assert result.steps < 1000
    np.testing.assert_allclose(result.point, optimum, atol=1e-3)


@every_solver
def test_deterministic(solver: Solver) -> None:
    first = run(solver, rosenbrock, rosenbrock_start(10), max_steps=50)
    compiled_again = program.__wrapped__(solver, (rosenbrock,))
    options = {"max_steps": 50, "gradient_tolerance": 0.0}
    second = jax.device_get(compiled_again(rosenbrock_start(10), 0, options))
    jax.tree.map(np.testing.assert_array_equal, first, second)
