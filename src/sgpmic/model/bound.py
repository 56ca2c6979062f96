r"""The KL-corrected bound, in a form free of log s except in the entropy.

.. math:: L = \sum_m \left\{ \tfrac P2 \log\tfrac{\beta}{2\pi} \sum_n s_{nm}
   - \tfrac P2 (\log|A_m| - \log|K_{uu}|) - \tfrac\beta2 \sum_n s_{nm} |y_n|^2
   + \tfrac12 \mathrm{tr}(W_m^\top A_m^{-1} W_m) \right\}
   + \sum_{nm} s_{nm} [\log N(x_n|\bar x_m, C_m) + \log\pi_m - \log s_{nm}]

It equals the paper's Eq. (KLBound): the log s in its constants c_nm and in its determinants
cancel, so s = 0 is harmless and nothing has to be clamped.

The number of mappings (Gaussian processes), G, may differ from the number of clusters, M: the
paper's model has a mapping for every cluster (G = M, weighted by S); with one mapping shared by
all clusters, G = 1 and every row has weight 1 in it.

**The collapsed term.** With the functions integrated out, each Gaussian process contributes, for
:math:`A = K_{uu} + \beta\Phi` and :math:`W = \beta\Psi`,

.. math:: -\tfrac P2 (\log|A| - \log|K_{uu}|) + \tfrac12 \mathrm{tr}(W^\top A^{-1} W).

Numerics: with :math:`K_{uu} = LL^\top` and :math:`B = I + \beta L^{-1}\Phi L^{-\top}` one has
:math:`\log|A| - \log|K_{uu}| = \log|B|`, and B's eigenvalues are at least 1 however close to
singular :math:`K_{uu}` is. :math:`R = L\,\mathrm{chol}(B)` is a triangular factor of A.

Titsias' bound has a trace term, :math:`-\tfrac{\beta P}2 [\sum_n t_n \langle k(x_n,x_n)\rangle -
\mathrm{tr}(K_{uu}^{-1}\Phi)]`: the variance of f given its inducing values. Its second part is
computed here (``trace=True``), where the factors are available.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular

from sgpmic._runtime import map_components
from sgpmic.compile_cache import keepable
from sgpmic.kernels import Kernel
from sgpmic.model.mixture import (
    LatentPrior,
    divergence_from_prior,
    entropy,
    log_densities,
    weighted_sum,
)
from sgpmic.model.row_pass.sums import statistics
from sgpmic.model.rows import Rows, by_group, features_by_group
from sgpmic.model.uncertain import expected_diagonal

#: Maximum number of tenfold increases of the jitter before giving up.
JITTER_TRIES = 5
#: A tenth of the first nonzero jitter tried if the given one is 0.
SMALLEST_JITTER = 1e-10
#: Required ratio of every pivot of A to the rounding error.
TRUST = 1e4


@keepable
class Mappings(NamedTuple):
    """The Gaussian processes: stacked kernels, inducing inputs (U, Q), noise precision β."""

    kernels: Kernel
    Z: Array
    beta: Array


@keepable
class Parts(NamedTuple):
    """The four terms of the bound."""

    data: Array
    latent_prior: Array
    weights: Array
    entropy: Array

    @property
    def bound(self) -> Array:
        """Their sum."""
        return self.data + self.latent_prior + self.weights + self.entropy


class Factors(NamedTuple):
    """Inverse triangular factors of K_uu and A, and the jitter used."""

    L_inverse: Array  # (U, U): L⁻¹ with K_uu + jitter = L Lᵀ
    R_inverse: Array  # (U, U): R⁻¹ with A = R Rᵀ
    alpha: Array  # (U, P): A⁻¹ W, the weights of the posterior mean
    half_log_det_B: Array  # ½ log|B|
    jitter: Array  # relative


def factorize(K_uu: Array, phi: Array, psi: Array, beta: Array, jitter: Array | float) -> Factors:
    """Factorize K_uu and A, increasing the jitter until the factors are reliable.

    The jitter is relative to the mean diagonal of K_uu. As JAX's Cholesky returns NaN instead of
    raising, a failed factorization is retried with ten times the jitter, at most
    :data:`JITTER_TRIES` times. Factorizing K_uu is not enough: if it is nearly singular, rounding
    errors of βΦ may dominate A in the near-null directions, and its factor is NaN or, worse, wrong.
    So every pivot of A has to be well above them. The last attempt may still be NaN.
    """
    eye = jnp.eye(K_uu.shape[0], dtype=K_uu.dtype)
    first = jnp.asarray(jitter, K_uu.dtype)
    mean_diagonal = jnp.mean(jnp.diagonal(K_uu))
    rounding = float(jnp.finfo(K_uu.dtype).eps) * beta * jnp.max(jnp.diagonal(phi))

    # Loop state: number of attempts, jitter, L⁻¹, L_B, and the smallest pivot of A, (diag R)².
    def unsound(attempt: Any) -> Array:
        tries, *_, smallest_pivot = attempt  # NaN compares as false
        return (tries <= JITTER_TRIES) & ~(smallest_pivot >= TRUST * rounding)

    def once(attempt: Any) -> Any:
        tries = attempt[0]
        raised = jnp.maximum(first, SMALLEST_JITTER) * 10.0 ** tries.astype(K_uu.dtype)
        level = jnp.where(tries == 0, first, raised)
        L = lax.linalg.cholesky(K_uu + level * mean_diagonal * eye, symmetrize_input=False)
        L_inverse = solve_triangular(L, eye, lower=True)
        V = L_inverse @ phi @ L_inverse.T
        B = eye + beta * 0.5 * (V + V.T)
        L_B = lax.linalg.cholesky(B, symmetrize_input=False)
        pivots = (jnp.diagonal(L) * jnp.diagonal(L_B)) ** 2
        return tries + 1, level, L_inverse, L_B, jnp.min(pivots)

    nan = jnp.full_like(K_uu, jnp.nan)
    start = (jnp.zeros((), jnp.int32), first, nan, nan, nan[0, 0])
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

    With ``trace``, + βP/2 tr(K_uu⁻¹Φ) as well. Derivatives with respect to the jitter and the
    number of features P are zero. With padded features, Ψ has more than P columns.
    """
    return _collapsed_forward(K_uu, phi, psi, beta, jitter, n_features, trace)[0]


