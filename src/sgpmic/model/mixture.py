r"""The Gaussian mixture on the latent space: densities, closed-form updates, prior, scale of X.

docs/mathematics.md has the reasons.

The conjugate prior (strength 0 is the paper's model). With :math:`\nu` pseudo-counts for each
cluster,

.. math:: \log p(\pi) = \nu \sum_m \log M\pi_m, \qquad
   \log p(C_m) = -\tfrac{\nu}{2}\left[\log|C_m| - \log|\Omega| + \mathrm{tr}(C_m^{-1}\Omega)
   - Q\right],

a Dirichlet and an inverse Wishart centered at :math:`\Omega`, both shifted to be 0 at their mode.

Clusters that only pad arrays to a common shape have weight 0 and no pseudo-counts: no row can
belong to them, and they are never updated.

Variational posteriors of the mixture's parameters, used with uncertain latent points.

.. math:: q(\pi) = \mathrm{Dir}(\alpha), \qquad
   q(\bar x_m, \Lambda_m) = N(\bar x_m | m_m, (\kappa_m\Lambda_m)^{-1})\, W(\Lambda_m | W_m, \nu_m)

with :math:`\alpha_m = \alpha_0 + N_m`, :math:`\kappa_m = \kappa_0 + N_m`,
:math:`\nu_m = \nu_0 + N_m`, as in scikit-learn's ``BayesianGaussianMixture`` (Bishop, 2006,
section 10.2). They are stored as the :class:`Mixture` of their means,
:math:`\alpha_m/\sum\alpha`, :math:`m_m` and :math:`C_m = (\nu_m W_m)^{-1} = \langle\Lambda_m
\rangle^{-1}`; with the number of rows, the counts :math:`N_m` follow from the weights.

Other covariance types: 'diag' has a Gamma (a one-dimensional Wishart) for each dimension,
'spherical' one for all dimensions with :math:`\nu_m = \nu_0 + Q N_m`, 'tied' one Wishart for all
clusters with :math:`\nu = \nu_0 + N`; with 'unit' only the means are uncertain.

The priors are weak, so that clusters can merge and become empty: :math:`\alpha_0` is given for
each cluster (0 for padding), :math:`\nu_0 = Q`, the mean of :math:`\Lambda` is
:math:`\Omega^{-1}` with :math:`\Omega` from the conjugate prior, and means have prior mean 0 and
the initial variance of X, which is 1: :math:`\kappa_0 = \mathrm{tr}(\Omega)/Q`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import digamma, gammaln

from sgpmic._runtime import map_components
from sgpmic.compile_cache import keepable

COVARIANCE_TYPES = ("unit", "spherical", "diag", "tied", "full")

#: Up to this many latent dimensions, computations for every row are unrolled over dimensions.
WRITTEN_OUT = 6
#: A cluster with a smaller total responsibility keeps its mean and covariance: it has no data.
EMPTY = 1e-9


@keepable
class Mixture(NamedTuple):
    """Weights π (M,), means x̄ (M, Q), covariances C (M, Q, Q)."""

    weights: Array
    means: Array
    covariances: Array


class LatentPrior(NamedTuple):
    """A mixture in the form that its log density needs, with factored covariances."""

    log_weights: Array  # (M,)
    means: Array  # (M, Q)
    whiteners: Array  # (M, Q, Q): inverse Cholesky factors of the covariances
    log_normalizers: Array  # (M,): −½ log|2πC|


@keepable
class Conjugate(NamedTuple):
    """Strength and center of the conjugate prior."""

    pseudo_counts: Array  # (M,) ν, 0 for padding
    scale: Array  # Ω, (Q, Q)


def factor_mixture(mixture: Mixture) -> LatentPrior:
    """Factor the covariances of a mixture."""
    Q = mixture.means.shape[1]
    eye = jnp.eye(Q, dtype=mixture.means.dtype)

    def one(C: Array) -> tuple[Array, Array]:
        factor = lax.linalg.cholesky(C, symmetrize_input=True)
        log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor)))
        return solve_triangular(factor, eye, lower=True), log_det

    whiteners, log_dets = map_components(one, mixture.covariances)
    # A weight of 0 has log −∞: right for log densities, and left out of sums by ``weighted_sum``.
    return LatentPrior(
        jnp.log(mixture.weights),
        mixture.means,
        whiteners,
        -0.5 * (Q * math.log(2.0 * math.pi) + log_dets),
    )


def log_densities(prior: LatentPrior, X: Array, x_std: Array | None = None) -> Array:
    """Return log N(x_n | x̄_m, C_m), shape (N, M).

    With ``x_std`` σ (N, Q), its expectation over x ~ N(x_n, diag σ_n²): minus ½ tr(C_m⁻¹ diag σ²).
    """
    if x_std is not None:
        precisions = jnp.sum(prior.whiteners**2, axis=1)  # the diagonals of C⁻¹, (M, Q)
        return log_densities(prior, X) - 0.5 * (x_std**2) @ precisions.T
    Q = X.shape[1]
    if Q > WRITTEN_OUT:

        def one(component: tuple[Array, Array, Array]) -> Array:
            mean, whitener, log_normalizer = component
            standard = (X - mean) @ whitener.T
            return log_normalizer - 0.5 * jnp.sum(standard * standard, axis=1)

        return lax.map(one, (prior.means, prior.whiteners, prior.log_normalizers)).T
    # Unrolled, this is one operation for all clusters, and XLA fuses it with what follows.
    centered = [X[:, r] - prior.means[:, r, None] for r in range(Q)]  # each (M, N)
    squares = jnp.zeros((), X.dtype)
    for q in range(Q):
        standard = prior.whiteners[:, q, 0, None] * centered[0]
        for r in range(1, q + 1):  # whiteners are lower triangular
            standard = standard + prior.whiteners[:, q, r, None] * centered[r]
        squares = squares + standard * standard
    return (prior.log_normalizers[:, None] - 0.5 * squares).T


def weighted_sum(S: Array, values: Array) -> Array:
    """Return Σ S · values, with 0 · ∞ = 0."""
    return jnp.sum(jnp.where(S > 0, S * jnp.where(S > 0, values, 0.0), 0.0))


def entropy(S: Array) -> Array:
    """Return −Σ s log s with 0 log 0 = 0."""
    return -jnp.sum(jnp.where(S > 0, S * jnp.log(jnp.where(S > 0, S, 1.0)), 0.0))


def divergence_from_prior(S: Array, prior: Array) -> Array:
    """Return KL(S ‖ prior), summed over the rows; the prior may be 0 where S is."""
    return -entropy(S) - weighted_sum(S, jnp.log(prior))


def standardize(X: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Return X with mean 0 and overall variance 1, and its former mean (Q,) and scale.

    A scale for each dimension would discard the relative importance of the dimensions.
    Padding rows (weight 0) are ignored and set to 0.
    """
    w = weight[:, None]
    count = jnp.sum(weight)
    mean = jnp.sum(w * X, axis=0) / count
    centered = (X - mean) * w
    scale = jnp.sqrt(jnp.sum(centered * centered) / (count * X.shape[1]))
    return centered / scale, mean, scale


