"""UNCA: neighborhood components without classes (after Qin 2015).

A linear map A is learned so that the stochastic neighbors of a row lie in its own cluster, the
clusters by k-means on the mapped rows. Reconstructed from the objective; its authors' details
(start, step, number of alternations) are not known.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from paper.methods.base import Clustering, Problem, k_means
from paper.methods.training import batch_steps, minimize, one_unit
from sgpmic._runtime import numerics

N_ROUNDS = 10
# A step costs batch × N distances, not N²; 300 of them take half a second for 2310 rows.
STEPS_PER_ROUND = 30
BATCH_SIZE = 64
LEARNING_RATE = 1e-2


class Rows(NamedTuple):
    """Some or all rows of the data."""

    points: jax.Array  # (n, n_features)
    indices: jax.Array  # their places in the data
    labels: jax.Array  # their clusters, the one-hot H


def negative_objective(A: jax.Array, batch: Rows, extra: tuple[Rows, jax.Array]) -> jax.Array:
    """Return −(tr(HᵀPH) − λ‖A‖²)/N, with the mean of P's rows in the batch for that of all.

    p_ij is the softmax over j ≠ i of −|Ax_i − Ax_j|². A comes transposed, (n_features,
    n_components): rows of the data are multiplied from the left. ``extra`` is all rows, and λ.
    """
    everything, penalty = extra
    ours, theirs = batch.points @ A, everything.points @ A
    # |a − b|² = |a|² + |b|² − 2ab: a matrix product is many times faster than all differences. The
    # rows are centered, so little cancels.
    squared = jnp.sum(ours**2, axis=1)[:, None] + jnp.sum(theirs**2, axis=1) - 2.0 * ours @ theirs.T
    itself = batch.indices[:, None] == everything.indices
    # A finite stand-in for −∞: with one row only, the softmax would otherwise be 0/0.
    chances = jax.nn.softmax(jnp.where(itself, -1e30, -squared), axis=1)
    together = batch.labels[:, None] == everything.labels
    agreement = jnp.mean(jnp.sum(jnp.where(together, chances, 0.0), axis=1))
    return penalty * jnp.sum(A**2) / everything.points.shape[0] - agreement


@numerics()
def run(problem: Problem, seed: int, penalty: float = 1.0) -> Clustering:
    """Cluster by UNCA with the weight λ = ``penalty`` of ‖A‖²."""
    rng = np.random.RandomState(seed)
    points = one_unit(problem.Y)
    n_rows, n_features = points.shape
    # Random, as the paper has standard deviations of several percent. A start from principal
    # components, raw data or H with columns of unit length come out no nearer.
    start = rng.standard_normal((n_features, problem.n_components)) / np.sqrt(n_features)
    A, state = jnp.asarray(start, jnp.float32), None
    rows = Rows(
        jnp.asarray(points),
        jnp.arange(n_rows, dtype=jnp.int32),
        jnp.zeros(n_rows, jnp.int32),
    )
    for _ in range(N_ROUNDS):
        labels, _ = k_means(points @ np.asarray(A), problem.n_clusters, rng, n_init=3)
        rows = rows._replace(labels=jnp.asarray(labels, jnp.int32))
        A, state, _ = minimize(
            negative_objective,
            A,
            rows,
            batch_steps(n_rows, BATCH_SIZE, STEPS_PER_ROUND, rng),
            (rows, jnp.asarray(penalty, jnp.float32)),
            state=state,
            learning_rate=LEARNING_RATE,
        )
    embedding = points.astype(np.float64) @ np.asarray(A, np.float64)
    labels, _ = k_means(embedding, problem.n_clusters, rng)
    return Clustering(labels, embedding)
