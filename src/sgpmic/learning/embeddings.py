"""Embeddings to start from: ISOMAP, PCA, Laplacian eigenmaps and others.

Not scikit-learn's Isomap and SpectralEmbedding: equal rows have edges of length zero, which sparse
graphs treat as missing, and a graph that falls apart is joined by other links there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, diags, identity
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree, shortest_path
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from sgpmic.learning.neighbors import interpolate
from sgpmic.learning.points import Floats, Ints, distinct_rows, given_array, rotated

# Columns that a method cannot supply are filled with noise of this size, relative to the columns
# it did supply: large enough to break symmetry, too small to look like structure.
_FILL_SCALE = 1e-2

# Below this size a dense eigen-decomposition is faster than an iterative one.
_DENSE_LIMIT = 400

# Of more rows than the first number, the neighbor graph sees a sample, the second: its distances
# are a square table. All tables of the paper are smaller.
MOST_GRAPH_ROWS, SAMPLED_ROWS = 2_500, 1_500

# A row outside the sample is placed between this many of its nearest rows in it.
PLACED_BETWEEN = 6

# Piece-to-piece distances are computed in blocks of about this many entries (32 MB).
_BLOCK_ENTRIES = 4_000_000


class Embedding(NamedTuple):
    """Latent coordinates (N, Q), and sentences about anything out of the ordinary."""

    coordinates: Floats
    notes: tuple[str, ...]


def embed(
    Y: Floats,
    n_components: int,
    method: str | ArrayLike = "isomap",
    *,
    n_neighbors: int = 12,
    pieces: str = "join",
    random_state: np.random.RandomState,
) -> Embedding:
    """Embed the rows of the data (N, D) in ``n_components`` dimensions.

    ``"isomap"``, ``"pca"`` (scores), ``"ppca"`` (scores of unit variance each), ``"spectral"``
    (Laplacian eigenmaps of unit variance each), ``"random"`` (standard normal), or an array (N, Q),
    which is checked. Where the neighbor graph falls apart, ``pieces`` says whether to join the
    pieces by the shortest links between them, or to embed the largest piece and put every other
    row at the origin.

    Equal rows get equal coordinates from every method but ``"random"`` and given arrays, except in
    columns that were filled with noise. The largest entry of every axis is positive.
    """
    n_rows = len(Y)
    if not isinstance(method, str):
        shape = (n_rows, n_components)
        return Embedding(given_array("positions", method, shape, "rows, latent dimensions"), ())
    if method == "random":
        return Embedding(random_state.standard_normal((n_rows, n_components)), ())

    # Working on shifted and scaled data keeps squares from overflowing or losing digits to a
    # large offset. Subtracting a row first makes constant columns exactly zero; they have no say
    # in the scale either, so that data in other units give the same to the last bit.
    varies = Y.max(axis=0) > Y.min(axis=0)
    scale = float(np.abs(Y[:, varies]).max(initial=0.0)) or 1.0
    data = Y / scale
    data = rotated(data - data[0])
    if not data.any():
        noise = _FILL_SCALE * random_state.standard_normal((n_rows, n_components))
        return Embedding(
            noise, ("All rows of the data are identical; the positions are small random noise.",)
        )

    notes: list[str] = []
    if method in ("pca", "ppca"):
        found = _principal_scores(data, n_components)
    else:
        sample = data
        if n_rows > MOST_GRAPH_ROWS:
            notes.append(
                f"The neighbor graph was made of {SAMPLED_ROWS} of the {n_rows} rows, drawn at "
                "random; the others were placed between their nearest rows among them."
            )
            sample = data[np.sort(random_state.choice(n_rows, SAMPLED_ROWS, replace=False))]
        found = _graph_embedding(sample, n_components, method, n_neighbors, pieces, notes)
        if sample is not data:
            found = interpolate(sample, found, data, PLACED_BETWEEN)
    found = _fix_signs(found)
    if method in ("ppca", "spectral"):
        found = found / found.std(axis=0)
        scale = 1.0
    filled = _fill_columns(found, n_components, random_state, notes)
    return Embedding(filled * scale, tuple(notes))


def _principal_scores(data: Floats, n_components: int) -> Floats:
    """Return the leading principal component scores, at most as many as the rank."""
    centered = data - data.mean(axis=0)
    n_rows, n_features = centered.shape
    # The triangular factor has the same right singular vectors and is far smaller.
    factor = np.linalg.qr(centered, mode="r") if n_rows > n_features else centered
    _, sizes, axes = np.linalg.svd(factor, full_matrices=False)
    tolerance = 10.0 * max(n_rows, n_features) * np.finfo(np.float64).eps
    rank = int(np.sum(sizes > tolerance * sizes[0]))
    scores: Floats = centered @ axes[: min(n_components, rank)].T
    return scores


def _graph_embedding(
    data: Floats,
    n_components: int,
    method: str,
    n_neighbors: int,
    pieces: str,
    notes: list[str],
) -> Floats:
    """Embed by the neighbor graph of the distinct rows, then copy to their duplicates."""
    points, copy_of, counts = distinct_rows(data)
    n_points = points.shape[0]
    if n_neighbors > n_points - 1:
        notes.append(
            f"There are only {n_points} distinct rows; the number of neighbors was lowered from "
            f"{n_neighbors} to {n_points - 1}."
        )
    graph = _neighbor_graph(points, min(n_neighbors, n_points - 1))
    n_pieces, piece_of = connected_components(graph, directed=False)

    kept = np.arange(n_points)
    if n_pieces > 1 and pieces == "largest":
        rows_in_piece = np.bincount(piece_of, weights=counts)
        kept = np.flatnonzero(piece_of == np.argmax(rows_in_piece))
        graph = graph[kept][:, kept]
        n_outside = int(counts.sum() - counts[kept].sum())
        notes.append(
            f"The neighbor graph fell into {n_pieces} pieces; only the largest was embedded and "
            f"the rows outside it ({n_outside}) were put at the origin."
        )
    elif n_pieces > 1:
        graph = _join_pieces(points, graph, n_pieces, piece_of)
        notes.append(
            f"The neighbor graph fell into {n_pieces} pieces; they were joined by their "
            "shortest links."
        )

    if method == "isomap":
        geodesics = shortest_path(graph, method="D", directed=True)
        found = _classical_scaling(geodesics, counts[kept], n_components)
    else:
        found = _laplacian_eigenmaps(graph, n_components)

    coordinates = np.zeros((n_points, found.shape[1]))
    coordinates[kept] = found
    copied: Floats = coordinates[copy_of]
    return copied


def _neighbor_graph(points: Floats, n_neighbors: int) -> csr_matrix:
    """Return the graph that joins two points if either is among the other's neighbors."""
    n_points = points.shape[0]
    # Without an argument a point is not counted as its own neighbor.
    nearest = (
        NearestNeighbors(n_neighbors=n_neighbors).fit(points).kneighbors(return_distance=False)
    )
    start = np.repeat(np.arange(n_points), n_neighbors)
    return _symmetric_graph(points, start, nearest.ravel())


