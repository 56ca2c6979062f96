"""Helpers for arrays of points: validation, distinct rows, k-means, nearest rows, axes."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors

from sgpmic._types import Floats as Floats
from sgpmic._types import Ints as Ints

#: Rows at a time, to bound what differences take.
_PART = 65_536


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
    n_clusters = min(n_clusters, len(np.unique(points, axis=0)))
    origin, unit = origin_and_unit(points)
    model = KMeans(n_clusters, n_init=n_init, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((points - origin) / unit)
    return model.labels_, origin + unit * model.cluster_centers_


def falling_weights(distances: Floats, power: float) -> Floats:
    """Return weights that go with distance**-power, every row adding up to one.

    A row at distance zero has all of the weight; several of them share it equally.
    """
    nearest = distances.min(axis=1, keepdims=True)
    # Ratios to the nearest lie in [0, 1], so no power of them overflows, and 0/0 counts as one.
    closeness = np.divide(nearest, distances, out=np.ones_like(distances), where=distances > 0.0)
    closeness **= power
    return closeness / closeness.sum(axis=1, keepdims=True)


def weights_of_nearest(sample: Floats, rows: Floats, k: int) -> tuple[Ints, Floats]:
    """Return each row's ``k`` nearest rows in the sample, and weights that fall with distance.

    The weights go with the inverse square of the distance and add up to one; a row that is in the
    sample has all of its weight on itself (equal rows share it).
    """
    center = sample.mean(axis=0)  # keeps squares from losing digits to a large offset
    # In the tens of dimensions a search tree looks at nearly every point as well, one by one.
    k = min(k, len(sample))
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(sample - center)
    places, weights = np.empty((len(rows), k), np.int64), np.empty((len(rows), k))
    for first in range(0, len(rows), _PART):
        here = slice(first, first + _PART)
        part = rows[here]
        places[here] = search.kneighbors(part - center, return_distance=False)
        # From the differences: the search's own products have lost the digits of close neighbors.
        squares = [np.sum((part - sample[place]) ** 2, axis=1) for place in places[here].T]
        weights[here] = falling_weights(np.stack(squares, axis=1), 1.0)
    return places, weights


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
