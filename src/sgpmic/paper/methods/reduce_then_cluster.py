"""The second half of six rivals: fuzzy c-means on an embedding."""

from __future__ import annotations

import numpy as np

from sgpmic.learning.memberships import fuzzy_c_means
from sgpmic.paper.methods.base import Clustering, Floats


def cluster_embedding(embedding: Floats, n_clusters: int, rng: np.random.RandomState) -> Clustering:
    """Cluster an embedding by fuzzy c-means; a row goes to the cluster it belongs to most."""
    found = fuzzy_c_means(embedding, n_clusters, random_state=rng)
    return Clustering(found.memberships.argmax(axis=1), embedding)