def _shape_covariances(scatter: Array, counts: Array, kind: str, floor: Array | float) -> Array:
    """Return the best covariances of ``kind`` for the given scatter, eigenvalues ≥ floor."""
    M, Q, _ = scatter.shape
    eye = jnp.eye(Q, dtype=scatter.dtype)
    if kind == "unit":
        return jnp.broadcast_to(eye, (M, Q, Q))
    if kind == "spherical":
        variances = jnp.trace(scatter, axis1=1, axis2=2) / Q
        return jnp.maximum(variances, floor)[:, None, None] * eye
    if kind == "diag":
        variances = jnp.diagonal(scatter, axis1=1, axis2=2)
        return jnp.maximum(variances, floor)[:, :, None] * eye
    if kind == "tied":
        pooled = jnp.tensordot(counts, scatter, axes=1) / jnp.sum(counts)
        return jnp.broadcast_to(_clip_eigenvalues(pooled, floor), (M, Q, Q))
    return map_components(lambda C: _clip_eigenvalues(C, floor), scatter)


def _clip_eigenvalues(C: Array, floor: Array | float) -> Array:
    """Return C with eigenvalues clipped at floor, which is the exact constrained optimum."""
    values, vectors = jnp.linalg.eigh(C)
    clipped = (vectors * jnp.maximum(values, floor)) @ vectors.T
    return 0.5 * (clipped + clipped.T)


