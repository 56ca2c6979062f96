r"""The one pass over the rows: everything of size N goes through here.

The bound needs the data only through two small sums for each Gaussian process m,

.. math:: \Phi_m = \sum_n s_{nm} k_n k_n^\top \;(U \times U), \qquad
          \Psi_m = \sum_n s_{nm} k_n y_n^\top \;(U \times P),

with :math:`k_n = K_{uf}[:, n]`; then :math:`A_m = K_{uu} + \beta\Phi_m` and
:math:`W_m = \beta\Psi_m`. They add up over blocks of rows (and over machines), in
:math:`O(N U (U + P))`.

The reverse rule is written by hand. With :math:`G_\Phi, G_\Psi` the derivatives of the bound by
the sums,

.. math:: \partial L/\partial K_{uf} = [(G_\Phi + G_\Phi^\top) K_{uf} + G_\Psi Y^\top]\,
          \mathrm{diag}(s), \qquad
          \partial L/\partial s_n = k_n^\top G_\Phi k_n + k_n^\top G_\Psi y_n,

block by block: K_uf is computed again and nothing of size N × U is ever stored. Components are
looped, not batched: batched factorisations deadlock some CPU versions of JAX, and one component
fills the vector units already.
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


@jax.custom_vjp
def statistics(kernels: Kernel, Z: Array, X: Array, S: Array, Y: Array) -> tuple[Array, Array]:
    """Return the sums Φ and Ψ of every Gaussian process.

    Parameters
    ----------
    kernels : Kernel
        Stacked: every parameter with a leading axis of length G.
    Z : array of shape (U, Q)
        Inducing inputs, shared by all.
    X : array of shape (N, Q)
        Latent rows; N is the number of blocks times their size.
    S : array of shape (N, G)
        The weight of every row in every Gaussian process; 0 for padding.
    Y : array of shape (n_blocks, P, block)
        The data, as in :class:`sgpmic.model.rows.Rows`. A constant: it has no derivative.

    Returns
    -------
    phi : array of shape (G, U, U)
    psi : array of shape (G, U, P)
    """
    X_blocks = _blocked(X, Y.shape[0])

    def one(component: tuple[Kernel, Array]) -> tuple[Array, Array]:
        kernel, s = component
        return _sums_of_one(kernel, Z, X_blocks, s, Y)

    sums: tuple[Array, Array] = lax.map(one, (kernels, _weights_first(S, Y.shape[0])))
    return sums


def _weights_first(S: Array, n_blocks: int) -> Array:
    """Return S as (G, n_blocks, block)."""
    return S.T.reshape(S.shape[1], n_blocks, -1)


def _forward(kernels: Kernel, Z: Array, X: Array, S: Array, Y: Array) -> Any:
    return statistics(kernels, Z, X, S, Y), (kernels, Z, X, S, Y)


def _reverse(residuals: Any, cotangents: tuple[Array, Array]) -> Any:
    kernels, Z, X, S, Y = residuals
    n_blocks = Y.shape[0]
    X_blocks = _blocked(X, n_blocks)

    def one(sums: tuple[Array, Array], component: Any) -> Any:
        kernel, s, G_phi, G_psi = component
        d_kernel, dZ, dX, ds = _reverse_of_one(kernel, Z, X_blocks, s, Y, G_phi, G_psi)
        return (sums[0] + dZ, sums[1] + dX), (d_kernel, ds)

    (dZ, dX), (d_kernels, dS) = lax.scan(
        one,
        (jnp.zeros_like(Z), jnp.zeros_like(X_blocks)),
        (kernels, _weights_first(S, n_blocks), *cotangents),
    )
    # The derivative by S costs a pass of its own over K; XLA drops it where nobody asks for it.
    return d_kernels, dZ, dX.reshape(X.shape), dS.reshape(S.shape[1], -1).T, jnp.zeros_like(Y)


statistics.defvjp(_forward, _reverse)
