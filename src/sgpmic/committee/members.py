"""The members of the committee: different clusterings of the same rows.

No clustering is good at everything: k-means, Ward's method and Gaussian mixtures find round and
elongated clusters, spectral clustering, Genie and modes of the density find strands and rings.

Nothing depends on a seed: k-means starts from Ward's clusters, mixtures from those of k-means, and
what has random starts always draws the same.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csgraph
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans
from sklearn.manifold import spectral_embedding
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import kneighbors_graph

from sgpmic._types import Floats, Ints
from sgpmic.committee import genie
from sgpmic.committee.geometry import N_NEIGHBORS, Geometry
from sgpmic.committee.modes import cluster_by_modes
from sgpmic.learning.progress import announce

#: Covariances of the mixtures.
COVARIANCE_TYPES = ("full", "tied", "diag")
#: Added to the variances of mixtures.
_VARIANCE_FLOOR = 1e-4
#: Random starts of a mixture, and the EM iterations of each before the best goes on.
_STARTS, _SHORT_RUN = 10, 10
_PARAMETERS = ("weights", "means", "precisions")
#: Mixtures with random starts see all features, up to this many; principal components otherwise.
_MOST_FEATURES = 30
#: Fewer features have no room for different subspaces.
_FEWEST_FEATURES = 8
#: The ridge of the regression of rows on rows, relative to the mean squared singular value.
_RIDGE = 0.1

#: Members run side by side where there are so many rows.
_ROWS_FOR_THREADS = 1000

_FAILURES = (ValueError, np.linalg.LinAlgError, FloatingPointError)


def _ward(geometry: Geometry, k: int) -> Ints:
    n = len(geometry)
    pairs = geometry.ward_merges[: n - k]
    merged = np.arange(n, 2 * n - k)
    edges = np.ones(2 * len(pairs)), (pairs.ravel(), np.repeat(merged, 2))
    graph = coo_matrix(edges, (2 * n, 2 * n))
    parts = csgraph.connected_components(graph, directed=False)[1][:n]
    return np.unique(parts, return_inverse=True)[1]


def _k_means(geometry: Geometry, k: int) -> Ints:
    Y = geometry.Y
    centers = _centers(Y, geometry.once(_ward, k), k)
    return np.asarray(KMeans(k, init=centers, n_init=1).fit_predict(Y))


def _fitted_mixture(geometry: Geometry, k: int, covariance_type: str) -> GaussianMixture:
    return fit_mixture(geometry.components, geometry.once(_k_means, k), covariance_type)


def _mixture(geometry: Geometry, k: int, covariance_type: str) -> Ints:
    mixture = geometry.once(_fitted_mixture, k, covariance_type)
    return np.asarray(mixture.predict(geometry.components))


def mixture_bic(geometry: Geometry, k: int, covariance_type: str) -> float:
    """Return the BIC per row of the mixture that votes; infinite where it cannot be fitted."""
    try:
        mixture = geometry.once(_fitted_mixture, k, covariance_type)
    except _FAILURES:
        return float("inf")
    return float(mixture.bic(geometry.components)) / len(geometry)


def _mixture_from_random_starts(geometry: Geometry, k: int, covariance_type: str) -> Ints:
    # The best of several short runs of EM goes on.
    Y = (
        geometry.Y
        if geometry.features.shape[1] <= _MOST_FEATURES
        else geometry.components[:, :_MOST_FEATURES]
    )
    new = partial(
        GaussianMixture,
        k,
        covariance_type=covariance_type,
        reg_covar=_VARIANCE_FLOOR,
        random_state=0,
    )
    short = new(n_init=_STARTS, max_iter=_SHORT_RUN, tol=1e-2, init_params="k-means++").fit(Y)
    start = {f"{name}_init": getattr(short, f"{name}_") for name in _PARAMETERS}
    return np.asarray(new(**start).fit(Y).predict(Y))


def _spectral_embedding(geometry: Geometry, n_neighbors: int) -> Floats:
    graph = kneighbors_graph(geometry.Y, min(n_neighbors, len(geometry)), include_self=True)
    return laplacian_eigenvectors(0.5 * (graph + graph.T), geometry.most_clusters)


def _subspace_embedding(geometry: Geometry) -> Floats:
    """Return the spectral embedding of rows that represent each other.

    Least squares regression of every row on all rows (Lu et al., ECCV 2012), its largest
    coefficients as a graph: rows of one linear subspace represent each other.
    """
    Y = geometry.Y
    if geometry.features.shape[1] < _FEWEST_FEATURES:
        raise ValueError(f"subspaces are looked for in at least {_FEWEST_FEATURES} features")
    left, singular, _ = np.linalg.svd(Y, full_matrices=False)
    squares = singular**2
    shrunk = left * np.sqrt(squares / (squares + _RIDGE * squares.mean()))
    coefficients = np.abs(shrunk @ shrunk.T)
    np.fill_diagonal(coefficients, 0.0)
    kept = min(N_NEIGHBORS, len(Y) - 1)
    columns = np.argpartition(-coefficients, kept - 1, axis=1)[:, :kept]
    values = np.take_along_axis(coefficients, columns, axis=1)
    rows = np.repeat(np.arange(len(Y)), kept)
    graph = coo_matrix((values.ravel(), (rows, columns.ravel())), (len(Y), len(Y)))
    # Not a graph of near rows: factorizing it, as ARPACK does, would fill it in.
    embedding: Floats = spectral_embedding(
        0.5 * (graph + graph.T).tocsr(),
        n_components=geometry.most_clusters,
        eigen_solver="lobpcg",
        random_state=0,
        drop_first=False,
    )
    return embedding


def laplacian_eigenvectors(graph: Any, number: int) -> Floats:
    """Return the leading ones, as scikit-learn's ``spectral_embedding`` does, but for signs.

    From SciPy 1.17 on, ARPACK restarts in a graph of several components from a vector drawn with
    the operating system's entropy, unless it is given a generator; scikit-learn gives it none.
    """
    laplacian, degrees = csgraph.laplacian(graph, normed=True, return_diag=True)
    start = np.random.RandomState(0).uniform(-1, 1, len(degrees))
    seeded = {"rng": 0} if "rng" in signature(eigsh).parameters else {}
    _, vectors = eigsh(laplacian.tocsc(), number, sigma=-1e-5, v0=start, tol=0, **seeded)
    embedding: Floats = vectors / degrees[:, None]
    return embedding


def _spectral(geometry: Geometry, k: int, n_neighbors: int) -> Ints:
    leading = geometry.once(_spectral_embedding, n_neighbors)[:, :k]
    return np.asarray(KMeans(k, n_init=10, random_state=0).fit_predict(leading))


def _subspaces(geometry: Geometry, k: int) -> Ints:
    leading = geometry.once(_subspace_embedding)[:, :k]
    return np.asarray(KMeans(k, n_init=10, random_state=0).fit_predict(leading))


def _modes(geometry: Geometry, k: int) -> Ints:
    return cluster_by_modes(geometry.Y, geometry.neighbor_distances, geometry.neighbors, k)


def _genie(geometry: Geometry, k: int, gini_limit: float, reachability: bool = False) -> Ints:
    tree = geometry.reachability_tree if reachability else geometry.tree
    return genie.cut(tree, geometry.once(_genie_order, gini_limit, reachability), k)


def _genie_order(geometry: Geometry, gini_limit: float, reachability: bool) -> Ints:
    tree = geometry.reachability_tree if reachability else geometry.tree
    return genie.merge_order(tree, gini_limit)


#: The members by the names that users see: functions of the rows and the number of clusters.
MEMBERS: dict[str, Callable[[Geometry, int], Ints]] = {
    "k-means": lambda geometry, k: geometry.once(_k_means, k),
    "Ward": lambda geometry, k: geometry.once(_ward, k),
    "Gaussian mixture, full": partial(_mixture, covariance_type="full"),
    "Gaussian mixture, tied": partial(_mixture, covariance_type="tied"),
    "Gaussian mixture, diagonal": partial(_mixture, covariance_type="diag"),
    "Gaussian mixture, full, random starts": partial(
        _mixture_from_random_starts, covariance_type="full"
    ),
    "Gaussian mixture, diagonal, random starts": partial(
        _mixture_from_random_starts, covariance_type="diag"
    ),
    "spectral, 10 neighbors": partial(_spectral, n_neighbors=10),
    "spectral, 20 neighbors": partial(_spectral, n_neighbors=20),
    "subspaces": _subspaces,
    "modes of the density": _modes,
    "Genie, 0.3": partial(_genie, gini_limit=0.3),
    "Genie, 0.5": partial(_genie, gini_limit=0.5),
    "Genie, 0.3, mutual reachability": partial(_genie, gini_limit=0.3, reachability=True),
}


class Partitions(NamedTuple):
    """What the members made of the rows."""

    labels: dict[str, Ints]  # by the member's name
    failures: dict[str, str]  # why a member has none


def cluster_all(geometry: Geometry, n_clusters: int, names: Iterable[str] = MEMBERS) -> Partitions:
    """Let members cluster the rows, side by side where there are many."""
    names = list(names)

    def cluster(name: str) -> Ints | str:
        try:
            return np.asarray(MEMBERS[name](geometry, n_clusters), np.int64)
        except _FAILURES as error:
            return str(error)

    # Of few rows, members wait for Python more than they compute.
    n_threads = (os.cpu_count() or 1) if len(geometry) >= _ROWS_FOR_THREADS else 1
    with warnings.catch_warnings(), ThreadPoolExecutor(n_threads) as threads:
        warnings.simplefilter("ignore")  # of EM that did not converge: the judge sees it
        if n_threads > 1:
            cluster("k-means")  # and Ward: what several of the others start from
            _ = geometry.components, geometry.tree, geometry.reachability_tree
        found = Partitions({}, {})
        for name, labels in zip(names, threads.map(cluster, names), strict=True):
            announce(f"committee: {name}")
            if isinstance(labels, str):
                found.failures[name] = labels
            else:
                found.labels[name] = labels
    return found


def _centers(Y: Floats, labels: Ints, k: int) -> Floats:
    return np.stack([Y[labels == cluster].mean(axis=0) for cluster in range(k)])


def fit_mixture(Z: Floats, labels: Ints, covariance_type: str) -> GaussianMixture:
    """Fit a Gaussian mixture that starts from clusters.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, n_dimensions)
    labels : ndarray of shape (n_samples,)
        None of the clusters is empty.
    covariance_type : {'full', 'tied', 'diag'}
    """
    k = int(labels.max()) + 1
    means, indicators = _centers(Z, labels, k), np.eye(k)[labels]
    off_center = Z - means[labels]
    floor = _VARIANCE_FLOOR * np.eye(Z.shape[1])
    precisions: NDArray[np.floating[Any]]
    if covariance_type == "tied":
        precisions = np.linalg.inv(off_center.T @ off_center / len(Z) + floor)
    else:
        sizes = indicators.sum(axis=0)[:, None, None]
        covariances = np.stack(
            [off_center[labels == each].T @ off_center[labels == each] for each in range(k)]
        )
        covariances = covariances / sizes + floor
        precisions = np.linalg.inv(covariances)
        if covariance_type == "diag":
            precisions = 1.0 / np.einsum("mpp->mp", covariances)
    mixture = GaussianMixture(
        k,
        covariance_type=covariance_type,
        reg_covar=_VARIANCE_FLOOR,
        weights_init=indicators.mean(axis=0),
        means_init=means,
        precisions_init=precisions,
        random_state=0,
    )
    return mixture.fit(Z)
