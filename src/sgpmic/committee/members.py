"""The members of the committee: different clustering algorithms for the same rows.

No algorithm suits all data. Results do not depend on a seed: k-means is initialized with Ward's
clusters, mixtures with those of k-means, and random initializations use a fixed seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from joblib import cpu_count  # the CPUs available to this process
from scipy.sparse import coo_matrix, csgraph, eye_array
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from scipy.spatial import KDTree
from scipy.special import logsumexp
from sklearn.cluster import KMeans
from sklearn.manifold import spectral_embedding
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import kneighbors_graph

from sgpmic._runtime import announce
from sgpmic._types import Floats, Ints
from sgpmic.committee.geometry import N_BINS, N_NEIGHBORS, Geometry

#: Added to the variances of mixtures; the upper limit of their BIC per row.
_VARIANCE_FLOOR, _MOST_BIC = 1e-4, 1e3
#: Random initializations of a mixture, by covariance type; EM iterations of each before the best is
#: continued, and the maximum number of rows for these.
_STARTS, _SHORT_RUN, _SHORT_ROWS = {"full": 5, "diag": 10}, 10, 1000
_PARAMETERS = ("weights", "means", "precisions")
#: Mixtures with random starts use all features up to this many, otherwise principal components.
_MOST_FEATURES = 30
#: Minimum number of features: with fewer there is no room for different subspaces.
_FEWEST_FEATURES = 8
#: The ridge of the regression of rows on rows, relative to the mean squared singular value.
_RIDGE = 0.1

#: Pseudocount of every bin in latent class analysis, and of every class.
_PSEUDOCOUNT = 0.5
#: EM iterations of latent classes at most, and the gain in log-likelihood per row that ends them.
_MOST_ITERATIONS, _TOLERANCE = 50, 1e-4
#: Certainty of the initial classes.
_CERTAINTY = 0.9
#: Maximum sum of the feature weights of sparse k-means, relative to that of equal weights; maximum
#: number of features with weights, and of updates of the weights; bisections for their threshold.
_L1_BOUND, _MOST_WEIGHTED, _UPDATES, _BISECTIONS = 0.6, 1000, 8, 30

#: Above this intrinsic dimension, the factors of a neighbor graph's Laplacian are nearly dense.
_FILLING_DIMENSION = 4.0

#: Members run in parallel threads from this many rows on.
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
    return _k_means_from(geometry.once(_ward, k), geometry.Y)


def _k_means_from(labels: Ints, Y: Floats) -> Ints:
    start = _centers(Y, labels)
    return np.asarray(KMeans(len(start), init=start, n_init=1).fit_predict(Y))


def _new_mixture(k: int, kind: str, **options: Any) -> GaussianMixture:
    return GaussianMixture(
        k, covariance_type=kind, reg_covar=_VARIANCE_FLOOR, random_state=0, **options
    )


def fit_mixture(geometry: Geometry, k: int, covariance_type: str) -> GaussianMixture:
    """Fit a Gaussian mixture to the leading principal components, initialized by k-means."""
    Z, labels = geometry.components, geometry.once(_k_means, k)
    means = _centers(Z, labels)
    k = len(means)  # may be smaller with duplicate rows
    off_center = Z - means[labels]
    tied = covariance_type == "tied"
    parts = [off_center] if tied else [off_center[labels == each] for each in range(k)]
    covariances = np.stack([part.T @ part / len(part) for part in parts])
    covariances += _VARIANCE_FLOOR * np.eye(Z.shape[1])
    precisions: Any = np.linalg.inv(covariances[0] if tied else covariances)
    if covariance_type == "diag":
        precisions = 1.0 / np.einsum("mpp->mp", covariances)
    start = {"means_init": means, "precisions_init": precisions}
    weights = np.bincount(labels) / len(labels)
    return _new_mixture(k, covariance_type, weights_init=weights, **start).fit(Z)


def _mixture(geometry: Geometry, k: int, covariance_type: str) -> Ints:
    mixture = geometry.once(fit_mixture, k, covariance_type)
    return np.asarray(mixture.predict(geometry.components))


def best_bic(geometry: Geometry, k: int) -> float:
    """Return the lowest BIC per row of the members' Gaussian mixtures; a limit if all fits fail."""
    found = [_MOST_BIC]
    for covariance_type in ("full", "tied", "diag"):
        with suppress(*_FAILURES):
            mixture = geometry.once(fit_mixture, k, covariance_type)
            found.append(float(mixture.bic(geometry.components)) / len(geometry))
    return min(found)


