r"""What a fitted model says at a latent point, and how well a row fits there.

Mean and variance of mapping m at x are

.. math:: \bar f_m(x) = k^\top A_m^{-1} W_m, \qquad
          v_m(x) = k(x,x) - k^\top K_{uu}^{-1} k + k^\top A_m^{-1} k ,

and a row y with latent point x has the joint density

.. math:: p(y, x) = \sum_m \pi_m N(x|\bar x_m, C_m)\, N(y | \bar f_m(x), (v_m(x) + 1/\beta) I).

Finding the x of a row is :mod:`sgpmic.learning.prediction.projection`'s work.

A row that was fitted has shaped the mapping and is described better than a new one. Without it
(:func:`left_out`), :math:`A_m` loses :math:`\beta s k k^\top` and :math:`W_m` loses
:math:`\beta s k y^\top`; with :math:`a = A_m^{-1}k` and its leverage
:math:`h = \beta s\, k^\top a`, after Sherman and Morrison,

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

#: A leverage is less than 1 but for rounding.
MOST_LEVERAGE = 1.0 - 1e-6


@keepable
class Posterior(NamedTuple):
    """What is kept of a fitted model to answer for new rows."""

    mappings: Mappings
    mean_weights: Array  # (G, U, P): A⁻¹W
    #: (G, U, U) K_uu⁻¹ − A⁻¹, how the data have reduced the variance; (G, C, U, U) where features
    #: are observed in C groups of rows.
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
    # Of a group, the weights of all features but its own are 0.
    weights = jnp.sum(weights.reshape(-1, C, *weights.shape[1:]), axis=1)
    losses = losses.reshape(-1, C, *losses.shape[1:])
    return Posterior(mappings, weights, losses, mixture, rows.n_features, rows.groups.features)


class LeftOut(NamedTuple):
    """What rows have told the mappings when they were fitted; C = 1 without groups."""

    directions: Array  # (G, C, B, U): a
    shares: Array  # (G, C, B): βs/(1 − h)
    residuals: Array  # (G, B, P): y − f̄(x), 0 for missing cells


def left_out(
    posterior: Posterior, A_inverse: Array, X: Array, S: Array, Y: Array, observed: Array | None
) -> LeftOut:
    """Return what leaves each row out of the posterior, for the same parameters.

    The rows had the latent points X (B, Q) and the weights S (B, G) when they were fitted;
    ``observed`` (B, P) is 1 for the cells that they have, None for all.
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

    Where features are observed in groups of rows, variances are (G, B, P), of every feature. With
    ``without``, each point is that of a row that is left out.
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
    """Return the logarithms of the summands of p(y, x), shape (B, M).

    ``observed`` (B, P) is 1 for the cells that rows have, None where they have all.
    """
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