def within_scatter(X: Array, S: Array, means: Array, counts: Array) -> Array:
    """Return the covariance of every cluster about its mean, (M, Q, Q)."""
    scatter: Array = lax.platform_dependent(
        X, S, means, cpu=_scatter_by_products, default=_scatter_written_out
    )
    return scatter / jnp.maximum(counts, EMPTY)[:, None, None]


def _scatter_by_products(X: Array, S: Array, means: Array) -> Array:
    def one(component: tuple[Array, Array]) -> Array:
        s, mean = component
        D = X - mean
        return (D * s[:, None]).T @ D

    return lax.map(one, (S.T, means))


def _scatter_written_out(X: Array, S: Array, means: Array) -> Array:
    # A matrix product with so few columns would leave most of a GPU idle.
    Q = X.shape[1]
    centered = [X[:, q] - means[:, q, None] for q in range(Q)]  # each (M, N)
    entries = {
        (q, r): jnp.sum(S.T * centered[q] * centered[r], axis=1)
        for q in range(Q)
        for r in range(q + 1)
    }
    rows = [jnp.stack([entries[max(q, r), min(q, r)] for r in range(Q)], axis=1) for q in range(Q)]
    return jnp.stack(rows, axis=1)


def pooled_scatter(X: Array, S: Array) -> Array:
    """Return the pooled within-cluster covariance, (Q, Q)."""
    counts = jnp.sum(S, axis=0)
    means = (S.T @ X) / jnp.maximum(counts, EMPTY)[:, None]
    scatter = within_scatter(X, S, means, counts)
    return jnp.tensordot(counts, scatter, axes=1) / jnp.sum(counts)


def update_mixture(
    old: Mixture, X: Array, S: Array, conjugate: Conjugate, *, kind: str, floor: Array | float
) -> Mixture:
    """Return the mixture that maximizes the bound plus its log prior given X and S, closed form."""
    counts = jnp.sum(S, axis=0)
    empty = (counts < EMPTY)[:, None]
    means = jnp.where(empty, old.means, (S.T @ X) / jnp.where(empty, 1.0, counts[:, None]))
    scatter = within_scatter(X, S, means, counts)
    nu = conjugate.pseudo_counts
    total = counts + nu
    weights = total / jnp.sum(total)
    lifeless = (total < EMPTY)[:, None, None]
    summed = counts[:, None, None] * scatter + nu[:, None, None] * conjugate.scale
    blended = summed / jnp.where(lifeless, 1.0, total[:, None, None])
    covariances = _shape_covariances(blended, total, kind, floor)
    if kind != "tied":
        covariances = jnp.where(lifeless, old.covariances, covariances)
    return Mixture(weights, means, covariances)


def _log_det(matrix: Array) -> Array:
    """Return the log determinant of a positive definite matrix."""
    factor = lax.linalg.cholesky(matrix, symmetrize_input=True)
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor)))


def log_conjugate(mixture: Mixture, conjugate: Conjugate, prior: LatentPrior) -> Array:
    """Return the log density of the conjugate prior; ``prior`` is the factored mixture."""
    nu = conjugate.pseudo_counts
    M, Q = jnp.sum(nu > 0), mixture.means.shape[1]
    log_dets = -2.0 * prior.log_normalizers - Q * math.log(2.0 * math.pi)
    traces = jnp.sum((prior.whiteners @ conjugate.scale) * prior.whiteners, axis=(1, 2))
    covariance_parts = -0.5 * (log_dets - _log_det(conjugate.scale) + traces - Q)
    return weighted_sum(nu, jnp.log(M * mixture.weights) + covariance_parts)


