r"""Posteriors of the latent mixture's parameters, for latent points that are uncertain too.

.. math:: q(\pi) = \mathrm{Dir}(\alpha), \qquad
   q(\bar x_m, \Lambda_m) = N(\bar x_m | m_m, (\kappa_m\Lambda_m)^{-1})\, W(\Lambda_m | W_m, \nu_m)

with :math:`\alpha_m = \alpha_0 + N_m`, :math:`\kappa_m = \kappa_0 + N_m`,
:math:`\nu_m = \nu_0 + N_m`, as in scikit-learn's ``BayesianGaussianMixture`` (Bishop, 2006,
section 10.2). They are kept as the :class:`~sgpmic.model.mixture.Mixture` of their means,
:math:`\alpha_m/\sum\alpha`, :math:`m_m` and :math:`C_m = (\nu_m W_m)^{-1} = \langle\Lambda_m
\rangle^{-1}`; as the number of rows is known, the weights say what the counts :math:`N_m` were.

Other shapes of covariances: 'diag' has a Gamma (a Wishart of one dimension) for each dimension,
'spherical' one for all dimensions with :math:`\nu_m = \nu_0 + Q N_m`, 'tied' one Wishart for all
clusters with :math:`\nu = \nu_0 + N`; with 'unit' only the means are uncertain.

The priors are weak, so that clusters may merge and be left empty: :math:`\alpha_0` is given for
each cluster (0 for clusters that only pad arrays), :math:`\nu_0 = Q`, the mean of :math:`\Lambda`
is :math:`\Omega^{-1}` with :math:`\Omega` of the conjugate prior, and means lie around 0, spread as
far as X, whose variance was 1 at the start: :math:`\kappa_0 = \mathrm{tr}(\Omega)/Q`. This also
fixes the scale of X: the bound is highest where clusters are about as wide as :math:`\Omega`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import digamma, gammaln

from sgpmic.model.mixture import (
    EMPTY,
    Conjugate,
    LatentPrior,
    Mixture,
    factor_mixture,
    within_scatter,
)


class _Prior(NamedTuple):
    """α₀ (M,), κ₀, ν₀ and Ω in the shape of the covariances (Q, Q)."""

    alpha: Array
    kappa: Array
    nu: float
    omega: Array


def _prior(conjugate: Conjugate, kind: str) -> _Prior:
    omega = conjugate.scale
    Q = omega.shape[0]
    eye = jnp.eye(Q, dtype=omega.dtype)
    mean_variance = jnp.trace(omega) / Q
    if kind == "unit":
        return _Prior(conjugate.pseudo_counts, jnp.ones_like(mean_variance), float(Q), eye)
    if kind == "spherical":
        omega = mean_variance * eye
    elif kind == "diag":
        omega = omega * eye
    return _Prior(conjugate.pseudo_counts, mean_variance, float(Q), omega)


class _Wishart(NamedTuple):
    """How many dimensions, how many such Wisharts a cluster has, and dimensions a row counts for.

    The log determinant of Λ is ``powers`` times that of one Wishart's matrix, summed over all.
    """

    dimensions: int
    copies: int
    powers: int


def _wishart(kind: str, Q: int) -> _Wishart:
    return {"diag": _Wishart(1, Q, 1), "spherical": _Wishart(1, 1, Q)}.get(kind, _Wishart(Q, 1, 1))


def _counts(mixture: Mixture, prior: _Prior, n_rows: Array) -> Array:
    """Return the N_m that the posterior was made with."""
    total = jnp.sum(prior.alpha) + n_rows
    return jnp.maximum(mixture.weights * total - prior.alpha, 0.0)


def _degrees(counts: Array, prior: _Prior, kind: str) -> Array:
    """Return ν_m."""
    if kind == "tied":
        return jnp.full_like(counts, prior.nu) + jnp.sum(counts)
    return prior.nu + _wishart(kind, prior.omega.shape[0]).powers * counts


def _expected_log_excess(nu: Array, shape: _Wishart) -> Array:
    """Return ⟨log|Λ|⟩ − log|⟨Λ⟩| of one of a cluster's Wisharts."""
    d = shape.dimensions
    halves = 0.5 * (nu[..., None] - jnp.arange(d, dtype=nu.dtype))
    return jnp.sum(digamma(halves), axis=-1) + d * jnp.log(2.0 / nu)


def _log_gamma(nu: Array, d: int) -> Array:
    """Return log Γ_d(ν/2) without the constant that cancels."""
    return jnp.sum(gammaln(0.5 * (nu[..., None] - jnp.arange(d, dtype=nu.dtype))), axis=-1)


