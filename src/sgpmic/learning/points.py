"""Helpers for arrays of points: validation, distinct rows, k-means, rotations, weights."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from sgpmic._types import Floats as Floats
from sgpmic._types import Ints as Ints


def given_array(what: str, given: ArrayLike, shape: tuple[int, int], axes: str) -> Floats:
    """Return a copy of an array that a user gave, after checking its shape and values."""
    array = np.array(given, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(
            f"The given {what} must have shape {shape} ({axes}), got shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"The given {what} contain NaN or infinite values.")
    return array


def origin_and_unit(points: Floats) -> tuple[Floats, float]:
    """Return a shift and a factor under which squares neither overflow nor cancel."""
    origin: Floats = points[0]
    return origin, float(np.abs(points - origin).max()) or 1.0


def distinct_rows(points: Floats) -> tuple[Floats, Ints, Ints]:
    """Return the distinct rows in order of appearance, every row's index there, and the counts.

    Order of appearance matters because ties between neighbors are broken by position.
    """
    _, first, inverse, counts = np.unique(
        points, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    return points[first[order]], np.argsort(order)[inverse.reshape(-1)], counts[order]


def k_means(
    points: Floats, n_clusters: int, n_init: int, random_state: np.random.RandomState
) -> tuple[Ints, Floats]:
    """Return labels and centers by k-means, of no more clusters than there are distinct rows."""
    # Which take their time, and only fits need.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    n_clusters = min(n_clusters, len(np.unique(points, axis=0)))
    origin, unit = origin_and_unit(points)
    model = KMeans(n_clusters, n_init=n_init, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((points - origin) / unit)
    return model.labels_, origin + unit * model.cluster_centers_


def rotated(Y: Floats) -> Floats:
    """Return rows in an orthonormal basis of what they span, where that has fewer dimensions.

    Distances and products of rows stay what they are, and equal rows stay equal.
    """
    if Y.shape[1] <= len(Y):
        return Y
    distinct, numbers, _ = distinct_rows(Y)
    triangular = np.asarray(np.linalg.qr(distinct.T, mode="r"))
    return triangular.T[numbers]


def inverse_weights(distances: Floats) -> Floats:
    """Return weights that go with the inverse distance, every row adding up to one.

    A row at distance zero has all of the weight; several of them share it equally.
    """
    nearest = distances.min(axis=1, keepdims=True)
    # Ratios to the nearest lie in [0, 1], and 0/0 counts as one.
    closeness = np.divide(nearest, distances, out=np.ones_like(distances), where=distances > 0.0)
    return closeness / closeness.sum(axis=1, keepdims=True)


def view_axes(points: Floats) -> Floats:
    """Return the axes that pictures of points are drawn in, as columns: a rotation.

    Of up to two dimensions the axes as they are; of more, the principal ones, each pointing to
    where its largest coordinate is.
    """
    if points.shape[1] <= 2:
        return np.eye(points.shape[1])
    axes: Floats = np.linalg.eigh(np.cov(points.T))[1][:, ::-1]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(len(axes))])
    return axes * np.where(signs == 0, 1.0, signs)