class _Numbers(NamedTuple):
    """Hyperparameters of the priors, and of the posteriors for the counts N_m."""

    alpha_0: Array  # (M,)
    kappa_0: Array
    nu_0: float
    omega: Array  # Ω restricted to the covariance type, (Q, Q)
    alpha: Array  # alpha, kappa and nu: (M,)
    kappa: Array
    nu: Array
    #: The dimension d of a cluster's Wisharts, their number, and their power: log|Λ| is the sum of
    #: the Wisharts' log determinants times the power, and a row adds the power to ν.
    wisharts: tuple[int, int, int]


def _numbers(conjugate: Conjugate, counts: Array, kind: str) -> _Numbers:
    alpha_0, omega = conjugate
    Q = omega.shape[0]
    nu_0, eye = float(Q), jnp.eye(Q, dtype=omega.dtype)
    kappa_0 = mean_variance = jnp.trace(omega) / Q
    if kind == "unit":
        kappa_0, omega = jnp.ones_like(mean_variance), eye
    elif kind == "spherical":
        omega = mean_variance * eye
    elif kind == "diag":
        omega = omega * eye
    wisharts = {"diag": (1, Q, 1), "spherical": (1, 1, Q)}.get(kind, (Q, 1, 1))
    degrees = jnp.sum(counts) if kind == "tied" else wisharts[2] * counts
    nu = jnp.full_like(counts, nu_0) + degrees
    kappa = kappa_0 + counts
    return _Numbers(alpha_0, kappa_0, nu_0, omega, alpha_0 + counts, kappa, nu, wisharts)


def _of_posterior(mixture: Mixture, conjugate: Conjugate, n_rows: Array, kind: str) -> _Numbers:
    """Return the hyperparameters of a posterior, recovering the counts from its weights."""
    alpha_0 = conjugate.pseudo_counts
    total = jnp.sum(alpha_0) + n_rows
    return _numbers(conjugate, jnp.maximum(mixture.weights * total - alpha_0, 0.0), kind)


def _expected_log_excess(nu: Array, d: int) -> Array:
    """Return ⟨log|Λ|⟩ − log|⟨Λ⟩| of a Wishart with ν degrees of freedom in d dimensions."""
    halves = 0.5 * (nu[..., None] - jnp.arange(d, dtype=nu.dtype))
    return jnp.sum(digamma(halves), axis=-1) + d * jnp.log(2.0 / nu)


def _log_gamma(nu: Array, d: int) -> Array:
    """Return log Γ_d(ν/2) up to a constant that cancels."""
    return jnp.sum(gammaln(0.5 * (nu[..., None] - jnp.arange(d, dtype=nu.dtype))), axis=-1)


def update_posterior(
    X: Array, x_std: Array, S: Array, conjugate: Conjugate, *, kind: str
) -> Mixture:
    """Return the posteriors that maximize the bound given q(X) and S, in closed form."""
    counts = jnp.sum(S, axis=0)
    own = _numbers(conjugate, counts, kind)
    centers = (S.T @ X) / jnp.maximum(counts, EMPTY)[:, None]
    means = counts[:, None] * centers / own.kappa[:, None]  # the prior's mean is 0
    eye = jnp.eye(X.shape[1], dtype=X.dtype)
    # ν_m C_m = W_m⁻¹ = ν₀Ω + Σ s (⟨xxᵀ⟩ − x̄x̄ᵀ) + κ₀N_m/κ_m x̄x̄ᵀ
    drawn = (own.kappa_0 * counts / own.kappa)[:, None, None]
    scatter = (
        counts[:, None, None] * within_scatter(X, S, centers, counts)
        + (S.T @ x_std**2)[:, :, None] * eye
        + drawn * centers[:, :, None] * centers[:, None, :]
    )
    if kind == "tied":
        scatter = jnp.broadcast_to(jnp.sum(scatter, axis=0), scatter.shape)
    elif kind == "diag":
        scatter = scatter * eye
    elif kind == "spherical":
        scatter = jnp.trace(scatter, axis1=1, axis2=2)[:, None, None] * eye
    covariances = (own.nu_0 * own.omega + scatter) / own.nu[:, None, None]
    if kind == "unit":
        covariances = jnp.broadcast_to(eye, scatter.shape)
    return Mixture(own.alpha / jnp.sum(own.alpha), means, covariances)


