"""The pass over the rows: however it is cut into blocks, value and gradient stay the same.

The reverse rule is written by hand, so it is held to automatic differentiation of the formula
written plainly, without blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from sgpmic.kernels import Kernel
from sgpmic.model.bound import Mappings, data_term
from sgpmic.model.row_pass.sums import statistics
from sgpmic.model.rows import Rows, block_shape, make_rows, padded_clusters, padded_features
from support.dense import KINDS
from support.random_problems import (
    Ours,
    Sizes,
    assert_trees_close,
    our_problem,
    random_problem,
)

SIZES = Sizes(N=13, P=4, Q=2, M=2, U=4)  # four features: no padding
#: Size of a block and the padding that follows from 13 rows.
BLOCKINGS = {"one": (13, 0), "single rows": (1, 0), "ragged": (5, 2)}


def example(kind: str, block: int, *, ard: bool = False) -> Ours:
    problem = random_problem(SIZES, [kind] * 2, np.random.default_rng(0), ard=ard)
    assert np.any(problem.S == 0.0)  # where the root of the weights has no derivative
    return our_problem(problem, block)


# ---------------------------------------------------------------------- the formula, plainly


def plain_cross(kernel: Any, A: Array, B: Array) -> Array:
    if kernel.name == "linear":
        return (A * kernel.variance) @ B.T + kernel.bias
    r2 = jnp.sum(kernel.gamma * (A[:, None] - B[None]) ** 2, axis=2)
    correlations: dict[str, Callable[[], Array]] = {
        "rbf": lambda: jnp.exp(-0.5 * r2),
        "matern32": lambda: (1 + jnp.sqrt(3 * r2)) * jnp.exp(-jnp.sqrt(3 * r2)),
        "matern52": lambda: (1 + jnp.sqrt(5 * r2) + 5 * r2 / 3) * jnp.exp(-jnp.sqrt(5 * r2)),
        "rational_quadratic": lambda: (1 + r2 / (2 * kernel.alpha)) ** -kernel.alpha,
    }
    return kernel.variance * correlations[kernel.name]() + kernel.bias


def one_of(kernels: Kernel, m: int) -> Kernel:
    kernel: Kernel = jax.tree.map(lambda leaf: leaf[m], kernels)
    return kernel


def plain_statistics(*inputs: Any) -> Any:
    kernels, Z, X, S, Y = inputs
    sums = []
    for m in range(S.shape[1]):
        K = plain_cross(one_of(kernels, m), Z, X)
        sums.append(((K * S[:, m]) @ K.T, (K * S[:, m]) @ Y))
    return tuple(jnp.stack(column) for column in zip(*sums, strict=True))


def plain_data_term(mappings: Mappings, X: Array, S: Array, Y: Array) -> Array:
    kernels, Z, beta = mappings
    P = Y.shape[1]
    total = 0.5 * P * jnp.log(beta / (2 * math.pi)) * jnp.sum(S)
    total -= 0.5 * beta * jnp.sum(S * jnp.sum(Y**2, axis=1)[:, None])
    for m, (phi, psi) in enumerate(zip(*plain_statistics(kernels, Z, X, S, Y), strict=True)):
        kernel = one_of(kernels, m)
        K = plain_cross(kernel, Z, Z) + kernel.white * jnp.eye(Z.shape[0])
        A, W = K + beta * phi, beta * psi
        determinants = jnp.linalg.slogdet(A)[1] - jnp.linalg.slogdet(K)[1]
        total += -0.5 * P * determinants + 0.5 * jnp.sum(W * jnp.linalg.solve(A, W))
    return total


# ------------------------------------------------------------------------------------- blocks


@jax.jit
def value_and_gradient(mappings: Mappings, X: Array, S: Array, rows: Rows) -> Any:
    return jax.value_and_grad(data_term, argnums=(0, 1, 2))(mappings, X, S, rows, 0.0)


# The RBF kernel: one with a root in it would give automatic differentiation 0/0 on the diagonal
# of K_uu. The others are held to it below, apart from K_uu.
def test_blocks_change_neither_value_nor_gradient() -> None:
    whole = example("rbf", block=13, ard=True)
    Y = whole.rows.Y[0, : SIZES.P].T
    expected = jax.jit(jax.value_and_grad(plain_data_term, argnums=(0, 1, 2)))(
        whole.mappings, whole.X, whole.S, Y
    )
    for block, padding in BLOCKINGS.values():
        ours = example("rbf", block, ard=True)
        assert ours.rows.n_padded == 13 + padding
        value, (by_processes, by_X, by_S) = value_and_gradient(
            ours.mappings, ours.X, ours.S, ours.rows
        )
        assert_trees_close((value, (by_processes, by_X[:13], by_S[:13])), expected)
        assert not np.any(by_X[13:])


@jax.jit
def pulled_back(kernels: Kernel, Z: Array, X: Array, S: Array, Y: Array, cotangents: Any) -> Any:
    sums, pull = jax.vjp(lambda *args: statistics(*args, Y), kernels, Z, X, S)
    return sums, pull(cotangents)


@jax.jit
def plainly_pulled_back(*args: Any) -> Any:
    kernels, Z, X, S, Y, cotangents = args
    sums, pull = jax.vjp(lambda *some: plain_statistics(*some, Y), kernels, Z, X, S)
    return sums, pull(cotangents)


@pytest.mark.parametrize("kind", KINDS)
def test_reverse_rule_is_that_of_automatic_differentiation(kind: str) -> None:
    """With cotangents that are not symmetric, as the sums' own use never makes them."""
    ours = example(kind, block=5, ard=True)
    kernels, Z, _ = ours.mappings
    rng = np.random.default_rng(1)
    cotangents = (jnp.asarray(rng.normal(size=(2, 4, 4))), jnp.asarray(rng.normal(size=(2, 4, 4))))
    sums, (by_kernels, by_Z, by_X, by_S) = pulled_back(
        kernels, Z, ours.X, ours.S, ours.rows.Y, cotangents
    )
    Y = example(kind, block=13, ard=True).rows.Y[0].T
    expected = plainly_pulled_back(kernels, Z, ours.X[:13], ours.S[:13], Y, cotangents)
    # White has no part in the sums; automatic differentiation says so with zeros as well.
    assert_trees_close((sums, (by_kernels, by_Z, by_X[:13], by_S[:13])), expected)