def _best_mixture(geometry: Geometry, k: int, covariance_type: str) -> Ints:
    # Continue the best of several short EM runs on some of the rows.
    Y = geometry.Y
    if geometry.features.shape[1] > _MOST_FEATURES:
        Y = geometry.components[:, :_MOST_FEATURES]
    new = partial(_new_mixture, k, covariance_type)
    options = {"max_iter": _SHORT_RUN, "tol": 1e-2, "init_params": "k-means++"}
    short = new(n_init=_STARTS[covariance_type], **options)
    short.fit(Y[np.random.RandomState(0).permutation(len(Y))[:_SHORT_ROWS]])
    start = {f"{name}_init": getattr(short, f"{name}_") for name in _PARAMETERS}
    return np.asarray(new(**start).fit(Y).predict(Y))


def latent_classes(geometry: Geometry, k: int) -> Ints:
    """Cluster rows by latent class analysis of binned features, which are independent in a class.

    EM starts from the clusters of k-means and of Ward's method; the higher likelihood wins.
    """
    starts = [geometry.once(_k_means, k), geometry.once(_ward, k)]
    found = [_class_em(geometry.bins, labels, k) for labels in starts]
    return max(found, key=lambda each: each[1])[0]


def _class_em(bins: Floats, labels: Ints, k: int) -> tuple[Ints, float]:
    """Return the classes of the rows and the log-likelihood per row."""
    n = len(bins)
    posterior = np.where(np.eye(k, dtype=bool)[labels], _CERTAINTY, 0.0) + (1.0 - _CERTAINTY) / k
    likelihood = -np.inf
    for _ in range(_MOST_ITERATIONS):
        sizes = posterior.sum(axis=0) + _PSEUDOCOUNT
        log_joint = bins @ log_bin_probabilities(bins, posterior) + np.log(sizes / sizes.sum())
        log_marginal = logsumexp(log_joint, axis=1, keepdims=True)
        posterior = np.exp(log_joint - log_marginal)
        before, likelihood = likelihood, float(log_marginal.sum()) / n
        if likelihood - before < _TOLERANCE:
            break
    return posterior.argmax(axis=1), likelihood


def log_bin_probabilities(bins: Floats, posterior: Floats) -> Floats:
    """Return log probabilities (features · N_BINS, k) of bins in classes with these members."""
    counts = (bins.T @ posterior).reshape(-1, N_BINS, posterior.shape[1]) + _PSEUDOCOUNT
    return np.log(counts / counts.sum(axis=1, keepdims=True)).reshape(bins.shape[1], -1)


def sparse_k_means(geometry: Geometry, k: int) -> Ints:
    """Cluster rows by sparse k-means, which weights features and leaves out useless ones.

    Witten and Tibshirani, *A framework for feature selection in clustering*, JASA 105 (2010).
    """
    Y, labels = geometry.features - geometry.features.mean(axis=0), geometry.once(_k_means, k)
    between = _between_clusters(Y, labels)
    Y = Y[:, np.sort(np.argsort(-between, kind="stable")[:_MOST_WEIGHTED])]
    for _ in range(_UPDATES):
        weights = _sparse_weights(_between_clusters(Y, labels))
        found = _k_means_from(labels, Y * np.sqrt(weights))
        before, labels = labels, np.unique(found, return_inverse=True)[1]
        if np.array_equal(labels, before):
            break
    return labels


def _between_clusters(Y: Floats, labels: Ints) -> Floats:
    """Return the between-cluster sums of squares (p,) of centered features."""
    return np.bincount(labels) @ _centers(Y, labels) ** 2


