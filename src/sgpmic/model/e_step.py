r"""The E-step: q(F) from the statistics Φ and Ψ, then q(S) row by row.

.. math:: \log p_{nm} = \log\pi_m + \log N(x_n|\bar x_m, C_m) + \tfrac P2\log\tfrac\beta{2\pi}
   - \tfrac\beta2 \left[|y_n - \bar f_n|^2 + P\, k_n^\top A_m^{-1} k_n\right],
   \qquad S = \mathrm{softmax}_m.

An exact E-step with the rest held fixed never lowers the KL-corrected bound: at the optimal q(F)
the standard bound equals it, updating S raises the standard bound, and the KL-corrected bound lies
above that.

**Assignment prior.** Prior knowledge of a row's cluster, :math:`v_{nm}`, is the prior of the row's
indicator, with a weight :math:`\lambda`: in the bound, the entropy of S is replaced by
:math:`-\lambda\,\mathrm{KL}(s_n \| v_n)`, and the E-step becomes

.. math:: s_{nm} \propto v_{nm}\, p_{nm}^{1/\lambda}.

With :math:`\lambda = 1` this is Bayes' rule. The larger the weight, the closer responsibilities
stay to the prior, and thus calibrated; the latent points alone, being point estimates, would drive
all of them to 0 or 1.

With uncertain latent points (``x_std``), the logs are expectations under q(x_n) and the posterior
of the mixture's parameters, and include the variance of f_n given the inducing values
(:mod:`sgpmic.model.uncertain`).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from sgpmic.kernels import cross
from sgpmic.model.bound import Factors, Mappings, factorize_all, sums
from sgpmic.model.mixture import LatentPrior, log_densities
from sgpmic.model.row_pass.sums import fitted_values, of_rows, squares
from sgpmic.model.rows import Rows, by_group, features_by_group, over_groups
from sgpmic.model.uncertain import mean_over_points


def expected_log_likelihoods(
    mappings: Mappings, factors: Factors, X: Array, rows: Rows, x_std: Array | None = None
) -> Array:
    """Return ⟨log p(y_n | f_n)⟩ under every q(f_m), and q(x_n) with ``x_std``, shape (N, G)."""
    kernels, Z, beta = mappings
    G, P = jax.tree.leaves(kernels)[0].shape[0], rows.Y.shape[1]
    n_features, kernels = features_by_group(G, rows), by_group(kernels, rows.n_groups)
    # |√P R⁻¹k|² + |y − αᵀk|² = P kᵀA⁻¹k + |y − f̄|²
    own = jnp.ones((G, P)) if rows.groups is None else jnp.tile(rows.groups.features, (G, 1))
    of_variance = jnp.sqrt(n_features)[:, None, None] * factors.R_inverse
    of_mean = (factors.alpha * own[:, None, :]).swapaxes(1, 2)
    weights = jnp.concatenate([of_variance, of_mean], axis=1), own
    normalizer = 0.5 * n_features * jnp.log(beta / (2.0 * math.pi))

    def likelihoods(X: Array) -> Array:
        distances = squares(kernels, weights, Z, X, rows)
        return over_groups(normalizer - 0.5 * beta * distances, rows)

    def left_open(component: Any, x: Array, y: Array, Z: Array) -> Array:
        kernel, L_inverse, factor = component
        whitened = L_inverse @ cross(kernel, Z, x)  # its squares sum to kᵀK_uu⁻¹k
        return factor * (kernel.diagonal(x) - jnp.sum(whitened**2, axis=0))

    def of_points(points: Array) -> Array:
        components = (kernels, factors.L_inverse, 0.5 * beta * n_features)
        unknown = of_rows(left_open, components, Z, points, rows)
        return likelihoods(points) - over_groups(unknown, rows)

    return likelihoods(X) if x_std is None else mean_over_points(of_points, X, x_std)


def expected_cells(
    mappings: Mappings, X: Array, T: Array, rows: Rows, *, jitter: Array, x_std: Array | None = None
) -> Array:
    """Return the posterior means of missing cells under q(F), (N, P), 0 for observed ones.

    ``rows`` are imputed with the previous means (:func:`sgpmic.model.rows.with_cells`).
    """
    factors = factorize_all(mappings, *sums(mappings, X, T, rows, x_std), jitter)

    def at(points: Array) -> Array:
        return fitted_values(mappings.kernels, factors.alpha, mappings.Z, points, T, rows)

    values: Array = at(X) if x_std is None else mean_over_points(at, X, x_std)
    assert rows.missing is not None  # for the type checker: there are such cells
    return values * rows.missing


def tempered(log_p: Array, rows: Rows) -> Array:
    """Return log v_nm + log p_nm / λ, finite for padding rows; without a prior, log p_nm."""
    if rows.assignment_prior is None:
        return log_p
    log_prior = jnp.log(rows.assignment_prior + (1.0 - rows.flat_weight)[:, None])
    return log_prior + log_p / rows.prior_weight


def summed_out(log_p: Array, rows: Rows) -> Array:
    """Return every row's contribution to the bound at the optimal S for log p_nm, shape (N,)."""
    log_sums = jax.nn.logsumexp(tempered(log_p, rows), axis=1)
    if rows.assignment_prior is not None:
        log_sums = rows.prior_weight * log_sums
    return log_sums * rows.flat_weight


def responsibilities(log_p: Array, rows: Rows) -> Array:
    """Return the optimal S for log p_nm, 0 for padding rows."""
    return jax.nn.softmax(tempered(log_p, rows), axis=1) * rows.flat_weight[:, None]


def e_step(
    mappings: Mappings,
    prior: LatentPrior,
    X: Array,
    S: Array,
    rows: Rows,
    *,
    shared: bool,
    jitter: Array,
    x_std: Array | None = None,
) -> tuple[Array, Array]:
    """Make one exact E-step from ``S``; ``x_std`` (N, Q) is for uncertain latent points.

    Returns the new S (N, M) and the jitter (G,), raised where q(F) needed it.
    """
    log_p = log_densities(prior, X, x_std) + prior.log_weights
    if shared:
        # The shared mapping is the same for every cluster and cancels in the softmax.
        return responsibilities(log_p, rows), jitter
    factors = factorize_all(mappings, *sums(mappings, X, S, rows, x_std), jitter)
    log_p = log_p + expected_log_likelihoods(mappings, factors, X, rows, x_std)
    jitter = jnp.max(factors.jitter.reshape(len(jitter), -1), axis=1)
    return responsibilities(log_p, rows), jitter
