"""Starting memberships of the rows in the clusters: fuzzy c-means, k-means and mixtures."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

Floats = NDArray[np.float64]

METHODS = ("fcm", "kmeans", "gmm")

# Of more rows than this the clusters are found in a sample; then all rows are put into them.
MOST_ROWS = 20_000


class FuzzyResult(NamedTuple):
    """Outcome of fuzzy c-means.

    Attributes
    ----------
    memberships : ndarray of shape (N, M)
        Degree to which every row belongs to every cluster; rows sum to one.
    centers : ndarray of shape (M, Q)
        Cluster centres.
    objective : float
        Weighted sum of squared distances that was minimised.
    n_iter : int
        Iterations of the best start.
    """

    memberships: Floats
    centers: Floats
    objective: float
    n_iter: int


def fuzzy_c_means(
    X: ArrayLike,
    n_clusters: int,
    *,
    fuzzifier: float = 2.0,
    n_init: int = 5,
    max_iter: int = 300,
    tol: float = 1e-6,
    random_state: np.random.RandomState,
) -> FuzzyResult:
    """Cluster with Euclidean fuzzy c-means and keep the best of several starts.

    Parameters
    ----------
    X : array-like of shape (N, Q)
        The points.
    n_clusters : int
        Number M of clusters. It may exceed the number of distinct points.
    fuzzifier : float, default=2.0
        Exponent of the memberships, above 1. Larger values give softer memberships.
    n_init : int, default=5
        Number of starts.
    max_iter : int, default=300
        Most iterations of one start.
    tol : float, default=1e-6
        A start has converged when no membership changes by more than this.
    random_state : numpy.random.RandomState
        Source of all random numbers.

    Returns
    -------
    FuzzyResult
        Memberships, centres, objective and number of iterations of the best start.

    Notes
    -----
    A row that lies exactly on a centre belongs to it alone; centres that coincide share such a
    row equally.
    """
    points = _checked_points(X)
    if n_clusters < 1:
        raise ValueError(f"n_clusters must be at least 1, got {n_clusters}.")
    if not 1.0 < fuzzifier < np.inf:
        raise ValueError(f"fuzzifier must be a finite number above 1, got {fuzzifier}.")
    if n_init < 1 or max_iter < 1:
        raise ValueError("n_init and max_iter must be at least 1.")

    # Memberships do not depend on the position and unit of the points; squares of them might
    # overflow or cancel.
    origin = points[0]
    unit = float(np.abs(points - origin).max()) or 1.0
    points = (points - origin) / unit

    starts = (_spread_centers(points, n_clusters, random_state) for _ in range(n_init))
    runs = (_fuzzy_iterations(points, start, fuzzifier, max_iter, tol) for start in starts)
    best = min(runs, key=lambda run: run.objective)
    return best._replace(
        centers=origin + unit * best.centers, objective=best.objective * unit * unit
    )


def initial_memberships(
    X: ArrayLike,
    n_clusters: int,
    method: str | ArrayLike,
    random_state: np.random.RandomState,
) -> Floats:
    """Return starting memberships of every row in every cluster.

    Parameters
    ----------
    X : array-like of shape (N, Q)
        The points.
    n_clusters : int
        Number M of clusters. It may exceed the number of distinct points; some clusters then
        start empty or as copies of each other.
    method : {"fcm", "kmeans", "gmm"} or array of shape (N, M)
        Fuzzy c-means memberships, one-hot k-means labels, or the responsibilities of a mixture
        of full-covariance Gaussians. An array of non-negative weights is divided by its row sums.
    random_state : numpy.random.RandomState
        Source of all random numbers.

    Returns
    -------
    ndarray of shape (N, M)
        Non-negative, with rows that sum to one.
    """
    points = _checked_points(X)
    if n_clusters < 1:
        raise ValueError(f"n_clusters must be at least 1, got {n_clusters}.")
    if not isinstance(method, str):
        return _checked_memberships(method, (points.shape[0], n_clusters))
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)} or an array; got {method!r}.")
    sample = points
    if len(points) > MOST_ROWS:
        sample = points[np.sort(random_state.choice(len(points), MOST_ROWS, replace=False))]
    if method == "fcm":
        found = fuzzy_c_means(sample, n_clusters, random_state=random_state)
        if sample is points:
            return found.memberships
        return _fuzzy_memberships(cdist(points, found.centers, "sqeuclidean"), 2.0)
    if method == "kmeans":
        return _kmeans_memberships(sample, points, n_clusters, random_state)
    return _mixture_memberships(sample, points, n_clusters, random_state)


def _checked_points(X: ArrayLike) -> Floats:
    """Return the points as a finite two-dimensional float array."""
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or points.shape[0] < 1 or points.shape[1] < 1:
        raise ValueError(
            f"X must be two-dimensional with at least one row and one column, got shape "
            f"{points.shape}."
        )
    if not np.isfinite(points).all():
        raise ValueError("X contains NaN or infinite values.")
    return points


def _checked_memberships(memberships: ArrayLike, shape: tuple[int, int]) -> Floats:
    """Return the given memberships with rows that sum to one."""
    array = np.array(memberships, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(
            f"The given memberships must have shape {shape} (rows, clusters), "
            f"got shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError("The given memberships contain NaN or infinite values.")
    if (array < 0.0).any():
        raise ValueError("The given memberships contain negative values.")
    # Dividing by the largest entry first keeps the sum of huge weights finite.
    largest = array.max(axis=1, keepdims=True)
    if (largest == 0.0).any():
        raise ValueError("Every row of the given memberships needs at least one positive value.")
    array /= largest
    normalised: Floats = array / array.sum(axis=1, keepdims=True)
    return normalised


# -------------------------------------------------------------------------------- fuzzy c-means


def _spread_centers(points: Floats, n_clusters: int, random_state: np.random.RandomState) -> Floats:
    """Draw rows as centres, each with probability proportional to its squared distance so far."""
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
    """Alternate memberships and centres from the given centres until they settle."""
    squared = cdist(points, centers, "sqeuclidean")
    memberships = _fuzzy_memberships(squared, fuzzifier)
    n_iter, settled = 0, False
    while n_iter < max_iter and not settled:
        weights = memberships**fuzzifier
        mass = weights.sum(axis=0)
        # A centre that no row belongs to has no mean; it stays where it is.
        used = mass > 0.0
        centers = centers.copy()
        centers[used] = (weights[:, used].T @ points) / mass[used, None]
        previous = memberships
        squared = cdist(points, centers, "sqeuclidean")
        memberships = _fuzzy_memberships(squared, fuzzifier)
        settled = bool(np.abs(memberships - previous).max() <= tol)
        n_iter += 1
    objective = float(np.sum(memberships**fuzzifier * squared))
    return FuzzyResult(memberships, centers, objective, n_iter)


def _fuzzy_memberships(squared: Floats, fuzzifier: float) -> Floats:
    """Return the optimal memberships for squared distances to the centres."""
    nearest = squared.min(axis=1, keepdims=True)
    # Ratios to the nearest centre lie in [0, 1], so no power of them overflows. Where a row is
    # on a centre, 0/0 stands for that centre and must count as one.
    closeness = np.divide(nearest, squared, out=np.ones_like(squared), where=squared > 0.0)
    closeness **= 1.0 / (fuzzifier - 1.0)
    memberships: Floats = closeness / closeness.sum(axis=1, keepdims=True)
    return memberships


# ------------------------------------------------------------------------ k-means and mixtures


def _kmeans_memberships(
    sample: Floats, points: Floats, n_clusters: int, random_state: np.random.RandomState
) -> Floats:
    """Return one-hot labels by k-means on the sample."""
    n_distinct = np.unique(sample, axis=0).shape[0]
    origin, unit = _standard_unit(sample)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(
            n_clusters=min(n_clusters, n_distinct), n_init=10, random_state=random_state
        ).fit((sample - origin) / unit)
    labels = model.labels_ if sample is points else model.predict((points - origin) / unit)
    memberships = np.zeros((points.shape[0], n_clusters))
    memberships[np.arange(points.shape[0]), labels] = 1.0
    return memberships


def _mixture_memberships(
    sample: Floats, points: Floats, n_clusters: int, random_state: np.random.RandomState
) -> Floats:
    """Return the responsibilities of a Gaussian mixture, or k-means labels where none fits."""
    n_distinct = np.unique(sample, axis=0).shape[0]
    if n_distinct >= max(2, n_clusters):
        origin, unit = _standard_unit(sample)
        scaled = (sample - origin) / unit
        # Enough to keep every covariance invertible, too little to blur the clusters.
        ridge = 1e-6 * float(scaled.var(axis=0).mean())
        # The tolerance is tighter than scikit-learn's own, which stops while overlapping
        # clusters are still moving.
        mixture = GaussianMixture(
            n_clusters,
            covariance_type="full",
            reg_covar=ridge,
            tol=1e-5,
            max_iter=300,
            n_init=3,
            random_state=random_state,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                found: Floats = mixture.fit(scaled).predict_proba((points - origin) / unit)
            except (ValueError, np.linalg.LinAlgError):
                found = np.full((points.shape[0], n_clusters), np.nan)
        if np.isfinite(found).all():
            normalised: Floats = found / found.sum(axis=1, keepdims=True)
            return normalised
    return _kmeans_memberships(sample, points, n_clusters, random_state)


def _standard_unit(points: Floats) -> tuple[Floats, float]:
    """Return a shift and a factor under which squares neither overflow nor cancel."""
    origin: Floats = points[0]
    return origin, float(np.abs(points - origin).max()) or 1.0
