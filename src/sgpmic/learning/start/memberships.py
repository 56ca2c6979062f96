"""Starting memberships of the rows in the clusters: fuzzy c-means, k-means and mixtures."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from sgpmic._types import Floats
from sgpmic.learning.points import falling_weights, given_array, k_means, origin_and_unit

METHODS = ("fcm", "kmeans", "gmm")


class FuzzyResult(NamedTuple):
    """Outcome of fuzzy c-means."""

    memberships: Floats  # (N, M), rows sum to one
    centers: Floats  # (M, Q)
    objective: float  # the weighted sum of squared distances that was minimized
    n_iter: int  # of the best start


def fuzzy_c_means(
    X: Floats,
    n_clusters: int,
    *,
    fuzzifier: float = 2.0,
    n_init: int = 5,
    max_iter: int = 300,
    tol: float = 1e-6,
    random_state: np.random.RandomState,
) -> FuzzyResult:
    """Cluster with Euclidean fuzzy c-means and keep the best of several starts.

    There may be more clusters than distinct points. A row that lies exactly on a center belongs to
    it alone; centers that coincide share such a row equally. The parameters are those of
    :class:`sgpmic.FuzzyCMeans`.
    """
    # Memberships do not depend on the position and unit of the points; squares of them might
    # overflow or cancel.
    origin, unit = origin_and_unit(X)
    points = (X - origin) / unit
    starts = (_spread_centers(points, n_clusters, random_state) for _ in range(n_init))
    runs = (_fuzzy_iterations(points, start, fuzzifier, max_iter, tol) for start in starts)
    best = min(runs, key=lambda run: run.objective)
    return best._replace(
        centers=origin + unit * best.centers, objective=best.objective * unit * unit
    )


def initial_memberships(
    X: Floats,
    n_clusters: int,
    method: str | ArrayLike,
    random_state: np.random.RandomState,
) -> Floats:
    """Return starting memberships (N, M), rows that sum to one, of points (N, Q).

    By fuzzy c-means, as one-hot k-means labels, or as the responsibilities of a mixture of
    full-covariance Gaussians; an array of weights is divided by its row sums. There may be more
    clusters than distinct points: some then start empty or as copies of each other.
    """
    if not isinstance(method, str):
        return _checked_memberships(method, (len(X), n_clusters))
    if method == "fcm":
        return fuzzy_c_means(X, n_clusters, random_state=random_state).memberships
    found = _mixture_memberships(X, n_clusters, random_state) if method == "gmm" else None
    if found is None:
        labels, _ = k_means(X, n_clusters, 10, random_state)
        found = np.eye(n_clusters)[labels]
    return found


def _checked_memberships(memberships: ArrayLike, shape: tuple[int, int]) -> Floats:
    """Return the given memberships with rows that sum to one."""
    array = given_array("memberships", memberships, shape, "rows, clusters")
    if (array < 0.0).any():
        raise ValueError("The given memberships contain negative values.")
    # Dividing by the largest entry first keeps the sum of huge weights finite.
    largest = array.max(axis=1, keepdims=True)
    if (largest == 0.0).any():
        raise ValueError("Every row of the given memberships needs at least one positive value.")
    array /= largest
    return array / array.sum(axis=1, keepdims=True)


def _spread_centers(points: Floats, n_clusters: int, random_state: np.random.RandomState) -> Floats:
    """Draw rows as centers, each with probability proportional to its squared distance so far."""
    n_points = points.shape[0]
    chosen = [int(random_state.randint(n_points))]
    gaps = np.full(n_points, np.inf)
    while len(chosen) < n_clusters:
        gaps = np.minimum(gaps, cdist(points, points[chosen[-1:]], "sqeuclidean")[:, 0])
        total = gaps.sum()
        # With every distinct row taken, all that is left is to repeat some.
        chances = gaps / total if total > 0.0 else None
        chosen.append(int(random_state.choice(n_points, p=chances)))
    return points[chosen]


def _fuzzy_iterations(
    points: Floats, centers: Floats, fuzzifier: float, max_iter: int, tol: float
) -> FuzzyResult:
    """Alternate memberships and centers from the given centers until they settle."""
    squared = cdist(points, centers, "sqeuclidean")
    memberships = fuzzy_memberships(squared, fuzzifier)
    n_iter, settled = 0, False
    while n_iter < max_iter and not settled:
        weights = memberships**fuzzifier
        mass = weights.sum(axis=0)
        # A center that no row belongs to has no mean; it stays where it is.
        used = mass > 0.0
        centers = centers.copy()
        centers[used] = (weights[:, used].T @ points) / mass[used, None]
        previous = memberships
        squared = cdist(points, centers, "sqeuclidean")
        memberships = fuzzy_memberships(squared, fuzzifier)
        settled = bool(np.abs(memberships - previous).max() <= tol)
        n_iter += 1
    objective = float(np.sum(memberships**fuzzifier * squared))
    return FuzzyResult(memberships, centers, objective, n_iter)


def fuzzy_memberships(squared: Floats, fuzzifier: float) -> Floats:
    """Return the optimal memberships for squared distances to the centers."""
    return falling_weights(squared, 1.0 / (fuzzifier - 1.0))


def _mixture_memberships(
    points: Floats, n_clusters: int, random_state: np.random.RandomState
) -> Floats | None:
    """Return the responsibilities of a Gaussian mixture, or None where none fits."""
    if len(np.unique(points, axis=0)) < max(2, n_clusters):
        return None
    origin, unit = origin_and_unit(points)
    scaled = (points - origin) / unit
    mixture = GaussianMixture(
        n_clusters,
        covariance_type="full",
        # Enough to keep every covariance invertible, too little to blur the clusters.
        reg_covar=1e-6 * float(scaled.var(axis=0).mean()),
        # Tighter than scikit-learn's own, which stops while overlapping clusters still move.
        tol=1e-5,
        max_iter=300,
        n_init=3,
        random_state=random_state,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            found: Floats = mixture.fit(scaled).predict_proba(scaled)
        except (ValueError, np.linalg.LinAlgError):
            return None
    return found / found.sum(axis=1, keepdims=True) if np.isfinite(found).all() else None
