"""The measures against cases worked by hand, scikit-learn, and what must hold for any labels."""

from __future__ import annotations

from itertools import permutations
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    adjusted_rand_score,
    mutual_info_score,
    normalized_mutual_info_score,
)

from paper.metrics import hungarian_accuracy, paper_nmi, purity, scores

pytestmark = pytest.mark.slow

few = st.integers(0, 3)
partitions = st.lists(st.tuples(few, few), min_size=1, max_size=30).map(
    lambda pairs: tuple(np.array(side) for side in zip(*pairs, strict=True))
)


def test_two_clusters_of_one_class() -> None:
    # Clusters 0: {0, 0}, 1: {0, 1}, 2: {1, 1, 1}. Majorities 2 + 1 + 3 of 7. Cluster 1 is a tie
    # and goes to class 0, so the mapped labels are 0 0 0 0 1 1 1:
    #            label 0  label 1
    #   class 0     3        0
    #   class 1     1        3
    # H(classes) and H(labels) are both of (3, 4)/7, for the classes are 3 and 4 rows and the
    # labels 4 and 3. H(both) is of (3, 1, 3)/7.
    classes = [0, 0, 0, 1, 1, 1, 1]
    labels = [0, 0, 1, 1, 2, 2, 2]
    h = -(3 / 7) * log(3 / 7) - (4 / 7) * log(4 / 7)
    h_both = -2 * (3 / 7) * log(3 / 7) - (1 / 7) * log(1 / 7)
    assert purity(classes, labels) == pytest.approx(6 / 7)
    assert paper_nmi(classes, labels) == pytest.approx((2 * h - h_both) / h)
    # One to one: class 0 takes cluster 0 (2 rows), class 1 cluster 2 (3 rows).
    assert hungarian_accuracy(classes, labels) == pytest.approx(5 / 7)


def test_the_mean_of_entropies_is_geometric() -> None:
    # Classes 0 0 0 1, clusters 0 0 1 1. Cluster 1 holds a 0 and a 1, a tie: class 0. All rows are
    # then mapped to class 0, which tells nothing.
    assert paper_nmi([0, 0, 0, 1], [0, 0, 1, 1]) == 0.0
    # Classes 0 0 1 1, clusters 0 0 0 1, no ties: the labels stay. I = H(t) + H(c) − H(t, c) with
    # H(t) = log 2, H(c) of (3, 1)/4, H(t, c) of (2, 1, 1)/4.
    h_t = log(2)
    h_c = -(3 / 4) * log(3 / 4) - (1 / 4) * log(1 / 4)
    h_both = (1 / 2) * log(2) + (1 / 2) * log(4)
    expected = (h_t + h_c - h_both) / sqrt(h_t * h_c)
    assert paper_nmi([0, 0, 1, 1], [0, 0, 0, 1]) == pytest.approx(expected)


def test_ties_go_to_the_smallest_class() -> None:
    # Cluster 0 is {5, 9}, cluster 1 {9, 9}, cluster 2 {5, 5}. The tie goes to class 5: mapped
    # labels 5 5 9 9 5 5 against 5 9 9 9 5 5. Had it gone to 9 they would be 9 9 9 9 5 5.
    classes, labels = [5, 9, 9, 9, 5, 5], [0, 0, 1, 1, 2, 2]
    expected = normalized_mutual_info_score(classes, [5, 5, 9, 9, 5, 5], average_method="geometric")
    assert paper_nmi(classes, labels) == pytest.approx(expected)
    # Three classes, so that the other choice would give another number: {0, 2}, {0}, {1}.
    classes, labels = [0, 2, 0, 1], [0, 0, 1, 2]
    to_0 = normalized_mutual_info_score(classes, [0, 0, 0, 1], average_method="geometric")
    to_2 = normalized_mutual_info_score(classes, [2, 2, 0, 1], average_method="geometric")
    assert paper_nmi(classes, labels) == pytest.approx(to_0)
    assert to_0 != pytest.approx(to_2)


