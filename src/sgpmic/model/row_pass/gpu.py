r"""The pass over the rows as a GPU wants it: few operations, each over many rows.

The same sums and the same reverse rule as :mod:`sgpmic.model.row_pass.processor`, whose blocks are
made for the caches of a CPU. Here K_uf √s of all Gaussian processes stands above Y √s in one array
(U + P, G, n_blocks, block), and

- one batched product over mappings and blocks makes all the Φ and Ψ, [K] by [K; Y], where [K]
  is a part of the array and not a copy of it;
- one batched product makes ∂L/∂(K √s) = [G_Φ + G_Φᵀ, G_Ψ] [K; Y];
- its sums over the inducing points and over the rows, all that the kernel, Z and X need, come
  from one reading of K and of that derivative (:mod:`sgpmic.model.row_pass.gpu_sums`).

Where the rows are too many for ``gpu_memory``, the bytes that the pass may take, they go through
in parts and K is made again on the way back; otherwise it is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from sgpmic.kernels import RBF, Kernel, Linear, Stationary, _like
from sgpmic.model.row_pass import gpu_operand, gpu_sums
from sgpmic.model.row_pass.gpu_operand import GpuRows, gpu_rows, spread, squared_distances
from sgpmic.model.row_pass.gpu_sums import RowSums

#: The share of the memory that one part of the rows may take where they do not all fit.
PART = 0.25
#: Most numbers in an array that hand-written kernels can find their way in.
MOST_NUMBERS = 2**31 - 1


def count_parts(n_blocks: int, size: int, U: int, P: int, G: int, gpu_memory: int) -> int:
    """Return in how many parts the rows go through: a divisor of the number of blocks."""
    numbers = G * (3 * U + P) * size  # [K; Y], ∂L/∂K, and one temporary where there is one
    largest = G * (U + P) * size
    if 8 * numbers * n_blocks <= gpu_memory and largest * n_blocks <= MOST_NUMBERS:
        return 1
    most = min(int(PART * gpu_memory) // (8 * numbers), MOST_NUMBERS // largest)
    return next(
        d
        for d in range(1, n_blocks + 1)
        if (n_blocks % d == 0 and n_blocks // d <= most) or d == n_blocks
    )


def _in_parts(X: Array, T: Array, Y: Array, parts: int) -> tuple[Array, Array, Array]:
    n, P, b = Y.shape
    shape = (parts, n // parts * b)
    return (
        X.reshape(*shape, X.shape[1]),
        T.reshape(*shape, T.shape[1]),
        Y.reshape(parts, n // parts, P, b),
    )


def _flat(values: Array) -> Array:
    """Return (..., n, b) as (..., n · b)."""
    return values.reshape(*values.shape[:-2], -1)


# --------------------------------------------------------------------------------- forwards


def _products(both: Array, U: int) -> tuple[Array, Array]:
    """Return Φ and Ψ."""
    # The long side first in the result: 3 % faster on an H200.
    by_block = jnp.einsum("ugnb,vgnb->gnvu", both[:U], both)
    sums = jnp.sum(by_block, axis=1)
    return sums[:, :U].transpose(0, 2, 1), sums[:, U:].transpose(0, 2, 1)


def sums(
    kernels: Kernel, Z: Array, X: Array, T: Array, Y: Array, gpu_memory: int, *, keep: bool = False
) -> tuple[Array, Array, Array | None]:
    """Return Φ (G, U, U) and Ψ (G, U, P) of the rows at hand, and what is kept for the way back.

    Parameters
    ----------
    kernels, Z, X, T, Y
        As in :func:`sgpmic.model.row_pass.processor.sums`.
    gpu_memory : int
        How many bytes the pass may take.
    keep : bool
        Whether to keep anything; None is kept also where there is no gpu_memory for it.
    """
    (n, P, b), U, G = Y.shape, Z.shape[0], T.shape[1]
    parts = count_parts(n, b, U, P, G, gpu_memory)
    if parts == 1:
        both = gpu_operand.operand(kernels, Z, gpu_rows(X, T, Y))
        return *_products(both, U), both if keep else None

    def add(so_far: tuple[Array, Array], part: tuple[Array, Array, Array]) -> Any:
        phi, psi = _products(gpu_operand.operand(kernels, Z, gpu_rows(*part)), U)
        return (so_far[0] + phi, so_far[1] + psi), None

    zero = (jnp.zeros((G, U, U), Z.dtype), jnp.zeros((G, U, P), Z.dtype))
    (phi, psi), _ = lax.scan(add, zero, _in_parts(X, T, Y, parts))
    return phi, psi, None


# -------------------------------------------------------------------------------- backwards


def _times_both(G_left: Array, G_right: Array, both: Array) -> Array:
    """Return [G_left, G_right] [K; Y] of every mapping, (G, U, n · b)."""
    G_both = jnp.concatenate([G_left, G_right], axis=2)
    return jnp.einsum("guv,vgc->guc", G_both, _flat(both))


def _reverse_of_rows(
    kernels: Kernel, Z: Array, rows: GpuRows, both: Array, G_phi: Array, G_psi: Array
) -> tuple[Kernel, Array, Array]:
    """Return the derivatives by the kernels, Z and X of some rows, the last as (Q, n · b)."""
    dK = _times_both(G_phi + G_phi.transpose(0, 2, 1), G_psi, both)
    if isinstance(kernels, RBF):
        found = gpu_sums.rbf_sums(both, dK, rows.t, rows.x, Z, kernels.bias)
        variance = -2.0 * jnp.sum(found.E, axis=1) / kernels.variance
        return _from_sums(kernels, Z, rows, found, variance=variance)
    U = Z.shape[0]
    K = both[:U]
    dK = dK.reshape(-1, U, *rows.t.shape[1:]).transpose(1, 0, 2, 3)  # (U, G, n, b)
    if isinstance(kernels, Linear):
        return _reverse_of_linear(kernels, Z, rows, dK)
    assert isinstance(kernels, Stationary)
    beside: Any = spread(kernels)
    r2 = squared_distances(kernels, Z, rows.x)
    E = beside._distance_gradient(rows.t, K, r2, dK)
    found = gpu_sums.plain_sums(E, dK, rows.t, rows.x, Z)
    correlation = jnp.sum((K - beside.bias * rows.t) * dK, axis=(0, 2, 3))  # variance · c · t · dK
    own = jax.vmap(lambda k, r2, dc: k._shape_gradient(r2, dc), in_axes=(0, 1, 1))(
        kernels, r2, beside.variance * (rows.t * dK)
    )
    return _from_sums(kernels, Z, rows, found, variance=correlation / kernels.variance, **own)


def _from_sums(
    kernels: Stationary, Z: Array, rows: GpuRows, found: RowSums, **others: Array
) -> tuple[Kernel, Array, Array]:
    """Return the derivatives from the sums of E = ∂L/∂r², r² = Σ_q γ_q (z_q − x_q)²."""
    G, Q = kernels.gamma.shape[0], Z.shape[1]
    gamma = jnp.broadcast_to(kernels.gamma.reshape(G, -1), (G, Q))
    x = _flat(rows.x)
    by_z = found.E[:, :, None] * Z - found.E_x  # (G, U, Q)
    by_x = [x[q] * found.e - found.e_z[q] for q in range(Q)]  # Q arrays (G, C)
    dZ = 2.0 * jnp.sum(gamma[:, None] * by_z, axis=0)
    dX = 2.0 * jnp.stack([jnp.sum(gamma[:, q, None] * by_x[q], axis=0) for q in range(Q)])
    d_gamma = jnp.sum(by_z * Z, axis=1)
    d_gamma = d_gamma + jnp.stack([jnp.sum(by_x[q] * x[q], axis=1) for q in range(Q)], axis=1)
    if kernels.gamma.ndim == 1:
        d_gamma = jnp.sum(d_gamma, axis=1)
    gradient = _like(
        kernels, gamma=d_gamma, bias=found.dK_t, white=jnp.zeros_like(kernels.white), **others
    )
    return gradient, dZ, dX


def _reverse_of_linear(
    kernels: Linear, Z: Array, rows: GpuRows, dK: Array
) -> tuple[Kernel, Array, Array]:
    G, Q = kernels.variance.shape[0], Z.shape[1]
    variance = jnp.broadcast_to(kernels.variance.reshape(G, -1), (G, Q))
    dK = dK * rows.t
    dK_x = jnp.sum(jnp.einsum("ugnb,qnb->nguq", dK, rows.x), axis=0)
    d_variance = jnp.sum(dK_x * Z, axis=1)
    if kernels.variance.ndim == 1:
        d_variance = jnp.sum(d_variance, axis=1)
    gradient = _like(
        kernels,
        variance=d_variance,
        bias=jnp.sum(dK, axis=(0, 2, 3)),
        white=jnp.zeros_like(kernels.white),
    )
    weighted = variance[:, :, None] * jnp.einsum("uq,ugc->gqc", Z, _flat(dK))
    return gradient, jnp.sum(variance[:, None] * dK_x, axis=0), jnp.sum(weighted, axis=0)


def reverse(
    kernels: Kernel,
    Z: Array,
    X: Array,
    T: Array,
    Y: Array,
    kept: Array | None,
    G_phi: Array,
    G_psi: Array,
    gpu_memory: int,
) -> tuple[Kernel, Array, Array, Array]:
    """Return the derivatives by the kernels, Z, X and T, from those by the sums.

    ``kept`` is what :func:`sums` kept. That by T costs a pass of its own over K; XLA drops it
    where nobody asks for it.
    """
    (n, P, b), U, G = Y.shape, Z.shape[0], T.shape[1]
    dT = _by_weights(kernels, Z, X, T, Y, G_phi, G_psi, gpu_memory)
    if kept is not None:
        rows = gpu_rows(X, T, Y)
        d_kernels, dZ, dX = _reverse_of_rows(kernels, Z, rows, kept, G_phi, G_psi)
        return d_kernels, dZ, dX.T, dT

    def add(so_far: tuple[Kernel, Array], part: tuple[Array, Array, Array]) -> Any:
        rows = gpu_rows(*part)
        both = gpu_operand.operand(kernels, Z, rows)
        d_kernels, dZ, dX = _reverse_of_rows(kernels, Z, rows, both, G_phi, G_psi)
        return jax.tree.map(jnp.add, so_far, (d_kernels, dZ)), dX.T

    parts = count_parts(n, b, U, P, G, gpu_memory)
    zero = jax.tree.map(jnp.zeros_like, (kernels, Z))
    (d_kernels, dZ), dX = lax.scan(add, zero, _in_parts(X, T, Y, parts))
    return d_kernels, dZ, dX.reshape(X.shape), dT


def _by_weights(
    kernels: Kernel,
    Z: Array,
    X: Array,
    T: Array,
    Y: Array,
    G_phi: Array,
    G_psi: Array,
    gpu_memory: int,
) -> Array:
    """Return the derivative by T (N, G): kᵀ G_Φ k + kᵀ G_Ψ y."""
    U = Z.shape[0]

    def part(X: Array, Y: Array) -> Array:
        # Without the weights, whose root has no derivative at 0.
        ones = jnp.ones((X.shape[0], T.shape[1]), X.dtype)
        both = gpu_operand.operand(kernels, Z, gpu_rows(X, ones, Y))
        return jnp.sum(_flat(both)[:U] * _times_both(G_phi, G_psi, both).transpose(1, 0, 2), axis=0)

    return over_parts(part, X, Y, U, T.shape[1], gpu_memory)


def over_parts(
    function: Callable[[Array, Array], Array], X: Array, Y: Array, U: int, G: int, gpu_memory: int
) -> Array:
    """Return a function's values (N, G), made for some rows at a time.

    Parameters
    ----------
    function : callable
        Of X and Y of some rows; returns (G, number of rows).
    """
    n, P, b = Y.shape
    parts = count_parts(n, b, U, P, G, gpu_memory)
    if parts == 1:
        return function(X, Y).T
    X_parts, _, Y_parts = _in_parts(X, X, Y, parts)
    values: Array = lax.map(lambda part: function(*part).T, (X_parts, Y_parts))
    return values.reshape(X.shape[0], -1)
