"""DEC: discriminative embedded clustering (Hou et al., 2014).

The paper's numbers of this method are cut, not rounded, after the second decimal, and its NMI is
that of the labels as they are, not mapped to classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from sgpmic.paper.methods.base import Clustering, Floats, Ints, Method, Problem

#: The weight of the clusters, λ, that gives the paper's numbers.
WEIGHT = 6.0

#: Most alternations; a handful is the rule.
_MOST_ROUNDS = 100


class Learned(NamedTuple):
    """Outcome of :func:`learn`.

    Attributes
    ----------
    W : ndarray of shape (n_features, n_components)
        The projection, WᵀW = I.
    labels : ndarray of shape (n_samples,)
    objectives : list of float
        What is minimised, at the end of every alternation.
    """

    W: Floats
    labels: Ints
    objectives: list[float]


def learn(X: Floats, n_clusters: int, n_components: int, rng: np.random.RandomState) -> Learned:
    """Minimise ‖X − XWWᵀ‖² + λ‖XW − GF‖² over projection W and clusters G, F in turn.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Centred rows (the paper has them as columns).
    n_clusters, n_components : int
    rng : numpy.random.RandomState
        Of the starts of k-means.

    Returns
    -------
    Learned
    """
    total = X.T @ X
    W = _leading(total, n_components)
    labels = _k_means(X @ W, n_clusters, rng)
    W = _projection(X, labels, total, n_components)
    objectives = [_objective(X, W, labels)]
    for _ in range(_MOST_ROUNDS):
        projected = X @ W
        found = _k_means(projected, n_clusters, rng)
        # Started anew, k-means may end in a worse place than where it is: then it is over. Its
        # own term alone tells, for beside the other it can be too small to show.
        if _within(projected, found) >= _within(projected, labels) * (1.0 - 1e-10):
            break
        labels = found
        W = _projection(X, labels, total, n_components)
        objectives.append(_objective(X, W, labels))
    return Learned(W, labels, objectives)


def _k_means(points: Floats, n_clusters: int, rng: np.random.RandomState) -> Ints:
    # With one start, or from the last centres, the paper's cells without deviation (Iris) differ.
    labels: Ints = KMeans(n_clusters, n_init=10, random_state=rng).fit_predict(points)
    return labels.astype(np.int64)


def _deviations(points: Floats, labels: Ints) -> Floats:
    """Return every point less the mean of its cluster."""
    deviations = points.copy()
    for k in np.unique(labels):
        deviations[labels == k] -= points[labels == k].mean(axis=0)
    return deviations


def _within(projected: Floats, labels: Ints) -> float:
    """Return ‖XW − GF‖² for the best F, the means of the clusters."""
    return float(np.sum(_deviations(projected, labels) ** 2))


def _objective(X: Floats, W: Floats, labels: Ints) -> float:
    projected = X @ W
    lost = float(np.sum((X - projected @ W.T) ** 2))
    return lost + WEIGHT * _within(projected, labels)


def _projection(X: Floats, labels: Ints, total: Floats, n_components: int) -> Floats:
    """Return the leading eigenvectors of S_t − λS_w.

    ‖X − XWWᵀ‖² = tr S_t − tr WᵀS_tW for WᵀW = I, and the best F has the means of the clusters, so
    the objective is tr S_t − tr Wᵀ(S_t − λS_w)W.
    """
    within = _deviations(X, labels)
    return _leading(total - WEIGHT * within.T @ within, n_components)


def _leading(matrix: Floats, n_components: int) -> Floats:
    size = len(matrix)
    _, vectors = eigh(matrix, subset_by_index=[size - n_components, size - 1])
    leading_first: Floats = vectors[:, ::-1]
    return leading_first


def run(problem: Problem, seed: int) -> Clustering:
    """Cluster with a projection that is good for reconstruction and for k-means.

    Parameters
    ----------
    problem : Problem
    seed : int
        Of the starts of k-means.

    Returns
    -------
    Clustering
    """
    X = problem.Y - problem.Y.mean(axis=0)
    found = learn(X, problem.n_clusters, problem.n_components, check_random_state(seed))
    return Clustering(found.labels, X @ found.W)


# The paper has no numbers for one latent dimension.
METHOD = Method(name="DEC", run=run, least_components=2)
