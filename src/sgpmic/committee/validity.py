"""Internal validity indices: how good a partition looks without knowing the truth.

The judge (:mod:`sgpmic.committee.judge`) sees these of every member of a committee. No index is
right for all data: silhouettes and likelihoods favor clouds, cuts of neighbor graphs and spanning
trees favor clusters separated by gaps. What each is worth on which data is what the judge learned.

All partitions of the same rows into the same number of clusters are looked at together, so that
distances and products of matrices are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from sgpmic._types import Floats, Ints
from sgpmic.committee.genie import Tree
from sgpmic.committee.geometry import Geometry

#: A cluster is small with less than this part of an equal share of the rows.
SMALL = 0.2
#: Silhouettes are those of at most this many rows; distances are to all.
_MOST_SILHOUETTES = 1000
#: Neighbors that connect a cluster.
_CONNECTING = 5
_FLOOR = 1e-3
_TINY = 1e-12

#: The names of the columns of :func:`validity_indices`.
INDICES = (
    "cut",  # share of neighbors elsewhere, by cluster, small clusters counting as cut off
    "raw cut",  # the same over rows
    "largest cut",  # of a cluster
    "nearest cut",  # share of rows whose two nearest neighbors lie elsewhere
    "size entropy",  # 1 for equal sizes
    "smallest size",  # relative to an equal share
    "largest size",
    "empty",  # clusters without rows
    "valley",  # how much sparser rows at the border are than those inside, in logarithms
    "least valley",  # of a cluster
    "border",  # share of rows with a neighbor elsewhere
    "silhouette",
    "least silhouette",  # of a cluster
    "Calinski-Harabasz",  # its logarithm
    "Davies-Bouldin",
    "full likelihood",  # classification likelihoods, per row and dimension, above one Gaussian
    "diagonal likelihood",
    "tied likelihood",
    "tied likelihood, whole",  # of all dimensions together
    "full BIC",
    "overlap",  # of pairs of clusters as Gaussians, by Fisher's discriminant
    "largest overlap",
    "projected valley",  # density between a cluster and the one it overlaps most, along it
    "largest projected valley",
    "connected",  # share of a cluster in its largest connected piece
    "linear accuracy",  # of Fisher's linear discriminant
    "tree cut",  # edges of the minimum spanning tree that are cut, above the k − 1 necessary ones
    "tree gap",  # how long the longest k − 1 of these are, in logarithms of the usual length
    "reachability tree cut",
    "reachability tree gap",
)


def validity_indices(geometry: Geometry, partitions: Sequence[Ints], k: int) -> Floats:
    """Return internal validity indices of partitions.

    Parameters
    ----------
    geometry : Geometry
    partitions : sequence of ndarrays of shape (n_samples,)
        Labels from 0 to k − 1.
    k : int
        At least 2.

    Returns
    -------
    indices : ndarray of shape (n_partitions, len(INDICES))
        Finite. The columns are named by ``INDICES``.
    """
    labels = np.asarray(partitions, np.int64)
    members = np.eye(k)[labels]  # (m, n, k) indicators
    sizes = members.sum(axis=1)
    found: dict[str, Floats] = {}
    found |= _sizes(sizes, len(geometry))
    found |= _neighbor_cuts(geometry, labels, members, sizes)
    found |= _silhouettes(geometry, labels, members, sizes)
    found |= _gaussians(geometry, labels, members, sizes)
    found |= _connections(geometry, labels, sizes)
    for name, tree in (
        ("tree", geometry.tree),
        ("reachability tree", geometry.reachability_tree),
    ):
        found |= _tree_cuts(name, tree, labels, k)
    return np.nan_to_num(
        np.column_stack([found[name] for name in INDICES]), posinf=9.0, neginf=-9.0
    )


def _by_cluster(values: Floats, members: Floats, sizes: Floats) -> Floats:
    """Return the means (m, k) of a quantity of rows (m, n) over clusters; 0 for empty ones."""
    means: Floats = np.einsum("mn,mnk->mk", values, members) / np.maximum(sizes, 1.0)
    return means


def _sizes(sizes: Floats, n: int) -> dict[str, Floats]:
    _m, k = sizes.shape
    share = sizes / n
    return {
        "size entropy": -np.sum(share * np.log(share + _TINY), axis=1) / np.log(k),
        "smallest size": share.min(axis=1) * k,
        "largest size": share.max(axis=1) * k,
        "empty": np.sum(sizes == 0, axis=1).astype(np.float64),
    }


def _neighbor_cuts(
    geometry: Geometry, labels: Ints, members: Floats, sizes: Floats
) -> dict[str, Floats]:
    n, k = len(geometry), sizes.shape[1]
    elsewhere = labels[:, geometry.neighbors] != labels[:, :, None]  # (m, n, neighbors)
    cut = elsewhere.mean(axis=2)
    cuts = _by_cluster(cut, members, sizes)
    small = sizes < SMALL * n / k
    at_border = (cut > 0).astype(np.float64)
    # Rows with a neighbor elsewhere against those without, in logarithms of their distances.
    spacing = geometry.log_spacing
    outer = np.einsum("mn,mnk->mk", at_border, members)
    inner = sizes - outer
    total = np.einsum("n,mnk->mk", spacing, members)
    total_outer = np.einsum("mn,mnk->mk", at_border * spacing, members)
    valley = total_outer / np.maximum(outer, 1) - (total - total_outer) / np.maximum(inner, 1)
    valley = np.where(outer == 0, 2.0, np.where(inner == 0, 0.0, valley))
    valley = np.where(sizes > 4, valley, 0.0)
    return {
        "cut": np.mean(np.where(small, cuts + 1.0, cuts), axis=1),
        "raw cut": cut.mean(axis=1),
        "largest cut": cuts.max(axis=1),
        "nearest cut": elsewhere[:, :, :2].all(axis=2).mean(axis=1),
        "valley": valley.mean(axis=1),
        "least valley": valley.min(axis=1),
        "border": at_border.mean(axis=1),
    }


def _silhouettes(
    geometry: Geometry, labels: Ints, members: Floats, sizes: Floats
) -> dict[str, Floats]:
    m, n, k = members.shape
    rows = np.unique(np.linspace(0, n - 1, min(n, _MOST_SILHOUETTES)).astype(int))
    sums = geometry.distances[rows] @ members.transpose(1, 0, 2).reshape(n, m * k)
    sums = sums.reshape(len(rows), m, k).transpose(1, 0, 2)  # (m, rows, k)
    own = labels[:, rows, None]
    own_size = np.take_along_axis(sizes[:, None, :].repeat(len(rows), axis=1), own, axis=2)
    inside = np.take_along_axis(sums, own, axis=2) / np.maximum(own_size - 1.0, 1.0)
    means = np.where(sizes[:, None, :] > 0, sums / np.maximum(sizes[:, None, :], 1.0), np.inf)
    np.put_along_axis(means, own, np.inf, axis=2)
    outside, inside = means.min(axis=2), inside[:, :, 0]
    defined = (own_size[:, :, 0] > 1) & np.isfinite(outside)
    outside = np.where(defined, outside, inside)
    width = (outside - inside) / np.maximum(np.maximum(inside, outside), _TINY)
    here = members[:, rows]
    counts = here.sum(axis=1)
    least = np.where(counts > 0, _by_cluster(width, here, counts), np.inf).min(axis=1)
    alone = np.sum(sizes > 0, axis=1) < 2
    return {
        "silhouette": np.where(alone, -1.0, width.mean(axis=1)),
        "least silhouette": np.where(alone, -1.0, least),
    }


def _gaussians(
    geometry: Geometry, labels: Ints, members: Floats, sizes: Floats
) -> dict[str, Floats]:
    """Return indices that see clusters as Gaussians, in the leading principal components."""
    Z = geometry.components
    rows = [_gaussian_indices(Z, *each) for each in zip(labels, members, sizes, strict=True)]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _gaussian_indices(Z: Floats, labels: Ints, members: Floats, sizes: Floats) -> dict[str, float]:
    (n, q), k = Z.shape, len(sizes)
    floor = _FLOOR * np.eye(q)
    count = np.maximum(sizes, 1.0)
    means = members.T @ Z / count[:, None]
    scatter = np.stack([_scatter(Z[labels == c], means[c]) for c in range(k)])
    within = scatter.sum(axis=0)
    total = Z.T @ Z - n * np.outer(Z.mean(axis=0), Z.mean(axis=0))
    one = total / n + floor
    log_one = float(np.linalg.slogdet(one)[1])
    # Covariances of small clusters are drawn to half the variances of all rows.
    covariances = scatter / count[:, None, None]
    drawn = (count / (count + q + 2.0))[:, None, None]
    shrunk = drawn * covariances + (1.0 - drawn) * 0.5 * np.diag(np.diag(one)) + floor
    prior = 2.0 * np.log(count / n)
    full = float(sizes @ (np.linalg.slogdet(shrunk)[1] - prior)) / n
    diagonal = float(sizes @ (np.log(np.einsum("kqq->kq", shrunk)).sum(axis=1) - prior)) / n
    tied = within / n + floor
    log_tied = float(np.linalg.slogdet(tied)[1])
    between = max(float(np.trace(total) - np.trace(within)), 0.0)
    ch = between / max(k - 1, 1) / max(float(np.trace(within)) / max(n - k, 1), _TINY)
    n_parameters = (k - 1) * (q * (q + 3) / 2.0 + 1.0)
    overlap, directions = _overlaps(means, covariances, sizes)
    valleys = _projected_valleys(Z, labels, means, overlap, directions)
    scores = Z @ np.linalg.solve(tied, means.T)
    scores += np.log(count / n) - 0.5 * np.einsum("kq,qk->k", means, np.linalg.solve(tied, means.T))
    pairs = overlap[np.triu_indices(k, 1)]
    return {
        "Calinski-Harabasz": float(np.log(ch + 1e-9)),
        "Davies-Bouldin": _davies_bouldin(Z, labels, means, sizes),
        "full likelihood": -0.5 * (full - log_one) / q,
        "diagonal likelihood": -0.5 * (diagonal - float(np.log(np.diag(one)).sum())) / q,
        "tied likelihood": -0.5 * (log_tied - log_one) / q,
        "tied likelihood, whole": -0.5 * (log_tied - log_one),
        "full BIC": (-0.5 * (full - log_one) - 0.5 * np.log(n) * n_parameters / n) / q,
        "overlap": float(pairs.mean()),
        "largest overlap": float(pairs.max()),
        "projected valley": float(np.mean(valleys)),
        "largest projected valley": float(np.max(valleys)),
        "linear accuracy": float(np.mean(scores.argmax(axis=1) == labels)),
    }


def _scatter(Z: Floats, mean: Floats) -> Floats:
    centered = Z - mean
    return centered.T @ centered


def _davies_bouldin(Z: Floats, labels: Ints, means: Floats, sizes: Floats) -> float:
    present = np.flatnonzero(sizes > 0)
    if len(present) < 2:
        return 9.0
    from_center = np.linalg.norm(Z - means[labels], axis=1)
    sums = np.bincount(labels, from_center, minlength=len(sizes))
    spread = (sums / np.maximum(sizes, 1.0))[present]
    apart = np.linalg.norm(means[present][:, None] - means[present], axis=2)
    np.fill_diagonal(apart, np.inf)
    ratio = (spread[:, None] + spread) / np.maximum(apart, _TINY)
    return min(float(ratio.max(axis=1).mean()), 9.0)


def cluster_overlaps(geometry: Geometry, labels: Ints, k: int) -> Floats:
    """Return how far every two clusters overlap as Gaussians (k, k), between 0 and 1."""
    Z = geometry.components
    sizes = np.bincount(labels, minlength=k).astype(np.float64)
    count = np.maximum(sizes, 1.0)
    means = np.eye(k)[labels].T @ Z / count[:, None]
    scatter = np.stack([_scatter(Z[labels == c], means[c]) for c in range(k)])
    return _overlaps(means, scatter / count[:, None, None], sizes)[0]


def _overlaps(means: Floats, covariances: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Return the overlap (k, k) of pairs of Gaussians, and Fisher's directions (k, k, q)."""
    k, q = means.shape
    a, b = np.triu_indices(k, 1)
    apart = means[a] - means[b]
    both = covariances[a] + covariances[b]
    w = np.linalg.solve(both + 10 * _FLOOR * np.eye(q), apart[..., None])[..., 0]
    variance = np.einsum("iq,iqr,ir->i", w, both, w)
    square = np.einsum("iq,iq->i", w, apart) ** 2
    pairs = np.exp(-0.5 * square / (variance + _TINY))
    pairs[(sizes[a] < 3) | (sizes[b] < 3)] = 1.0
    overlap, directions = np.zeros((k, k)), np.zeros((k, k, q))
    overlap[a, b] = overlap[b, a] = pairs
    directions[a, b] = directions[b, a] = w
    return overlap, directions


