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
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from sgpmic.compile_cache import keepable
from sgpmic.kernels import Kernel, cross
from sgpmic.model.bound import Mappings
from sgpmic.model.collapsed import Factors
from sgpmic.model.components import loop_components
from sgpmic.model.gaps import count_groups
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
    C = count_groups(rows)
    # Of a group, the weights of all features but its own are 0.
    weights = jnp.sum(weights.reshape(-1, C, *weights.shape[1:]), axis=1)
    losses = losses.reshape(-1, C, *losses.shape[1:])
    return Posterior(mappings, weights, losses, mixture, rows.n_features, rows.groups.features)


def left_out(
    posterior: Posterior,
    A_inverse: Array,
    x: Array,
    s: Array,
    y: Array,
    observed: Array | None = None,
) -> Posterior:
    """Return the posterior of all fitted rows but one, for the same parameters.

    The row had the latent point x and the weights s (G,) when it was fitted; ``observed`` (P,) is 1
    for the features that it has, None for all.
    """
    kernels, Z, beta = posterior.mappings

    def of_one(kernel: Kernel, weights: Array, inverse: Array, s_m: Array) -> tuple[Array, Array]:
        """Return what the weights and the precision lose, of features in the same rows."""
        k = cross(kernel, x[None], Z)[0]
        a = inverse @ k
        h = jnp.minimum(beta * s_m * (k @ a), MOST_LEVERAGE)
        share = beta * s_m / (1.0 - h)
        residual = y - k @ weights
        if observed is not None:
            residual = residual * observed
        return share * jnp.outer(a, residual), share * jnp.outer(a, a)

    def one(component: tuple[Kernel, Array, Array, Array, Array]) -> tuple[Array, Array]:
        kernel, weights, precision_loss, inverse, s_m = component
        if posterior.groups is None:
            by_weights, by_loss = of_one(kernel, weights, inverse, s_m)
        else:
            # A row has all features of a group or none.
            has = jnp.ones(len(inverse))
            if observed is not None:
                has = jnp.max(posterior.groups * observed, axis=1)
            parts, by_loss = jax.vmap(partial(of_one, kernel, weights))(inverse, s_m * has)
            by_weights = jnp.einsum("cup,cp->up", parts, posterior.groups)
        return weights - by_weights, precision_loss - by_loss

    components = (kernels, posterior.mean_weights, posterior.precision_loss, A_inverse, s)
    weights, precision_loss = loop_components(one, components)
    return posterior._replace(mean_weights=weights, precision_loss=precision_loss)


def mapping_moments(posterior: Posterior, X: Array) -> tuple[Array, Array]:
    """Return mean (G, B, P) and variance (G, B) of every mapping at the points X (B, Q).

    Where features are observed in groups of rows, variances are (G, B, P), of every feature.
    """
    kernels, Z, _ = posterior.mappings

    def one(component: tuple[Kernel, Array, Array]) -> tuple[Array, Array]:
        kernel, weights, precision_loss = component
        K = cross(kernel, X, Z)  # (B, U)
        if posterior.groups is not None:
            by_group = jnp.einsum("bu,cuv,bv->bc", K, precision_loss, K)
            explained = by_group @ posterior.groups  # (B, P)
            unknown = jnp.maximum(kernel.diagonal(X)[:, None] - explained, 0.0)
            return K @ weights, unknown
        explained = jnp.sum((K @ precision_loss) * K, axis=1)
        # A difference of nearly equal numbers: rounding must not make it negative.
        return K @ weights, jnp.maximum(kernel.diagonal(X) - explained, 0.0)

    components = (kernels, posterior.mean_weights, posterior.precision_loss)
    return loop_components(one, components)


def log_joints(
    posterior: Posterior, prior: LatentPrior, X: Array, Y: Array, observed: Array | None = None
) -> Array:
    """Return the logarithms of the summands of p(y, x), shape (B, M).

    ``observed`` (B, P) is 1 for the cells that rows have, None where they have all.
    """
    mean, variance = mapping_moments(posterior, X)
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
