r"""The E-step: q(F) from the sums, then q(S) row by row.

.. math:: \log p_{nm} = \log\pi_m + \log N(x_n|\bar x_m, C_m) + \tfrac P2\log\tfrac\beta{2\pi}
   - \tfrac\beta2 \left[|y_n - \bar f_n|^2 + P\, k_n^\top A_m^{-1} k_n\right],
   \qquad S = \mathrm{softmax}_m.

An exact E-step with the rest held fixed never lowers the KL-corrected bound: at the optimal q(F)
the standard bound equals it, updating S raises the standard bound, and the KL-corrected one lies
above that.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from sgpmic.kernels import Kernel, cross
from sgpmic.model.bound import Mappings, factorise_all, sums
from sgpmic.model.collapsed import Factors
from sgpmic.model.mixture import LatentPrior, log_densities
from sgpmic.model.row_pass import gpu
from sgpmic.model.row_pass.gpu_operand import kernel_matrices, rows_last
from sgpmic.model.row_pass.sums import on_own_rows
from sgpmic.model.rows import Rows


def expected_log_likelihoods(mappings: Mappings, factors: Factors, X: Array, rows: Rows) -> Array:
    """Return ⟨log p(y_n | f_n)⟩ under every q(f_m), shape (N, G)."""
    function = own_log_likelihoods
    if rows.gpu_memory > 0:
        function = partial(_gpu_log_likelihoods, rows.gpu_memory)
    everywhere = on_own_rows(
        function, rows.mesh, by_row=(False, False, True, True, False), results=True
    )
    result: Array = everywhere(mappings, factors, X, rows.Y, rows.n_features)
    return result


def own_log_likelihoods(
    mappings: Mappings, factors: Factors, X: Array, Y: Array, n_features: Array
) -> Array:
    """Return the same of the rows at hand, Y in blocks (n_blocks, P, block)."""
    kernels, Z, beta = mappings
    X_blocks = X.reshape(Y.shape[0], -1, X.shape[1])
    normaliser = 0.5 * n_features * jnp.log(beta / (2.0 * math.pi))

    def one(component: tuple[Kernel, Factors]) -> Array:
        kernel, f = component

        def block(_: None, rows_of_block: tuple[Array, Array]) -> tuple[None, Array]:
            x, y = rows_of_block
            K = cross(kernel, Z, x)  # (U, B)
            residual = y - f.alpha.T @ K  # y − f̄
            whitened = f.R_inverse @ K  # its squares sum to kᵀA⁻¹k
            spread = jnp.sum(residual**2, axis=0) + n_features * jnp.sum(whitened**2, axis=0)
            return None, normaliser - 0.5 * beta * spread

        return lax.scan(block, None, (X_blocks, Y))[1].reshape(-1)

    result: Array = lax.map(one, (kernels, factors))
    return result.T


def _gpu_log_likelihoods(
    gpu_memory: int, mappings: Mappings, factors: Factors, X: Array, Y: Array, n_features: Array
) -> Array:
    """As :func:`own_log_likelihoods`, for all mappings and many rows at once."""
    kernels, Z, beta = mappings
    U, P = Z.shape[0], Y.shape[1]
    normaliser = 0.5 * n_features * jnp.log(beta / (2.0 * math.pi))
    both = jnp.concatenate([factors.R_inverse, factors.alpha.transpose(0, 2, 1)], axis=1)

    def part(X: Array, Y: Array) -> Array:
        K = kernel_matrices(kernels, Z, rows_last(X, Y))
        found = jnp.einsum("gvu,ugc->gvc", both, K.reshape(*K.shape[:2], -1))
        residual = Y.transpose(1, 0, 2).reshape(P, -1) - found[:, U:]
        spread = jnp.sum(residual**2, axis=1) + n_features * jnp.sum(found[:, :U] ** 2, axis=1)
        return normaliser - 0.5 * beta * spread

    return gpu.over_parts(part, X, Y, U, both.shape[0], gpu_memory)


def responsibilities(log_p: Array, rows: Rows) -> Array:
    """Return softmax over the clusters, 0 for padding rows."""
    return jax.nn.softmax(log_p, axis=1) * rows.flat_weight[:, None]


def e_step(
    mappings: Mappings,
    prior: LatentPrior,
    X: Array,
    S: Array,
    rows: Rows,
    *,
    shared: bool,
    jitter: Array,
) -> tuple[Array, Array]:
    """Make one exact E-step from ``S``.

    Returns
    -------
    S : array of shape (N, M)
        The new responsibilities.
    jitter : array of shape (G,)
        As given, or higher where q(F) needed it.
    """
    log_p = log_densities(prior, X) + prior.log_weights
    if shared:
        # The one mapping is the same for every cluster: it cancels in the softmax.
        return responsibilities(log_p, rows), jitter
    factors = factorise_all(mappings, *sums(mappings, X, S, rows), jitter)
    log_p = log_p + expected_log_likelihoods(mappings, factors, X, rows)
    return responsibilities(log_p, rows), factors.jitter
