"""The bounds put together from the package's own functions, as learning puts them together."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from sgpmic.kernels import Kernel
from sgpmic.model.bound import Factors, Mappings, Parts, add_latent, data_term, mapping_weights
from sgpmic.model.mixture import LatentPrior, weighted_sum
from sgpmic.model.rows import Rows


def kl_corrected_bound(
    mappings: Mappings,
    prior: LatentPrior,
    X: Array,
    S: Array,
    rows: Rows,
    *,
    shared: bool,
    jitter: float,
) -> Parts:
    """Return the KL-corrected bound, Eq. (KLBound), in its parts."""
    T = mapping_weights(S, rows, shared=shared)
    data = data_term(mappings, X, T, rows, jitter)
    return add_latent(data, prior, X, S, rows)


def divergence(mappings: Mappings, factors: Factors, n_features: Array) -> Array:
    r"""Return Σ_m KL(q(u_m) || p(u_m)) for the optimal q of the given factors.

    With q(u) = N(K A⁻¹W, K A⁻¹K) and p(u) = N(0, K), K = K_uu, for each of the P columns:
    ½ [tr(A⁻¹K) − U + log|A| − log|K| + w ᵀA⁻¹ K A⁻¹ w].
    """

    def one(component: tuple[Kernel, Factors]) -> Array:
        kernel, f = component
        K = kernel.gram(mappings.Z)
        U = f.alpha.shape[0]
        K = K + f.jitter * jnp.mean(jnp.diagonal(K)) * jnp.eye(U, dtype=K.dtype)
        trace = jnp.sum((f.R_inverse @ K) * f.R_inverse)
        quadratic = jnp.sum(f.alpha * (K @ f.alpha))
        return 0.5 * (n_features * (trace - U + 2.0 * f.half_log_det_B) + quadratic)

    return jnp.sum(lax.map(one, (mappings.kernels, factors)))


def standard_bound(
    mappings: Mappings,
    factors: Factors,
    prior: LatentPrior,
    log_likelihoods: Array,
    X: Array,
    S: Array,
    rows: Rows,
    *,
    shared: bool,
) -> Array:
    """Return the standard variational bound L_SV(q(F), S), Eq. (traditionalBound).

    The factors are those of a q(F) that need not be optimal for this S.
    """
    T = mapping_weights(S, rows, shared=shared)
    data = weighted_sum(T, log_likelihoods) - divergence(mappings, factors, rows.n_features)
    return add_latent(data, prior, X, S, rows).bound
