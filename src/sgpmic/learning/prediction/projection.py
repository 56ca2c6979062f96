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
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sgpmic._types import Floats
from sgpmic.compile_cache import compiled
from sgpmic.learning.optimizers import scg
from sgpmic.model.mixture import LatentPrior, factor_mixture, log_densities
from sgpmic.model.prediction import Posterior, left_out, log_joints, mapping_moments
from sgpmic.model.rows import pad_rows

#: Rows that are projected together.
BLOCK = 128
#: Steps of the optimiser for every row.
STEPS = 40


class Projection(NamedTuple):
    """Latent points of rows and what the model thinks of them."""

    X: Floats  # (B, Q)
    memberships: Floats  # (B, M)


class Cells(NamedTuple):
    """Rows (B, P), or one (P,), centred and scaled as a posterior's, and which cells they have."""

    values: Array  # 0 for missing cells
    observed: Array | None = None  # 1 for the cells that rows have; None where they have all


def _log_joint(posterior: Posterior, prior: LatentPrior, x: Array, y: Cells) -> Array:
    row: Cells = jax.tree.map(lambda leaf: leaf[None], y)
    return jax.nn.logsumexp(log_joints(posterior, prior, x[None], *row)[0])


def _find(posterior: Posterior, prior: LatentPrior, starts: Array, y: Cells) -> Array:
    """Return the latent point of one row, from the best of its starts (k, Q)."""
    k = starts.shape[0]
    repeated: Cells = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (k, leaf.shape[0])), y)
    values = jax.nn.logsumexp(log_joints(posterior, prior, starts, *repeated), axis=1)
    best = starts[jnp.argmax(values)]
    loss = partial(_negative_log_joint, posterior, prior, y)
    result = scg.minimize(jax.value_and_grad(loss), best, max_steps=STEPS)
    return result.point


@compiled
def _project_block(
    posterior: Posterior, strength: Array, candidates: Array, votes: Array, Y: Cells
) -> tuple[Array, Array]:
    """Project a block: candidates (B, k, Q), votes (B, M), rows Y."""
    prior = factor_mixture(posterior.mixture)
    X = jax.vmap(partial(_find, posterior, prior))(candidates, Y)
    # The E-step of a row with votes; equal votes of strength 1 are none.
    log_p = jnp.log(votes) + log_joints(posterior, prior, X, *Y) / strength
    return X, jax.nn.softmax(log_p, axis=1)


def _negative_log_joint(posterior: Posterior, prior: LatentPrior, y: Cells, x: Array) -> Array:
    return -_log_joint(posterior, prior, x, y)


def _curvature(posterior: Posterior, prior: LatentPrior, x: Array, y: Cells) -> Array:
    """Return −∇² log p(y, x) at a row's point, (Q, Q)."""
    # Reverse over reverse: the kernels' hand-written rules are reverse rules.
    loss = partial(_negative_log_joint, posterior, prior, y)
    return jax.jacrev(jax.grad(loss))(x)


@compiled
def _peaks(posterior: Posterior, X: Array, Y: Cells) -> tuple[Array, Array]:
    """Return log p(y, x) and its curvature at every row's point."""
    prior = factor_mixture(posterior.mixture)
    joints = jax.nn.logsumexp(log_joints(posterior, prior, X, *Y), axis=1)
    return joints, jax.vmap(partial(_curvature, posterior, prior))(X, Y)


@compiled
def _peaks_left_out(
    posterior: Posterior, A_inverse: Array, fitted: Array, T: Array, candidates: Array, Y: Cells
) -> tuple[Array, Array]:
    """Return the same for rows that were fitted, each projected as if it had not been."""
    prior = factor_mixture(posterior.mixture)

    def one(x: Array, s: Array, starts: Array, y: Cells) -> tuple[Array, Array]:
        without = left_out(posterior, A_inverse, x, s, *y)
        found = _find(without, prior, starts, y)
        return _log_joint(without, prior, found, y), _curvature(without, prior, found, y)

    return jax.vmap(one)(fitted, T, candidates, Y)


