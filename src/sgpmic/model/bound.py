r"""The KL-corrected bound, in the form that has no log s, and the standard variational bound.

.. math:: L = \sum_m \left\{ \tfrac P2 \log\tfrac{\beta}{2\pi} \sum_n s_{nm}
   - \tfrac P2 (\log|A_m| - \log|K_{uu}|) - \tfrac\beta2 \sum_n s_{nm} |y_n|^2
   + \tfrac12 \mathrm{tr}(W_m^\top A_m^{-1} W_m) \right\}
   + \sum_{nm} s_{nm} [\log N(x_n|\bar x_m, C_m) + \log\pi_m - \log s_{nm}]

It equals the paper's Eq. (KLBound): the log s of its constants c_nm and of its determinants
cancel, so s = 0 is harmless and nothing has to be clamped.

The number of Gaussian processes, G, and the number of clusters, M, are two numbers: the paper's
model has one Gaussian process a cluster (G = M, weighted by S); with one mapping shared by all
clusters G = 1 and every row has weight 1 in it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from sgpmic.kernels import Kernel
from sgpmic.model.collapsed import Factors, collapsed_term, factorise
from sgpmic.model.components import map_components
from sgpmic.model.mixture import LatentPrior, entropy, log_densities, weighted_sum
from sgpmic.model.row_pass.sums import statistics
from sgpmic.model.rows import Rows


class Mappings(NamedTuple):
    """The Gaussian processes: stacked kernels, inducing inputs (U, Q), noise precision β."""

    kernels: Kernel
    Z: Array
    beta: Array


class Parts(NamedTuple):
    """The bound's four parts; they add up to it."""

    data: Array
    latent_prior: Array
    weights: Array
    entropy: Array

    @property
    def bound(self) -> Array:
        """Their sum."""
        return self.data + self.latent_prior + self.weights + self.entropy


def mapping_weights(S: Array, rows: Rows, *, shared: bool) -> Array:
    """Return the weight of every row in every Gaussian process, (N, G)."""
    return rows.flat_weight[:, None] if shared else S


def data_term(mappings: Mappings, X: Array, T: Array, rows: Rows, jitter: Array | float) -> Array:
    """Return the first line of the bound, the part that sees the data.

    Parameters
    ----------
    mappings : Mappings
    X : array of shape (N, Q)
    T : array of shape (N, G)
        Weights of the rows in the Gaussian processes (:func:`mapping_weights`).
    rows : Rows
    jitter : float or array of shape (G,)
        Relative jitter of every K_uu.
    """
    phi, psi = statistics(mappings.kernels, mappings.Z, X, T, rows.Y, rows.mesh, rows.gpu_memory)
    return data_from_sums(mappings, phi, psi, T, rows, jitter)


def data_from_sums(
    mappings: Mappings, phi: Array, psi: Array, T: Array, rows: Rows, jitter: Array | float
) -> Array:
    """Return the first line of the bound where the sums Φ and Ψ are at hand already."""
    kernels, Z, beta = mappings

    def one(component: tuple[Kernel, Array, Array, Array]) -> Array:
        kernel, phi_m, psi_m, level = component
        return collapsed_term(kernel.gram(Z), phi_m, psi_m, beta, level)

    collapsed = jnp.sum(map_components(one, (kernels, phi, psi, _levels(jitter, phi))))
    return _with_rest(collapsed, beta, T, rows)


def _with_rest(collapsed: Array, beta: Array, T: Array, rows: Rows) -> Array:
    """Add to the collapsed terms what the data term has besides."""
    mass = jnp.sum(T, axis=1)
    squares = jnp.sum(mass * rows.norm2.reshape(-1))
    normaliser = 0.5 * rows.n_features * jnp.log(beta / (2.0 * math.pi)) * jnp.sum(mass)
    return normaliser - 0.5 * beta * squares + collapsed


def _levels(jitter: Array | float, phi: Array) -> Array:
    """Return a jitter for each mapping."""
    return jnp.broadcast_to(jnp.asarray(jitter, phi.dtype), phi.shape[:1])


def latent_parts(prior: LatentPrior, X: Array, S: Array) -> tuple[Array, Array, Array]:
    """Return the three sums of the bound's second line."""
    return (
        weighted_sum(S, log_densities(prior, X)),
        weighted_sum(S, prior.log_weights[None, :]),
        entropy(S),
    )


def kl_corrected_bound(
    mappings: Mappings,
    prior: LatentPrior,
    X: Array,
    S: Array,
    rows: Rows,
    *,
    shared: bool,
    jitter: Array | float,
) -> Parts:
    """Return the KL-corrected bound, Eq. (KLBound), in its parts."""
    T = mapping_weights(S, rows, shared=shared)
    return Parts(data_term(mappings, X, T, rows, jitter), *latent_parts(prior, X, S))


def factorise_all(
    mappings: Mappings, X: Array, T: Array, rows: Rows, jitter: Array | float
) -> tuple[Factors, Array, Array]:
    """Return the factors of q(F) for every mapping, with the sums Φ and Ψ they came from."""
    phi, psi = statistics(mappings.kernels, mappings.Z, X, T, rows.Y, rows.mesh, rows.gpu_memory)
    return factorise_sums(mappings, phi, psi, jitter), phi, psi


def factorise_sums(mappings: Mappings, phi: Array, psi: Array, jitter: Array | float) -> Factors:
    """Return the factors of q(F) for every mapping from the sums Φ and Ψ."""
    kernels, Z, beta = mappings

    def one(component: tuple[Kernel, Array, Array, Array]) -> Factors:
        kernel, phi_m, psi_m, level = component
        return factorise(kernel.gram(Z), phi_m, psi_m, beta, level)

    factors: Factors = map_components(one, (kernels, phi, psi, _levels(jitter, phi)))
    return factors


def divergence(mappings: Mappings, factors: Factors) -> Array:
    r"""Return Σ_m KL(q(u_m) || p(u_m)) for the optimal q of the given factors.

    With q(u) = N(K A⁻¹W, K A⁻¹K) and p(u) = N(0, K), K = K_uu, for each of the P columns:
    ½ [tr(A⁻¹K) − U + log|A| − log|K| + w ᵀA⁻¹ K A⁻¹ w].
    """
    kernels, Z, _ = mappings

    def one(component: tuple[Kernel, Factors]) -> Array:
        kernel, f = component
        K = kernel.gram(Z)
        U, P = f.alpha.shape
        K = K + f.jitter * jnp.mean(jnp.diagonal(K)) * jnp.eye(U, dtype=K.dtype)
        trace = jnp.sum((f.R_inverse @ K) * f.R_inverse)
        quadratic = jnp.sum(f.alpha * (K @ f.alpha))
        return 0.5 * (P * (trace - U + 2.0 * f.half_log_det_B) + quadratic)

    return jnp.sum(map_components(one, (kernels, factors)))


def standard_bound(
    mappings: Mappings,
    factors: Factors,
    prior: LatentPrior,
    log_likelihoods: Array,
    X: Array,
    S: Array,
    T: Array,
) -> Array:
    """Return the standard variational bound L_SV(q(F), S), Eq. (traditionalBound).

    Parameters
    ----------
    factors : Factors
        Of q(F), which need not be optimal for this S.
    log_likelihoods : array of shape (N, G)
        ⟨log p(y_n | f_n)⟩ under q(F) (:func:`sgpmic.model.e_step.expected_log_likelihoods`).
    T : array of shape (N, G)
        Weights of the rows in the mappings that belong to S.
    """
    expected = weighted_sum(T, log_likelihoods)
    return expected - divergence(mappings, factors) + sum(latent_parts(prior, X, S))