def _sparse_weights(between: Floats) -> Floats:
    """Return the weights of norm 1 and bounded sum that maximize ``between @ weights``."""
    bound = max(_L1_BOUND * np.sqrt(len(between)), 1.0)

    def weights(threshold: float) -> Floats:  # soft-thresholded
        above = np.maximum(between - threshold, 0.0)
        return above / max(float(np.linalg.norm(above)), np.finfo(float).tiny)

    if weights(0.0).sum() <= bound:
        return weights(0.0)
    low, high = 0.0, float(between.max())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if weights(middle).sum() > bound else (low, middle)
    return weights(low)


def _graph_embedding(geometry: Geometry, n_neighbors: int) -> Floats:
    graph = kneighbors_graph(geometry.Y, min(n_neighbors, len(geometry)), include_self=True)
    high = geometry.intrinsic_dimension > _FILLING_DIMENSION
    return laplacian_eigenvectors(
        0.5 * (graph + graph.T), geometry.most_clusters, factorize=not high
    )


def _subspace_embedding(geometry: Geometry) -> Floats:
    """Return the spectral embedding for subspace clustering by least squares regression.

    Every row is regressed on all rows (Lu et al., ECCV 2012), and the largest coefficients form
    the graph: rows of the same linear subspace represent each other.
    """
    Y = geometry.Y
    if geometry.features.shape[1] < _FEWEST_FEATURES:
        raise ValueError(f"it needs at least {_FEWEST_FEATURES} features")
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
    graph, number = 0.5 * (graph + graph.T).tocsr(), geometry.most_clusters
    # Never factorized: this is no nearest-neighbor graph, and there would be fill-in.
    if csgraph.connected_components(graph, directed=False)[0] == 1:
        return laplacian_eigenvectors(graph, number, factorize=False)
    return spectral_embedding(
        graph, n_components=number, eigen_solver="lobpcg", random_state=0, drop_first=False
    )


def laplacian_eigenvectors(graph: Any, number: int, *, factorize: bool = True) -> Floats:
    """Return the same eigenvectors as scikit-learn's ``spectral_embedding``, up to signs.

    Since SciPy 1.17, ARPACK restarts on a disconnected graph from a vector seeded by the operating
    system unless it is passed a generator; scikit-learn passes none. Without ``factorize``, the
    Laplacian of a connected graph is only multiplied with vectors: the same eigenvectors, unless
    eigenvalues coincide, as they do for several connected components.
    """
    laplacian, degrees = csgraph.laplacian(graph, normed=True, return_diag=True)
    options = {"v0": np.random.RandomState(0).uniform(-1, 1, len(degrees)), "tol": 0}
    if "rng" in signature(eigsh).parameters:
        options["rng"] = 0
    vectors = None
    if not factorize and csgraph.connected_components(graph, directed=False)[0] == 1:
        similarity = eye_array(len(degrees)) - laplacian
        with suppress(ArpackNoConvergence):
            _, vectors = eigsh(similarity, number, which="LA", maxiter=100, **options)
            vectors = vectors[:, ::-1]
    if vectors is None:
        _, vectors = eigsh(laplacian.tocsc(), number, sigma=-1e-5, **options)
    return vectors / degrees[:, None]


def _spectral(geometry: Geometry, k: int, embed: Callable[..., Floats], *options: int) -> Ints:
    leading = geometry.once(embed, *options)[:, :k]
    return np.asarray(KMeans(k, n_init=10, random_state=0).fit_predict(leading))


def _centers(Y: Floats, labels: Ints) -> Floats:
    return np.stack([Y[labels == cluster].mean(axis=0) for cluster in range(labels.max() + 1)])


def genie(geometry: Geometry, k: int, gini_limit: float, tree: str = "tree") -> Ints:
    """Cluster rows by Genie, on one of the minimum spanning trees.

    Clusters merge along the edges of the tree, shortest first, as in single linkage; but while the
    Gini index of the cluster sizes exceeds a limit (1 gives single linkage), only edges of a
    smallest cluster are considered, so outliers join clusters instead of becoming clusters.
    Gagolewski, Bartoszuk and Cena, *Genie: A new, fast, and outlier-resistant hierarchical
    clustering algorithm*, Information Sciences 363 (2016).
    """
    n, (start, end, _) = len(geometry), getattr(geometry, tree)
    merged = geometry.once(_merge_order, gini_limit, tree)[: n - k]
    edges = np.ones(len(merged)), (start[merged], end[merged])
    return csgraph.connected_components(coo_matrix(edges, (n, n)), directed=False)[1]


