r"""The Gaussian-mapping part of the bound from its small sums, with the functions integrated out.

For one Gaussian process, with :math:`A = K_{uu} + \beta\Phi`, :math:`W = \beta\Psi`:

.. math:: -\tfrac P2 (\log|A| - \log|K_{uu}|) + \tfrac12 \mathrm{tr}(W^\top A^{-1} W).

Numerics: with :math:`K_{uu} = LL^\top` and :math:`B = I + \beta L^{-1}\Phi L^{-\top}` one has
:math:`\log|A| - \log|K_{uu}| = \log|B|`, and B's eigenvalues are at least 1 however close to
singular :math:`K_{uu}` is. :math:`R = L\,\mathrm{chol}(B)` is a triangular factor of A.

Titsias' bound has another term, :math:`-\tfrac{\beta P}2 [\sum_n t_n \langle k(x_n,x_n)\rangle -
\mathrm{tr}(K_{uu}^{-1}\Phi)]`: what the inducing points leave open about f. Its second part is
made here (``trace=True``), where the factors are at hand.
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
#: A tenth of the first jitter that is tried when none was asked for.
SMALLEST_JITTER = 1e-10
#: How many times above its rounding error every pivot of A has to be.
TRUST = 1e4


class Factors(NamedTuple):
    """Triangular factors of K_uu and A, inverted, and the jitter it took."""

    L_inverse: Array  # (U, U): L⁻¹ with K_uu + jitter = L Lᵀ
    R_inverse: Array  # (U, U): R⁻¹ with A = R Rᵀ
    alpha: Array  # (U, P): A⁻¹ W, the weights of the posterior mean
    half_log_det_B: Array  # ½ log|B|
    jitter: Array  # relative jitter that was used


class _Attempt(NamedTuple):
    tries: Array
    jitter: Array
    L_inverse: Array
    L_B: Array
    smallest_pivot: Array  # of A, the smallest diagonal element of R squared


def factorize(K_uu: Array, phi: Array, psi: Array, beta: Array, jitter: Array | float) -> Factors:
    """Return what the bound, its derivatives, the E-step and predictions need of A and K_uu.

    The jitter is relative to the mean diagonal of K_uu. JAX's Cholesky does not raise, it returns
    NaN; so a failure is tried again inside the compiled code with ten times the jitter,
    :data:`JITTER_TRIES` times at most. A factor of K_uu alone is not success: where K_uu is close
    to singular, the rounding errors of βΦ may swamp what is left of A there, and its factor is
    then missing or, worse, wrong. So every pivot of A has to stand clear of them. After the last
    try what is there is taken; NaN is the caller's to judge.
    """
    eye = jnp.eye(K_uu.shape[0], dtype=K_uu.dtype)
    first = jnp.asarray(jitter, K_uu.dtype)
    mean_diagonal = jnp.mean(jnp.diagonal(K_uu))
    rounding = float(jnp.finfo(K_uu.dtype).eps) * beta * jnp.max(jnp.diagonal(phi))

    def unsound(attempt: _Attempt) -> Array:
        # NaN compares as false.
        return (attempt.tries <= JITTER_TRIES) & ~(attempt.smallest_pivot >= TRUST * rounding)

    def once(attempt: _Attempt) -> _Attempt:
        raised = jnp.maximum(first, SMALLEST_JITTER) * 10.0 ** attempt.tries.astype(K_uu.dtype)
        level = jnp.where(attempt.tries == 0, first, raised)
        L = lax.linalg.cholesky(K_uu + level * mean_diagonal * eye, symmetrize_input=False)
        L_inverse = solve_triangular(L, eye, lower=True)
        V = L_inverse @ phi @ L_inverse.T
        B = eye + beta * 0.5 * (V + V.T)
        L_B = lax.linalg.cholesky(B, symmetrize_input=False)
        pivots = (jnp.diagonal(L) * jnp.diagonal(L_B)) ** 2
        return _Attempt(attempt.tries + 1, level, L_inverse, L_B, jnp.min(pivots))

    nan = jnp.full_like(K_uu, jnp.nan)
    start = _Attempt(jnp.zeros((), jnp.int32), first, nan, nan, nan[0, 0])
    _, level, L_inverse, L_B, _ = lax.while_loop(unsound, once, start)
    R_inverse = solve_triangular(L_B, L_inverse, lower=True)  # (L L_B)⁻¹
    alpha = R_inverse.T @ (R_inverse @ (beta * psi))
    return Factors(L_inverse, R_inverse, alpha, jnp.sum(jnp.log(jnp.diagonal(L_B))), level)


@partial(jax.custom_vjp, nondiff_argnums=(6,))
def collapsed_term(
    K_uu: Array,
    phi: Array,
    psi: Array,
    beta: Array,
    jitter: Array | float,
    n_features: Array,
    trace: bool = False,
) -> Array:
    """Return −P/2 (log|A| − log|K_uu|) + ½ tr(WᵀA⁻¹W) of one Gaussian process.

    With ``trace``, + βP/2 tr(K_uu⁻¹Φ) as well. The jitter and the number of features P are
    settings: nothing is differentiated by them. Where features are padded, Ψ has more columns
    than P.
    """
    return _collapsed_forward(K_uu, phi, psi, beta, jitter, n_features, trace)[0]


def _collapsed_forward(
    K_uu: Array,
    phi: Array,
    psi: Array,
    beta: Array,
    jitter: Array | float,
    n_features: Array,
    trace: bool,
) -> tuple[Array, Any]:
    f = factorize(K_uu, phi, psi, beta, jitter)
    value = -n_features * f.half_log_det_B + 0.5 * beta * jnp.sum(psi * f.alpha)
    if trace:
        value = value + 0.5 * beta * n_features * jnp.sum((f.L_inverse @ phi) * f.L_inverse)
    return value, (phi, psi, beta, f, n_features)


def _collapsed_backward(trace: bool, residuals: Any, g: Array) -> Any:
    phi, psi, beta, f, P = residuals
    A_inverse = f.R_inverse.T @ f.R_inverse
    outer = f.alpha @ f.alpha.T
    dA = -0.5 * (P * A_inverse + outer)  # ∂L/∂A; ∂L/∂W = A⁻¹W = alpha
    K_inverse = f.L_inverse.T @ f.L_inverse
    # ∂L/∂K_uu = P/2 (K_uu⁻¹ − A⁻¹) − ½ ααᵀ
    dK = 0.5 * (P * (K_inverse - A_inverse) - outer)
    d_phi = g * beta * dA
    d_beta = jnp.sum(dA * phi) + jnp.sum(f.alpha * psi)
    if trace:  # of βP/2 tr(K_uu⁻¹Φ)
        dK = dK - 0.5 * beta * P * (K_inverse @ phi @ K_inverse)
        d_phi = d_phi + 0.5 * g * beta * P * K_inverse
        d_beta = d_beta + 0.5 * P * jnp.sum(K_inverse * phi)
    # K_uu went in as K_uu + jitter · mean(diag K_uu) · I.
    U = dK.shape[0]
    dK = dK + (f.jitter * jnp.trace(dK) / U) * jnp.eye(U, dtype=dK.dtype)
    constants = jnp.zeros_like(f.jitter), jnp.zeros_like(P)
    return g * dK, d_phi, g * beta * f.alpha, g * d_beta, *constants


collapsed_term.defvjp(_collapsed_forward, _collapsed_backward)