def test_padding_rows_change_nothing() -> None:
    """Whatever stands in rows of weight 0, they add nothing and move nothing."""
    clean = example("rbf", block=5, ard=True)
    X = clean.X.at[13:].set(7.0)
    rows = replace(
        clean.rows,
        Y=clean.rows.Y.at[-1, :, -2:].set(9.0),
        norm2=clean.rows.norm2.at[-1, -2:].set(243.0),
    )
    expected = value_and_gradient(clean.mappings, clean.X, clean.S, clean.rows)
    value, (by_processes, by_X, by_S) = value_and_gradient(clean.mappings, X, clean.S, rows)
    assert not np.any(by_X[13:])
    assert_trees_close((value, by_processes, by_X), (expected[0], *expected[1][:2]))
    assert_trees_close(by_S[:13], expected[1][2][:13])


# ----------------------------------------------------------------------------- rows in blocks


@pytest.mark.parametrize("n_rows", [1, 7, 1023, 1024, 1025, 5000, 100_001])
@pytest.mark.parametrize("block", [1, 3, 1000])
def test_fewest_blocks_and_least_padding(n_rows: int, block: int) -> None:
    n_blocks, size = block_shape(n_rows, block)
    assert size <= block
    assert n_blocks == math.ceil(n_rows / block)
    assert 0 <= n_blocks * size - n_rows < n_blocks


def test_few_shapes_for_many_tables() -> None:
    """Four for up to a thousand rows, little padding for many; features and clusters likewise."""
    assert len({block_shape(n) for n in range(1, 1001)}) <= 4
    assert len({block_shape(n) for n in range(1, 8001)}) <= 10
    for n in range(8001, 400_000, 997):
        n_blocks, size = block_shape(n)
        assert size % 8 == 0
        assert n <= n_blocks * size <= 1.0626 * n + size
    assert len({padded_clusters(k, 178) for k in range(1, 17)}) == 1
    assert len({padded_features(p, 178) for p in range(1, 65)}) <= 9
    assert padded_features(13, 1_000_000) == 13  # where computing takes longer than compiling
    assert padded_clusters(3, 1_000_000) == 3


def test_rows_keep_the_table() -> None:
    Y = np.random.default_rng(2).normal(size=(7, 3))
    rows = make_rows(Y, block=3)
    assert rows.Y.shape == (3, 4, 3)  # one feature of padding
    assert rows.n_features == 3
    assert rows.n_padded == 9
    table = np.asarray(rows.Y).transpose(0, 2, 1).reshape(9, 4)
    assert np.array_equal(table[:7, :3], Y)
    assert not table[7:].any()
    assert not table[:, 3].any()
    assert np.array_equal(rows.flat_weight, [1.0] * 7 + [0.0] * 2)
    np.testing.assert_allclose(rows.norm2.reshape(-1), np.sum(table**2, axis=1), rtol=1e-15)
