"""Probabilistic PCA, then fuzzy c-means."""

from __future__ import annotations

from sklearn.utils import check_random_state

from sgpmic.learning.embeddings import embed
from sgpmic.paper.methods.base import Clustering, Method, Problem
from sgpmic.paper.methods.reduce_then_cluster import cluster_embedding


def run(problem: Problem, seed: int) -> Clustering:
    """Cluster the principal component scores, each scaled to unit variance.

    That is what the paper's numbers come from. The posterior means of probabilistic PCA would
    shrink weak components a little more.

    Parameters
    ----------
    problem : Problem
    seed : int
        Of the starts of fuzzy c-means.

    Returns
    -------
    Clustering
    """
    rng = check_random_state(seed)
    scores = embed(problem.Y, problem.n_components, "ppca", random_state=rng).coordinates
    return cluster_embedding(scores, problem.n_clusters, rng)


METHOD = Method(name="PPCA-FCM", run=run)
