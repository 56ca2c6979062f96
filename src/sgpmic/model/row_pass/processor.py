r"""The row pass on a CPU, where a part of the rows is one block.

K_uf is recomputed in the backward pass; nothing of size N × U is ever stored. Components are
looped, not batched: batched factorizations deadlock in some CPU versions of JAX, and a single
component already fills the vector units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from sgpmic._runtime import loop_components, scan
from sgpmic.kernels import Kernel, cross


class Part(NamedTuple):
    """A part of the rows, n blocks of b rows; or, with a leading axis, all parts."""

    x: Array  # (n · b, Q) latent points
    T: Array  # (n · b, G) row weights for every mapping
    Y: Array  # (n, P, b) data


def scratch(Z: Array, Y: Array) -> Array:
    """Return the buffer (U + P, B) that all blocks reuse."""
    return jnp.zeros((Z.shape[0] + Y.shape[1], Y.shape[2]), Z.dtype)


def _fill(
    both: Array, kernel: Kernel, Z: Array, x: Array, s: Array, y: Array
) -> tuple[Array, Array, Any]:
    """Write [K_uf; Yᵀ] diag(√s) for one block of rows into the buffer ``both`` (U + P, B).

    A joint buffer replaces two matrix products by one, both forward and backward; as it is carried
    from block to block, nothing is allocated or copied for it.
    """
    t = jnp.sqrt(s)
    K, saved = kernel.forward(Z, x, t)
    both = lax.dynamic_update_slice(both, K, (0, 0))
    return lax.dynamic_update_slice(both, y * t, (Z.shape[0], 0)), t, saved


def sums(kernels: Kernel, Z: Array, part: Part, both: Array) -> tuple[Array, Array, None]:
    """Return [Φ, Ψ] (G, U, U + P) of a block, the buffer, and nothing to keep."""

    def one(both: Array, component: tuple[Kernel, Array]) -> tuple[Array, Array]:
        both, _, _ = _fill(both, component[0], Z, part.x, component[1], part.Y[0])
        return both, both[: Z.shape[0]] @ both.T

    both, found = scan(one, both, (kernels, part.T.T))
    return found, both, None


def squares(kernels: Kernel, Z: Array, part: Part, weights: tuple[Array, Array]) -> Array:
    """Return |V k|² + |u ∘ y − W k|² of every row and mapping, (b, G)."""

    def one(component: tuple[Kernel, Array, Array]) -> Array:
        kernel, products, of_data = component
        found, U = products @ cross(kernel, Z, part.x), Z.shape[0]
        residuals = of_data[:, None] * part.Y[0] - found[U:]
        return jnp.sum(found[:U] ** 2, axis=0) + jnp.sum(residuals**2, axis=0)

    return loop_components(one, (kernels, *weights)).T


def reverse(
    kernels: Kernel, Z: Array, part: Part, by_both: Array, both: Array, kept: None
) -> tuple[Kernel, Array, Array, Array]:
    """Return the gradients with respect to the kernels, Z and x of a block, and the buffer.

    ``by_both`` (G, U, U + P) is [G_Φ + G_Φᵀ, G_Ψ].
    """
    U = Z.shape[0]

    def one(carry: Any, component: tuple[Kernel, Array, Array]) -> Any:
        dZ, dx, both = carry
        kernel, s, by_both_m = component
        both, t, saved = _fill(both, kernel, Z, part.x, s, part.Y[0])
        dK = by_both_m @ both  # with respect to K_uf diag(√s)
        d_kernel, dZ_m, dx_m = kernel.backward(Z, part.x, t, both[:U], saved, dK)
        return (dZ + dZ_m, dx + dx_m, both), d_kernel

    zero = (jnp.zeros_like(Z), jnp.zeros_like(part.x))
    (dZ, dx, both), d_kernels = scan(one, (*zero, both), (kernels, part.T.T, by_both))
    return d_kernels, dZ, dx, both
