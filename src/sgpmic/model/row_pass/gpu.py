r"""The row pass on a GPU: few operations, each over many rows.

K_uf √s of all mappings is stacked on Y √s in one array (U + P, G, n, b), and

- one batched product over mappings and blocks, [K] by [K; Y], computes all Φ and Ψ, where [K] is a
  view of the array, not a copy;
- one batched product computes ∂L/∂(K √s) = [G_Φ + G_Φᵀ, G_Ψ] [K; Y];
- its sums over inducing points and over rows, which are all that the gradients of the kernel, Z and
  X need, take a single read of K and of that derivative (:func:`sums_by_hand`).

If all rows fit into ``gpu_memory``, the bytes that the pass may use, they form one part and K is
kept for the backward pass; otherwise it is recomputed.

Two operations have hand-written Pallas kernels for the RBF kernel on NVIDIA GPUs; each program
instance handles some rows of one mapping. The array [K; Y]: XLA takes twice as long as the memory
writes alone, because it recomputes the mapping, point and row indices for every entry. And the sums
of ∂L/∂r², an elementwise product of existing arrays: two matrix products would need it in memory
and read it twice, and take about as long as the arithmetic of a whole evaluation may.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from sgpmic.kernels import RBF, DistanceSums, Kernel
from sgpmic.model.row_pass.processor import Part

#: Fraction of the memory that one part of the rows may use if they do not all fit.
PART = 0.25
#: Maximum array size that the hand-written kernels can index.
MOST_NUMBERS = 2**31 - 1
#: Tile of the kernel for [K; Y]: rows and warps; the fastest of seven on an H200 (4 % spread).
OPERAND_TILE = (128, 2)
#: Tile of the kernel for the sums: points, rows and warps; the fastest of seven on an H200.
SUMS_TILE = (2, 1024, 4)


@cache
def can_be_hand_written() -> bool:
    """Return whether JAX has Pallas for Triton, whose import takes time and adds JAX settings."""
    try:
        from jax.experimental.pallas.triton import load  # noqa: F401
    except ImportError:  # pragma: no cover
        return False
    return True


def count_parts(shape: tuple[int, ...], U: int, G: int, gpu_memory: int) -> int:
    """Return the number of parts to process in sequence: a divisor of the number of blocks."""
    n_blocks, P, size = shape
    numbers = G * (3 * U + P) * size  # [K; Y], ∂L/∂K, and at most one temporary
    largest = G * (U + P) * size
    if 8 * numbers * n_blocks <= gpu_memory and largest * n_blocks <= MOST_NUMBERS:
        return 1
    most = max(min(int(PART * gpu_memory) // (8 * numbers), MOST_NUMBERS // largest), 1)
    return next(d for d in range(1, n_blocks + 1) if n_blocks % d == 0 and n_blocks // d <= most)


def scratch(Z: Array, Y: Array) -> tuple[()]:
    """Return no buffer: the GPU pass needs none."""
    return ()


def sums(kernels: Kernel, Z: Array, part: Part, scratch: Any) -> tuple[Array, Any, Array]:
    """Return [Φ, Ψ] (G, U, U + P) of a part, the empty buffer, and [K; Y] to keep."""
    U = Z.shape[0]
    both = operand(kernels, Z, gpu_rows(part))
    # 3 % faster on an H200 with the longer axis first in the result.
    by_block = jnp.einsum("ugnb,vgnb->gnvu", both[:U], both)
    return jnp.sum(by_block, axis=1).transpose(0, 2, 1), scratch, both


def squares(kernels: Kernel, Z: Array, part: Part, weights: tuple[Array, Array]) -> Array:
    """Return |V k|² + |u ∘ y − W k|² of every row and mapping, (n · b, G)."""
    products, of_data = weights
    rows = gpu_rows(part)
    K = operand(kernels, Z, rows._replace(Y=rows.Y[:, :0]))
    found = jnp.einsum("gvu,ugnb->gvnb", products, K)
    y = of_data[:, :, None, None] * rows.Y.transpose(1, 0, 2)
    U = Z.shape[0]
    distances = jnp.sum(found[:, :U] ** 2, axis=1) + jnp.sum((y - found[:, U:]) ** 2, axis=1)
    # Otherwise XLA would merge the sums with whatever the caller computes for each row: three times
    # as slow on an H200.
    return lax.optimization_barrier(distances).reshape(len(distances), -1).T


def reverse(
    kernels: Kernel, Z: Array, part: Part, by_both: Array, scratch: Any, kept: Array | None
) -> tuple[Kernel, Array, Array, Any]:
    """Return the gradients with respect to the kernels, Z and x of a part, and the empty buffer.

    ``by_both`` (G, U, U + P) is [G_Φ + G_Φᵀ, G_Ψ], ``kept`` is [K; Y] from :func:`sums` or None.
    """
    U, rows = Z.shape[0], gpu_rows(part)
    both = operand(kernels, Z, rows) if kept is None else kept
    flat = both.reshape(*both.shape[:2], -1)
    dK = jnp.einsum("guv,vgc->guc", by_both, flat)

    def by_hand(kernels: RBF, dK: Array) -> tuple[RBF, Array, Array]:
        found = sums_by_hand(both, dK, rows.t, rows.x, Z, kernels.bias)
        return jax.vmap(lambda kernel, own: kernel.gradient(Z, part.x, own))(kernels, found)

    def plainly(kernels: Kernel, dK: Array) -> tuple[Kernel, Array, Array]:
        def one(kernel: Kernel, t: Array, K: Array, dK: Array) -> tuple[Kernel, Array, Array]:
            saved = kernel.forward(Z, part.x, t)[1]
            return kernel.backward(Z, part.x, t, K, saved, dK)

        t = rows.t.reshape(len(rows.t), -1)
        return jax.vmap(one)(kernels, t, flat[:U].swapaxes(0, 1), dK)

    d_kernels, dZ, dx = _for_device(by_hand, plainly, kernels)(kernels, dK)
    return d_kernels, jnp.sum(dZ, axis=0), jnp.sum(dx, axis=0), scratch


class GpuRows(NamedTuple):
    """Rows as trailing axes: latent points (Q, n, b), √weights (G, n, b), data (n, P, b)."""

    x: Array
    t: Array
    Y: Array


def gpu_rows(part: Part) -> GpuRows:
    """Convert a part of the rows to the GPU layout."""

    def rows_last(values: Array) -> Array:
        return values.T.reshape(-1, part.Y.shape[0], part.Y.shape[2])

    return GpuRows(rows_last(part.x), jnp.sqrt(rows_last(part.T)), part.Y)


def operand(kernels: Kernel, Z: Array, rows: GpuRows) -> Array:
    """Return [K √s; Y √s], (U + P, G, n, b)."""
    return _for_device(operand_by_hand, _operand_plainly, kernels)(kernels, Z, rows)


def _for_device(by_hand: Any, plainly: Any, kernels: Kernel) -> Any:
    """Return the function that runs ``by_hand`` for the RBF kernel on NVIDIA GPUs."""
    if not isinstance(kernels, RBF) or not can_be_hand_written():
        return plainly
    return partial(lax.platform_dependent, cuda=by_hand, default=plainly)


def _operand_plainly(kernels: Kernel, Z: Array, rows: GpuRows) -> Array:
    x, t = rows.x.reshape(rows.x.shape[0], -1).T, rows.t.reshape(rows.t.shape[0], -1)
    K = jax.vmap(lambda kernel, root: kernel.forward(Z, x, root)[0])(kernels, t)  # (G, U, n · b)
    y = rows.Y.transpose(1, 0, 2)[:, None] * rows.t
    # Without the barrier, XLA would recompute K for every slice of the array.
    both = jnp.concatenate([K.swapaxes(0, 1).reshape(Z.shape[0], *rows.t.shape), y], axis=0)
    return lax.optimization_barrier(both)


def operand_by_hand(kernels: RBF, Z: Array, rows: GpuRows, *, interpret: bool = False) -> Array:
    """Pallas version of :func:`operand` for RBF; ``interpret`` runs it without a GPU, slowly."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    (Q, n, b), G, (U, P) = rows.x.shape, rows.t.shape[0], (Z.shape[0], rows.Y.shape[1])
    C = n * b
    some, warps = (math.gcd(C, 8), 1) if interpret else OPERAND_TILE
    kind = rows.x.dtype

    def program(x_ref, t_ref, y_ref, z_ref, variance_ref, bias_ref, root_ref, both_ref):  # type: ignore[no-untyped-def]
        g, first = pl.program_id(0), pl.program_id(1) * some
        inside = first + jnp.arange(some) < C

        def of_these(ref, row):  # type: ignore[no-untyped-def]
            return plgpu.load(ref.at[pl.ds(row * C + first, some)], mask=inside, other=0.0)

        def write(row, values):  # type: ignore[no-untyped-def]
            plgpu.store(both_ref.at[pl.ds((row * G + g) * C + first, some)], values, mask=inside)

        t = of_these(t_ref, g)
        roots = [root_ref[q * G + g] for q in range(Q)]
        x = [of_these(x_ref, q) * roots[q] for q in range(Q)]
        scale, shift = variance_ref[g] * t, bias_ref[g] * t

        def point(u, _):  # type: ignore[no-untyped-def]
            r2 = jnp.zeros((some,), kind)
            for q in range(Q):
                d = z_ref[q * U + u] * roots[q] - x[q]
                r2 = r2 + d * d
            write(u, scale * jnp.exp(-0.5 * r2) + shift)
            return _

        def feature(p, _):  # type: ignore[no-untyped-def]
            write(U + p, of_these(y_ref, p) * t)
            return _

        lax.fori_loop(0, U, point, 0)
        lax.fori_loop(0, P, feature, 0)

    both = pl.pallas_call(
        program,
        grid=(G, -(-C // some)),
        out_shape=jax.ShapeDtypeStruct(((U + P) * G * C,), kind),
        compiler_params=None if interpret else plgpu.CompilerParams(num_warps=warps, num_stages=2),
        interpret=interpret,
        name="kernels_above_data",
    )(
        rows.x.reshape(-1),
        rows.t.reshape(-1),
        rows.Y.transpose(1, 0, 2).reshape(-1) if P else jnp.zeros(1, kind),  # never empty
        Z.T.reshape(-1),
        kernels.variance,
        kernels.bias,
        jnp.sqrt(jnp.broadcast_to(kernels.gamma.reshape(G, -1), (G, Q)).T).reshape(-1),
    )
    return both.reshape(U + P, G, n, b)


def sums_by_hand(
    both: Array, dK: Array, t: Array, x: Array, Z: Array, bias: Array, *, interpret: bool = False
) -> DistanceSums:
    """Return the sums of E = ∂L/∂r² = −½ (K − bias) ∂L/∂K for the RBF kernel, by Pallas.

    The first U entries of ``both`` (U + P, G, n, b) are K t, ``dK`` (G, U, n · b) is the derivative
    with respect to K t, with t (G, n, b) and x (Q, n, b).
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    G, U, C = dK.shape
    Q = Z.shape[1]
    points, rows, warps = (math.gcd(U, 4), math.gcd(C, 8), 1) if interpret else SUMS_TILE
    steps, tiles = -(-U // points), -(-C // rows)
    kind = dK.dtype

    def program(K_ref, dK_ref, t_ref, x_ref, z_ref, bias_ref, e_ref, f_ref, p_ref, h_ref):  # type: ignore[no-untyped-def]
        g, j = pl.program_id(0), pl.program_id(1)
        inside = j * rows + jnp.arange(rows) < C
        in_all = pl.ds(g * C + j * rows, rows)  # rows of tile j, mapping g
        t_j = plgpu.load(t_ref.at[in_all], mask=inside, other=0.0)
        x_j = [
            plgpu.load(x_ref.at[pl.ds(q * C + j * rows, rows)], mask=inside, other=0.0)
            for q in range(Q)
        ]
        shift = bias_ref[g] * t_j

        def step(i, carry):  # type: ignore[no-untyped-def]
            e, h, *f = carry
            real = i * points + jnp.arange(points) < U
            mask = real[:, None] & inside[None, :]
            some = pl.ds(i * points, points)
            k = plgpu.load(K_ref.at[some, in_all], mask=mask, other=0.0)
            d = plgpu.load(
                dK_ref.at[pl.ds(g * U + i * points, points), pl.ds(j * rows, rows)],
                mask=mask,
                other=0.0,
            )
            E = -0.5 * (k - shift[None, :]) * d
            at = (g * tiles + j) * (1 + Q) * U + i * points
            plgpu.store(p_ref.at[pl.ds(at, points)], jnp.sum(E, axis=1), mask=real)
            for q in range(Q):
                z_q = plgpu.load(z_ref.at[pl.ds(q * U + i * points, points)], mask=real, other=0.0)
                f[q] = f[q] + jnp.sum(E * z_q[:, None], axis=0)
                sums = jnp.sum(E * x_j[q][None, :], axis=1)
                plgpu.store(p_ref.at[pl.ds(at + (q + 1) * U, points)], sums, mask=real)
            return (e + jnp.sum(E, axis=0), h + jnp.sum(d, axis=0), *f)

        zero = jnp.zeros((rows,), kind)
        e, h, *f = lax.fori_loop(0, steps, step, (zero,) * (2 + Q))
        plgpu.store(e_ref.at[in_all], e, mask=inside)
        for q in range(Q):
            plgpu.store(f_ref.at[pl.ds((q * G + g) * C + j * rows, rows)], f[q], mask=inside)
        h_ref[g * tiles + j] = jnp.sum(h * t_j)

    shape = partial(jax.ShapeDtypeStruct, dtype=kind)
    e, f, p, h = pl.pallas_call(
        program,
        grid=(G, tiles),
        out_shape=(
            shape((G * C,)),
            shape((Q * G * C,)),
            shape((G * tiles * (1 + Q) * U,)),
            shape((G * tiles,)),
        ),
        compiler_params=None if interpret else plgpu.CompilerParams(num_warps=warps, num_stages=2),
        interpret=interpret,
        name="sums_of_dr2",
    )(
        both.reshape(both.shape[0], G * C),
        dK.reshape(G * U, C),
        t.reshape(-1),
        x.reshape(-1),
        Z.T.reshape(-1),
        bias,
    )
    over_rows = jnp.sum(p.reshape(G, tiles, 1 + Q, U), axis=1)
    return DistanceSums(
        e.reshape(G, C),
        tuple(f.reshape(Q, G, C)),
        over_rows[:, 0],
        over_rows[:, 1:].transpose(0, 2, 1),
        jnp.sum(h.reshape(G, tiles), axis=1),
    )
