"""AML and DEC: a linear projection and clusters, learned alternately.

AML is adaptive metric learning (Ye, Zhao & Liu, 2007), DEC discriminative embedded clustering (Hou
et al., 2014). The paper's numbers for DEC are truncated, not rounded, to two decimals, and its NMI
is that of the raw labels, not mapped to classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from paper.methods.base import Clustering, Problem, k_means
from sgpmic._types import Floats, Ints

#: The weight of the clusters in DEC, λ, that gives the paper's numbers.
DEC_WEIGHT = 6.0

#: Maximum number of alternations; a handful usually suffices.
MAX_ROUNDS = 100

# With one start, or from the last centers, the cells of DEC without deviation (Iris) differ.
_N_STARTS = 10


class Learned(NamedTuple):
    """A projection W, of shape (n_features, n_components), and the clusters learned with it."""

    W: Floats
    labels: Ints


def learn_aml(
    X: Floats, n_clusters: int, n_components: int, penalty: float, rng: np.random.RandomState
) -> Learned:
    """Maximize tr[(Wᵀ(S_t + λI)W)⁻¹ WᵀXᵀLLᵀXW] over projection W and clusters L in turn.

    The rows of X are centered (the paper has them as columns), λ is ``penalty``, and W comes back
    with Wᵀ(S_t + λI)W = I.
    """
    metric = X.T @ X + penalty * np.eye(X.shape[1])

    # XᵀLLᵀX has rank M − 1: of further dimensions, all with eigenvalue 0, none is better than
    # another, and which ones come back is up to the linear algebra library.
    def project(labels: Ints) -> Floats:
        means = _scaled_means(X, labels)
        return _leading(means.T @ means, n_components, metric)

    # For Wᵀ(S_t + λI)W = I the objective is the scatter between clusters of XW, tr WᵀXᵀLLᵀXW, and
    # k-means is its maximization over the clusters.
    def between(points: Floats, labels: Ints) -> float:
        return float(np.sum(_scaled_means(points, labels) ** 2))

    labels, _ = k_means(X, n_clusters, rng, _N_STARTS)
    return _alternate(X, labels, n_clusters, project, between, rng)


def learn_dec(X: Floats, n_clusters: int, n_components: int, rng: np.random.RandomState) -> Learned:
    """Minimize ‖X − XWWᵀ‖² + λ‖XW − GF‖² over projection W, WᵀW = I, and clusters G, F in turn."""
    total = X.T @ X

    # ‖X − XWWᵀ‖² = tr S_t − tr WᵀS_tW for WᵀW = I, and the best F has the means of the clusters,
    # so the objective is tr S_t − tr Wᵀ(S_t − λS_w)W.
    def project(labels: Ints) -> Floats:
        within = _deviations(X, labels)
        return _leading(total - DEC_WEIGHT * within.T @ within, n_components)

    # Only the term of the clusters is compared: beside the other, its changes can be too small
    # to show.
    def tightness(points: Floats, labels: Ints) -> float:
        return -float(np.sum(_deviations(points, labels) ** 2))

    labels, _ = k_means(X @ _leading(total, n_components), n_clusters, rng, _N_STARTS)
    return _alternate(X, labels, n_clusters, project, tightness, rng)


def _alternate(
    X: Floats,
    labels: Ints,
    n_clusters: int,
    project: Callable[[Ints], Floats],
    quality: Callable[[Floats, Ints], float],
    rng: np.random.RandomState,
) -> Learned:
    """Alternate projection and clustering until the clusters no longer improve. k-means restarts
    every time, so it may find a worse optimum: then the old clusters are kept.
    """
    W = project(labels)
    for _ in range(MAX_ROUNDS):
        projected = X @ W
        found, _ = k_means(projected, n_clusters, rng, _N_STARTS)
        now = quality(projected, labels)
        if quality(projected, found) <= now + 1e-10 * abs(now):
            break
        labels = found
        W = project(labels)
    return Learned(W, labels)


def _scaled_means(points: Floats, labels: Ints) -> Floats:
    """Return LᵀX: the mean of each cluster times the square root of its size."""
    members = [points[labels == k] for k in np.unique(labels)]
    return np.array([rows.sum(axis=0) / np.sqrt(len(rows)) for rows in members])


def _deviations(points: Floats, labels: Ints) -> Floats:
    """Return every point minus the mean of its cluster."""
    deviations = points.copy()
    for k in np.unique(labels):
        deviations[labels == k] -= points[labels == k].mean(axis=0)
    return deviations


def _leading(matrix: Floats, n_components: int, metric: Floats | None = None) -> Floats:
    """Return the leading eigenvectors as columns W, with Wᵀ ``metric`` W = I."""
    size = len(matrix)
    _, vectors = eigh(matrix, metric, subset_by_index=[size - n_components, size - 1])
    return vectors[:, ::-1]  # eigenvalues increase


def run_aml(problem: Problem, seed: int, penalty: float = 1.0) -> Clustering:
    """Cluster with a metric learned together with the clusters; ``penalty`` is λ."""
    X = problem.Y - problem.Y.mean(axis=0)
    rng = np.random.RandomState(seed)
    found = learn_aml(X, problem.n_clusters, problem.n_components, penalty, rng)
    return Clustering(found.labels, X @ found.W)


def run_dec(problem: Problem, seed: int) -> Clustering:
    """Cluster with a projection that is good for reconstruction and for k-means."""
    X = problem.Y - problem.Y.mean(axis=0)
    rng = np.random.RandomState(seed)
    found = learn_dec(X, problem.n_clusters, problem.n_components, rng)
    return Clustering(found.labels, X @ found.W)