@compiled
def _means_left_out(
    posterior: Posterior,
    A_inverse: Array,
    fitted: Array,
    T: Array,
    candidates: Array,
    Y: Cells,
    shown: Cells,
) -> tuple[Array]:
    """Return what the mapping without a row says of it, placed by the cells that are shown."""
    prior = factor_mixture(posterior.mixture)

    def one(x: Array, s: Array, starts: Array, y: Cells, part: Cells) -> Array:
        without = left_out(posterior, A_inverse, x, s, *y)
        found = _find(without, prior, starts, part)[None]
        shares = jax.nn.softmax(log_densities(prior, found) + prior.log_weights, axis=1)[0]
        mean = mapping_moments(without, found)[0][:, 0]  # (G, P)
        return mean[0] if len(mean) == 1 else shares @ mean

    return (jax.vmap(one)(fitted, T, candidates, Y, shown),)


@compiled
def _moments(posterior: Posterior, X: Array) -> tuple[Array, Array, Array]:
    """Return mean and variance of every mapping at X, and the shares p(m | x) of the clusters."""
    prior = factor_mixture(posterior.mixture)
    shares = jax.nn.softmax(log_densities(prior, X) + prior.log_weights, axis=1)
    return *mapping_moments(posterior, X), shares


def _in_blocks(function: Callable[..., Any], *by_row: Any) -> Any:
    """Return a function's results for all rows, which it gets in blocks of one size.

    The arrays in ``by_row`` and those that the function returns have one entry for each row.
    """
    n_rows = len(jax.tree.leaves(by_row)[0])
    found = []
    for first in range(0, n_rows, BLOCK):
        block = slice(first, min(first + BLOCK, n_rows))
        part = jax.tree.map(lambda array, block=block: pad_rows(array[block], BLOCK), by_row)
        results = function(*part)
        found.append([np.asarray(result)[: block.stop - first] for result in results])
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def project(
    posterior: Posterior, strength: float, candidates: Floats, votes: Floats, Y: Cells
) -> Projection:
    """Find the latent points and memberships of rows.

    Candidates (N, k, Q) are points to start from, of which the most likely one is taken; votes
    (N, M) are what the rows' neighbours say of their clusters.
    """
    project_block = partial(_project_block, posterior, np.float64(strength))
    return Projection(*_in_blocks(project_block, candidates, votes, Y))


def log_evidence(posterior: Posterior, X: Floats, Y: Cells) -> Floats:
    """Return the Laplace approximation of log p(y) around the rows' latent points X."""
    return _laplace(posterior, *_in_blocks(partial(_peaks, posterior), X, Y))


def log_evidence_left_out(
    posterior: Posterior, A_inverse: Floats, X: Floats, T: Floats, candidates: Floats, Y: Cells
) -> Floats:
    """Return the same for training rows, of the model without the row.

    X are the latent points when the model was learned, T (N, G) the weights in every mapping.
    """
    peaks = _in_blocks(partial(_peaks_left_out, posterior, A_inverse), X, T, candidates, Y)
    return _laplace(posterior, *peaks)


def means_left_out(
    posterior: Posterior,
    A_inverse: Floats,
    X: Floats,
    T: Floats,
    candidates: Floats,
    Y: Cells,
    shown: Cells,
) -> Floats:
    """Return the expected cells (N, P) of training rows, by the mapping without the row.

    Rows are placed by what is ``shown`` of them.
    """
    function = partial(_means_left_out, posterior, A_inverse)
    return _in_blocks(function, X, T, candidates, Y, shown)[0]


def moments_at(posterior: Posterior, X: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean (G, N, P), variance (G, N) and p(m | x) (N, M) at latent points.

    Where features are observed in groups of rows, the variance is (G, N, P).
    """

    def rows_first(x: Floats) -> tuple[Floats, Floats, Floats]:
        mean, variance, shares = map(np.asarray, _moments(posterior, x))
        return mean.swapaxes(0, 1), variance.swapaxes(0, 1), shares

    mean, variance, shares = _in_blocks(rows_first, X)
    return mean.swapaxes(0, 1), variance.swapaxes(0, 1), shares


def _laplace(posterior: Posterior, joints: Floats, curvatures: Floats) -> Floats:
    """Return log p(y) from log p(y, x) and its curvature at the peak."""
    covariances = np.asarray(posterior.mixture.covariances)[
        np.asarray(posterior.mixture.weights) > 0
    ]
    # A row adds information to the prior; where x is not quite at its maximum the curvature may
    # say otherwise, and then the prior's own is the least there is.
    least = 1.0 / np.linalg.eigvalsh(covariances).max()
    eigenvalues = np.maximum(np.linalg.eigvalsh(curvatures), least)
    log_det = np.log(eigenvalues).sum(axis=1)
    return joints + 0.5 * (eigenvalues.shape[1] * math.log(2.0 * math.pi) - log_det)