def _collapsed_forward(*arguments: Any) -> tuple[Array, Any]:
    K_uu, phi, psi, beta, jitter, n_features, trace = arguments
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
    if trace:  # derivatives of βP/2 tr(K_uu⁻¹Φ)
        dK = dK - 0.5 * beta * P * (K_inverse @ phi @ K_inverse)
        d_phi = d_phi + 0.5 * g * beta * P * K_inverse
        d_beta = d_beta + 0.5 * P * jnp.sum(K_inverse * phi)
    # Chain rule for K_uu + jitter · mean(diag K_uu) · I.
    U = dK.shape[0]
    dK = dK + (f.jitter * jnp.trace(dK) / U) * jnp.eye(U, dtype=dK.dtype)
    constants = jnp.zeros_like(f.jitter), jnp.zeros_like(P)
    return g * dK, d_phi, g * beta * f.alpha, g * d_beta, *constants


collapsed_term.defvjp(_collapsed_forward, _collapsed_backward)


def mapping_weights(S: Array, rows: Rows, *, shared: bool) -> Array:
    """Return the weight of every row in every mapping, (N, G)."""
    return rows.flat_weight[:, None] if shared else S


def sums(
    mappings: Mappings, X: Array, T: Array, rows: Rows, x_std: Array | None = None
) -> tuple[Array, Array]:
    """Return the statistics Φ (G, U, U) and Ψ (G, U, P) of every mapping, in one pass over rows.

    With missing values, for every mapping and group of features (:mod:`sgpmic.model.rows`). With
    ``x_std``, their expectations over uncertain latent points (:mod:`sgpmic.model.uncertain`).
    """
    kernels, Z, _ = mappings
    options = rows.mesh, rows.gpu_memory, x_std
    phi, psi = statistics(kernels, Z, X, T, rows.Y, *options)
    if rows.groups is None:
        return phi, psi
    observed = (T[:, :, None] * rows.groups.observed[:, None, :]).reshape(len(T), -1)
    by_groups = by_group(kernels, rows.n_groups)
    phi, _ = statistics(by_groups, Z, X, observed, rows.Y[:, :0], *options)
    own = psi[:, None] * rows.groups.features[None, :, None, :]
    return phi, own.reshape(-1, *psi.shape[1:])


