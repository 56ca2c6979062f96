"""K √s above Y √s, what a GPU's pass multiplies, for many rows of all mappings at once.

The compiler makes it in twice the time that writing it down takes: for every entry it looks up
anew which mapping, point and row it is for. So for the RBF kernel, on an NVIDIA GPU, it is
hand-written, a program for some rows of one mapping.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from sgpmic.kernels import RBF, Kernel
from sgpmic.model.row_pass.gpu_sums import can_be_hand_written
from sgpmic.model.row_pass.parts import Part

#: Of the hand-written kernel: rows at a time, and warps; the fastest of seven on an H200, where
#: they differed by 4 %.
ROWS, WARPS = 128, 2


class GpuRows(NamedTuple):
    """Some rows, last: latent points (Q, n, b), roots of the weights (G, n, b), data (n, P, b)."""

    x: Array
    t: Array
    Y: Array


def gpu_rows(part: Part) -> GpuRows:
    """Return a part of the rows as they are wanted here."""

    def rows_last(values: Array) -> Array:
        return values.T.reshape(-1, part.Y.shape[0], part.Y.shape[2])

    return GpuRows(rows_last(part.x), jnp.sqrt(rows_last(part.T)), part.Y)


def operand(kernels: Kernel, Z: Array, rows: GpuRows) -> Array:
    """Return K √s above Y √s, (U + P, G, n, b)."""
    if not isinstance(kernels, RBF) or not can_be_hand_written():
        return _plainly(kernels, Z, rows)
    return lax.platform_dependent(kernels, Z, rows, cuda=hand_written, default=_plainly)


def _plainly(kernels: Kernel, Z: Array, rows: GpuRows) -> Array:
    x, t = rows.x.reshape(rows.x.shape[0], -1).T, rows.t.reshape(rows.t.shape[0], -1)
    K = jax.vmap(lambda kernel, root: kernel.forward(Z, x, root)[0])(kernels, t)  # (G, U, n · b)
    y = rows.Y.transpose(1, 0, 2)[:, None] * rows.t
    # Behind the barrier a part of it is a part of it; else the compiler makes K again for each.
    both = jnp.concatenate([K.swapaxes(0, 1).reshape(Z.shape[0], *rows.t.shape), y], axis=0)
    return lax.optimization_barrier(both)


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
        jnp.sqrt(jnp.broadcast_to(kernels.gamma.reshape(G, -1), (G, Q)).T).reshape(-1),
    )
    return both.reshape(U + P, G, n, b)
