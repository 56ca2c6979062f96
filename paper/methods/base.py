"""Interface of the methods in the comparison, and clusterings that several of them share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from sgpmic._types import Floats, Ints
from sgpmic.learning.initialization import fuzzy_c_means

#: The tuning grid of AML and UNCA.
PENALTIES = tuple({"penalty": 10.0**power} for power in range(-3, 4))


@dataclass(frozen=True)
class Problem:
    """One row of the table as given to a method, without the classes."""

    Y: Floats  # (n_samples, n_features), raw
    n_clusters: int  # M
    n_components: int  # Q
    n_inducing: int = 50  # N′, of the methods with mappings
    images: bool = False  # whether the rows are; SDC has other constants for them


class Clustering(NamedTuple):
    """What a method found."""

    labels: Ints
    embedding: Floats  # (n_samples, n_components)
    bound: float | None = None  # of the methods that have one


@dataclass(frozen=True)
class Method:
    """A column of the table."""

    run: Callable[..., Clustering]  # run(problem, seed, **setting)
    #: The tuning grid; the table shows the setting with the best mean accuracy of the row, as the
    #: paper did. One empty setting where there is nothing to tune.
    settings: tuple[Mapping[str, float], ...] = ({},)
    all_features: bool = False  # whether the paper's numbers come from all 13 features of Wine
    least_components: int = 1  # not defined for fewer latent dimensions


def cluster_embedding(embedding: Floats, n_clusters: int, rng: np.random.RandomState) -> Clustering:
    """Cluster an embedding by fuzzy c-means; labels are those of the highest membership."""
    return Clustering(fuzzy_c_means(embedding, n_clusters, rng).argmax(axis=1), embedding)


def k_means(
    points: Floats, n_clusters: int, rng: np.random.RandomState, n_init: int = 20
) -> tuple[Ints, Floats]:
    """Return labels and centers of the best of several runs of k-means.

    If there are fewer distinct points than clusters, the last centers repeat the first one and
    their clusters are empty.
    """
    n_found = min(n_clusters, np.unique(points, axis=0).shape[0])
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        found = KMeans(n_found, n_init=n_init, random_state=rng).fit(points)
    centers = found.cluster_centers_
    repeated = np.repeat(centers[:1], n_clusters - n_found, axis=0)
    return found.labels_.astype(np.int64), np.concatenate([centers, repeated])
