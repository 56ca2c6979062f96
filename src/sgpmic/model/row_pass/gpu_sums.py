"""Sums of ∂L/∂r² over the inducing points and over the rows, from one reading of K and ∂L/∂K.

As matrix products the two sums read their operand twice and want it written first; they take
about as long as the arithmetic of a whole evaluation may. So for the RBF kernel, where ∂L/∂r² is
a product of what is there already, they are one hand-written kernel on an NVIDIA GPU.
"""

from __future__ import annotations

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from sgpmic.kernels import DistanceSums

#: Of the hand-written kernel: inducing points and rows at a time, and warps; the fastest of seven
#: on an H200.
POINTS, ROWS, WARPS = 2, 1024, 4


@cache
def can_be_hand_written() -> bool:
    """Return whether JAX has what hand-written kernels are written in.

    Asked when there is a GPU's pass to make: importing it takes time and adds to JAX's settings.
    """
    try:
        from jax.experimental.pallas import triton
    except ImportError:  # pragma: no cover
        return False
    return hasattr(triton, "load")


def rbf_sums(both: Array, dK: Array, t: Array, x: Array, Z: Array, bias: Array) -> DistanceSums:
    """Return the sums for the RBF kernel, where E = −½ (K − bias) ∂L/∂K.

    ``both`` (U + P, G, n, b) has K times t in its first U, ``dK`` (G, U, n · b) is the derivative
    by K times t, with t (G, n, b) and x (Q, n, b).
    """
    arguments = (both, dK, t, x, Z, bias)
    if not can_be_hand_written():  # pragma: no cover
        return _rbf_plainly(*arguments)
    return lax.platform_dependent(*arguments, cuda=hand_written, default=_rbf_plainly)


def _rbf_plainly(both: Array, dK: Array, t: Array, x: Array, Z: Array, bias: Array) -> DistanceSums:
    U = Z.shape[0]
    dK = dK.reshape(-1, U, *t.shape[1:]).transpose(1, 0, 2, 3)
    E = -0.5 * (both[:U] - bias[:, None, None] * t) * dK
    return plain_sums(E, dK, t, x, Z)


def plain_sums(E: Array, dK: Array, t: Array, x: Array, Z: Array) -> DistanceSums:
    """Return the sums by matrix products, for E and dK of shape (U, G, n, b)."""
    (U, G, n, b), Q = E.shape, Z.shape[1]
    left = jnp.concatenate([Z, jnp.ones((U, 1), Z.dtype)], axis=1)
    over_points = jnp.einsum("uk,ugc->kgc", left, E.reshape(U, G, -1))
    right = jnp.concatenate([x, jnp.ones((1, n, b), x.dtype)])
    over_rows = jnp.sum(jnp.einsum("ugnb,knb->nguk", E, right), axis=0)
    return DistanceSums(
        over_points[-1],
        tuple(over_points[q] for q in range(Q)),
        over_rows[:, :, -1],
        over_rows[:, :, :-1],
        jnp.sum(jnp.sum(dK, axis=0) * t, axis=(1, 2)),
    )


def hand_written(
    both: Array, dK: Array, t: Array, x: Array, Z: Array, bias: Array, *, interpret: bool = False
) -> DistanceSums:
    """Return the sums of :func:`rbf_sums` by one kernel: a program for some rows of one mapping.

    ``interpret`` runs it without a GPU, slowly.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    G, U, C = dK.shape
    Q = Z.shape[1]
    points, rows = (math.gcd(U, 4), math.gcd(C, 8)) if interpret else (POINTS, ROWS)
    steps, tiles = -(-U // points), -(-C // rows)
    kind = dK.dtype

    def program(K_ref, dK_ref, t_ref, x_ref, z_ref, bias_ref, e_ref, f_ref, p_ref, h_ref):  # type: ignore[no-untyped-def]
        g, j = pl.program_id(0), pl.program_id(1)
        inside = j * rows + jnp.arange(rows) < C
        in_all = pl.ds(g * C + j * rows, rows)  # these rows of this mapping
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
        compiler_params=None if interpret else plgpu.CompilerParams(num_warps=WARPS, num_stages=2),
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
