r"""Latent points of new rows, each found by itself.

A new row y gets the x that maximises log p(y, x) (:mod:`sgpmic.model.prediction`), from a start
that depends on y alone: the best of the latent points of its nearest training rows. Rows go
through in blocks of one fixed size, filled up where necessary, every row makes the same number of
steps and takes its own course: the answer for a row does not depend on which others are asked
about.

The density of y with x integrated out is approximated after Laplace,

.. math:: \log p(y) \approx \log p(y, \hat x) + \tfrac Q2 \log 2\pi
          - \tfrac12 \log|-\nabla^2 \log p(y, \hat x)| .
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from sgpmic._runtime import compiled
from sgpmic.learning import scg
from sgpmic.model.mixture import LatentPrior, factor_mixture
from sgpmic.model.prediction import Posterior, left_out, log_joints
from sgpmic.model.rows import pad_rows

Floats = NDArray[np.float64]

#: Rows that are projected together.
BLOCK = 128
#: Steps of the optimiser for every row.
STEPS = 40


class Projection(NamedTuple):
    """Latent points of rows and what the model thinks of them."""

    X: Floats  # (B, Q)
    memberships: Floats  # (B, M)


def _log_joint(posterior: Posterior, prior: LatentPrior, x: Array, y: Array) -> Array:
    return jax.nn.logsumexp(log_joints(posterior, prior, x[None], y[None])[0])


def _find(posterior: Posterior, prior: LatentPrior, starts: Array, y: Array) -> Array:
    """Return the latent point of one row, from the best of its starts (k, Q)."""
    repeated = jnp.broadcast_to(y, (starts.shape[0], y.shape[0]))
    values = jax.nn.logsumexp(log_joints(posterior, prior, starts, repeated), axis=1)
    best = starts[jnp.argmax(values)]
    loss = partial(_negative_log_joint, posterior, prior, y)
    result = scg.minimise(jax.value_and_grad(loss), best, max_steps=STEPS)
    point: Array = result.point
    return point


@compiled()
def _project_block(posterior: Posterior, candidates: Array, Y: Array) -> tuple[Array, Array]:
    """Project a block: candidates (B, k, Q), Y (B, P)."""
    prior = factor_mixture(posterior.mixture)
    X = jax.vmap(partial(_find, posterior, prior))(candidates, Y)
    return X, jax.nn.softmax(log_joints(posterior, prior, X, Y), axis=1)


def _negative_log_joint(posterior: Posterior, prior: LatentPrior, y: Array, x: Array) -> Array:
    return -_log_joint(posterior, prior, x, y)


def _curvature(posterior: Posterior, prior: LatentPrior, x: Array, y: Array) -> Array:
    """Return −∇² log p(y, x) at a row's point, (Q, Q)."""
    # Reverse over reverse: the kernels' hand-written rules are reverse rules.
    loss = partial(_negative_log_joint, posterior, prior, y)
    curvature: Array = jax.jacrev(jax.grad(loss))(x)
    return curvature


@compiled()
def _peaks(posterior: Posterior, X: Array, Y: Array) -> tuple[Array, Array]:
    """Return log p(y, x) and its curvature at every row's point."""
    prior = factor_mixture(posterior.mixture)
    joints = jax.nn.logsumexp(log_joints(posterior, prior, X, Y), axis=1)
    return joints, jax.vmap(partial(_curvature, posterior, prior))(X, Y)


@compiled()
def _peaks_left_out(
    posterior: Posterior, A_inverse: Array, fitted: Array, T: Array, candidates: Array, Y: Array
) -> tuple[Array, Array]:
    """Return the same for rows that were fitted, each projected as if it had not been."""
    prior = factor_mixture(posterior.mixture)

    def one(x: Array, s: Array, starts: Array, y: Array) -> tuple[Array, Array]:
        without = left_out(posterior, A_inverse, x, s, y)
        found = _find(without, prior, starts, y)
        return _log_joint(without, prior, found, y), _curvature(without, prior, found, y)

    return jax.vmap(one)(fitted, T, candidates, Y)


def _blocks(n_rows: int) -> Iterator[slice]:
    for first in range(0, n_rows, BLOCK):
        yield slice(first, min(first + BLOCK, n_rows))


def project(posterior: Posterior, candidates: Floats, Y: Floats) -> Projection:
    """Find the latent points of rows.

    Parameters
    ----------
    posterior : Posterior
    candidates : ndarray of shape (n_samples, n_candidates, n_components)
        Where to start; the most likely one is taken.
    Y : ndarray of shape (n_samples, n_features)
        Rows, centred and scaled as the posterior's.
    """
    N, _, Q = candidates.shape
    M = posterior.mixture.weights.shape[0]
    X, memberships = np.empty((N, Q)), np.empty((N, M))
    for block in _blocks(N):
        size = block.stop - block.start
        result = _project_block(
            posterior, pad_rows(candidates[block], BLOCK), pad_rows(Y[block], BLOCK)
        )
        X[block], memberships[block] = (np.asarray(r)[:size] for r in result)
    return Projection(X, memberships)


def log_evidence(posterior: Posterior, X: Floats, Y: Floats) -> Floats:
    """Return the Laplace approximation of log p(y) around the rows' latent points X."""
    result = np.empty(len(Y))
    for block in _blocks(len(Y)):
        peaks = _peaks(posterior, pad_rows(X[block], BLOCK), pad_rows(Y[block], BLOCK))
        result[block] = _laplace(posterior, *peaks)[: block.stop - block.start]
    return result


def log_evidence_left_out(
    posterior: Posterior, A_inverse: Floats, X: Floats, T: Floats, candidates: Floats, Y: Floats
) -> Floats:
    """Return the same for fitted rows, of the model without the row.

    Parameters
    ----------
    posterior : Posterior
    A_inverse : ndarray of shape (G, U, U)
    X : ndarray of shape (n_samples, n_components)
        Where the rows were when they were fitted.
    T : ndarray of shape (n_samples, G)
        Their weights in every mapping.
    candidates, Y
        As in :func:`project`.
    """
    result = np.empty(len(Y))
    for block in _blocks(len(Y)):
        rows = (pad_rows(a[block], BLOCK) for a in (X, T, candidates, Y))
        peaks = _peaks_left_out(posterior, A_inverse, *rows)
        result[block] = _laplace(posterior, *peaks)[: block.stop - block.start]
    return result


def _laplace(posterior: Posterior, joints: Array, curvatures: Array) -> Floats:
    """Return log p(y) from log p(y, x) and its curvature at the peak."""
    covariances = np.asarray(posterior.mixture.covariances)
    # A row adds information to the prior; where x is not quite at its maximum the curvature may
    # say otherwise, and then the prior's own is the least there is.
    least = 1.0 / np.linalg.eigvalsh(covariances).max()
    eigenvalues = np.maximum(np.linalg.eigvalsh(np.asarray(curvatures)), least)
    log_det = np.log(eigenvalues).sum(axis=1)
    density: Floats = np.asarray(joints) + 0.5 * (
        eigenvalues.shape[1] * math.log(2.0 * math.pi) - log_det
    )
    return density
