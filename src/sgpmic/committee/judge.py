"""The judge: neural networks, trained on synthetic data, that predict the quality of a partition.

Thousands of labeled data sets were drawn from a documented prior (``benchmarks/judge``), every
member clustered each of them, and small neural networks were trained to predict a partition's
adjusted Rand index (ARI) with the true labels from internal validity indices of all partitions.
No real data were used. The networks are an ensemble of MLPs, evaluated here with NumPy.

Silhouettes and likelihoods favor blobs, cuts of neighbor graphs and spanning trees favor clusters
separated by gaps: the judge learned when to trust which.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax

from sgpmic._types import Floats, Ints
from sgpmic.committee.geometry import N_BINS, Geometry, Tree
from sgpmic.committee.members import MEMBERS, log_bin_probabilities

#: The network weights, a file next to this module.
WEIGHTS_FILE = "judge.safetensors"
#: Votes are weighted by exp(SHARPNESS · predicted ARI); tuned on synthetic data.
SHARPNESS = 12.0
#: Standardized inputs are clipped: the networks were not trained on values further out.
_MOST_DEVIATIONS = 5.0
#: A cluster is small if it has less than this fraction of n / k rows.
SMALL = 0.2
#: Log penalty on the vote weights of partitions with a small cluster. A few rows hardly change the
#: ARI, but whoever asks for k clusters wants k of some size. Tuned on synthetic data: it halves the
#: number of votes with small clusters, at no measurable loss of ARI (docs/judge.md).
_PENALTY = 2.0
#: Silhouettes are computed for at most this many rows, from distances to all rows.
_MOST_SILHOUETTES = 1000
#: Neighbors per row in the graph for the index "connected".
_CONNECTING = 5
_FLOOR = 1e-3
_TINY = 1e-12

#: Column names of :func:`validity_indices`.
INDICES = (
    "cut",  # fraction of neighbors in other clusters, mean over clusters; small ones penalized by 1
    "raw cut",  # the same, mean over rows
    "largest cut",  # over clusters
    "nearest cut",  # fraction of rows whose two nearest neighbors are in other clusters
    "size entropy",  # 1 for equal sizes
    "smallest size",  # relative to n / k
    "largest size",
    "empty",  # number of clusters without rows
    "valley",  # log ratio of neighbor distances of border rows to those of interior rows
    "least valley",  # over clusters
    "border",  # fraction of rows with a neighbor in another cluster
    "silhouette",
    "least silhouette",  # over clusters
    "Calinski-Harabasz",  # its logarithm
    "Davies-Bouldin",
    "full likelihood",  # classification log-likelihood per row and dimension, minus one Gaussian's
    "diagonal likelihood",
    "tied likelihood",
    "tied likelihood, whole",  # not divided by the number of dimensions
    "full BIC",
    "overlap",  # of pairs of clusters as Gaussians, along Fisher's discriminant
    "largest overlap",
    "projected valley",  # density between a cluster and the one it overlaps most, projected
    "largest projected valley",
    "connected",  # fraction of a cluster in its largest connected component
    "linear accuracy",  # of Fisher's linear discriminant
    "tree cut",  # log of (number of cut edges of the minimum spanning tree + 1) / k
    "tree gap",  # mean log length of the longest k − 1 cut edges, minus the log median edge length
    "reachability tree cut",
    "reachability tree gap",
    "feature information",  # mutual information of labels and a feature, per entropy of the labels
    "median feature information",
    "largest feature information",
    "total feature information",  # logarithm of the sum
    "shared feature information",  # participation ratio: 1 if features share it, 1/p if one has all
    "naive Bayes accuracy",  # in reproducing the labels from binned features
    "one feature's accuracy",  # of the best feature, minus the share of the largest cluster
    "agreement of halves",  # ARI of naive Bayes labels from one and the other half of the features
    "accuracy of halves",  # their mean ARI with the labels
    "least accuracy of halves",
)


class Perceptrons(NamedTuple):
    """An ensemble of E multilayer perceptrons with the same inputs."""

    mean: Floats  # (d,) of the inputs
    std: Floats
    weights: tuple[Floats, ...]  # (E, inputs, outputs) of every layer
    biases: tuple[Floats, ...]  # (E, 1, outputs)

    def __call__(self, x: Floats) -> Floats:
        """Return the networks' outputs (E, n, outputs) for inputs (n, d)."""
        hidden = np.clip((x - self.mean) / self.std, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)[None]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.tanh(hidden @ weight + bias)
        return hidden @ self.weights[-1] + self.biases[-1]


