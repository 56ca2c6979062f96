"""Initialization: embeddings, memberships and inducing points.

Not by scikit-learn's Isomap, in which duplicate rows have edges of length zero, which sparse graphs
treat as missing, and which joins a disconnected graph by other links.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree, shortest_path
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph

from sgpmic._types import Floats, Ints
from sgpmic.learning.neighbors import interpolate, inverse_weights
from sgpmic.learning.preprocessing import distinct_rows, rotated

#: Fuzzy c-means: starts, maximum iterations of each, and tolerance on changes of memberships.
_N_INIT, _MAX_ITER, _TOL = 5, 300, 1e-6
#: Size of the random shifts of repeated inducing points, relative to the deviation of X.
_JITTER = 1e-3
# Missing dimensions are filled with noise of this size, relative to the others: large enough to
# break symmetry, too small to look like structure.
_FILL_SCALE = 1e-2
# Up to this size a dense eigendecomposition is faster than an iterative one.
_DENSE_LIMIT = 400
# With more rows than the first number, the neighbor graph is built on a sample of the second size,
# because its distance matrix is dense. All tables of the paper are smaller.
MOST_GRAPH_ROWS, SAMPLED_ROWS = 2_500, 1_500
# A row outside the sample is interpolated between this many nearest neighbors in it.
PLACED_BETWEEN = 6


def embed(
    Y: Floats,
    n_components: int,
    method: str | ArrayLike = "isomap",
    *,
    n_neighbors: int = 12,
    pieces: str = "join",
    random_state: np.random.RandomState,
) -> tuple[Floats, tuple[str, ...]]:
    """Return the rows of the data (N, D) in ``n_components`` dimensions, and notes.

    By ``"isomap"`` or ``"pca"``, or given as an array (N, Q), which is validated. For the other
    parameters see :class:`sgpmic.learning.settings.Start`.

    Equal rows get equal coordinates, except in given arrays and in dimensions filled with noise.
    The largest entry of every axis is positive.
    """
    n_rows = len(Y)
    if not isinstance(method, str):
        shape = (n_rows, n_components)
        return given_array("positions", method, shape, "rows, latent dimensions"), ()

    # Shifting and scaling keeps squares from overflowing or losing digits to a large offset.
    # Subtracting a row makes constant columns exactly zero; they do not affect the scale either,
    # so that results are bitwise the same for data in other units.
    varies = Y.max(axis=0) > Y.min(axis=0)
    scale = float(np.abs(Y[:, varies]).max(initial=0.0)) or 1.0
    data = Y / scale
    data = rotated(data - data[0])
    if not data.any():
        noise = _FILL_SCALE * random_state.standard_normal((n_rows, n_components))
        note = "All rows are identical; the latent points are small random noise."
        return noise, (note,)

    notes: list[str] = []
    if method == "pca":
        found = _principal_scores(data, n_components)
    else:
        sample = data
        if n_rows > MOST_GRAPH_ROWS:
            sample = data[np.sort(random_state.choice(n_rows, SAMPLED_ROWS, replace=False))]
        found = _isomap(sample, n_components, n_neighbors, pieces, notes)
        if sample is not data:
            found = interpolate(sample, found, data, PLACED_BETWEEN)
    found = _fix_signs(found)
    n_found = found.shape[1]
    if n_found < n_components:
        notes.append(
            f"The data span only {n_found} of the {n_components} latent dimensions; the rest were "
            "filled with small random noise."
        )
        noise = random_state.standard_normal((n_rows, n_components - n_found))
        found = np.hstack([found, _FILL_SCALE * float(found.std(axis=0).max()) * noise])
    return found * scale, tuple(notes)


def _principal_scores(data: Floats, n_components: int) -> Floats:
    """Return the leading principal component scores, at most as many as the rank."""
    centered = data - data.mean(axis=0)
    n_rows, n_features = centered.shape
    # The triangular factor has the same right singular vectors and is far smaller.
    factor = np.linalg.qr(centered, mode="r") if n_rows > n_features else centered
    _, sizes, axes = np.linalg.svd(factor, full_matrices=False)
    tolerance = 10.0 * max(n_rows, n_features) * np.finfo(np.float64).eps
    rank = int(np.sum(sizes > tolerance * sizes[0]))
    return centered @ axes[: min(n_components, rank)].T


def _isomap(
    data: Floats, n_components: int, n_neighbors: int, pieces: str, notes: list[str]
) -> Floats:
    """Embed the neighbor graph of the distinct rows, then copy to their duplicates."""
    points, copy_of, counts = distinct_rows(data)
    n_points = points.shape[0]
    # Two points are joined if either is among the other's neighbors.
    pairs = kneighbors_graph(points, min(n_neighbors, n_points - 1)).nonzero()
    graph = _symmetric_graph(points, *pairs)
    n_pieces, piece_of = connected_components(graph, directed=False)

    kept = np.arange(n_points)
    if n_pieces > 1 and pieces == "largest":
        rows_in_piece = np.bincount(piece_of, weights=counts)
        kept = np.flatnonzero(piece_of == np.argmax(rows_in_piece))
        graph = graph[kept][:, kept]
        n_outside = int(counts.sum() - counts[kept].sum())
        notes.append(
            f"The neighbor graph has {n_pieces} connected components; only the largest was "
            f"embedded and the rows outside it ({n_outside}) were put at the origin."
        )
    elif n_pieces > 1:
        graph = _join_pieces(points, graph, n_pieces, piece_of)
        notes.append(
            f"The neighbor graph has {n_pieces} connected components; they were joined by their "
            "shortest links."
        )

    geodesics = shortest_path(graph, method="D", directed=True)
    found = _classical_scaling(geodesics, counts[kept], n_components)
    coordinates = np.zeros((n_points, found.shape[1]))
    coordinates[kept] = found
    return coordinates[copy_of]


def _symmetric_graph(points: Floats, start: Ints, end: Ints) -> csr_matrix:
    """Return the undirected graph of the given pairs with Euclidean edge lengths."""
    n_points = points.shape[0]
    pairs = np.unique(np.minimum(start, end) * n_points + np.maximum(start, end))
    low, high = np.divmod(pairs, n_points)
    # Lengths are computed from differences: the fast distance formula of a neighbor search cancels
    # to zero for close points. The floor preserves edges whose squared length underflows.
    lengths = np.maximum(np.linalg.norm(points[low] - points[high], axis=1), 1e-150)
    rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
    return csr_matrix(
        (np.concatenate([lengths, lengths]), (rows, columns)), shape=(n_points, n_points)
    )


def _join_pieces(
    points: Floats, graph: csr_matrix, n_pieces: int, piece_of: NDArray[np.int32]
) -> csr_matrix:
    """Join the connected components by the minimum spanning tree of their shortest links."""
    order = np.argsort(piece_of, kind="stable")
    begins = np.searchsorted(piece_of[order], np.arange(n_pieces))
    members = np.split(order, begins[1:])
    links = cdist(points[order], points[order])
    for axis in (0, 1):
        links = np.minimum.reduceat(links, begins, axis=axis)
    links = np.maximum(np.minimum(links, links.T), 1e-150)
    np.fill_diagonal(links, 0.0)

    joined = []
    # Sparse, because SciPy takes entries below 1e-8 of a dense matrix for missing links.
    tree = minimum_spanning_tree(csr_matrix(links)).tocoo()
    for first, second in zip(tree.row, tree.col, strict=True):
        here, there = members[first], members[second]
        closest = int(np.argmin(cdist(points[here], points[there])))
        joined.append((here[closest // len(there)], there[closest % len(there)]))
    start, end = np.array(joined, dtype=np.int64).T
    # No link joins two points that are joined already.
    return graph.maximum(_symmetric_graph(points, start, end))


def _classical_scaling(distances: Floats, counts: Ints, n_components: int) -> Floats:
    """Return coordinates, at most ``n_components``, by classical multidimensional scaling.

    Each point counts as repeated ``counts`` (n,) times.
    """
    n_points = distances.shape[0]
    squared = distances**2
    # The lengths of a shortest path from either end differ in their last digits.
    squared = 0.5 * (squared + squared.T)
    weights = counts / counts.sum()
    means = squared @ weights
    products = -0.5 * (squared - means[:, None] - means[None, :] + weights @ means)
    root = np.sqrt(counts.astype(np.float64))
    products *= root[:, None]
    products *= root[None, :]

    n_wanted = min(n_components, n_points)
    if n_points <= _DENSE_LIMIT or n_wanted > n_points // 10:
        # All pairs: LAPACK's subset solver can return none for equidistant points.
        values, vectors = np.linalg.eigh(products)
    else:  # with a fixed starting vector, for reproducible results
        first: Any = np.random.RandomState(0).uniform(0.5, 1.5, n_points)
        first[::2] *= -1.0
        values, vectors = eigsh(products, k=n_wanted, v0=first, which="LA")
    order = np.argsort(values)[::-1][:n_wanted]
    values, vectors = values[order], vectors[:, order]
    positive = values > 10.0 * n_points * np.finfo(np.float64).eps * max(values[0], 0.0)
    return vectors[:, positive] * np.sqrt(values[positive]) / root[:, None]


def _fix_signs(coordinates: Floats) -> Floats:
    """Flip axes so that the entry of largest magnitude in each column is positive."""
    sizes = np.abs(coordinates)
    # The first entry wins a tie, even if rounding breaks it.
    leading = np.argmax(sizes >= (1.0 - 1e-8) * sizes.max(axis=0), axis=0)
    signs = np.sign(coordinates[leading, np.arange(coordinates.shape[1])])
    return coordinates * np.where(signs == 0.0, 1.0, signs)


def initial_memberships(
    X: Floats, n_clusters: int, method: str | ArrayLike, random_state: np.random.RandomState
) -> Floats:
    """Return initial memberships (N, M) of points (N, Q); rows sum to one.

    By fuzzy c-means, or from a given array, whose rows are normalized.
    """
    if isinstance(method, str):
        return fuzzy_c_means(X, n_clusters, random_state)
    array = given_array("memberships", method, (len(X), n_clusters), "rows, clusters")
    if (array < 0.0).any():
        raise ValueError("The given memberships contain negative values.")
    # Dividing by the largest entry first keeps the sum of huge weights finite.
    largest = array.max(axis=1, keepdims=True)
    if (largest == 0.0).any():
        raise ValueError("Every row of the given memberships needs at least one positive value.")
    array /= largest
    return array / array.sum(axis=1, keepdims=True)


def fuzzy_c_means(X: Floats, n_clusters: int, random_state: np.random.RandomState) -> Floats:
    """Return memberships (N, M) by Euclidean fuzzy c-means, the best of several starts.

    It minimizes Σₙₘ uₙₘ² ‖xₙ − vₘ‖² over memberships u, whose rows sum to one, and centers v
    (Bezdek, 1981). A row exactly at a center belongs to it alone; coinciding centers share such a
    row equally.
    """
    # Memberships are invariant to shift and scale, without which squares might overflow or cancel.
    points, _ = _in_own_unit(X)
    starts = (_kmeans_plus_plus(points, n_clusters, random_state) for _ in range(_N_INIT))
    return min((_fuzzy_iterations(points, start) for start in starts), key=lambda run: run[1])[0]


def _kmeans_plus_plus(points: Floats, n_clusters: int, rng: np.random.RandomState) -> Floats:
    """Draw rows as centers by k-means++; scikit-learn's rejects more clusters than rows."""
    n_points = points.shape[0]
    chosen = [int(rng.randint(n_points))]
    squares = np.full(n_points, np.inf)
    while len(chosen) < n_clusters:
        squares = np.minimum(squares, cdist(points, points[chosen[-1:]], "sqeuclidean")[:, 0])
        total = squares.sum()
        chosen.append(int(rng.choice(n_points, p=squares / total if total > 0.0 else None)))
    return points[chosen]


