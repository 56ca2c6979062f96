r"""What a fitted model says at a latent point, and how well a row fits there.

Mean and variance of mapping m at x are

.. math:: \bar f_m(x) = k^\top A_m^{-1} W_m, \qquad
          v_m(x) = k(x,x) - k^\top K_{uu}^{-1} k + k^\top A_m^{-1} k ,

and a row y with latent point x has the joint density

.. math:: p(y, x) = \sum_m \pi_m N(x|\bar x_m, C_m)\, N(y | \bar f_m(x), (v_m(x) + 1/\beta) I).

Finding the x of a row is :mod:`sgpmic.learning.projection`'s work.

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

from sgpmic.kernels import Kernel, cross
from sgpmic.model.bound import Mappings
from sgpmic.model.collapsed import Factors
from sgpmic.model.components import loop_components
from sgpmic.model.mixture import LatentPrior, Mixture, log_densities

#: A leverage is less than 1 but for rounding.
MOST_LEVERAGE = 1.0 - 1e-6


class Posterior(NamedTuple):
    """What is kept of a fitted model to answer for new rows."""

    mappings: Mappings
    mean_weights: Array  # (G, U, P): A⁻¹W
    precision_loss: Array  # (G, U, U): K_uu⁻¹ − A⁻¹, how the data have reduced the variance
    mixture: Mixture
    n_features: Array  # P, without padding


def make_posterior(
    mappings: Mappings, factors: Factors, mixture: Mixture, n_features: Array
) -> Posterior:
    """Return the posterior from the factors of q(F)."""

    def loss(f: Factors) -> Array:
        return f.L_inverse.T @ f.L_inverse - f.R_inverse.T @ f.R_inverse

    return Posterior(mappings, factors.alpha, loop_components(loss, factors), mixture, n_features)


def left_out(posterior: Posterior, A_inverse: Array, x: Array, s: Array, y: Array) -> Posterior:
    """Return the posterior of all fitted rows but one, for the same parameters.

    Parameters
    ----------
    posterior : Posterior
    A_inverse : array of shape (G, U, U)
    x : array of shape (Q,)
        The row's latent point when it was fitted.
    s : array of shape (G,)
        Its weight in every mapping.
    y : array of shape (P,)
    """
    kernels, Z, beta = posterior.mappings

    def one(component: tuple[Kernel, Array, Array, Array, Array]) -> tuple[Array, Array]:
        kernel, weights, precision_loss, inverse, s_m = component
        k = cross(kernel, x[None], Z)[0]
        a = inverse @ k
        h = jnp.minimum(beta * s_m * (k @ a), MOST_LEVERAGE)
        share = beta * s_m / (1.0 - h)
        residual = y - k @ weights
        return weights - share * jnp.outer(a, residual), precision_loss - share * jnp.outer(a, a)

    components = (kernels, posterior.mean_weights, posterior.precision_loss, A_inverse, s)
    weights, precision_loss = loop_components(one, components)
    return posterior._replace(mean_weights=weights, precision_loss=precision_loss)


def mapping_moments(posterior: Posterior, X: Array) -> tuple[Array, Array]:
    """Return mean (G, B, P) and variance (G, B) of every mapping at the points X (B, Q)."""
    kernels, Z, _ = posterior.mappings

    def one(component: tuple[Kernel, Array, Array]) -> tuple[Array, Array]:
        kernel, weights, precision_loss = component
        K = cross(kernel, X, Z)  # (B, U)
        explained = jnp.sum((K @ precision_loss) * K, axis=1)
        # A difference of nearly equal numbers: rounding must not make it negative.
        return K @ weights, jnp.maximum(kernel.diagonal(X) - explained, 0.0)

    components = (kernels, posterior.mean_weights, posterior.precision_loss)
    moments: tuple[Array, Array] = loop_components(one, components)
    return moments


def log_joints(posterior: Posterior, prior: LatentPrior, X: Array, Y: Array) -> Array:
    """Return the logarithms of the summands of p(y, x), shape (B, M)."""
    P = posterior.n_features
    mean, variance = mapping_moments(posterior, X)
    total = variance + 1.0 / posterior.mappings.beta
    squares = jnp.sum((Y - mean) ** 2, axis=2)
    likelihood = -0.5 * (P * jnp.log(2.0 * math.pi * total) + squares / total)  # (G, B)
    return prior.log_weights + log_densities(prior, X) + likelihood.T  # G = 1 broadcasts