def _symmetric_graph(points: Floats, start: Ints, end: Ints) -> csr_matrix:
    """Return the undirected graph of the given pairs with Euclidean edge lengths."""
    n_points = points.shape[0]
    pairs = np.unique(np.minimum(start, end) * n_points + np.maximum(start, end))
    low, high = np.divmod(pairs, n_points)
    # Lengths come from the differences themselves: the fast distance formula of a neighbor
    # search cancels to zero for close points. The floor keeps points whose squared distance
    # underflows from losing their edge.
    lengths = np.maximum(np.linalg.norm(points[low] - points[high], axis=1), 1e-150)
    rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
    return csr_matrix(
        (np.concatenate([lengths, lengths]), (rows, columns)), shape=(n_points, n_points)
    )


def _join_pieces(
    points: Floats, graph: csr_matrix, n_pieces: int, piece_of: NDArray[np.int32]
) -> csr_matrix:
    """Connect the pieces of a graph by the minimum spanning tree of their shortest links."""
    order = np.argsort(piece_of, kind="stable")
    ordered = points[order]
    begins = np.searchsorted(piece_of[order], np.arange(n_pieces))
    ends = np.append(begins[1:], order.size)
    block = max(1, _BLOCK_ENTRIES // order.size)

    links = np.full((n_pieces, n_pieces), np.inf)
    for piece in range(n_pieces):
        for at in range(begins[piece], ends[piece], block):
            rows = ordered[at : min(at + block, ends[piece])]
            nearest = cdist(rows, ordered).min(axis=0)
            links[piece] = np.minimum(links[piece], np.minimum.reduceat(nearest, begins))
    links = np.maximum(np.minimum(links, links.T), 1e-150)
    np.fill_diagonal(links, 0.0)

    start, end = [], []
    # Sparse: of a dense table SciPy takes everything below 1e-8 for no link at all.
    tree = minimum_spanning_tree(csr_matrix(links)).tocoo()
    for first, second in zip(tree.row, tree.col, strict=True):
        here, there = order[begins[first] : ends[first]], order[begins[second] : ends[second]]
        pair = _closest_pair(points[here], points[there], block)
        start.append(here[pair[0]])
        end.append(there[pair[1]])

    old = graph.tocoo()
    return _symmetric_graph(
        points,
        np.concatenate([old.row.astype(np.int64), np.asarray(start, dtype=np.int64)]),
        np.concatenate([old.col.astype(np.int64), np.asarray(end, dtype=np.int64)]),
    )


def _closest_pair(here: Floats, there: Floats, block: int) -> tuple[int, int]:
    """Return the indices of the closest pair with one point from each set."""
    best, pair = np.inf, (0, 0)
    for at in range(0, here.shape[0], block):
        distances = cdist(here[at : at + block], there)
        row, column = divmod(int(np.argmin(distances)), there.shape[0])
        if distances[row, column] < best:
            best, pair = float(distances[row, column]), (at + row, column)
    return pair


def _classical_scaling(distances: Floats, counts: Ints, n_components: int) -> Floats:
    """Return coordinates by classical multidimensional scaling, of largest variance first.

    As of a table in which every point is repeated ``counts`` (n,) times. Fewer come back than
    wanted where fewer eigenvalues are positive.
    """
    n_points = distances.shape[0]
    squared = distances**2
    # Shortest paths found from either end differ in their last digits.
    squared = 0.5 * (squared + squared.T)
    weights = counts / counts.sum()
    means = squared @ weights
    products = -0.5 * (squared - means[:, None] - means[None, :] + weights @ means)
    root = np.sqrt(counts.astype(np.float64))
    products *= root[:, None]
    products *= root[None, :]

    n_wanted = min(n_components, n_points)
    if n_points <= _DENSE_LIMIT or n_wanted > n_points // 10:
        # All pairs, because LAPACK's search for a few can come back empty-handed when many
        # eigenvalues are equal, as they are for equidistant points.
        values, vectors = np.linalg.eigh(products)
    else:
        values, vectors = eigsh(products, k=n_wanted, which="LA", v0=_start_vector(n_points))
    largest_first = np.argsort(values)[::-1][:n_wanted]
    values, vectors = values[largest_first], vectors[:, largest_first]
    positive = values > 10.0 * n_points * np.finfo(np.float64).eps * max(values[0], 0.0)
    coordinates: Floats = vectors[:, positive] * np.sqrt(values[positive]) / root[:, None]
    return coordinates


def _laplacian_eigenmaps(graph: csr_matrix, n_components: int) -> Floats:
    """Return the smoothest non-constant functions on a connected graph.

    Every edge has weight one. Weights that fall with length would need a width, and would all
    but cut the links that join separate pieces.
    """
    n_points = graph.shape[0]
    weights = graph.copy()
    weights.data[:] = 1.0
    root_degree = np.sqrt(np.asarray(weights.sum(axis=1)).ravel())
    shrink = diags(1.0 / root_degree)
    laplacian = identity(n_points) - shrink @ weights @ shrink

    n_wanted = min(n_components + 1, n_points)
    if n_points <= _DENSE_LIMIT or n_wanted > n_points // 10:
        values, vectors = np.linalg.eigh(laplacian.toarray())
    else:
        # The wanted eigenvalues crowd at zero, where plain Lanczos is slow; solving with a
        # slightly shifted matrix spreads them out.
        values, vectors = eigsh(
            laplacian.tocsc(), k=n_wanted, sigma=-1e-3, which="LM", v0=_start_vector(n_points)
        )
    # The first function is the constant one: the graph is connected.
    smoothest_first = np.argsort(values)[1:n_wanted]
    functions: Floats = vectors[:, smoothest_first] / root_degree[:, None]
    return functions


def _start_vector(size: int) -> Floats:
    """Return a fixed start for the iterative solver, so that results do not vary between runs."""
    start: Floats = np.random.RandomState(0).uniform(0.5, 1.5, size)
    start[::2] *= -1.0
    return start


def _fix_signs(coordinates: Floats) -> Floats:
    """Flip axes so that the entry of largest size in every column is positive."""
    sizes = np.abs(coordinates)
    # Rounding must not decide between entries of equal size, so the first of them counts.
    leading = np.argmax(sizes >= (1.0 - 1e-8) * sizes.max(axis=0), axis=0)
    signs = np.sign(coordinates[leading, np.arange(coordinates.shape[1])])
    fixed: Floats = coordinates * np.where(signs == 0.0, 1.0, signs)
    return fixed


def _fill_columns(
    found: Floats, n_components: int, random_state: np.random.RandomState, notes: list[str]
) -> Floats:
    """Append columns of small noise until there are enough, and say so."""
    n_rows, n_found = found.shape
    n_missing = n_components - n_found
    if n_missing == 0:
        return found
    notes.append(
        f"The data give only {n_found} of the {n_components} latent dimensions; the rest was "
        "filled with small random noise."
    )
    noise = random_state.standard_normal((n_rows, n_missing))
    return np.hstack([found, _FILL_SCALE * float(found.std(axis=0).max()) * noise])
