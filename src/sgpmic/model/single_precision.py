r"""The pass over the rows in float32; everything small stays in float64.

The sums Φ and Ψ of :mod:`sgpmic.model.statistics` cannot be made in float32: where K_uu is close
to singular, the rounding of βΦ swamps what is left of A there. So every row is whitened first,

.. math:: v_n = W k_n, \quad W \approx L^{-1}, \quad LL^\top = K_{uu}; \qquad
          \Phi_w = \sum_n s_n v_n v_n^\top, \quad \Psi_w = \sum_n s_n v_n y_n^\top,

where W is :math:`L^{-1}` rounded to float32. What the rounding leaves is kept in float64,
:math:`C = W K_{uu} W^\top \approx I`, so that W cancels exactly:

.. math:: B = C + \beta\Phi_w = W A W^\top, \quad
          \log|A| - \log|K_{uu}| = \log|B| - \log|C|, \quad
          \alpha_w = \beta B^{-1}\Psi_w, \quad \alpha = W^\top\alpha_w.

B ⪰ C ≈ I: a pivot of B below 1 can only be rounding, and then the jitter is raised and the pass
made again. With the residuals :math:`e_n = y_n - \alpha_w^\top v_n` the derivative is

.. math:: \partial L/\partial K_{uf} = \beta\, [\, -P\, W^\top B^{-1},\; \alpha \,]
          \begin{bmatrix} V \\ E \end{bmatrix} \mathrm{diag}(s),

in which the large numbers have cancelled (in E) before they are multiplied by W's. What is left
is the rounding of K_uf itself, 6e-8, times the norm of W, the root of 1 / jitter.

The value takes a second pass, for what the rounding of the sums has done to it in first order.
Where β is large, βΦ_w is rounded by more than is small beside C. But for any α_w,

.. math:: \tfrac12\mathrm{tr}(W_m^\top A^{-1}W_m) - \tfrac\beta2\sum_n s_n|y_n|^2
          = -\tfrac12\Big[\beta\sum_n s_n|e_n|^2 + \mathrm{tr}(\alpha_w^\top C\alpha_w)\Big]
          + \tfrac12\mathrm{tr}(g^\top B^{-1}g), \quad
          g = \beta\sum_n s_n v_n e_n^\top - C\alpha_w,

where nothing large cancels and g, 0 for the exact α_w, is small: B's rounding does no harm. With
:math:`\hat B = L_BL_B^\top`, the rounded B, the determinant is in the same order

.. math:: \log|B| = \log|\hat B| + \mathrm{tr}(\hat B^{-1}C)
          + \beta\sum_n s_n|L_B^{-1}v_n|^2 - U.

K_uu is made from the rounded Z and kernel: a point that is elsewhere for both does no harm, one
that is elsewhere for K_uf only is magnified by W.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.sharding import Mesh

from sgpmic.kernels import Kernel
from sgpmic.model import single_pass
from sgpmic.model.collapsed import JITTER_TRIES, Factors
from sgpmic.model.single_pass import DOUBLE, SINGLE, Residuals, doubled, rounded
from sgpmic.model.statistics import added_up, on_own_rows

#: The least relative jitter: W is at most a thousand then, and a row is whitened to 1e-4.
LEAST_JITTER = 1e-6
#: The relative error of a gradient, for optimisers that take differences of them.
GRADIENT_ERROR = 1e-5
#: Below this a pivot of B, at least 1 but for rounding, is not believed.
_SMALLEST_PIVOT = 0.5


class Whitened(NamedTuple):
    """What is known of every process after a pass; float64 but for W."""

    W: Array  # (G, U, U) L⁻¹ in float32
    L_inverse: Array  # (G, U, U)
    C: Array  # (G, U, U)
    phi: Array  # (G, U, U) Φ_w
    psi: Array  # (G, U, P) Ψ_w
    L_B_inverse: Array  # (G, U, U)
    alpha: Array  # (G, U, P) α_w
    half_log_det: Array  # (G,) ½ (log|B| − log|C|)
    jitter: Array  # (G,) the relative jitter that was used


# --------------------------------------------------------------------------------- small matrices


def _whiten(kernels: Kernel, Z: Array, levels: Array) -> tuple[Array, Array, Array, Array]:
    """Return W, L⁻¹, C and ½ log|C| of every process, from rounded kernels and inputs."""
    eye = jnp.eye(Z.shape[0], dtype=DOUBLE)

    def one(component: tuple[Kernel, Array]) -> tuple[Array, Array, Array, Array]:
        kernel, level = component
        K = kernel.gram(doubled(Z))
        K = K + level * jnp.mean(jnp.diagonal(K)) * eye
        L = lax.linalg.cholesky(K, symmetrize_input=False)
        L_inverse = solve_triangular(L, eye, lower=True)
        W = L_inverse.astype(SINGLE)
        exact = doubled(W)
        WL = exact @ L
        half_log_det = jnp.sum(jnp.log(jnp.diagonal(WL)))
        return W, L_inverse, WL @ WL.T, half_log_det

    result: tuple[Array, Array, Array, Array] = lax.map(one, (doubled(kernels), levels))
    return result


class _Attempt(NamedTuple):
    tries: Array
    sound: Array  # (G,)
    whitened: Whitened


def whiten_all(
    kernels: Kernel,
    Z: Array,
    X: Array,
    T: Array,
    Y: Array,
    beta: Array,
    jitter: Array,
    mesh: Mesh | None,
    room: int,
) -> Whitened:
    """Make a pass; raise the jitter tenfold and make another where B came out unsound."""
    kernels, Z = rounded(kernels, Z)
    U, P, G = Z.shape[0], Y.shape[1], T.shape[1]
    eye = jnp.eye(U, dtype=DOUBLE)
    everywhere = on_own_rows(
        lambda *arguments: added_up(single_pass.sums(*arguments, room=room), mesh),
        mesh,
        by_row=(False, False, False, True, True, True),
        results=(False, False),
    )

    def unsound(attempt: _Attempt) -> Array:
        return (attempt.tries <= JITTER_TRIES) & ~jnp.all(attempt.sound)

    def once(attempt: _Attempt) -> _Attempt:
        # Before the first try nothing is sound and nothing is to be raised.
        failed = (attempt.tries > 0) & ~attempt.sound
        levels = attempt.whitened.jitter * jnp.where(failed, 10.0, 1.0)
        W, L_inverse, C, half_log_det_C = _whiten(kernels, Z, levels)
        phi, psi = everywhere(kernels, Z, W, X, T, Y)

        def one(component: tuple[Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            C_m, phi_m, psi_m = component
            L_B = lax.linalg.cholesky(C_m + beta * 0.5 * (phi_m + phi_m.T), symmetrize_input=False)
            L_B_inverse = solve_triangular(L_B, eye, lower=True)
            alpha = L_B_inverse.T @ (L_B_inverse @ (beta * psi_m))
            pivots = jnp.diagonal(L_B)
            return L_B_inverse, alpha, jnp.sum(jnp.log(pivots)), jnp.min(pivots**2)

        L_B_inverse, alpha, half_log_det_B, smallest = lax.map(one, (C, phi, psi))
        whitened = Whitened(
            W, L_inverse, C, phi, psi, L_B_inverse, alpha, half_log_det_B - half_log_det_C, levels
        )
        # NaN compares as false.
        return _Attempt(attempt.tries + 1, smallest >= _SMALLEST_PIVOT, whitened)

    square = jnp.full((G, U, U), jnp.nan, DOUBLE)
    tall = jnp.full((G, U, P), jnp.nan, DOUBLE)
    levels = jnp.maximum(jitter, LEAST_JITTER)
    nothing = Whitened(
        square.astype(SINGLE), square, square, square, tall, square, tall, square[:, 0, 0], levels
    )
    start = _Attempt(jnp.zeros((), jnp.int32), jnp.zeros(G, bool), nothing)
    return lax.while_loop(unsound, once, start).whitened


def factors_of(whitened: Whitened) -> Factors:
    """Return the factors of q(F) of every process: R⁻¹ = L_B⁻¹ W, α = Wᵀ α_w."""
    w = whitened
    W = doubled(w.W)

    def one(component: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        W_m, L_B_inverse, alpha = component
        return L_B_inverse @ W_m, W_m.T @ alpha

    R_inverse, alpha = lax.map(one, (W, w.L_B_inverse, w.alpha))
    return Factors(w.L_inverse, R_inverse, alpha, w.half_log_det, w.jitter)


# --------------------------------------------------------------------------------- the data term


@partial(jax.custom_vjp, nondiff_argnums=(7, 8))
def collapsed_terms(
    kernels: Kernel,
    Z: Array,
    X: Array,
    T: Array,
    Y: Array,
    beta: Array,
    jitter: Array,
    mesh: Mesh | None = None,
    room: int = 0,
) -> Array:
    """Return Σ_m [−P/2 (log|A_m| − log|K_uu|) + ½ tr(W_mᵀA_m⁻¹W_m)].

    The same as :func:`sgpmic.model.collapsed.collapsed_term` of the sums of
    :func:`sgpmic.model.statistics.statistics`, for all processes; ``Y`` and ``jitter`` (G,) have
    no derivative.
    """
    return _forward(kernels, Z, X, T, Y, beta, jitter, mesh, room)[0]


def _forward(
    kernels: Kernel,
    Z: Array,
    X: Array,
    T: Array,
    Y: Array,
    beta: Array,
    jitter: Array,
    mesh: Mesh | None,
    room: int,
) -> tuple[Array, Any]:
    w = whiten_all(kernels, Z, X, T, Y, beta, jitter, mesh, room)
    alpha = w.alpha.astype(SINGLE)
    everywhere = on_own_rows(
        lambda *arguments: added_up(tuple(single_pass.residuals(*arguments, room=room)), mesh),
        mesh,
        by_row=(*(False,) * 5, True, True, True),
        results=(False,) * 4,
    )
    found = everywhere(*rounded(kernels, Z), w.W, alpha, w.L_B_inverse.astype(SINGLE), X, T, Y)

    def one(component: tuple[Array, Array, Array, Array, Residuals]) -> Any:
        alpha, L_B_inverse, C, phi, r = component
        C_alpha = C @ alpha
        half = L_B_inverse @ (beta * r.cross - C_alpha)
        step = L_B_inverse.T @ half  # to the α_w that belongs to the rows as they are
        quadratic = 0.5 * (
            beta * (r.data - r.error) - jnp.sum(alpha * C_alpha) + jnp.sum(half * half)
        )
        log_det = 0.5 * (
            jnp.sum((L_B_inverse @ C) * L_B_inverse) + beta * r.spread - alpha.shape[0]
        )
        error = r.error - 2.0 * jnp.sum(step * r.cross) + jnp.sum(step * (phi @ step))
        d_beta = 0.5 * (r.data - error - alpha.shape[1] * r.spread)
        return alpha + step, quadratic, log_det, d_beta

    alpha, quadratic, log_det, d_beta = lax.map(
        one, (doubled(alpha), w.L_B_inverse, w.C, w.phi, Residuals(*found))
    )
    w = w._replace(alpha=alpha, half_log_det=w.half_log_det + log_det)
    value = jnp.sum(quadratic) - Y.shape[1] * jnp.sum(w.half_log_det)
    return value, (kernels, Z, X, T, Y, w, beta, jnp.sum(d_beta))


def _backward(mesh: Mesh | None, room: int, residuals: Any, g: Array) -> Any:
    kernels, Z, X, T, Y, w, beta, d_beta = residuals
    P = Y.shape[1]
    rounded_kernels, rounded_Z = rounded(kernels, Z)

    # K_uu's part, all in float64: ∂L/∂K_uu = P/2 (K_uu⁻¹ − A⁻¹) − ½ ααᵀ with A⁻¹ = R⁻ᵀR⁻¹.
    def small(component: Any) -> Any:
        kernel, f, W, L_B_inverse = component
        outer = f.alpha @ f.alpha.T
        dK = 0.5 * (P * (f.L_inverse.T @ f.L_inverse - f.R_inverse.T @ f.R_inverse) - outer)
        # K_uu went in as K_uu + jitter · mean(diag K_uu) · I.
        U = dK.shape[0]
        dK = dK + (f.jitter * jnp.trace(dK) / U) * jnp.eye(U, dtype=dK.dtype)
        _, pull = jax.vjp(lambda k, points: k.gram(points), kernel, doubled(rounded_Z))
        d_kernel, dZ = pull(g * dK)
        B_inverse = L_B_inverse.T @ L_B_inverse
        # By V and E, for all rows: β [−P WᵀB⁻¹, α].
        H = g * beta * jnp.concatenate([-P * doubled(W).T @ B_inverse, f.alpha], axis=1)
        return d_kernel, dZ, H

    d_kernels, dZ, H = lax.map(
        small,
        (
            doubled(rounded_kernels),
            factors_of(w),
            w.W,
            w.L_B_inverse,
        ),
    )

    def of_own_rows(*arguments: Any) -> Any:
        d_kernels, dZ, dX, dT = single_pass.reverse(*arguments, room=room)
        d_kernels, dZ = added_up((d_kernels, dZ), mesh)
        return d_kernels, dZ, dX, dT

    everywhere = on_own_rows(
        of_own_rows,
        mesh,
        by_row=(False, False, True, True, True, *(False,) * 4),
        results=(False, False, True, True),
    )
    from_rows, dZ_rows, dX, dT = everywhere(
        rounded_kernels,
        rounded_Z,
        X,
        T,
        Y,
        w.W,
        H.astype(SINGLE),
        w.alpha.astype(SINGLE),
        w.L_B_inverse.astype(SINGLE),
    )
    d_kernels = jax.tree.map(jnp.add, d_kernels, from_rows)
    return (
        d_kernels,
        jnp.sum(dZ, axis=0) + dZ_rows,
        dX,
        dT * (g * beta),
        jnp.zeros_like(Y),
        g * d_beta,
        jnp.zeros_like(w.jitter),
    )


collapsed_terms.defvjp(_forward, _backward)