def _projected_valleys(
    Z: Floats, labels: Ints, means: Floats, overlap: Floats, directions: Floats
) -> list[float]:
    """Return for every cluster the density between it and the one it overlaps most.

    Both are projected onto Fisher's direction; the lowest density between their centers is
    relative to the lower of the densities there: 0 is a gap, 1 no valley at all.
    """
    found = []
    masked = overlap - 2.0 * np.eye(len(overlap))
    for cluster, other in enumerate(masked.argmax(axis=1)):
        w = directions[cluster, other]
        x = Z[(labels == cluster) | (labels == other)] @ w
        low, high = sorted((float(means[cluster] @ w), float(means[other] @ w)))
        width = 1.06 * x.std() * len(x) ** -0.2 / 2.0 if len(x) > 4 else 0.0
        if width <= 0 or high - low <= 0:
            found.append(1.0)
            continue
        at = np.linspace(low, high, 15)
        density = np.exp(-0.5 * ((at[:, None] - x) / width) ** 2).mean(axis=1)
        found.append(float(density.min() / max(min(density[0], density[-1]), _TINY)))
    return found


def _connections(geometry: Geometry, labels: Ints, sizes: Floats) -> dict[str, Floats]:
    """Return how connected clusters are in the graph of nearest neighbors."""
    n, k = len(geometry), sizes.shape[1]
    neighbors = geometry.neighbors[:, :_CONNECTING]
    start, end = np.repeat(np.arange(n), neighbors.shape[1]), neighbors.ravel()
    found = []
    for label, size in zip(labels, sizes, strict=True):
        same = label[start] == label[end]
        graph = coo_matrix((np.ones(same.sum()), (start[same], end[same])), (n, n))
        piece = connected_components(graph, directed=False)[1]
        of_piece = np.bincount(piece)
        largest = np.zeros(k)
        np.maximum.at(largest, label, of_piece[piece])
        found.append(np.mean(largest / np.maximum(size, 1.0)))
    return {"connected": np.array(found)}


def _tree_cuts(name: str, tree: Tree, labels: Ints, k: int) -> dict[str, Floats]:
    """Return how many edges of a spanning tree partitions cut, and how long these are."""
    floor = 1e-2 * float(tree.length.mean()) + _TINY  # rows may be equal
    usual = np.log(max(float(np.median(tree.length)), floor))
    cuts, gaps = [], []
    for label in labels:
        lengths = tree.length[label[tree.start] != label[tree.end]]
        cuts.append(np.log((len(lengths) + 1.0) / k))
        longest = lengths[-(k - 1) :]  # in rising order
        gaps.append(np.mean(np.log(np.maximum(longest, floor))) - usual if len(longest) else 0.0)
    return {f"{name} cut": np.array(cuts), f"{name} gap": np.clip(gaps, -9.0, 9.0)}
