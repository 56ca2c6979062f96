"""The pass over the rows in float32, held to the one in float64 at the same jitter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sgpmic._runtime import numerics
from sgpmic.kernels import RBF, cross, stack
from sgpmic.model.bound import Processes, data_term, factorise_all
from sgpmic.model.e_step import expected_log_likelihoods
from sgpmic.model.rows import Rows, make_rows, pad_rows
from sgpmic.model.single_precision import LEAST_JITTER
from sgpmic.model.statistics import ROWS

#: What the bound may be off by, a row.
A_ROW = 1e-3


@pytest.fixture(autouse=True)
def in_double() -> Iterator[None]:
    with numerics():
        yield


@jax.jit
def everything(processes: Processes, X: Array, T: Array, rows: Rows) -> Any:
    """Return the data term, its gradient, the rows' log likelihoods and the jitter."""
    found = jax.value_and_grad(data_term, argnums=(0, 1, 2))(processes, X, T, rows, LEAST_JITTER)
    factors, _, _ = factorise_all(processes, X, T, rows, LEAST_JITTER)
    return (*found, expected_log_likelihoods(processes, factors, X, rows), factors.jitter)


def smooth(
    *, N: int = 256, U: int = 25, beta: float = 100.0, white: float = 1e-9, distinct: int = 256
) -> tuple[Processes, np.ndarray, np.ndarray, np.ndarray]:
    """Return a problem whose K_uu is singular but for the jitter, for two processes."""
    rng = np.random.default_rng(0)
    X = np.resize(rng.normal(size=(distinct, 2)), (N, 2))
    Y = np.sin(X @ rng.normal(size=(2, 4))) + rng.normal(size=(N, 4)) / np.sqrt(beta)
    T = rng.dirichlet(np.ones(2), N)
    T[: N // 2] = np.eye(2)[rng.integers(2, size=N // 2)]  # zeros, too
    kernels = stack([RBF(gamma=0.5, white=white), RBF(variance=3.0, gamma=1.0, white=white)])
    Z = np.resize(X[:distinct], (U, 2))
    return Processes(kernels, jnp.asarray(Z), jnp.asarray(beta)), X, T, Y


def in_both(problem: Any, block: int | None = 64, room: int = 0) -> tuple[Any, Any]:
    processes, X, T, Y = problem
    results = []
    for single in (False, True):
        rows = make_rows(Y, block, room if single else 0, single=single)
        x, t = (jnp.asarray(pad_rows(a, rows.n_padded)) for a in (X, T))
        results.append(everything(processes, x, t, rows))
    return results[0], results[1]


def relative(found: Any, expected: Any) -> float:
    """Return the largest error of a tree of gradients, relative to each leaf's largest entry."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in pairs)


def test_agrees_with_float64_where_k_uu_is_singular_but_for_the_jitter() -> None:
    double, single = in_both(smooth())
    assert abs(float(single[0] - double[0])) < A_ROW * 256
    by_processes, by_X, by_T = single[1]
    assert relative((by_X, by_T), double[1][1:]) < 1e-2
    assert relative(by_processes.beta, double[1][0].beta) < 1e-3
    assert float(jnp.max(jnp.abs(single[2] - double[2]))) < 0.1
    assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(single))


def test_small_noise_around_a_mapping_that_fits() -> None:
    # The sums alone, without the residuals, are off by several times as much.
    beta, N = 1e5, 256
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    Z = jnp.asarray(X[:25])
    kernel = RBF(gamma=0.5, white=1e-3)
    drawn = jnp.linalg.solve(jnp.linalg.cholesky(kernel.gram(Z)).T, rng.normal(size=(25, 4)))
    Y = cross(kernel, Z, jnp.asarray(X)).T @ drawn + rng.normal(size=(N, 4)) / np.sqrt(beta)
    processes = Processes(stack([kernel]), Z, jnp.asarray(beta))
    double, single = in_both((processes, X, np.ones((N, 1)), np.asarray(Y)))
    assert abs(float(single[0] - double[0])) < A_ROW * N
    # The derivative by β is the difference of N P / 2β, which has no rounding, and nearly as much.
    error = float(single[1][0].beta - double[1][0].beta)
    assert abs(error) < 1e-3 * (N * 4 / (2 * beta))


@pytest.mark.parametrize("room", [2**20, 2**34], ids=["in parts", "at once"])
def test_many_rows_at_once_as_on_a_gpu(room: int) -> None:
    problem = smooth(N=4096, white=0.05, beta=4.0, distinct=4096)
    double, single = in_both(problem, None, room)
    assert abs(float(single[0] - double[0])) < 1e-5 * 4096
    n = 4096  # blocks of float64 have other padding
    np.testing.assert_allclose(single[1][1][:n], double[1][1][:n], atol=1e-3)
    np.testing.assert_allclose(single[2][:n], double[2][:n], atol=1e-3)
    assert relative(single[1][0], double[1][0]) < 1e-3


def test_gradient_where_k_uu_is_sound() -> None:
    double, single = in_both(smooth(white=0.05, beta=4.0))
    assert abs(float(single[0] - double[0])) < 1e-5 * 256
    assert relative(single[1], double[1]) < 1e-3


@pytest.mark.parametrize(
    "nasty",
    [
        {"distinct": 1},  # one row, many times
        {"distinct": 7},  # more inducing points than distinct rows
        {"beta": 1e8},
        {"beta": 1e12, "distinct": 7},
    ],
    ids=str,
)
def test_never_nan(nasty: dict[str, Any]) -> None:
    _, single = in_both(smooth(**nasty))
    for leaf in jax.tree.leaves(single):
        assert np.all(np.isfinite(leaf))
    assert np.all(single[3] >= LEAST_JITTER)


def test_rows_on_two_devices() -> None:
    processes, X, T, Y = smooth()
    rows = make_rows(Y, 64, single=True)
    alone = everything(processes, jnp.asarray(X), jnp.asarray(T), rows)
    mesh = Mesh(np.array(jax.devices()[:2]), (ROWS,), axis_types=(AxisType.Auto,))
    spread = NamedSharding(mesh, PartitionSpec(ROWS))
    x, t, y, weight, norm2 = (
        jax.device_put(a, spread) for a in (X, T, rows.Y, rows.weight, rows.norm2)
    )
    together = everything(processes, x, t, Rows(y, weight, norm2, mesh, single=True))
    # The same blocks, added up in float64.
    np.testing.assert_allclose(together[0], alone[0], rtol=1e-9)
    assert relative(together[1], alone[1]) < 1e-5


def test_data_are_kept_in_float32() -> None:
    rows = make_rows(np.full((3, 2), 1 / 3), single=True)
    assert rows.Y.dtype == jnp.float32
    assert rows.norm2.dtype == jnp.float64
    assert rows.single
    np.testing.assert_allclose(rows.norm2[0], 2 * float(np.float32(1 / 3)) ** 2, rtol=1e-15)
