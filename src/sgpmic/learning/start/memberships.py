"""Starting memberships of the rows in the clusters: fuzzy c-means, k-means and mixtures."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from sgpmic._types import Floats
from sgpmic.learning.points import falling_weights, given_array, k_means, origin_and_unit

METHODS = ("fcm", "kmeans", "gmm")

#: Of fuzzy c-means: starts, the most iterations of each, and the largest change of a membership
#: that ends one.
_N_INIT, _MAX_ITER, _TOL = 5, 300, 1e-6


def fuzzy_c_means(X: Floats, n_clusters: int, random_state: np.random.RandomState) -> Floats:
    """Return memberships (N, M) by Euclidean fuzzy c-means, the best of several starts.

    It minimizes Σₙₘ uₙₘ² ‖xₙ − vₘ‖² over memberships u, whose rows sum to one, and centers v
    (Bezdek, 1981). There may be more clusters than distinct points. A row that lies exactly on a
    center belongs to it alone; centers that coincide share such a row equally.
    """
    # Memberships do not depend on the position and unit of the points; squares of them might
    # overflow or cancel.
    origin, unit = origin_and_unit(X)
    points = (X - origin) / unit
    starts = (_spread_centers(points, n_clusters, random_state) for _ in range(_N_INIT))
    return min((_fuzzy_iterations(points, start) for start in starts), key=lambda run: run[1])[0]


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
        return fuzzy_c_means(X, n_clusters, random_state)
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


def _fuzzy_iterations(points: Floats, centers: Floats) -> tuple[Floats, float]:
    """Alternate memberships and centers until they settle; return memberships and objective."""
    squared = cdist(points, centers, "sqeuclidean")
    memberships = falling_weights(squared, 1.0)
    for _ in range(_MAX_ITER):
        weights = memberships**2
        mass = weights.sum(axis=0)
        # A center that no row belongs to has no mean; it stays where it is.
        used = mass > 0.0
        centers = centers.copy()
        centers[used] = (weights[:, used].T @ points) / mass[used, None]
        previous = memberships
        squared = cdist(points, centers, "sqeuclidean")
        memberships = falling_weights(squared, 1.0)
        if np.abs(memberships - previous).max() <= _TOL:
            break
    return memberships, float(np.sum(memberships**2 * squared))


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
