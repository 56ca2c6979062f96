r"""One mapping's share of the pass over the rows: the sums and their reverse rule, block by block.

The mathematics is in :mod:`sgpmic.model.row_pass.sums`, which also adds up what several devices
found. K_uf is computed again on the way back and nothing of size N × U is ever stored.
Components are looped, not batched: batched factorisations deadlock some CPU versions of JAX, and
one component fills the vector units already.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from sgpmic.kernels import Kernel, cross


def _blocked(values: Array, n_blocks: int) -> Array:
    return values.reshape(n_blocks, -1, *values.shape[1:])


def _fill(
    both: Array, kernel: Kernel, Z: Array, x: Array, s: Array, y: Array
) -> tuple[Array, Array, Any]:
    """Write K_uf diag(√s) above Yᵀ diag(√s), for one block of rows, into ``both`` (U + P, B).

    One buffer for the two lets one matrix product do the work of two, forwards as backwards; as
    it is carried from block to block nothing is allocated or copied for it.
    """
    t = jnp.sqrt(s)
    K, saved = kernel.forward(Z, x, t)
    both = lax.dynamic_update_slice(both, K, (0, 0))
    return lax.dynamic_update_slice(both, y * t, (Z.shape[0], 0)), t, saved


def _sums_of_one(kernel: Kernel, Z: Array, X: Array, s: Array, Y: Array) -> tuple[Array, Array]:
    """Return Φ and Ψ of one component; X (n_blocks, B, Q), s (n_blocks, B), Y (n_blocks, P, B)."""
    U, (_, P, B) = Z.shape[0], Y.shape

    def add_block(carry: tuple[Array, Array], block: tuple[Array, Array, Array]) -> Any:
        sums, both = carry
        both, _, _ = _fill(both, kernel, Z, *block)
        return (sums + both[:U] @ both.T, both), None

    start = (jnp.zeros((U, U + P), Z.dtype), jnp.zeros((U + P, B), Z.dtype))
    sums, _ = lax.scan(add_block, start, (X, s, Y))[0]
    return sums[:, :U], sums[:, U:]


def _reverse_of_one(
    kernel: Kernel, Z: Array, X: Array, s: Array, Y: Array, G_phi: Array, G_psi: Array
) -> tuple[Kernel, Array, Array, Array]:
    """Return the derivatives by the kernel, Z, X and s of one component."""
    U, (_, P, B) = Z.shape[0], Y.shape
    G = jnp.concatenate([G_phi + G_phi.T, G_psi], axis=1)

    def add_block(carry: tuple[Kernel, Array, Array], block: tuple[Array, Array, Array]) -> Any:
        kernel_sum, Z_sum, both = carry
        x, _, y = block
        both, t, saved = _fill(both, kernel, Z, *block)
        dK = G @ both  # by K_uf diag(√s)
        d_kernel, dZ, dx = kernel.backward(Z, x, t, both[:U], saved, dK)
        K = cross(kernel, Z, x)  # without the weights, whose root has no derivative at s = 0
        ds = jnp.sum(K * (G_phi @ K + G_psi @ y), axis=0)
        kernel_sum = jax.tree.map(jnp.add, kernel_sum, d_kernel)
        return (kernel_sum, Z_sum + dZ, both), (dx, ds)

    zero = jax.tree.map(jnp.zeros_like, (kernel, Z))
    start = (*zero, jnp.zeros((U + P, B), Z.dtype))
    (d_kernel, dZ, _), (dX, ds) = lax.scan(add_block, start, (X, s, Y))
    return d_kernel, dZ, dX, ds


def sums(kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array) -> tuple[Array, Array]:
    """Return Φ (G, U, U) and Ψ (G, U, P) of the rows at hand."""
    X_blocks = _blocked(X, Y.shape[0])

    def one(component: tuple[Kernel, Array]) -> tuple[Array, Array]:
        kernel, s = component
        return _sums_of_one(kernel, Z, X_blocks, s, Y)

    result: tuple[Array, Array] = lax.map(one, (kernels, _weights_first(T, Y.shape[0])))
    return result


def _weights_first(T: Array, n_blocks: int) -> Array:
    """Return T as (G, n_blocks, block)."""
    return T.T.reshape(T.shape[1], n_blocks, -1)


def reverse(
    kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array, G_phi: Array, G_psi: Array
) -> tuple[Kernel, Array, Array, Array]:
    """Return the derivatives by the kernels, Z, X and T, from those by the sums.

    Those by the kernels and Z are sums over the rows at hand.
    """
    n_blocks = Y.shape[0]
    X_blocks = _blocked(X, n_blocks)

    def one(so_far: tuple[Array, Array], component: Any) -> Any:
        kernel, s, *cotangents = component
        d_kernel, dZ, dX, ds = _reverse_of_one(kernel, Z, X_blocks, s, Y, *cotangents)
        return (so_far[0] + dZ, so_far[1] + dX), (d_kernel, ds)

    (dZ, dX), (d_kernels, dT) = lax.scan(
        one,
        (jnp.zeros_like(Z), jnp.zeros_like(X_blocks)),
        (kernels, _weights_first(T, n_blocks), G_phi, G_psi),
    )
    # The derivative by T costs a pass of its own over K; XLA drops it where nobody asks for it.
    return d_kernels, dZ, dX.reshape(X.shape), dT.reshape(T.shape[1], -1).T
