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
from sgpmic.model.prediction import Posterior, log_joints
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


@compiled()
def _project_block(posterior: Posterior, candidates: Array, Y: Array) -> tuple[Array, Array]:
    """Project a block: candidates (B, k, Q), Y (B, P)."""
    prior = factor_mixture(posterior.mixture)

    def one(starts: Array, y: Array) -> Array:
        repeated = jnp.broadcast_to(y, (starts.shape[0], y.shape[0]))
        values = jax.nn.logsumexp(log_joints(posterior, prior, starts, repeated), axis=1)
        best = starts[jnp.argmax(values)]
        loss = partial(_negative_log_joint, posterior, prior, y)
        result = scg.minimise(jax.value_and_grad(loss), best, max_steps=STEPS)
        point: Array = result.point
        return point

    X = jax.vmap(one)(candidates, Y)
    return X, jax.nn.softmax(log_joints(posterior, prior, X, Y), axis=1)


def _negative_log_joint(posterior: Posterior, prior: LatentPrior, y: Array, x: Array) -> Array:
    return -_log_joint(posterior, prior, x, y)


@compiled()
def _curvatures(posterior: Posterior, X: Array, Y: Array) -> Array:
    """Return −∇² log p(y, x) at every row's point, (B, Q, Q)."""
    prior = factor_mixture(posterior.mixture)

    def one(x: Array, y: Array) -> Array:
        # Reverse over reverse: the kernels' hand-written rules are reverse rules.
        loss = partial(_negative_log_joint, posterior, prior, y)
        curvature: Array = jax.jacrev(jax.grad(loss))(x)
        return curvature

    return jax.vmap(one)(X, Y)


@compiled()
def _log_joints_at(posterior: Posterior, X: Array, Y: Array) -> Array:
    """Return log p(y, x) at every row's point."""
    joints = log_joints(posterior, factor_mixture(posterior.mixture), X, Y)
    return jax.nn.logsumexp(joints, axis=1)


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
    covariances = np.asarray(posterior.mixture.covariances)
    # A row adds information to the prior; where x is not quite at its maximum the curvature may
    # say otherwise, and then the prior's own is the least there is.
    least = 1.0 / np.linalg.eigvalsh(covariances).max()
    result = np.empty(len(Y))
    for block in _blocks(len(Y)):
        size = block.stop - block.start
        x, y = pad_rows(X[block], BLOCK), pad_rows(Y[block], BLOCK)
        curvature = np.asarray(_curvatures(posterior, x, y))[:size]
        eigenvalues = np.maximum(np.linalg.eigvalsh(curvature), least)
        joint = np.asarray(_log_joints_at(posterior, x, y))[:size]
        log_det = np.log(eigenvalues).sum(axis=1)
        result[block] = joint + 0.5 * (X.shape[1] * math.log(2.0 * math.pi) - log_det)
    return result
