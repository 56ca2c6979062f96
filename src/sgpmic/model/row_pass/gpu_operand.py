"""K √s above Y √s, what a GPU's pass multiplies, for many rows of all mappings at once.

The compiler makes it in twice the time that writing it down takes: for every entry it looks up
anew which mapping, point and row it is for. So for the RBF kernel, on an NVIDIA GPU, it is
hand-written, a program for some rows of one mapping.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from sgpmic.kernels import RBF, Kernel, Linear, Stationary
from sgpmic.model.row_pass.gpu_sums import can_be_hand_written

#: Of the hand-written kernel: rows at a time, and warps; the fastest of seven on an H200, where
#: they differed by 4 %.
ROWS, WARPS = 128, 2


class GpuRows(NamedTuple):
    """Some rows, last: latent points (Q, n, b), roots of the weights (G, n, b), data (n, P, b)."""

    x: Array
    t: Array
    Y: Array


def rows_last(values: Array, Y: Array) -> Array:
    """Return values (N, k) as (k, n_blocks, block), for Y (n_blocks, P, block)."""
    return values.reshape(Y.shape[0], Y.shape[2], -1).transpose(2, 0, 1)


def gpu_rows(X: Array, T: Array, Y: Array) -> GpuRows:
    """Return rows X (N, Q), their weights T (N, G) and data as they are wanted here."""
    return GpuRows(rows_last(X, Y), jnp.sqrt(rows_last(T, Y)), Y)


def spread(kernels: Kernel) -> Kernel:
    """Return stacked kernels whose parameters stand beside arrays (..., G, n, b)."""
    beside: Kernel = jax.tree.map(lambda leaf: leaf[:, None, None], kernels)
    return beside


def _by_dimension(values: Array, Q: int) -> Array:
    """Return a kernel's parameter as (Q, G)."""
    G = values.shape[0]
    return jnp.broadcast_to(values.reshape(G, -1), (G, Q)).T


def squared_distances(kernels: Stationary, Z: Array, x: Array) -> Array:
    """Return r² (U, G, n, b), as plain arithmetic that fuses with what follows it."""
    # Scaled first: otherwise the compiler finds squares common to all mappings, and stores them.
    root = jnp.sqrt(_by_dimension(kernels.gamma, Z.shape[1]))[:, :, None, None]
    r2 = jnp.zeros((), Z.dtype)
    for q in range(Z.shape[1]):
        d = Z[:, q, None, None, None] * root[q] - x[q] * root[q]
        r2 = r2 + d * d
    return r2


def kernel_matrices(kernels: Kernel, Z: Array, x: Array, t: Array | float = 1.0) -> Array:
    """Return K_uf diag(t) of every mapping, (U, G, n, b), for rows x (Q, n, b)."""
    beside: Any = spread(kernels)
    if isinstance(kernels, Stationary):
        c = beside._correlation(squared_distances(kernels, Z, x))
        return jnp.asarray((beside.variance * c + beside.bias) * t)
    assert isinstance(kernels, Linear)
    variance = _by_dimension(kernels.variance, Z.shape[1])[:, :, None, None]
    products = (variance[q] * Z[:, q, None, None, None] * x[q] for q in range(Z.shape[1]))
    return jnp.asarray((sum(products) + beside.bias) * t)


def operand(kernels: Kernel, Z: Array, rows: GpuRows) -> Array:
    """Return K √s above Y √s, (U + P, G, n, b)."""
    if not isinstance(kernels, RBF) or not can_be_hand_written():
        return _plainly(kernels, Z, rows)
    both: Array = lax.platform_dependent(kernels, Z, rows, cuda=hand_written, default=_plainly)
    return both


def _plainly(kernels: Kernel, Z: Array, rows: GpuRows) -> Array:
    K = kernel_matrices(kernels, Z, rows.x, rows.t)
    y = rows.Y.transpose(1, 0, 2)[:, None] * rows.t
    # Behind the barrier a part of it is a part of it; else the compiler makes K again for each.
    both: Array = lax.optimization_barrier(jnp.concatenate([K, y], axis=0))
    return both


def hand_written(kernels: RBF, Z: Array, rows: GpuRows, *, interpret: bool = False) -> Array:
    """Return :func:`operand` for the RBF kernel; ``interpret`` runs it without a GPU, slowly."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    (Q, n, b), G, (U, P) = rows.x.shape, rows.t.shape[0], (Z.shape[0], rows.Y.shape[1])
    C = n * b
    some = math.gcd(C, 8) if interpret else ROWS
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
        compiler_params=None if interpret else plgpu.CompilerParams(num_warps=WARPS, num_stages=2),
        interpret=interpret,
        name="kernels_above_data",
    )(
        rows.x.reshape(-1),
        rows.t.reshape(-1),
        rows.Y.transpose(1, 0, 2).reshape(-1),
        Z.T.reshape(-1),
        kernels.variance,
        kernels.bias,
        jnp.sqrt(_by_dimension(kernels.gamma, Q)).reshape(-1),
    )
    return both.reshape(U + P, G, n, b)
