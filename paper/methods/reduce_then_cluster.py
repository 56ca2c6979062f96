"""PCA-FCM, PPCA-FCM and ISOMAP-FCM: a classical embedding, then fuzzy c-means."""

from __future__ import annotations

import numpy as np

from paper.methods.base import Clustering, Problem, cluster_embedding
from sgpmic.learning.initialization import embed


def run_linear(kind: str, problem: Problem, seed: int) -> Clustering:
    """Cluster the principal component scores of the raw data.

    With the kind 'ppca' each is scaled to unit variance: that is what the paper's numbers come
    from. The posterior means of probabilistic PCA would shrink weak components a little more.
    """
    rng = np.random.RandomState(seed)
    scores, _ = embed(problem.Y, problem.n_components, "pca", random_state=rng)
    if kind == "ppca":
        scores = scores / scores.std(axis=0)
    return cluster_embedding(scores, problem.n_clusters, rng)


def run_isomap(problem: Problem, seed: int) -> Clustering:
    """Cluster the ISOMAP embedding, each dimension scaled to unit variance.

    Twelve neighbors; if their graph is disconnected, only its largest component is embedded and the
    other rows are put at 0, as in the paper.
    """
    rng = np.random.RandomState(seed)
    found, _ = embed(
        problem.Y,
        problem.n_components,
        "isomap",
        n_neighbors=12,
        pieces="largest",
        random_state=rng,
    )
    found = found - found.mean(axis=0)
    deviations = found.std(axis=0)
    # A constant dimension stays at 0.
    embedding = np.divide(found, deviations, out=np.zeros_like(found), where=deviations > 0.0)
    return cluster_embedding(embedding, problem.n_clusters, rng)