def update_posterior(
    X: Array, x_std: Array, S: Array, conjugate: Conjugate, *, kind: str
) -> Mixture:
    """Return the posteriors that maximize the bound, given q(X) and S: closed forms."""
    prior = _prior(conjugate, kind)
    Q = X.shape[1]
    counts = jnp.sum(S, axis=0)
    centers = (S.T @ X) / jnp.maximum(counts, EMPTY)[:, None]
    alpha = prior.alpha + counts
    kappa = prior.kappa + counts
    means = counts[:, None] * centers / kappa[:, None]  # the prior's mean is 0
    eye = jnp.eye(Q, dtype=X.dtype)
    # ν_m C_m = W_m⁻¹ = ν₀Ω + Σ s (⟨xxᵀ⟩ − x̄x̄ᵀ) + κ₀N_m/κ_m x̄x̄ᵀ
    scatter = (
        counts[:, None, None] * within_scatter(X, S, centers, counts)
        + (S.T @ x_std**2)[:, :, None] * eye
        + (prior.kappa * counts / kappa)[:, None, None] * centers[:, :, None] * centers[:, None, :]
    )
    if kind == "unit":
        covariances = jnp.broadcast_to(eye, scatter.shape)
    else:
        nu = _degrees(counts, prior, kind)
        if kind == "tied":
            scatter = jnp.broadcast_to(jnp.sum(scatter, axis=0), scatter.shape)
        elif kind == "diag":
            scatter = scatter * eye
        elif kind == "spherical":
            scatter = jnp.trace(scatter, axis1=1, axis2=2)[:, None, None] * eye
        covariances = (prior.nu * prior.omega + scatter) / nu[:, None, None]
    return Mixture(alpha / jnp.sum(alpha), means, covariances)


def expected_prior(
    mixture: Mixture, conjugate: Conjugate, n_rows: Array, *, kind: str
) -> LatentPrior:
    """Return ⟨log π⟩ and what ⟨log N(x | x̄, Λ⁻¹)⟩ needs: a density's shape, lower by a constant."""
    prior = _prior(conjugate, kind)
    factored = factor_mixture(mixture)
    Q = mixture.means.shape[1]
    counts = _counts(mixture, prior, n_rows)
    alpha = prior.alpha + counts
    used = prior.alpha > 0
    log_weights = jnp.where(
        used, digamma(jnp.where(used, alpha, 1.0)) - digamma(jnp.sum(alpha)), -jnp.inf
    )
    normalizers = factored.log_normalizers - 0.5 * Q / (prior.kappa + counts)
    if kind != "unit":
        shape = _wishart(kind, Q)
        excess = _expected_log_excess(_degrees(counts, prior, kind), shape)
        normalizers = normalizers + 0.5 * shape.copies * shape.powers * excess
    return factored._replace(log_weights=log_weights, log_normalizers=normalizers)


def divergence(mixture: Mixture, conjugate: Conjugate, n_rows: Array, *, kind: str) -> Array:
    """Return KL(q‖p) of the mixture's parameters; clusters that only pad add nothing."""
    prior = _prior(conjugate, kind)
    counts = _counts(mixture, prior, n_rows)
    used = prior.alpha > 0
    kappa = prior.kappa + counts
    whiteners = factor_mixture(mixture).whiteners
    # Of the means: ½ [Q (κ₀/κ − 1 + log κ/κ₀) + κ₀ mᵀ⟨Λ⟩m]
    Q = mixture.means.shape[1]
    ratio = prior.kappa / kappa
    standard = jnp.einsum("mqr,mr->mq", whiteners, mixture.means)
    of_means = 0.5 * (
        Q * (ratio - 1.0 - jnp.log(ratio)) + prior.kappa * jnp.sum(standard**2, axis=1)
    )
    each = jnp.where(used, of_means, 0.0)
    total = _dirichlet_divergence(prior.alpha, prior.alpha + counts) + jnp.sum(each)
    if kind == "unit":
        return total
    of_precisions = _wishart_divergence(mixture, prior, _degrees(counts, prior, kind), kind)
    if kind == "tied":
        return total + of_precisions[0]
    return total + jnp.sum(jnp.where(used, of_precisions, 0.0))


def _dirichlet_divergence(alpha_0: Array, alpha: Array) -> Array:
    """Return KL(Dir(α)‖Dir(α₀)) over the entries with α₀ > 0."""
    used = alpha_0 > 0
    before, after = (jnp.where(used, a, 1.0) for a in (alpha_0, alpha))
    total = jnp.sum(alpha)
    each = gammaln(before) - gammaln(after) + (after - before) * (digamma(after) - digamma(total))
    return gammaln(total) - gammaln(jnp.sum(alpha_0)) + jnp.sum(jnp.where(used, each, 0.0))


def _wishart_divergence(mixture: Mixture, prior: _Prior, nu: Array, kind: str) -> Array:
    r"""Return the KL of every cluster's Wisharts, (M,).

    In terms of C = ⟨Λ⟩⁻¹ and Ω, d dimensions each: (ν − ν₀)/2 Σψ + log Γ_d(ν₀/2) − log Γ_d(ν/2)
    + ν₀/2 (log|C| − log|Ω| + d log ν/ν₀ + tr ΩC⁻¹) − νd/2.
    """
    Q = prior.omega.shape[0]
    shape = _wishart(kind, Q)
    d = shape.dimensions
    nu_0 = jnp.full_like(nu, prior.nu)
    psi_sum = _expected_log_excess(nu, shape) - d * jnp.log(2.0 / nu)
    gammas = _log_gamma(nu_0, d) - _log_gamma(nu, d)
    own = 0.5 * (nu - nu_0) * psi_sum + gammas + 0.5 * nu_0 * d * jnp.log(nu / nu_0) - 0.5 * nu * d
    factored = factor_mixture(mixture)
    whiteners = factored.whiteners
    log_dets = -2.0 * jnp.sum(jnp.log(jnp.diagonal(whiteners, axis1=1, axis2=2)), axis=1)
    omega = lax.linalg.cholesky(prior.omega, symmetrize_input=True)
    omega_log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(omega)))
    traces = jnp.sum((whiteners @ prior.omega) * whiteners, axis=(1, 2))
    return shape.copies * own + 0.5 * nu_0 * (log_dets - omega_log_det + traces) / shape.powers