class Opinion(NamedTuple):
    """The judge's assessment of the members' partitions."""

    expected: Floats  # (m,) predicted ARI with the true clusters
    weights: Floats  # (m,) vote weights, which sum to 1
    indices: Floats  # (m, len(INDICES)) validity indices
    agreement: Floats  # (m, m) pairwise ARI of the members


@cache
def load_networks() -> dict[str, Perceptrons]:
    """Load the trained networks from the package's weights file, by name."""
    return parse_networks((files("sgpmic.committee") / WEIGHTS_FILE).read_bytes())


def parse_networks(content: bytes) -> dict[str, Perceptrons]:
    """Parse the networks from the bytes of a safetensors file; raise if it is damaged."""
    from safetensors.numpy import load

    try:
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        arrays = load(content)
        if metadata["digest"] != digest(arrays):
            raise ValueError("its digest does not match")
        names = sorted({name.partition(".")[0] for name in arrays})
        return {name: _network(arrays, name) for name in names}
    except Exception as error:
        raise ValueError(
            f"The weights of the judge ({WEIGHTS_FILE}) are damaged ({error}): reinstall sgpmic."
        ) from error


def _network(arrays: Mapping[str, Floats], name: str) -> Perceptrons:
    layers = range(sum(key.startswith(f"{name}.weight") for key in arrays))
    return Perceptrons(
        arrays[f"{name}.mean"].astype(np.float64),
        arrays[f"{name}.std"].astype(np.float64),
        tuple(arrays[f"{name}.weight{i}"].astype(np.float64) for i in layers),
        tuple(arrays[f"{name}.bias{i}"].astype(np.float64)[:, None] for i in layers),
    )