def test_more_clusters_than_classes_and_fewer() -> None:
    # Every row its own cluster: pure, but only one row of each class can be matched.
    assert purity([0, 0, 0, 1], [0, 1, 2, 3]) == 1.0
    assert hungarian_accuracy([0, 0, 0, 1], [0, 1, 2, 3]) == 0.5
    # One cluster: the largest class.
    assert purity([0, 0, 0, 1], [7, 7, 7, 7]) == 0.75
    assert hungarian_accuracy([0, 0, 0, 1], [7, 7, 7, 7]) == 0.75
    assert paper_nmi([0, 0, 0, 1], [7, 7, 7, 7]) == 0.0


def test_one_class_tells_nothing() -> None:
    assert paper_nmi([3, 3, 3], [0, 1, 1]) == 0.0
    assert purity([3, 3, 3], [0, 1, 1]) == 1.0


@given(partitions)
def test_every_measure_has_its_range_and_order(pair: tuple[np.ndarray, np.ndarray]) -> None:
    classes, labels = pair
    floor = np.bincount(classes).max() / len(classes)
    acc, one_to_one = purity(classes, labels), hungarian_accuracy(classes, labels)
    assert floor - 1e-12 <= acc <= 1.0
    assert 0.0 < one_to_one <= acc + 1e-12
    assert 0.0 <= paper_nmi(classes, labels) <= 1.0


@given(partitions, st.permutations(range(4)))
def test_the_names_of_clusters_do_not_matter(
    pair: tuple[np.ndarray, np.ndarray], names: list[int]
) -> None:
    classes, labels = pair
    renamed = 10 * np.array(names)[labels] - 7
    for measure in (purity, paper_nmi, hungarian_accuracy):
        assert measure(classes, renamed) == pytest.approx(measure(classes, labels), abs=1e-12)


@given(partitions)
def test_paper_nmi_is_scikit_learns_after_mapping(pair: tuple[np.ndarray, np.ndarray]) -> None:
    classes, labels = pair
    mapped = labels.copy()
    for k in set(labels.tolist()):
        members = classes[labels == k].tolist()
        mapped[labels == k] = max(sorted(set(members)), key=members.count)
    expected = normalized_mutual_info_score(classes, mapped, average_method="geometric")
    if len(set(classes.tolist())) == 1 or len(set(mapped.tolist())) == 1:
        expected = 0.0  # scikit-learn has 1 where both are constant
    assert paper_nmi(classes, labels) == pytest.approx(expected, abs=1e-9)
    assert paper_nmi(classes, mapped) == pytest.approx(paper_nmi(classes, labels), abs=1e-9)


@given(partitions)
def test_hungarian_accuracy_is_the_best_of_all_matches(
    pair: tuple[np.ndarray, np.ndarray],
) -> None:
    classes, labels = pair
    best = max(np.mean(np.array(match)[labels] == classes) for match in permutations(range(4)))
    assert hungarian_accuracy(classes, labels) == pytest.approx(best)


def test_scores_are_percent() -> None:
    classes, labels = np.array([0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2, 2])
    found = scores(classes, labels)
    assert list(found) == ["acc", "nmi", "hungarian", "sklearn_nmi", "ari"]
    assert found["acc"] == pytest.approx(600 / 7)
    assert found["nmi"] == pytest.approx(100 * paper_nmi(classes, labels))
    assert found["hungarian"] == pytest.approx(500 / 7)
    assert found["ari"] == pytest.approx(100 * adjusted_rand_score(classes, labels))
    # scikit-learn's is the arithmetic mean of the unmapped labels: sizes 3, 4 and 2, 2, 3 of 7.
    h_t = -(3 / 7) * log(3 / 7) - (4 / 7) * log(4 / 7)
    h_c = -2 * (2 / 7) * log(2 / 7) - (3 / 7) * log(3 / 7)
    information = mutual_info_score(classes, labels)
    assert found["sklearn_nmi"] == pytest.approx(200 * information / (h_t + h_c))


@pytest.mark.parametrize("measure", [purity, paper_nmi, hungarian_accuracy, scores])
def test_bad_arguments(measure: object) -> None:
    assert callable(measure)
    with pytest.raises(ValueError, match="There are 2 classes but 3 labels"):
        measure([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="classes must be a vector with at least one entry"):
        measure([], [])
    with pytest.raises(ValueError, match=r"labels must be a vector .* shape \(1, 2\)"):
        measure([0, 1], [[0, 1]])
    with pytest.raises(TypeError, match="labels must be whole numbers, got values of type float64"):
        measure([0, 1], [0.0, 1.0])
