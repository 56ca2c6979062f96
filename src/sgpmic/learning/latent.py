"""The latent part of the objective: of point estimates, or of posteriors.

With ``latent='variational'`` latent points have posteriors N(x_n, diag σ_n²), and the mixture's
parameters have theirs (:mod:`sgpmic.model.mixture_posterior`). With one shared mapping S is then
summed out while the optimizer moves X, so that clusters can merge; with a mapping for each cluster
the data term depends on S, which is held fixed.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from sgpmic.learning.state import EMLimits, EMOptions
from sgpmic.model.e_step import summed_out
from sgpmic.model.mixture import (
    Conjugate,
    LatentPrior,
    Mixture,
    factor_mixture,
    log_conjugate,
    log_densities,
    update_mixture,
    weighted_sum,
)
from sgpmic.model.mixture_posterior import divergence, expected_prior, update_posterior
from sgpmic.model.rows import Rows
from sgpmic.model.uncertain import entropy_of_points


def prior_of(mixture: Mixture, conjugate: Conjugate, rows: Rows, options: EMOptions) -> LatentPrior:
    """Return what the log densities of a mixture need, or their expectations."""
    if not options.variational:
        return factor_mixture(mixture)
    return expected_prior(mixture, conjugate, jnp.sum(rows.weight), kind=options.covariance_type)


def log_prior_of(
    mixture: Mixture, prior: LatentPrior, conjugate: Conjugate, rows: Rows, options: EMOptions
) -> Array:
    """Return the log of the conjugate prior, 0 where there is none.

    Of posteriors of the mixture's parameters, minus their divergence from it.
    """
    if options.variational:
        n_rows = jnp.sum(rows.weight)
        return -divergence(mixture, conjugate, n_rows, kind=options.covariance_type)
    if not options.has_prior:
        return jnp.zeros((), mixture.means.dtype)
    return log_conjugate(mixture, conjugate, prior)


def closed_forms(
    mixture: Mixture,
    X: Array,
    S: Array,
    conjugate: Conjugate,
    limits: EMLimits,
    options: EMOptions,
    x_std: Array | None = None,
) -> Mixture:
    """Return the mixture, or the posteriors of its parameters, that is best for X and S."""
    if x_std is not None:
        return update_posterior(X, x_std, S, conjugate, kind=options.covariance_type)
    return update_mixture(
        mixture, X, S, conjugate, kind=options.covariance_type, floor=limits.covariance_floor
    )


def latent_term(
    prior: LatentPrior, X: Array, log_x_std: Array | None, S: Array, rows: Rows, options: EMOptions
) -> Array:
    """Return the part of the bound's second line that the optimizer sees."""
    if log_x_std is None:
        return weighted_sum(S, log_densities(prior, X))
    entropy = entropy_of_points(log_x_std, rows.flat_weight)
    densities = log_densities(prior, X, jnp.exp(log_x_std))
    if not options.sums_out:
        return weighted_sum(S, densities) + entropy
    return jnp.sum(summed_out(densities + prior.log_weights, rows)) + entropy
