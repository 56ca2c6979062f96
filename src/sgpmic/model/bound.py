r"""The KL-corrected bound, in the form that has no log s.

.. math:: L = \sum_m \left\{ \tfrac P2 \log\tfrac{\beta}{2\pi} \sum_n s_{nm}
   - \tfrac P2 (\log|A_m| - \log|K_{uu}|) - \tfrac\beta2 \sum_n s_{nm} |y_n|^2
   + \tfrac12 \mathrm{tr}(W_m^\top A_m^{-1} W_m) \right\}
   + \sum_{nm} s_{nm} [\log N(x_n|\bar x_m, C_m) + \log\pi_m - \log s_{nm}]

It equals the paper's Eq. (KLBound): the log s of its constants c_nm and of its determinants
cancel, so s = 0 is harmless and nothing has to be clamped.

The number of mappings (Gaussian processes), G, and the number of clusters, M, are two numbers: the
paper's model has a mapping for every cluster (G = M, weighted by S); with one mapping shared by
all clusters G = 1 and every row has weight 1 in it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from sgpmic.compile_cache import keepable
from sgpmic.kernels import Kernel
from sgpmic.model.collapsed import Factors, collapsed_term, factorize
from sgpmic.model.components import map_components
from sgpmic.model.gaps import (
    by_group,
    count_groups,
    features_by_group,
    group_weights,
    only_own_features,
)
from sgpmic.model.mixture import (
    LatentPrior,
    divergence_from_prior,
    entropy,
    log_densities,
    weighted_sum,
)
from sgpmic.model.row_pass.sums import statistics
from sgpmic.model.rows import Rows
from sgpmic.model.uncertain import expected_diagonal, expected_sums


@keepable
class Mappings(NamedTuple):
    """The Gaussian processes: stacked kernels, inducing inputs (U, Q), noise precision β."""

    kernels: Kernel
    Z: Array
    beta: Array


@keepable
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
    """Return the weight of every row in every mapping, (N, G)."""
    return rows.flat_weight[:, None] if shared else S


def sums(
    mappings: Mappings, X: Array, T: Array, rows: Rows, x_std: Array | None = None
) -> tuple[Array, Array]:
    """Return the sums Φ (G, U, U) and Ψ (G, U, P) of every mapping: one pass over the rows.

    Where a table has gaps, of every mapping and group of features (:mod:`sgpmic.model.gaps`).
    With ``x_std``, their expectations over latent points that are uncertain
    (:mod:`sgpmic.model.uncertain`), a pass for each set of sigma points.
    """
    kernels, Z, _ = mappings

    def sums_of(kernels: Kernel, T: Array, Y: Array) -> tuple[Array, Array]:
        if x_std is not None:
            return expected_sums(kernels, Z, X, x_std, T, replace(rows, Y=Y))
        return statistics(kernels, Z, X, T, Y, rows.mesh, rows.gpu_memory)

    phi, psi = sums_of(kernels, T, rows.Y)
    if rows.groups is not None:
        phi, _ = sums_of(
            by_group(kernels, count_groups(rows)), group_weights(T, rows), rows.Y[:, :0]
        )
    return phi, only_own_features(psi, rows)


def data_term(
    mappings: Mappings,
    X: Array,
    T: Array,
    rows: Rows,
    jitter: Array | float,
    x_std: Array | None = None,
) -> Array:
    """Return the first line of the bound, the part that sees the data.

    T (N, G) are :func:`mapping_weights`, the jitter is relative to every K_uu. With ``x_std``
    (N, Q), the standard deviations of uncertain latent points, the bound has its trace term.
    """
    both = sums(mappings, X, T, rows, x_std)
    if x_std is None:
        return data_from_sums(mappings, *both, T, rows, jitter)
    data = data_from_sums(mappings, *both, T, rows, jitter, trace=True)
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
    """Return the same where the sums Φ and Ψ are at hand already.

    With ``trace``, + βP/2 Σ_m tr(K_uu⁻¹Φ_m) as well (:mod:`sgpmic.model.uncertain`).
    """
    kernels, Z, beta = mappings

    def one(component: tuple[Kernel, Array, Array, Array, Array]) -> Array:
        kernel, phi_m, psi_m, level, n_features = component
        return collapsed_term(kernel.gram(Z), phi_m, psi_m, beta, level, n_features, trace)

    kernels, levels = by_group((kernels, _levels(jitter, T.shape[1], phi)), count_groups(rows))
    components = (kernels, phi, psi, levels, features_by_group(T.shape[1], rows))
    collapsed = jnp.sum(map_components(one, components))
    mass = jnp.sum(T, axis=1)
    squares = jnp.sum(mass * rows.norm2.reshape(-1))
    normalizer = 0.5 * rows.n_features * jnp.log(beta / (2.0 * math.pi)) * jnp.sum(mass)
    if rows.n_observed is not None:
        normalizer = 0.5 * jnp.log(beta / (2.0 * math.pi)) * jnp.sum(mass * rows.n_observed)
    return normalizer - 0.5 * beta * squares + collapsed


def _levels(jitter: Array | float, n_mappings: int, phi: Array) -> Array:
    """Return the jitter of each mapping."""
    return jnp.broadcast_to(jnp.asarray(jitter, phi.dtype), (n_mappings,))


def add_latent(
    data: Array,
    prior: LatentPrior,
    X: Array,
    S: Array,
    rows: Rows | None = None,
    x_std: Array | None = None,
) -> Parts:
    """Return the bound in its parts from its data term and the three sums of its second line.

    Where rows have an assignment prior, minus the divergence from it replaces the entropy
    (:mod:`sgpmic.model.e_step`). ``x_std`` are the standard deviations of uncertain latent points.
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

    kernels, levels = by_group((kernels, _levels(jitter, G, phi)), len(phi) // G)
    return map_components(one, (kernels, phi, psi, levels))
