"""The pass over many rows at once, as on a GPU, is that over blocks, as on a CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from sgpmic.model.bound import data_term
from sgpmic.model.e_step import e_step
from sgpmic.model.mixture import _scatter_by_products, _scatter_written_out, factor_mixture
from sgpmic.model.row_pass import gpu
from sgpmic.model.row_pass.processor import Part
from sgpmic.model.row_pass.sums import ROWS, _forward, statistics
from sgpmic.model.rows import GPU_BLOCKS, GPU_MULTIPLE, block_shape, gpu_memory_on, make_rows
from support.dense import KINDS
from support.random_problems import (
    Ours,
    Sizes,
    assert_trees_close,
    our_problem,
    random_problem,
)

SIZES = Sizes(N=45, P=3, Q=2, M=2, U=6)
BLOCK = 8  # six blocks, three places of padding
#: Memory for everything, and for nothing but a block.
MEMORIES = {"at once": 2**30, "block by block": 1}


def example(kind: str = "rbf", *, ard: bool = False, sizes: Sizes = SIZES) -> Ours:
    problem = random_problem(sizes, [kind] * sizes.M, np.random.default_rng(0), ard=ard)
    assert np.any(problem.S == 0.0)  # where the root of the weights has no derivative
    return our_problem(problem, BLOCK)


@partial(jax.jit, static_argnames=("gpu_memory", "mesh"))
def pulled_back(ours: Ours, cotangents: Any, *, gpu_memory: int, mesh: Mesh | None = None) -> Any:
    kernels, Z, _ = ours.mappings
    of_all = partial(statistics, Y=ours.rows.Y, mesh=mesh, gpu_memory=gpu_memory)
    found, pull = jax.vjp(lambda *some: of_all(*some), kernels, Z, ours.X, ours.S)
    return found, pull(cotangents)


def any_cotangents(sizes: Sizes = SIZES) -> Any:
    """Return some that are not symmetric, as the sums' own use never makes them."""
    rng, (_, _, _, M, U) = np.random.default_rng(1), sizes
    P = 4  # with padding
    return jnp.asarray(rng.normal(size=(M, U, U))), jnp.asarray(rng.normal(size=(M, U, P)))


@pytest.mark.parametrize(("kind", "ard"), [*((kind, True) for kind in KINDS), ("rbf", False)])
def test_same_sums_and_derivatives(kind: str, ard: bool) -> None:
    ours = example(kind, ard=ard)
    expected = pulled_back(ours, any_cotangents(), gpu_memory=0)
    for gpu_memory in MEMORIES.values():
        assert_trees_close(pulled_back(ours, any_cotangents(), gpu_memory=gpu_memory), expected)


def test_on_own_rows() -> None:
    """Through the code for several devices, of which there is one here."""
    mesh = Mesh(np.array(jax.devices()[:1]), (ROWS,), axis_types=(AxisType.Auto,))
    expected = pulled_back(example(), any_cotangents(), gpu_memory=0)
    for gpu_memory in MEMORIES.values():
        assert_trees_close(
            pulled_back(example(), any_cotangents(), gpu_memory=gpu_memory, mesh=mesh), expected
        )


@pytest.mark.parametrize(("U", "N"), [(6, 45), (7, 23), (8, 40)])
def test_hand_written_sums(U: int, N: int) -> None:
    """The kernel for the GPU, interpreted."""
    sizes = Sizes(N=N, P=3, Q=3, M=2, U=U)
    ours = example(sizes=sizes)
    kernels, Z, _ = ours.mappings
    rows = jax.jit(gpu.gpu_rows)(Part(ours.X, ours.S, ours.rows.Y))
    both = jax.jit(gpu.operand)(kernels, Z, rows)
    dK = jnp.asarray(np.random.default_rng(2).normal(size=(2, U, ours.rows.n_padded)))
    arguments = (both, dK, rows.t, rows.x, Z, kernels.bias)
    found = jax.jit(partial(gpu.sums_by_hand, interpret=True))(*arguments)
    t, x = rows.t.reshape(2, 1, -1), rows.x.reshape(3, -1)
    K = both[:U].reshape(U, 2, -1).swapaxes(0, 1)
    E = -0.5 * (K - kernels.bias[:, None, None] * t) * dK
    over_a = jnp.einsum("guc,uq->qgc", E, Z)
    over_b = jnp.einsum("guc,qc->guq", E, x)
    expected = (jnp.sum(E, 1), tuple(over_a), jnp.sum(E, 2), over_b, jnp.sum(dK * t, (1, 2)))
    assert_trees_close(found, expected)


@pytest.mark.parametrize("ard", [False, True])
def test_hand_written_operand(ard: bool) -> None:
    ours = example(ard=ard, sizes=Sizes(N=23, P=3, Q=3, M=2, U=7))
    kernels, Z, _ = ours.mappings
    rows = jax.jit(gpu.gpu_rows)(Part(ours.X, ours.S, ours.rows.Y))
    found = jax.jit(partial(gpu.operand_by_hand, interpret=True))(kernels, Z, rows)
    assert_trees_close(found, jax.jit(gpu.operand)(kernels, Z, rows))