def digest(arrays: Mapping[str, Floats]) -> str:
    """Return a digest of the arrays' names, shapes and values, and of the inputs' names."""
    found = hashlib.sha256(repr((INDICES, tuple(MEMBERS))).encode())
    for name in sorted(arrays):
        found.update(repr((name, arrays[name].shape, str(arrays[name].dtype))).encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def judge(geometry: Geometry, labels: Mapping[str, Ints], k: int) -> Opinion:
    """Predict the quality of the members' partitions (labels by member name) and weight them."""
    partitions = list(labels.values())
    indices = validity_indices(geometry, partitions, k)
    agreement = pairwise_agreement(np.stack(partitions), k)
    inputs = judge_inputs(list(labels), indices, agreement, geometry.summary, k)
    outputs = load_networks()["judge"](inputs)
    expected = np.clip(outputs[..., 0].mean(axis=0), 0.0, 1.0)
    return Opinion(expected, vote_weights(outputs[..., 1]), indices, agreement)


def vote_weights(expected: Floats) -> Floats:
    """Return vote weights (m,) from the ARIs (E, m) that each network predicts."""
    # Averaged over the networks: where these disagree, more members count.
    return softmax(SHARPNESS * expected, axis=1).mean(axis=0)


def penalize_small(opinion: Opinion) -> Opinion:
    """Reduce the vote weights of partitions with a small cluster."""
    # Only for the final vote: the evidence for a number of clusters must show that it is too high.
    is_small = opinion.indices[:, INDICES.index("smallest size")] < SMALL
    weights = opinion.weights * np.exp(-_PENALTY * is_small)
    return opinion._replace(weights=weights / weights.sum())


def pairwise_agreement(labels: Ints, k: int) -> Floats:
    """Return the adjusted Rand indices (m, m) between partitions (m, n) into k clusters."""
    m, n = labels.shape
    members = np.eye(k)[labels].transpose(1, 0, 2).reshape(n, m * k)
    return adjusted_rand((members.T @ members).reshape(m, k, m, k), n)


def adjusted_rand(common: Floats, n: int) -> Floats:
    """Return the adjusted Rand indices (m, m) from contingency tables ``common`` (m, k, m, k)."""
    together = np.sum(common * (common - 1.0), axis=(1, 3)) / 2.0
    of_each = np.diag(together)  # pairs of rows in the same cluster
    expected = np.outer(of_each, of_each) / max(n * (n - 1) / 2.0, 1.0)
    most = (of_each[:, None] + of_each) / 2.0
    alike = most <= expected
    return np.where(alike, 1.0, (together - expected) / np.where(alike, 1.0, most - expected))


def judge_inputs(
    names: Sequence[str], indices: Floats, agreement: Floats, summary: Sequence[float], k: int
) -> Floats:
    """Return the judge's inputs (m, d): indices, raw and relative, names, the data's features."""
    m = len(names)
    others = agreement[~np.eye(m, dtype=bool)].reshape(m, m - 1) if m > 1 else np.ones((m, 1))
    own = np.column_stack([indices, others.mean(1), others.max(1), np.median(others, axis=1)])
    rank = (own[:, None] > own).sum(axis=1) / max(m - 1, 1)
    relative = (own - own.mean(axis=0)) / (own.std(axis=0) + 1e-6)
    kinds = np.array([[name == each for each in MEMBERS] for name in names], dtype=np.float64)
    by_name = dict(zip(INDICES, indices.T, strict=True))
    best = [by_name[name].max() for name in ("silhouette", "full BIC", "reachability tree gap")]
    problem = np.tile([*summary, np.log(k), others.mean(), by_name["cut"].min(), *best], (m, 1))
    return np.column_stack([own, relative, own - own.max(axis=0), rank, kinds, problem])


def validity_indices(geometry: Geometry, partitions: Sequence[Ints], k: int) -> Floats:
    """Return internal validity indices (m, len(INDICES)) of partitions into k ≥ 2 clusters.

    All partitions are evaluated together so that distances and matrix products are computed once.
    """
    labels = np.asarray(partitions, np.int64)
    members = np.eye(k)[labels]  # (m, n, k) one-hot
    sizes = members.sum(axis=1)
    share = sizes / len(geometry)
    # Gaussian indices are computed on the leading principal components.
    gaussian = [_gaussian_indices(geometry.components, one, k) for one in labels]
    found: dict[str, Any] = {
        "size entropy": -np.sum(share * np.log(share + _TINY), axis=1) / np.log(k),
        "smallest size": share.min(axis=1) * k,
        "largest size": share.max(axis=1) * k,
        "empty": np.sum(sizes == 0, axis=1).astype(np.float64),
        **_neighbor_cuts(geometry, labels, members, sizes),
        **_silhouettes(geometry, labels, members, sizes),
        **{name: [one[name] for one in gaussian] for name in gaussian[0]},
        "connected": _connections(geometry, labels, sizes),
        **_feature_indices(geometry, labels, members),
        **_tree_cuts("tree", geometry.tree, labels, k),
        **_tree_cuts("reachability tree", geometry.reachability_tree, labels, k),
    }
    return np.nan_to_num(
        np.column_stack([found[name] for name in INDICES]), posinf=9.0, neginf=-9.0
    )


def _by_cluster(values: Floats, members: Floats, sizes: Floats) -> Floats:
    """Return cluster means (m, k) of row values (m, n); 0 for empty clusters."""
    return np.einsum("mn,mnk->mk", values, members) / np.maximum(sizes, 1.0)


def _neighbor_cuts(
    geometry: Geometry, labels: Ints, members: Floats, sizes: Floats
) -> dict[str, Floats]:
    n, k = len(geometry), sizes.shape[1]
    elsewhere = labels[:, geometry.neighbors] != labels[:, :, None]  # (m, n, neighbors)
    cut = elsewhere.mean(axis=2)
    cuts = _by_cluster(cut, members, sizes)
    small = sizes < SMALL * n / k
    at_border = (cut > 0).astype(np.float64)
    # Mean log neighbor distance of border rows minus that of interior rows.
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


def _moments(Z: Floats, labels: Ints, k: int) -> tuple[Floats, Floats, Floats]:
    """Return the sizes, means and scatter matrices of clusters."""
    members = np.eye(k)[labels]
    sizes = members.sum(axis=0)
    means = members.T @ Z / np.maximum(sizes, 1.0)[:, None]
    centered = (Z[labels == c] - means[c] for c in range(k))
    return sizes, means, np.stack([each.T @ each for each in centered])


def _gaussian_indices(Z: Floats, labels: Ints, k: int) -> dict[str, float]:
    n, q = Z.shape
    floor = _FLOOR * np.eye(q)
    sizes, means, scatter = _moments(Z, labels, k)
    count = np.maximum(sizes, 1.0)
    within = scatter.sum(axis=0)
    total = Z.T @ Z - n * np.outer(Z.mean(axis=0), Z.mean(axis=0))
    one = total / n + floor
    log_one = float(np.linalg.slogdet(one)[1])
    # Covariances of small clusters are shrunk toward half the variances of all rows.
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
    """Return the pairwise overlap (k, k) of the clusters as Gaussians, between 0 and 1."""
    sizes, means, scatter = _moments(geometry.components, labels, k)
    return _overlaps(means, scatter / np.maximum(sizes, 1.0)[:, None, None], sizes)[0]


def _overlaps(means: Floats, covariances: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Return the overlap (k, k) and Fisher's discriminant directions (k, k, q) of all pairs."""
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
    """Return the relative density between every cluster and the one it overlaps most.

    Both are projected onto Fisher's direction. The result is the lowest density between the two
    centers, divided by the lower of the densities at the centers: 0 is a gap, 1 no valley.
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


def _connections(geometry: Geometry, labels: Ints, sizes: Floats) -> list[float]:
    """Return the mean fraction of a cluster in its largest component of the neighbor graph."""
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
        found.append(float(np.mean(largest / np.maximum(size, 1.0))))
    return found


def _feature_indices(geometry: Geometry, labels: Ints, members: Floats) -> dict[str, Floats]:
    """Return the indices of how much single features and halves of them tell about the labels."""
    m, n, k = members.shape
    bins = geometry.bins
    counts = (bins.T @ members.transpose(1, 0, 2).reshape(n, m * k)).reshape(-1, N_BINS, m, k)
    p = len(counts)
    joint, of_cluster = counts / n, members.mean(axis=1)
    of_bin = joint.sum(axis=3, keepdims=True)
    ratio = joint / np.maximum(of_bin * of_cluster, _TINY)
    information = np.sum(joint * np.log(np.maximum(ratio, _TINY)), axis=(1, 3))  # (p, m)
    # Less its expectation for independent labels (Miller and Madow).
    degrees = np.sum(of_bin[..., 0] > 0, axis=1) - 1.0
    information -= degrees * (np.sum(of_cluster > 0, axis=1) - 1.0) / (2.0 * n)
    entropy = -np.sum(of_cluster * np.log(of_cluster + _TINY), axis=1)
    information = np.maximum(information, 0.0) / (entropy + 1e-6)
    right, halves = np.zeros(m), np.zeros((m, 3, 3))
    is_even = np.repeat(np.arange(p) % 2 == 0, N_BINS)
    for i in range(m):
        log_probability = log_bin_probabilities(bins, members[i])
        prior = np.log(of_cluster[i] + _TINY)
        even = bins[:, is_even] @ log_probability[is_even]
        odd = bins[:, ~is_even] @ log_probability[~is_even]
        right[i] = np.mean((even + odd + prior).argmax(axis=1) == labels[i])
        by_half = [(even + prior).argmax(axis=1), (odd + prior).argmax(axis=1)]
        halves[i] = pairwise_agreement(np.stack([*by_half, labels[i]]), k)
    total = information.sum(axis=0)
    alone = joint.max(axis=3).sum(axis=1).max(axis=0)
    return {
        "feature information": information.mean(axis=0),
        "median feature information": np.median(information, axis=0),
        "largest feature information": information.max(axis=0),
        "total feature information": np.log(total + _FLOOR),
        "shared feature information": total**2 / (p * np.sum(information**2, axis=0) + _TINY),
        "naive Bayes accuracy": right,
        "one feature's accuracy": alone - of_cluster.max(axis=1),
        "agreement of halves": halves[:, 0, 1],
        "accuracy of halves": halves[:, 2, :2].mean(axis=1),
        "least accuracy of halves": halves[:, 2, :2].min(axis=1),
    }


def _tree_cuts(name: str, tree: Tree, labels: Ints, k: int) -> dict[str, Floats]:
    """Return the indices for the number and length of the spanning tree's cut edges."""
    floor = 1e-2 * float(tree.length.mean()) + _TINY  # for duplicate rows
    usual = np.log(max(float(np.median(tree.length)), floor))
    cuts, gaps = [], []
    for label in labels:
        lengths = tree.length[label[tree.start] != label[tree.end]]
        cuts.append(np.log((len(lengths) + 1.0) / k))
        longest = lengths[-(k - 1) :]  # sorted in ascending order
        gaps.append(np.mean(np.log(np.maximum(longest, floor))) - usual if len(longest) else 0.0)
    return {f"{name} cut": np.array(cuts), f"{name} gap": np.clip(gaps, -9.0, 9.0)}
