"""What every method of the comparison takes and gives, and the clusterings that several share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from sgpmic.learning.memberships import fuzzy_c_means

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The tuning grid of AML and UNCA.
PENALTIES = tuple({"penalty": 10.0**power} for power in range(-3, 4))


@dataclass(frozen=True)
class Problem:
    """One row of the table, as a method sees it: never the classes.

    Attributes
    ----------
    Y : ndarray of shape (n_samples, n_features)
        The raw data.
    n_clusters : int
        Number of clusters, M.
    n_components : int
        Number of latent dimensions, Q.
    n_inducing : int
        Inducing points of the Gaussian-process methods, N′.
    images : bool
        Whether the rows are images; SDC has other constants for them.
    """

    Y: Floats
    n_clusters: int
    n_components: int
    n_inducing: int = 50
    images: bool = False


class Clustering(NamedTuple):
    """What a method found.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
    embedding : ndarray of shape (n_samples, n_components)
    bound : float or None
        The lower bound, of the methods that have one.
    """

    labels: Ints
    embedding: Floats
    bound: float | None = None


@dataclass(frozen=True)
class Method:
    """A column of the table.

    Attributes
    ----------
    run : callable
        ``run(problem, seed, **setting)`` returns a :class:`Clustering`.
    settings : tuple of mappings
        The tuning grid; the table shows the setting with the best mean accuracy of the row, as
        the paper did. One empty setting where there is nothing to tune.
    all_features : bool
        Whether the paper's numbers of this method come from all 13 features of Wine.
    least_components : int
        The method is not defined for fewer latent dimensions.
    """

    run: Callable[..., Clustering]
    settings: tuple[Mapping[str, float], ...] = ({},)
    all_features: bool = False
    least_components: int = 1


def cluster_embedding(embedding: Floats, n_clusters: int, rng: np.random.RandomState) -> Clustering:
    """Cluster an embedding by fuzzy c-means; a row goes to the cluster it belongs to most."""
    found = fuzzy_c_means(embedding, n_clusters, random_state=rng)
    return Clustering(found.memberships.argmax(axis=1), embedding)


def k_means(
    points: Floats, n_clusters: int, rng: np.random.RandomState, n_init: int = 20
) -> tuple[Ints, Floats]:
    """Return labels and centres of the best of several runs of k-means.

    If there are fewer distinct points than clusters, the last centres repeat the first one and
    have no rows.
    """
    n_found = min(n_clusters, np.unique(points, axis=0).shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(n_found, n_init=n_init, random_state=rng).fit(points)
    centres = found.cluster_centers_
    repeated = np.repeat(centres[:1], n_clusters - n_found, axis=0)
    return found.labels_.astype(np.int64), np.concatenate([centres, repeated])