def data_term(
    mappings: Mappings,
    X: Array,
    T: Array,
    rows: Rows,
    jitter: Array | float,
    x_std: Array | None = None,
) -> Array:
    """Return the data term, the first line of the bound.

    T (N, G) are :func:`mapping_weights`; the jitter is relative to every K_uu. With ``x_std``
    (N, Q), the standard deviations of uncertain latent points, it includes the trace term.
    """
    both = sums(mappings, X, T, rows, x_std)
    data = data_from_sums(mappings, *both, T, rows, jitter, trace=x_std is not None)
    if x_std is None:
        return data
    half = 0.5 * mappings.beta * rows.n_features
    if rows.groups is not None:
        half, T = 0.5 * mappings.beta, T * (rows.groups.observed @ rows.groups.sizes)[:, None]
    return data - half * expected_diagonal(mappings.kernels, X, x_std, T)


def data_from_sums(
    mappings: Mappings,
    phi: Array,
    psi: Array,
    T: Array,
    rows: Rows,
    jitter: Array | float,
    *,
    trace: bool = False,
) -> Array:
    """Return the data term from Φ and Ψ; with ``trace``, + βP/2 Σ_m tr(K_uu⁻¹Φ_m) as well."""
    kernels, Z, beta = mappings

    def one(component: tuple[Kernel, Array, Array, Array, Array]) -> Array:
        kernel, phi_m, psi_m, level, n_features = component
        return collapsed_term(kernel.gram(Z), phi_m, psi_m, beta, level, n_features, trace)

    levels = jnp.broadcast_to(jnp.asarray(jitter, phi.dtype), T.shape[1:])
    kernels, levels = by_group((kernels, levels), rows.n_groups)
    components = (kernels, phi, psi, levels, features_by_group(T.shape[1], rows))
    collapsed = jnp.sum(map_components(one, components))
    mass = jnp.sum(T, axis=1)
    squares = jnp.sum(mass * rows.norm2.reshape(-1))
    normalizer = 0.5 * rows.n_features * jnp.log(beta / (2.0 * math.pi)) * jnp.sum(mass)
    if rows.n_observed is not None:
        normalizer = 0.5 * jnp.log(beta / (2.0 * math.pi)) * jnp.sum(mass * rows.n_observed)
    return normalizer - 0.5 * beta * squares + collapsed


def add_latent(
    data: Array,
    prior: LatentPrior,
    X: Array,
    S: Array,
    rows: Rows | None = None,
    x_std: Array | None = None,
) -> Parts:
    """Return the terms of the bound: the given data term and the three sums of its second line.

    With an assignment prior, minus the KL divergence from it replaces the entropy.
    """
    disorder = entropy(S)
    if rows is not None and rows.assignment_prior is not None:
        disorder = -rows.prior_weight * divergence_from_prior(S, rows.assignment_prior)
    return Parts(
        data,
        weighted_sum(S, log_densities(prior, X, x_std)),
        weighted_sum(S, prior.log_weights[None, :]),
        disorder,
    )


def factorize_all(mappings: Mappings, phi: Array, psi: Array, jitter: Array | float) -> Factors:
    """Return the factors of q(F) for every mapping (and group of features) from Φ and Ψ."""
    kernels, Z, beta = mappings
    G = jax.tree.leaves(kernels)[0].shape[0]

    def one(component: tuple[Kernel, Array, Array, Array]) -> Factors:
        kernel, phi_m, psi_m, level = component
        return factorize(kernel.gram(Z), phi_m, psi_m, beta, level)

    levels = jnp.broadcast_to(jnp.asarray(jitter, phi.dtype), (G,))
    kernels, levels = by_group((kernels, levels), len(phi) // G)
    return map_components(one, (kernels, phi, psi, levels))
