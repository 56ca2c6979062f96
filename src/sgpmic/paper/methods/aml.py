"""AML: adaptive metric learning (Ye, Zhao & Liu, 2007)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from sgpmic.paper.methods.base import Clustering, Floats, Ints, Method, Problem

#: Most alternations; a handful is the rule.
_MOST_ROUNDS = 100


class Learned(NamedTuple):
    """Outcome of :func:`learn`.

    Attributes
    ----------
    W : ndarray of shape (n_features, n_components)
        The projection, Wᵀ(S_t + λI)W = I.
    labels : ndarray of shape (n_samples,)
    objectives : list of float
        What is maximised, at the end of every alternation.
    """

    W: Floats
    labels: Ints
    objectives: list[float]


def learn(
    X: Floats, n_clusters: int, n_components: int, penalty: float, rng: np.random.RandomState
) -> Learned:
    """Maximise tr[(Wᵀ(S_t + λI)W)⁻¹ WᵀXᵀLLᵀXW] over projection W and clusters L in turn.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Centred rows (the paper has them as columns).
    n_clusters, n_components : int
    penalty : float
        λ, above 0.
    rng : numpy.random.RandomState
        Of the starts of k-means.

    Returns
    -------
    Learned
    """
    metric = X.T @ X + penalty * np.eye(X.shape[1])
    labels = _k_means(X, n_clusters, rng)
    W = _projection(X, labels, metric, n_components)
    objectives = [_between(X @ W, labels)]
    for _ in range(_MOST_ROUNDS):
        # For Wᵀ(S_t + λI)W = I the objective is the scatter between clusters of XW, and k-means
        # is its maximisation over the clusters. Started anew it may end lower: then it is over.
        found = _k_means(X @ W, n_clusters, rng)
        if _between(X @ W, found) <= objectives[-1] * (1.0 + 1e-10):
            break
        labels = found
        W = _projection(X, labels, metric, n_components)
        objectives.append(_between(X @ W, labels))
    return Learned(W, labels, objectives)


def _k_means(points: Floats, n_clusters: int, rng: np.random.RandomState) -> Ints:
    labels: Ints = KMeans(n_clusters, n_init=10, random_state=rng).fit_predict(points)
    return labels.astype(np.int64)


def _scaled_means(points: Floats, labels: Ints) -> Floats:
    """Return LᵀX, a row a cluster: its mean times the root of its size."""
    members = [points[labels == k] for k in np.unique(labels)]
    return np.array([rows.sum(axis=0) / np.sqrt(len(rows)) for rows in members])


def _between(points: Floats, labels: Ints) -> float:
    """Return tr XᵀLLᵀX, the scatter between clusters of centred points."""
    return float(np.sum(_scaled_means(points, labels) ** 2))


def _projection(X: Floats, labels: Ints, metric: Floats, n_components: int) -> Floats:
    """Return the leading generalised eigenvectors of (XᵀLLᵀX, S_t + λI).

    XᵀLLᵀX has rank M − 1: of further dimensions, all with eigenvalue 0, none is better than
    another, and which ones come back is up to the linear algebra library.
    """
    means = _scaled_means(X, labels)
    n_features = len(metric)
    # eigh's vectors already satisfy Wᵀ(S_t + λI)W = I; its eigenvalues increase.
    _, W = eigh(
        means.T @ means, metric, subset_by_index=[n_features - n_components, n_features - 1]
    )
    leading_first: Floats = W[:, ::-1]
    return leading_first


def run(problem: Problem, seed: int, penalty: float = 1.0) -> Clustering:
    """Cluster with a projection learned together with the clusters.

    Parameters
    ----------
    problem : Problem
    seed : int
        Of the starts of k-means.
    penalty : float, default=1.0
        λ.

    Returns
    -------
    Clustering
    """
    X = problem.Y - problem.Y.mean(axis=0)
    rng = check_random_state(seed)
    found = learn(X, problem.n_clusters, problem.n_components, penalty, rng)
    return Clustering(found.labels, X @ found.W)


METHOD = Method(
    name="AML",
    run=run,
    settings=tuple({"penalty": 10.0**power} for power in range(-3, 4)),
)
