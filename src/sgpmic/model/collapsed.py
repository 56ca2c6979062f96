r"""The Gaussian-process part of the bound from its small sums, with the functions integrated out.

For one Gaussian process, with :math:`A = K_{uu} + \beta\Phi`, :math:`W = \beta\Psi`:

.. math:: -\tfrac P2 (\log|A| - \log|K_{uu}|) + \tfrac12 \mathrm{tr}(W^\top A^{-1} W).

Numerics: with :math:`K_{uu} = LL^\top` and :math:`B = I + \beta L^{-1}\Phi L^{-\top}` one has
:math:`\log|A| - \log|K_{uu}| = \log|B|`, and B's eigenvalues are at least 1 however close to
singular :math:`K_{uu}` is. :math:`R = L\,\mathrm{chol}(B)` is a triangular factor of A.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular

#: How often the jitter may be raised tenfold before a matrix is given up as broken.
JITTER_TRIES = 5
#: Where raising starts when no jitter was asked for.
SMALLEST_JITTER = 1e-10


class Factors(NamedTuple):
    """Triangular factors of K_uu and A, inverted, and the jitter it took."""

    L_inverse: Array  # (U, U): L⁻¹ with K_uu + jitter = L Lᵀ
    R_inverse: Array  # (U, U): R⁻¹ with A = R Rᵀ
    alpha: Array  # (U, P): A⁻¹ W, the weights of the posterior mean
    half_log_det_B: Array  # ½ log|B|
    jitter: Array  # relative jitter that was used


def cholesky_with_jitter(K: Array, jitter: float) -> tuple[Array, Array]:
    """Factor ``K``, raising a jitter relative to its mean diagonal when that fails.

    JAX's Cholesky does not raise, it returns NaN; so this tries again inside the compiled code,
    ten times the jitter each time, :data:`JITTER_TRIES` times at most. If K itself is not finite
    the result is NaN and the caller's to judge.

    Returns
    -------
    factor : array, lower triangular
    jitter : array, the relative jitter that went in
    """
    mean_diagonal = jnp.mean(jnp.diagonal(K))
    eye = jnp.eye(K.shape[0], dtype=K.dtype)

    def failed(carry: tuple[Array, Array, Array]) -> Array:
        attempt, factor, _ = carry
        return (attempt <= JITTER_TRIES) & jnp.any(jnp.isnan(factor))

    def attempt_once(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        attempt, _, _ = carry
        raised = max(jitter, SMALLEST_JITTER) * 10.0 ** attempt.astype(K.dtype)
        level = jnp.where(attempt == 0, jnp.asarray(jitter, K.dtype), raised)
        factor = lax.linalg.cholesky(K + level * mean_diagonal * eye, symmetrize_input=False)
        return attempt + 1, factor, level

    start = (
        jnp.zeros((), jnp.int32),
        jnp.full_like(K, jnp.nan),
        jnp.asarray(jitter, K.dtype),
    )
    _, factor, level = lax.while_loop(failed, attempt_once, start)
    return factor, level


def factorise(K_uu: Array, phi: Array, psi: Array, beta: Array, jitter: float) -> Factors:
    """Return what the bound, its derivatives, the E-step and predictions need of A and K_uu."""
    eye = jnp.eye(K_uu.shape[0], dtype=K_uu.dtype)
    L, level = cholesky_with_jitter(K_uu, jitter)
    L_inverse = solve_triangular(L, eye, lower=True)
    V = L_inverse @ phi @ L_inverse.T
    B = eye + beta * 0.5 * (V + V.T)
    L_B = lax.linalg.cholesky(B, symmetrize_input=False)
    R_inverse = solve_triangular(L_B, L_inverse, lower=True)  # (L L_B)⁻¹
    alpha = R_inverse.T @ (R_inverse @ (beta * psi))
    return Factors(L_inverse, R_inverse, alpha, jnp.sum(jnp.log(jnp.diagonal(L_B))), level)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def collapsed_term(K_uu: Array, phi: Array, psi: Array, beta: Array, jitter: float) -> Array:
    """Return −P/2 (log|A| − log|K_uu|) + ½ tr(WᵀA⁻¹W) of one Gaussian process."""
    return _collapsed_forward(K_uu, phi, psi, beta, jitter)[0]


def _collapsed_forward(
    K_uu: Array, phi: Array, psi: Array, beta: Array, jitter: float
) -> tuple[Array, Any]:
    f = factorise(K_uu, phi, psi, beta, jitter)
    value = -psi.shape[1] * f.half_log_det_B + 0.5 * beta * jnp.sum(psi * f.alpha)
    return value, (phi, psi, beta, f)


def _collapsed_backward(jitter: float, residuals: Any, g: Array) -> Any:
    phi, psi, beta, f = residuals
    P = psi.shape[1]
    A_inverse = f.R_inverse.T @ f.R_inverse
    outer = f.alpha @ f.alpha.T
    dA = -0.5 * (P * A_inverse + outer)  # ∂L/∂A; ∂L/∂W = A⁻¹W = alpha
    # ∂L/∂K_uu = P/2 (K_uu⁻¹ − A⁻¹) − ½ ααᵀ
    dK = 0.5 * (P * (f.L_inverse.T @ f.L_inverse - A_inverse) - outer)
    # K_uu went in as K_uu + jitter · mean(diag K_uu) · I.
    U = dK.shape[0]
    dK = dK + (f.jitter * jnp.trace(dK) / U) * jnp.eye(U, dtype=dK.dtype)
    d_beta = jnp.sum(dA * phi) + jnp.sum(f.alpha * psi)
    return g * dK, g * beta * dA, g * beta * f.alpha, g * d_beta


collapsed_term.defvjp(_collapsed_forward, _collapsed_backward)
