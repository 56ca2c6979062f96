"""Validity indices against scikit-learn's, and against slow plain versions of themselves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import (
    adjusted_rand_score,
    calinski_harabasz_score,
    davies_bouldin_score,
    mutual_info_score,
    silhouette_samples,
)
from sklearn.naive_bayes import CategoricalNB
from sklearn.preprocessing import scale

from sgpmic.committee.geometry import Geometry
from sgpmic.committee.judge import INDICES, cluster_overlaps, pairwise_agreement, validity_indices

Ints = NDArray[np.int64]
K = 3


@pytest.fixture(scope="module")
def geometry() -> Geometry:
    return Geometry(scale(load_wine().data), K)


@pytest.fixture(scope="module")
def partitions() -> list[Ints]:
    """Return the classes, classes with errors, and no classes at all."""
    rng = np.random.RandomState(0)
    y = load_wine().target.astype(np.int64)
    return [y, np.where(rng.uniform(size=len(y)) < 0.2, rng.randint(K, size=len(y)), y), y[::-1]]


@pytest.fixture(scope="module")
def found(geometry: Geometry, partitions: list[Ints]) -> dict[str, NDArray[np.float64]]:
    indices = validity_indices(geometry, partitions, K)
    assert indices.shape == (3, len(INDICES))
    return dict(zip(INDICES, indices.T, strict=True))


def test_silhouettes_and_dispersions_are_scikit_learn_s(
    geometry: Geometry, partitions: list[Ints], found: dict[str, NDArray[np.float64]]
) -> None:
    for i, labels in enumerate(partitions):
        widths = silhouette_samples(geometry.Y, labels)
        assert found["silhouette"][i] == pytest.approx(widths.mean(), rel=1e-9)
        by_cluster = [widths[labels == cluster].mean() for cluster in range(K)]
        assert found["least silhouette"][i] == pytest.approx(min(by_cluster), rel=1e-9)
        Z = geometry.components
        ch = np.log(calinski_harabasz_score(Z, labels))
        assert found["Calinski-Harabasz"][i] == pytest.approx(ch, abs=1e-7)
        db = davies_bouldin_score(Z, labels)
        assert found["Davies-Bouldin"][i] == pytest.approx(min(db, 9.0), rel=1e-9)


def test_cuts_and_sizes_row_by_row(
    geometry: Geometry, partitions: list[Ints], found: dict[str, NDArray[np.float64]]
) -> None:
    n = len(geometry)
    spacing = np.log(geometry.neighbor_distances.mean(axis=1))
    for i, labels in enumerate(partitions):
        share = [
            np.mean([labels[j] != labels[row] for j in geometry.neighbors[row]]) for row in range(n)
        ]
        cuts = [np.mean([share[r] for r in range(n) if labels[r] == c]) for c in range(K)]
        sizes = [int(np.sum(labels == c)) for c in range(K)]
        assert min(sizes) > 0.2 * n / K  # none is small
        assert found["cut"][i] == pytest.approx(np.mean(cuts))
        assert found["largest cut"][i] == pytest.approx(max(cuts))
        assert found["raw cut"][i] == pytest.approx(np.mean(share))
        assert found["border"][i] == pytest.approx(np.mean([s > 0 for s in share]))
        assert found["smallest size"][i] == pytest.approx(min(sizes) * K / n)
        assert found["empty"][i] == 0
        entropy = -sum(s / n * np.log(s / n) for s in sizes) / np.log(K)
        assert found["size entropy"][i] == pytest.approx(entropy)
        valleys = []
        for c in range(K):
            outer = [spacing[r] for r in range(n) if labels[r] == c and share[r] > 0]
            inner = [spacing[r] for r in range(n) if labels[r] == c and share[r] == 0]
            if not inner:
                valleys.append(0.0)
            else:
                valleys.append(np.mean(outer) - np.mean(inner) if outer else 2.0)
        assert found["valley"][i] == pytest.approx(np.mean(valleys))


def test_trees_edge_by_edge(
    geometry: Geometry, partitions: list[Ints], found: dict[str, NDArray[np.float64]]
) -> None:
    for name, tree in (("tree", geometry.tree), ("reachability tree", geometry.reachability_tree)):
        for i, labels in enumerate(partitions):
            lengths = sorted(
                length
                for start, end, length in zip(*tree, strict=True)
                if labels[start] != labels[end]
            )
            assert found[f"{name} cut"][i] == pytest.approx(np.log((len(lengths) + 1) / K))
            longest = np.log(lengths[-(K - 1) :]).mean()
            gap = longest - np.log(np.median(tree.length))
            assert found[f"{name} gap"][i] == pytest.approx(gap)


def test_tied_likelihood_is_that_of_gaussians_with_one_covariance(
    geometry: Geometry, partitions: list[Ints], found: dict[str, NDArray[np.float64]]
) -> None:
    Z, floor = geometry.components, 1e-3 * np.eye(geometry.components.shape[1])
    one = np.cov(Z.T, bias=True) + floor
    for i, labels in enumerate(partitions):
        centered = np.concatenate([Z[labels == c] - Z[labels == c].mean(axis=0) for c in range(K)])
        tied = centered.T @ centered / len(Z) + floor
        # The exponents of maximum likelihood are equal; what is left are the determinants.
        zero = np.zeros(len(one))
        gain = multivariate_normal(zero, tied).logpdf(zero) - multivariate_normal(zero, one).logpdf(
            zero
        )
        assert found["tied likelihood, whole"][i] == pytest.approx(gain)
        assert found["tied likelihood"][i] == pytest.approx(gain / len(one))


def test_linear_accuracy_is_that_of_linear_discriminants(
    geometry: Geometry, partitions: list[Ints], found: dict[str, NDArray[np.float64]]
) -> None:
    for i, labels in enumerate(partitions):
        classifier = LinearDiscriminantAnalysis(solver="lsqr").fit(geometry.components, labels)
        accuracy = classifier.score(geometry.components, labels)
        assert found["linear accuracy"][i] == pytest.approx(accuracy, abs=0.02)


def test_features_one_by_one(
    geometry: Geometry, partitions: list[Ints], found: dict[str, NDArray[np.float64]]
) -> None:
    features, n = geometry.features, len(geometry)
    below = np.array([[np.mean(x < v) + np.mean(x == v) / 2 for v in x] for x in features.T]).T
    bins = (8 * below).astype(int)
    np.testing.assert_array_equal(geometry.bins.reshape(n, -1, 8).argmax(axis=2), bins)
    assert len(np.unique(bins)) == 8
    for i, labels in enumerate(partitions):
        bias = np.array([(len(np.unique(x)) - 1) * (K - 1) / (2 * n) for x in bins.T])
        raw = np.array([mutual_info_score(labels, x) for x in bins.T])
        information = np.maximum(raw - bias, 0.0) / mutual_info_score(labels, labels)
        assert found["feature information"][i] == pytest.approx(information.mean(), rel=1e-5)
        assert found["median feature information"][i] == pytest.approx(
            np.median(information), rel=1e-5
        )
        assert found["largest feature information"][i] == pytest.approx(information.max(), rel=1e-5)
        total = information.sum()
        assert found["total feature information"][i] == pytest.approx(
            np.log(total + 1e-3), abs=1e-5
        )
        participation = total**2 / (len(information) * np.sum(information**2))
        assert found["shared feature information"][i] == pytest.approx(participation, rel=1e-5)
        alone = [
            sum(np.bincount(labels[x == b], minlength=1).max(initial=0) for b in range(8)) / n
            for x in bins.T
        ]
        largest = np.bincount(labels).max() / n
        assert found["one feature's accuracy"][i] == pytest.approx(max(alone) - largest)
        parts = [bins, bins[:, ::2], bins[:, 1::2]]
        bayes = [CategoricalNB(alpha=0.5, min_categories=8) for _ in parts]
        said = [one.fit(x, labels).predict(x) for one, x in zip(bayes, parts, strict=True)]
        assert found["naive Bayes accuracy"][i] == pytest.approx(np.mean(said[0] == labels))
        agreement = adjusted_rand_score(said[1], said[2])
        assert found["agreement of halves"][i] == pytest.approx(agreement)
        accuracies = [adjusted_rand_score(each, labels) for each in said[1:]]
        assert found["accuracy of halves"][i] == pytest.approx(np.mean(accuracies))
        assert found["least accuracy of halves"][i] == pytest.approx(min(accuracies))


def test_overlap_of_known_gaussians() -> None:
    """Of two Gaussians of unit variance d apart: exp(−(d/2)²)."""
    rng = np.random.RandomState(0)
    labels = np.repeat([0, 1], 20_000 // 10)
    Y = rng.standard_normal((len(labels), 2))
    Y[:, 0] += 2.0 * labels
    overlap = cluster_overlaps(Geometry(Y, 2), labels, 2)
    assert overlap[0, 1] == overlap[1, 0] == pytest.approx(np.exp(-1.0), rel=0.1)
    assert overlap[0, 0] == 0.0


def test_all_speak_for_the_true_classes(found: dict[str, NDArray[np.float64]]) -> None:
    higher = (
        "silhouette",
        "full likelihood",
        "full BIC",
        "connected",
        "linear accuracy",
        "feature information",
        "naive Bayes accuracy",
        "agreement of halves",
    )
    lower = (
        "cut",
        "raw cut",
        "border",
        "overlap",
        "largest overlap",
        "projected valley",
        "tree cut",
    )
    for name in higher:
        assert found[name][0] > found[name][2], name
    for name in lower:
        assert found[name][0] < found[name][2], name


def test_odd_partitions_have_finite_indices(geometry: Geometry) -> None:
    n = len(geometry)
    empty = np.zeros(n, np.int64)
    single = np.eye(1, n, dtype=np.int64)[0]
    assert np.isfinite(validity_indices(geometry, [empty, single], K)).all()
    equal = Geometry(np.zeros((20, 3)), 2)
    halves = [(np.arange(20) > 9).astype(np.int64)]
    assert np.isfinite(validity_indices(equal, halves, 2)).all()


def test_agreement_is_the_adjusted_rand_index(partitions: list[Ints]) -> None:
    found = pairwise_agreement(np.stack(partitions), K)
    for i, one in enumerate(partitions):
        for j, other in enumerate(partitions):
            assert found[i, j] == pytest.approx(adjusted_rand_score(one, other), abs=1e-12)