def expected_prior(
    mixture: Mixture, conjugate: Conjugate, n_rows: Array, *, kind: str
) -> LatentPrior:
    """Return ⟨log π⟩ and ⟨log N(x | x̄, Λ⁻¹)⟩, a Gaussian log density shifted by a constant."""
    own, factored = _of_posterior(mixture, conjugate, n_rows, kind), factor_mixture(mixture)
    used = own.alpha_0 > 0
    log_weights = jnp.where(
        used, digamma(jnp.where(used, own.alpha, 1.0)) - digamma(jnp.sum(own.alpha)), -jnp.inf
    )
    normalizers = factored.log_normalizers - 0.5 * mixture.means.shape[1] / own.kappa
    if kind != "unit":
        d, copies, powers = own.wisharts
        normalizers = normalizers + 0.5 * copies * powers * _expected_log_excess(own.nu, d)
    return factored._replace(log_weights=log_weights, log_normalizers=normalizers)


def divergence(mixture: Mixture, conjugate: Conjugate, n_rows: Array, *, kind: str) -> Array:
    """Return KL(q‖p) of the mixture's parameters; padding clusters add nothing."""
    own = _of_posterior(mixture, conjugate, n_rows, kind)
    used = own.alpha_0 > 0
    whiteners = factor_mixture(mixture).whiteners
    # Means: ½ [Q (κ₀/κ − 1 + log κ/κ₀) + κ₀ mᵀ⟨Λ⟩m]
    Q = mixture.means.shape[1]
    ratio = own.kappa_0 / own.kappa
    standard = jnp.einsum("mqr,mr->mq", whiteners, mixture.means)
    of_means = 0.5 * (
        Q * (ratio - 1.0 - jnp.log(ratio)) + own.kappa_0 * jnp.sum(standard**2, axis=1)
    )
    # Weights: KL(Dir(α)‖Dir(α₀))
    before, after = (jnp.where(used, a, 1.0) for a in (own.alpha_0, own.alpha))
    mass = jnp.sum(own.alpha)
    each = gammaln(before) - gammaln(after) + (after - before) * (digamma(after) - digamma(mass))
    of_weights = gammaln(mass) - gammaln(jnp.sum(own.alpha_0)) + jnp.sum(jnp.where(used, each, 0.0))
    total = of_weights + jnp.sum(jnp.where(used, of_means, 0.0))
    if kind == "unit":
        return total
    of_precisions = _wishart_divergence(own, whiteners)
    if kind == "tied":
        return total + of_precisions[0]
    return total + jnp.sum(jnp.where(used, of_precisions, 0.0))


def _wishart_divergence(own: _Numbers, whiteners: Array) -> Array:
    r"""Return the KL divergence of every cluster's Wisharts, (M,).

    In terms of C = ⟨Λ⟩⁻¹ and Ω, in d dimensions: (ν − ν₀)/2 Σψ + log Γ_d(ν₀/2) − log Γ_d(ν/2)
    + ν₀/2 (log|C| − log|Ω| + d log ν/ν₀ + tr ΩC⁻¹) − νd/2.
    """
    (d, copies, powers), nu = own.wisharts, own.nu
    nu_0 = jnp.full_like(nu, own.nu_0)
    psi_sum = _expected_log_excess(nu, d) - d * jnp.log(2.0 / nu)
    gammas = _log_gamma(nu_0, d) - _log_gamma(nu, d)
    each = 0.5 * (nu - nu_0) * psi_sum + gammas + 0.5 * nu_0 * d * jnp.log(nu / nu_0) - 0.5 * nu * d
    log_dets = -2.0 * jnp.sum(jnp.log(jnp.diagonal(whiteners, axis1=1, axis2=2)), axis=1)
    traces = jnp.sum((whiteners @ own.omega) * whiteners, axis=(1, 2))
    return copies * each + 0.5 * nu_0 * (log_dets - _log_det(own.omega) + traces) / powers
