"""ISOMAP, then fuzzy c-means."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from sgpmic.learning.embeddings import embed
from sgpmic.paper.methods.base import Clustering, Method, Problem
from sgpmic.paper.methods.reduce_then_cluster import cluster_embedding


def run(problem: Problem, seed: int) -> Clustering:
    """Cluster the ISOMAP embedding, each dimension scaled to unit variance.

    Twelve neighbours; where their graph falls apart only its largest piece is embedded and the
    other rows are put at 0, as in the paper.

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
    found = embed(
        problem.Y,
        problem.n_components,
        "isomap",
        n_neighbors=12,
        pieces="largest",
        random_state=rng,
    ).coordinates
    found = found - found.mean(axis=0)
    deviations = found.std(axis=0)
    # A dimension without spread stays at 0.
    embedding = np.divide(found, deviations, out=np.zeros_like(found), where=deviations > 0.0)
    return cluster_embedding(embedding, problem.n_clusters, rng)


METHOD = Method(name="ISOMAP-FCM", run=run)