def _merge_order(geometry: Geometry, gini_limit: float, tree: str) -> Ints:
    n, (starts, ends, _) = len(geometry), getattr(geometry, tree)
    start, end = starts.tolist(), ends.tolist()  # lists: faster for single elements
    root, size, n_of_size = list(range(n)), [1] * n, {1: n}
    edges: list[list[int]] = [[] for _ in range(n)]  # heaps of the edges that leave a cluster
    for edge in range(n - 1):
        edges[start[edge]].append(edge)
        edges[end[edge]].append(edge)
    # Heaps of clusters, with their shortest edges, by size; some of the clusters may be no more.
    of_size = {1: sorted((own[0], row) for row, own in enumerate(edges))}
    differences = 0  # the sum of |size_i - size_j| over pairs of clusters
    done, order, shortest = [False] * n, [], 0  # the last entry is a sentinel

    def cluster(row: int) -> int:
        while root[row] != row:
            root[row] = row = root[root[row]]
        return row

    def distance_to_others(mine: int) -> int:
        return sum(count * abs(mine - size) for size, count in n_of_size.items())

    for step in range(n - 1):
        edge = shortest
        if differences > gini_limit * n * (n - step - 1):  # the Gini index of n - step sizes
            smallest = min(n_of_size)
            waiting = of_size[smallest]
            while root[waiting[0][1]] != waiting[0][1] or size[waiting[0][1]] != smallest:
                heappop(waiting)
            edge = waiting[0][0]
        a, b = cluster(start[edge]), cluster(end[edge])
        for removed in (size[a], size[b]):
            n_of_size[removed] -= 1
            if not n_of_size[removed]:
                del n_of_size[removed]
            differences -= distance_to_others(removed)
        merged = size[a] + size[b]
        differences += distance_to_others(merged)
        n_of_size[merged] = n_of_size.get(merged, 0) + 1
        order.append(edge)
        done[edge] = True
        large, small = (a, b) if len(edges[a]) >= len(edges[b]) else (b, a)
        root[small], size[large], own = large, merged, edges[large]
        for other in edges[small]:
            heappush(own, other)
        while own and done[own[0]]:
            heappop(own)
        if own:
            heappush(of_size.setdefault(merged, []), (own[0], large))
        while done[shortest]:
            shortest += 1
    return np.array(order, np.int64)


def _ends(links: Ints) -> Ints:
    """Return the root of every node, given each node's successor (n,)."""
    while not np.array_equal(links[links], links):
        links = links[links]
    return links


class Modes(NamedTuple):
    """The density modes on a neighbor graph.

    The most prominent modes are the clusters, every other mode is merged into its parent. This is
    ToMATo (Chazal, Guibas, Oudot and Skraba, *Persistence-based clustering in Riemannian
    manifolds*, J. ACM 60, 2013) with a nearest-neighbor density estimate.
    """

    mode: Ints  # (n,) the mode that every row climbs to
    #: (n_modes,) Log density above the saddle to a higher mode; infinite if there is none.
    prominence: Floats
    parent: Ints  # (n_modes,) the higher mode that it meets first, or itself


def find_modes(distances: Floats, neighbors: Ints) -> Modes:
    """Find the density modes of the rows."""
    n = len(neighbors)
    # The log density up to a constant and a factor, which do not change the order of prominences.
    squares = np.mean(distances**2, axis=1)
    height = -np.log(np.maximum(squares, 1e-12 * squares.mean() + np.finfo(float).tiny))
    by_rank = np.argsort(-height, kind="stable")
    rank = np.argsort(by_rank)
    # Undirected edges; an edge is as high as its lower end.
    one = np.repeat(np.arange(n), neighbors.shape[1])
    other = neighbors.ravel()
    start, end = np.concatenate([one, other]), np.concatenate([other, one])
    best = rank.copy()
    np.minimum.at(best, start, rank[end])
    peaks, mode = np.unique(_ends(by_rank[best]), return_inverse=True)

    # Process saddles from the highest down; where two modes meet, the lower is merged.
    tops, n_modes = height[peaks], len(peaks)
    across = mode[start] < mode[end]
    saddles = np.minimum(height[start[across]], height[end[across]])
    pairs = np.stack([mode[start[across]], mode[end[across]]], axis=1)
    prominence, parent, root = np.full(n_modes, np.inf), np.arange(n_modes), np.arange(n_modes)
    for link in np.argsort(-saddles, kind="stable"):
        a, b = root[pairs[link]]
        if a == b:
            continue
        lower, higher = (a, b) if tops[a] < tops[b] else (b, a)
        prominence[lower] = tops[lower] - saddles[link]
        parent[lower] = root[root == lower] = higher
    return Modes(mode, prominence, parent)


