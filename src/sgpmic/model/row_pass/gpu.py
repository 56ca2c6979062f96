r"""What a GPU does with a part of the rows: few operations, each over many rows.

K_uf √s of all mappings stands above Y √s in one array (U + P, G, n, b), and

- one batched product over mappings and blocks makes all the Φ and Ψ, [K] by [K; Y], where [K]
  is a part of the array and not a copy of it;
- one batched product makes ∂L/∂(K √s) = [G_Φ + G_Φᵀ, G_Ψ] [K; Y];
- its sums over the inducing points and over the rows, all that the kernel, Z and X need, come
  from one reading of K and of that derivative (:mod:`sgpmic.model.row_pass.gpu_sums`).

Where all rows fit into ``gpu_memory``, the bytes that the pass may take, they are one part and K is
kept for the way back; otherwise it is made again.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sgpmic.kernels import RBF, DistanceSums, Kernel
from sgpmic.model.row_pass import gpu_operand, gpu_sums
from sgpmic.model.row_pass.gpu_operand import gpu_rows
from sgpmic.model.row_pass.parts import Part

#: The share of the memory that one part of the rows may take where they do not all fit.
PART = 0.25
#: Most numbers in an array that hand-written kernels can find their way in.
MOST_NUMBERS = 2**31 - 1


def count_parts(n_blocks: int, P: int, size: int, U: int, G: int, gpu_memory: int) -> int:
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


def scratch(Z: Array, Y: Array) -> tuple[()]:
    """Return nothing: every part has arrays of its own."""
    return ()


def sums(kernels: Kernel, Z: Array, part: Part, scratch: Any) -> tuple[Array, Any, Array]:
    """Return [Φ, Ψ] (G, U, U + P) of a part, nothing, and [K; Y] to keep."""
    U = Z.shape[0]
    both = gpu_operand.operand(kernels, Z, gpu_rows(part))
    # The long side first in the result: 3 % faster on an H200.
    by_block = jnp.einsum("ugnb,vgnb->gnvu", both[:U], both)
    return jnp.sum(by_block, axis=1).transpose(0, 2, 1), scratch, both


def squares(kernels: Kernel, Z: Array, part: Part, weights: Array) -> Array:
    """Return |W [k; y]|² of every row and mapping, (n · b, G), for W (G, U + P, U + P)."""
    both = gpu_operand.operand(kernels, Z, gpu_rows(part))
    # The whole of it, zeros of W and all: a part of it would be copied first.
    found = jnp.einsum("gvu,ugc->gvc", weights, both.reshape(*both.shape[:2], -1))
    return jnp.sum(found**2, axis=1).T


def reverse(
    kernels: Kernel, Z: Array, part: Part, by_both: Array, scratch: Any, kept: Array | None
) -> tuple[Kernel, Array, Array, Any]:
    """Return the derivatives by the kernels, Z and x of a part, and nothing.

    ``by_both`` (G, U, U + P) is [G_Φ + G_Φᵀ, G_Ψ], ``kept`` what :func:`sums` kept, if anything.
    """
    U, rows = Z.shape[0], gpu_rows(part)
    both = gpu_operand.operand(kernels, Z, rows) if kept is None else kept
    flat = both.reshape(*both.shape[:2], -1)
    dK = jnp.einsum("guv,vgc->guc", by_both, flat)
    t = rows.t.reshape(rows.t.shape[0], -1)
    if isinstance(kernels, RBF):
        found = gpu_sums.rbf_sums(both, dK, rows.t, rows.x, Z, kernels.bias)

        def of_sums(kernel: RBF, own: DistanceSums) -> tuple[RBF, Array, Array]:
            return kernel.gradient(Z, part.x, own, kernel.variance_from_sums(own))

        gradient: tuple[Kernel, Array, Array] = jax.vmap(of_sums)(kernels, found)
    else:

        def one(kernel: Kernel, t: Array, K: Array, dK: Array) -> tuple[Kernel, Array, Array]:
            saved = kernel.forward(Z, part.x, t)[1]
            return kernel.backward(Z, part.x, t, K, saved, dK)

        gradient = jax.vmap(one)(kernels, t, flat[:U].swapaxes(0, 1), dK)
    d_kernels, dZ, dx = gradient
    return d_kernels, jnp.sum(dZ, axis=0), jnp.sum(dx, axis=0), scratch