@jax.jit
def of_the_model(ours: Ours) -> Any:
    mappings, mixture, X, S, rows = ours
    prior = factor_mixture(mixture)
    jitter = jnp.full(SIZES.M, 1e-8)
    new_S, _ = e_step(mappings, prior, X, S, rows, shared=False, jitter=jitter)
    gradient = jax.value_and_grad(data_term, argnums=(0, 1))(mappings, X, S, rows, 1e-8)
    return gradient, new_S


def test_same_bound_gradient_and_e_step() -> None:
    ours = example()
    wide = ours._replace(rows=replace(ours.rows, gpu_memory=2**30))
    assert_trees_close(of_the_model(wide), of_the_model(ours))


def test_padding_changes_nothing() -> None:
    clean = example()
    rows = replace(clean.rows, Y=clean.rows.Y.at[-1, :, -3:].set(9.0))
    dirty = clean._replace(X=clean.X.at[45:].set(7.0), rows=rows)
    for gpu_memory in MEMORIES.values():
        sums, (by_kernels, by_Z, by_X, _) = pulled_back(
            dirty, any_cotangents(), gpu_memory=gpu_memory
        )
        expected, pulled = pulled_back(clean, any_cotangents(), gpu_memory=gpu_memory)
        assert not np.any(by_X[45:])
        assert_trees_close((sums, by_kernels, by_Z, by_X), (expected, *pulled[:3]))


def test_what_is_kept() -> None:
    """K where there is memory for it."""
    ours = example()
    arguments = (ours.mappings.kernels, ours.mappings.Z, ours.X, ours.S, ours.rows.Y)

    def kept(gpu_memory: int) -> Any:
        return jax.eval_shape(
            lambda *args: _forward(*args, None, gpu_memory, None)[1][-1], *arguments
        )

    assert kept(2**30).shape == (1, 6 + 4, 2, 6, BLOCK)
    assert kept(1) is None


def test_derivative_by_the_weights_is_made_on_request_only() -> None:
    ours = example()

    def products(*wanted: int) -> int:
        kernels, Z, _ = ours.mappings

        def total(X: Any, S: Any) -> Any:
            return sum(map(jnp.sum, statistics(kernels, Z, X, S, ours.rows.Y, None, 2**30)))

        program = jax.jit(jax.grad(total, argnums=wanted)).lower(ours.X, ours.S).compile()
        return int(program.as_text().count(" dot("))

    assert products(0) < products(0, 1)


@pytest.mark.parametrize("n_rows", [1, 150, 10_000, 1_000_000, 10_000_000])
def test_blocks_for_a_gpu(n_rows: int) -> None:
    n_blocks, size = block_shape(n_rows, gpu=True)
    assert size <= GPU_BLOCKS[0]
    assert size % GPU_MULTIPLE == 0
    assert n_rows <= n_blocks * size <= max(1.05 * n_rows, 256)
    assert n_blocks <= GPU_MULTIPLE or n_blocks % GPU_MULTIPLE == 0
    assert block_shape(n_rows, 100, gpu=True) == block_shape(n_rows, 100)


def test_parts_keep_to_the_memory() -> None:
    gpu_memory = 32 * 2**30
    for n_rows, P, G, U in [(10_000_000, 20, 10, 100), (3_000_000, 500, 3, 30), (1000, 5, 2, 9)]:
        n_blocks, size = block_shape(n_rows, gpu=True)
        parts = gpu.count_parts((n_blocks, P, size), U, G, gpu_memory)
        assert n_blocks % parts == 0
        assert 8 * G * (3 * U + P) * size * n_blocks // parts <= gpu_memory
    # The case for which K is to be kept.
    n_blocks, size = block_shape(1_000_000, gpu=True)
    assert gpu.count_parts((n_blocks, 50, size), 100, 10, gpu_memory) == 1


def test_memory_of_devices() -> None:
    class Gpu:
        platform = "gpu"

        def __init__(self, stats: dict[str, int] | None) -> None:
            self.memory_stats = lambda: stats

    assert gpu_memory_on() == 0  # the tests run on a CPU
    assert make_rows(np.zeros((3, 2))).gpu_memory == 0
    assert gpu_memory_on(Gpu({"bytes_limit": 111 * 2**30})) == 37 * 2**30
    assert gpu_memory_on(Gpu({"bytes_limit": 2**30})) == 2**30
    assert gpu_memory_on(Gpu(None)) == 5 * 2**30


def test_both_ways_to_the_scatter() -> None:
    rng = np.random.default_rng(3)
    X, S, means = (jnp.asarray(rng.uniform(size=size)) for size in ((50, 3), (50, 2), (2, 3)))
    assert_trees_close(_scatter_written_out(X, S, means), _scatter_by_products(X, S, means))