def cluster_by_modes(geometry: Geometry, n_clusters: int) -> Ints:
    """Cluster rows by the ``n_clusters`` most prominent modes, or by all if there are fewer."""
    Y, modes = geometry.Y, find_modes(geometry.neighbor_distances, geometry.neighbors)
    sizes = np.bincount(modes.mode)
    # Among connected components (infinite prominence), prefer modes with more rows.
    order = np.lexsort((-sizes, -modes.prominence))
    kept = np.zeros(len(sizes), dtype=bool)
    kept[order[:n_clusters]] = True
    found = _ends(np.where(kept, np.arange(len(sizes)), modes.parent))[modes.mode]
    lost = ~kept[found]  # in small connected components, whose modes have no parent
    if lost.any():
        _, nearest = KDTree(Y[~lost]).query(Y[lost])
        found[lost] = found[~lost][nearest]
    return np.unique(found, return_inverse=True)[1]


#: The members by user-visible name: functions of the geometry and the number of clusters.
MEMBERS: dict[str, Callable[[Geometry, int], Ints]] = {
    "k-means": lambda geometry, k: geometry.once(_k_means, k),
    "Ward": lambda geometry, k: geometry.once(_ward, k),
    "Gaussian mixture, full": partial(_mixture, covariance_type="full"),
    "Gaussian mixture, tied": partial(_mixture, covariance_type="tied"),
    "Gaussian mixture, diagonal": partial(_mixture, covariance_type="diag"),
    "Gaussian mixture, full, random starts": partial(_best_mixture, covariance_type="full"),
    "Gaussian mixture, diagonal, random starts": partial(_best_mixture, covariance_type="diag"),
    "spectral, 10 neighbors": lambda geometry, k: _spectral(geometry, k, _graph_embedding, 10),
    "spectral, 20 neighbors": lambda geometry, k: _spectral(geometry, k, _graph_embedding, 20),
    "subspaces": partial(_spectral, embed=_subspace_embedding),
    "latent classes": latent_classes,
    "sparse k-means": sparse_k_means,
    "modes of the density": cluster_by_modes,
    "Genie, 0.3": partial(genie, gini_limit=0.3),
    "Genie, 0.5": partial(genie, gini_limit=0.5),
    "Genie, 0.3, mutual reachability": partial(genie, gini_limit=0.3, tree="reachability_tree"),
}


def cluster_all(
    geometry: Geometry, n_clusters: int, names: Iterable[str] = MEMBERS
) -> tuple[dict[str, Ints], dict[str, str]]:
    """Run the members on the rows; return their labels, and why others failed, by name."""
    names = list(names)

    def cluster(name: str) -> Ints | str:
        try:
            return np.asarray(MEMBERS[name](geometry, n_clusters), np.int64)
        except _FAILURES as error:
            return str(error)

    # With few rows, members mostly compete for Python's GIL.
    n_threads = cpu_count() if len(geometry) >= _ROWS_FOR_THREADS else 1
    with warnings.catch_warnings(), ThreadPoolExecutor(n_threads) as threads:
        warnings.simplefilter("ignore")  # EM that did not converge: left to the judge
        if n_threads > 1:
            cluster("k-means")  # also computes Ward; both initialize other members
            _ = geometry.components, geometry.tree, geometry.reachability_tree
        labels, failures = {}, {}
        for name, found in zip(names, threads.map(cluster, names), strict=True):
            announce(f"committee: {name}")
            if isinstance(found, str):
                failures[name] = found
            else:
                labels[name] = found
    return labels, failures
