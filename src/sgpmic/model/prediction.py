r"""Predictions of a fitted model at latent points, and the density of rows there.

Mean and variance of mapping m at x are

.. math:: \bar f_m(x) = k^\top A_m^{-1} W_m, \qquad
          v_m(x) = k(x,x) - k^\top K_{uu}^{-1} k + k^\top A_m^{-1} k ,

and a row y with latent point x has the joint density

.. math:: p(y, x) = \sum_m \pi_m N(x|\bar x_m, C_m)\, N(y | \bar f_m(x), (v_m(x) + 1/\beta) I).

:mod:`sgpmic.learning.prediction.projection` finds the x of a row.

A training row has shaped the mapping and is fitted better than a new one. Leaving it out
(:func:`left_out`) subtracts :math:`\beta s k k^\top` from :math:`A_m` and
:math:`\beta s k y^\top` from :math:`W_m`; with :math:`a = A_m^{-1}k` and the row's leverage
:math:`h = \beta s\, k^\top a`, the Sherman–Morrison formula gives

.. math:: A_{m\setminus}^{-1} = A_m^{-1} + \frac{\beta s}{1-h}\, a a^\top, \qquad
          A_{m\setminus}^{-1} W_{m\setminus} = A_m^{-1}W_m
          - \frac{\beta s}{1-h}\, a\, (y - \bar f_m(x))^\top .
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from sgpmic._runtime import loop_components
from sgpmic.compile_cache import keepable
from sgpmic.kernels import Kernel, cross
from sgpmic.model.bound import Factors, Mappings
from sgpmic.model.mixture import LatentPrior, Mixture, log_densities
from sgpmic.model.rows import Rows

#: Leverages are less than 1 up to rounding errors.
MOST_LEVERAGE = 1.0 - 1e-6


@keepable
class Posterior(NamedTuple):
    """The parts of a fitted model that predictions need."""

    mappings: Mappings
    mean_weights: Array  # (G, U, P): A⁻¹W
    #: (G, U, U) K_uu⁻¹ − A⁻¹, the reduction of the variance by the data; (G, C, U, U) with C groups
    #: of features (missing values).
    precision_loss: Array
    mixture: Mixture
    n_features: Array  # P, without padding
    groups: Array | None = None  # (C, P): 1 for the features of a group


def make_posterior(mappings: Mappings, factors: Factors, mixture: Mixture, rows: Rows) -> Posterior:
    """Return the posterior from the factors of q(F)."""

    def loss(f: Factors) -> Array:
        return f.L_inverse.T @ f.L_inverse - f.R_inverse.T @ f.R_inverse

    weights, losses = factors.alpha, loop_components(loss, factors)
    if rows.groups is None:
        return Posterior(mappings, weights, losses, mixture, rows.n_features)
    C = rows.n_groups
    # A group's weights are 0 for the features of other groups.
    weights = jnp.sum(weights.reshape(-1, C, *weights.shape[1:]), axis=1)
    losses = losses.reshape(-1, C, *losses.shape[1:])
    return Posterior(mappings, weights, losses, mixture, rows.n_features, rows.groups.features)


class LeftOut(NamedTuple):
    """Contributions of training rows to the mappings; C = 1 without groups."""

    directions: Array  # (G, C, B, U): a
    shares: Array  # (G, C, B): βs/(1 − h)
    residuals: Array  # (G, B, P): y − f̄(x), 0 for missing cells


def left_out(
    posterior: Posterior, A_inverse: Array, X: Array, S: Array, Y: Array, observed: Array | None
) -> LeftOut:
    """Return the leave-one-out corrections of the posterior, with the parameters held fixed.

    X (B, Q) and S (B, G) are the latent points and weights of the training rows; ``observed``
    (B, P) is 1 for observed cells, None if all are.
    """
    kernels, Z, beta = posterior.mappings
    inverses = A_inverse if posterior.groups is not None else A_inverse[:, None]
    # A row has all features of a group or none.
    has = jnp.ones((len(X), inverses.shape[1]))
    if posterior.groups is not None and observed is not None:
        has = jnp.max(posterior.groups * observed[:, None, :], axis=2)

    def one(component: tuple[Kernel, Array, Array, Array]) -> LeftOut:
        kernel, weights, inverse, s = component
        K = cross(kernel, X, Z)
        directions = K @ inverse  # (C, B, U)
        s_by_group = beta * s * has.T
        leverage = jnp.minimum(s_by_group * jnp.sum(directions * K, axis=2), MOST_LEVERAGE)
        residuals = Y - K @ weights
        if observed is not None:
            residuals = residuals * observed
        return LeftOut(directions, s_by_group / (1.0 - leverage), residuals)

    return loop_components(one, (kernels, posterior.mean_weights, inverses, S.T))


def mapping_moments(
    posterior: Posterior, X: Array, without: LeftOut | None = None
) -> tuple[Array, Array]:
    """Return mean (G, B, P) and variance (G, B) of every mapping at the points X (B, Q).

    With groups of features, variances are (G, B, P), one for every feature. With ``without``, each
    point is that of a training row, which is left out.
    """
    (kernels, Z, _), groups = posterior.mappings, posterior.groups

    def one(component: tuple[Kernel, Array, Array, LeftOut | None]) -> tuple[Array, Array]:
        kernel, weights, precision_loss, out = component
        K = cross(kernel, X, Z)  # (B, U)
        mean, prior = K @ weights, kernel.diagonal(X)
        if groups is None:
            explained = jnp.sum((K @ precision_loss) * K, axis=1)
        else:
            explained = jnp.einsum("bu,cuv,bv->bc", K, precision_loss, K)
        if out is not None:
            overlap = jnp.sum(out.directions * K, axis=2)  # (C, B): kᵀa
            told, squares = (out.shares * overlap).T, (out.shares * overlap**2).T
            mean = mean - (told if groups is None else told @ groups) * out.residuals
            explained = explained - (squares[:, 0] if groups is None else squares)
        if groups is not None:
            explained, prior = explained @ groups, prior[:, None]
        # A difference of nearly equal numbers: rounding must not make it negative.
        return mean, jnp.maximum(prior - explained, 0.0)

    components = (kernels, posterior.mean_weights, posterior.precision_loss, without)
    return loop_components(one, components)


def log_joints(
    posterior: Posterior,
    prior: LatentPrior,
    X: Array,
    Y: Array,
    observed: Array | None = None,
    without: LeftOut | None = None,
) -> Array:
    """Return the logs (B, M) of the terms of p(y, x); ``observed`` is as in :func:`left_out`."""
    mean, variance = mapping_moments(posterior, X, without)
    total = variance + 1.0 / posterior.mappings.beta
    if observed is None and posterior.groups is None:
        P = posterior.n_features
        squares = jnp.sum((Y - mean) ** 2, axis=2)
        likelihood = -0.5 * (P * jnp.log(2.0 * math.pi * total) + squares / total)  # (G, B)
    else:
        total = total if posterior.groups is not None else total[:, :, None]
        cells = jnp.log(2.0 * math.pi * total) + (Y - mean) ** 2 / total
        has = jnp.arange(Y.shape[1]) < posterior.n_features if observed is None else observed
        likelihood = -0.5 * jnp.sum(jnp.where(has > 0, cells, 0.0), axis=2)
    return prior.log_weights + log_densities(prior, X) + likelihood.T  # G = 1 broadcasts
