"""Agreement of a clustering with known classes.

The paper's two metrics differ from the standard ones of the same name: its ACC is purity, and its
NMI compares the classes with labels that were first mapped to classes. Both are here, along with
the standard ones. Every function takes the classes and the labels of all rows, two vectors of whole
numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from sgpmic._types import Floats, Ints


def purity(classes: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of rows in the most frequent class of their cluster: the paper's ACC.

    Between 0 and 1. It cannot fall when a cluster is split, and its floor is the share of the
    largest class.
    """
    table = _count_table(classes, labels)
    return float(table.max(axis=0).sum() / table.sum())


def paper_nmi(classes: ArrayLike, labels: ArrayLike) -> float:
    """Return the paper's normalized mutual information.

    Every cluster is first replaced by its most frequent class (the smallest in case of ties), so
    two clusters of one class count as one. Of these labels c and the classes t it is I(t, c) /
    √(H(t) H(c)), between 0 and 1, or 0 if either is constant.
    """
    table = _count_table(classes, labels)
    majority = table.argmax(axis=0)  # the first of equals, and classes are in increasing order
    joint = np.zeros((len(table), len(table)))
    np.add.at(joint.T, majority, table.T / table.sum())
    class_entropy = _entropy(joint.sum(axis=1))
    label_entropy = _entropy(joint.sum(axis=0))
    if class_entropy == 0.0 or label_entropy == 0.0:
        return 0.0
    # I(t, c) = H(t) + H(c) − H(t, c), which rounding may leave a little under 0 or over 1.
    information = class_entropy + label_entropy - _entropy(joint.ravel())
    return float(np.clip(information / np.sqrt(class_entropy * label_entropy), 0.0, 1.0))


def hungarian_accuracy(classes: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of rows that agree under the best one-to-one match of clusters to classes.

    Between 0 and 1, never above :func:`purity`: if there are more clusters than classes, rows of
    unmatched clusters count as wrong.
    """
    table = _count_table(classes, labels)
    matched = linear_sum_assignment(table, maximize=True)
    return float(table[matched].sum() / table.sum())


def scores(classes: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Return every measure of a clustering, in percent.

    Returns
    -------
    dict of str to float
        'acc' (:func:`purity`), 'nmi' (:func:`paper_nmi`), 'hungarian'
        (:func:`hungarian_accuracy`), 'sklearn_nmi' (arithmetic mean, labels as they are) and
        'ari' (adjusted Rand index).

    Examples
    --------
    >>> found = scores([0, 0, 1, 1], [2, 2, 0, 1])
    >>> {name: round(value, 2) for name, value in found.items()}
    {'acc': 100.0, 'nmi': 100.0, 'hungarian': 75.0, 'sklearn_nmi': 80.0, 'ari': 57.14}
    """
    measures = {
        "acc": purity,
        "nmi": paper_nmi,
        "hungarian": hungarian_accuracy,
        "sklearn_nmi": normalized_mutual_info_score,
        "ari": adjusted_rand_score,
    }
    return {name: 100.0 * float(measure(classes, labels)) for name, measure in measures.items()}


def _count_table(classes: ArrayLike, labels: ArrayLike) -> Ints:
    """Return how many rows of every class (down, in increasing order) every cluster has."""
    t = _checked("classes", classes)
    c = _checked("labels", labels)
    if len(t) != len(c):
        raise ValueError(f"There are {len(t)} classes but {len(c)} labels for the same rows.")
    return contingency_matrix(t, c)


def _checked(name: str, values: ArrayLike) -> Ints:
    """Return the values as a non-empty vector of whole numbers."""
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must be a vector with at least one entry, got an array of shape {array.shape}."
        )
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers, got values of type {array.dtype}.")
    return array.astype(np.int64)


def _entropy(shares: Floats) -> float:
    """Return −Σ p log p, where 0 log 0 is 0; exactly 0 for one kind."""
    positive = shares[shares > 0.0]
    return 0.0 if len(positive) == 1 else float(-np.sum(positive * np.log(positive)))
