"""SDC: similarity-based discriminative clustering of a linear projection (Passalis & Tefas 2019).

k-means on the raw data gives pseudo-labels; the projection is trained so that rows of one
pseudo-class become similar and others not; k-means on the projection gives the clusters.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import pdist
from sklearn.utils.extmath import svd_flip

from paper.methods.base import Clustering, Problem, k_means
from paper.methods.training import minibatches, minimize
from sgpmic._runtime import numerics
from sgpmic._types import Floats

N_EPOCHS = 50
BATCH_SIZE = 128


class Targets(NamedTuple):
    """Constants of the loss."""

    same: float  # a, the target similarity of rows of one pseudo-class
    other: float  # b, of two of them
    orthogonality: float  # ρ, the weight of the orthonormality penalty
    squared_scale: float  # σ², the unit of squared distances


def similarity_loss(
    projection: jax.Array, batch: tuple[jax.Array, jax.Array], targets: Targets
) -> jax.Array:
    """Return the loss of a batch of rows and their pseudo-labels.

    (2−ρ)·Σ m (S−T)² / Σ m + ρ ‖WᵀW − I‖² / (2Q²).
    """
    rows, labels = batch
    projected = rows @ projection
    gaps = projected[:, None, :] - projected[None, :, :]
    similarities = jnp.exp(-jnp.sum(gaps**2, axis=-1) / targets.squared_scale)  # S
    together = labels[:, None] == labels[None, :]
    wanted = jnp.where(together, targets.same, targets.other)  # T
    # m: pairs of different pseudo-classes are C − 1 times as many, and must not outvote the others.
    ordered = jnp.sort(labels)
    n_classes = 1 + jnp.sum(ordered[1:] != ordered[:-1])
    mask = jnp.where(together, 1.0, 1.0 / jnp.maximum(n_classes - 1, 1))
    misfit = jnp.sum(mask * (similarities - wanted) ** 2) / jnp.sum(mask)

    n_components = projection.shape[1]
    skew = projection.T @ projection - jnp.eye(n_components, dtype=projection.dtype)
    rho = targets.orthogonality
    return (2.0 - rho) * misfit + rho * jnp.sum(skew**2) / (2.0 * n_components**2)


def principal_directions(centered: Floats, n_components: int) -> Floats:
    """Return the first principal directions as columns, each with its largest entry positive."""
    u, _, directions = np.linalg.svd(centered, full_matrices=False)
    # The SVD leaves the signs open; LAPACK's choice may differ between machines.
    _, directions = svd_flip(u, directions, u_based_decision=False)
    return directions[:n_components].T


@numerics()
def run(problem: Problem, seed: int) -> Clustering:
    """Cluster by SDC; the constants are its authors', others for images."""
    rng = np.random.RandomState(seed)
    pseudo_labels, _ = k_means(problem.Y, 6 * problem.n_clusters // 5, rng)  # ⌊1.2 M⌋
    centered = problem.Y - problem.Y.mean(axis=0)
    start = principal_directions(centered, problem.n_components)
    # σ is the mean pairwise distance of the first projection. In units of it, data of any scale
    # give the same loss.
    sigma = float(pdist(centered @ start).mean()) or 1.0
    points = centered / sigma
    same, other, rho = (0.5, 0.3, 1e-5) if problem.images else (0.8, 0.2, 1.0)
    projection = minimize(
        similarity_loss,
        jnp.asarray(start),
        (jnp.asarray(points), jnp.asarray(pseudo_labels)),
        minibatches(points.shape[0], BATCH_SIZE, N_EPOCHS, rng),
        Targets(same, other, rho, 1.0),
    ).parameters
    embedding = centered @ np.asarray(projection)
    labels, _ = k_means(embedding, problem.n_clusters, rng)
    return Clustering(labels, embedding)