def _fuzzy_iterations(points: Floats, centers: Floats) -> tuple[Floats, float]:
    """Alternate memberships and centers to convergence; return memberships and objective."""
    memberships = np.full((len(points), len(centers)), np.inf)
    for _ in range(_MAX_ITER + 1):
        squared = cdist(points, centers, "sqeuclidean")
        previous, memberships = memberships, inverse_weights(squared)
        if np.abs(memberships - previous).max() <= _TOL:
            break
        weights = memberships**2
        mass = weights.sum(axis=0)
        # The center of an empty cluster stays where it is.
        used = mass > 0.0
        centers = centers.copy()
        centers[used] = (weights[:, used].T @ points) / mass[used, None]
    return memberships, float(np.sum(memberships**2 * squared))


def choose_inducing(X: Floats, n_inducing: int, random_state: np.random.RandomState) -> Floats:
    """Return distinct random rows of X as inducing points.

    If X has too few distinct rows, the rest are rows with small random shifts: equal points would
    make the kernel matrix singular.
    """
    chosen = distinct_rows(X[random_state.permutation(len(X))])[0][:n_inducing]
    size = float(np.abs(X).max())
    scaled, unit = _in_own_unit(X)
    scale = max(size, 1.0)
    if scaled.any():
        # Shifts must not be lost to rounding when added, however close together the entries are.
        smallest = max(1e6 * float(np.finfo(np.float64).eps) * size, 1e-280)
        scale = max(unit * float(scaled.std(axis=0).max()), smallest)
    while len(chosen) < n_inducing:
        rows = X[random_state.randint(len(X), size=n_inducing - len(chosen))]
        shifts = _JITTER * scale * random_state.standard_normal(rows.shape)
        chosen = distinct_rows(np.vstack([chosen, rows + shifts]))[0]
    return chosen


def given_array(what: str, given: ArrayLike, shape: tuple[int, int], axes: str) -> Floats:
    """Return a copy of a user's array, after validating its shape and values."""
    array = np.array(given, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(
            f"The given {what} must have shape {shape} ({axes}), got shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"The given {what} contain NaN or infinite values.")
    return array


def _in_own_unit(points: Floats) -> tuple[Floats, float]:
    """Shift and scale points so that squares neither overflow nor cancel; also the unit."""
    origin, unit = points[0], float(np.abs(points - points[0]).max()) or 1.0
    return (points - origin) / unit, unit
