"""Choice of the inducing points of a sparse Gaussian process."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

Floats = NDArray[np.float64]

METHODS = ("random", "kmeans")

# k-means sees at most this many rows: more do not move a few dozen centres noticeably.
_SAMPLE_ROWS = 10_000

# Size of the shifts that tell repeated points apart, relative to the spread of the data.
_JITTER = 1e-3


def choose_inducing(
    X: ArrayLike, n_inducing: int, method: str, random_state: np.random.RandomState
) -> Floats:
    """Choose inducing points among or between the rows of X, no two of them equal.

    Parameters
    ----------
    X : array-like of shape (N, Q)
        The latent positions.
    n_inducing : int
        Number U of inducing points.
    method : {"random", "kmeans"}
        Distinct rows drawn without replacement, or the centres of k-means.
    random_state : numpy.random.RandomState
        Source of all random numbers.

    Returns
    -------
    ndarray of shape (U, Q)
        The inducing points. Where X has too few distinct rows, the missing points are rows
        shifted by about a thousandth of the spread of X, since equal points would make the
        kernel matrix singular.
    """
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or points.shape[0] < 1 or points.shape[1] < 1:
        raise ValueError(
            f"X must be two-dimensional with at least one row and one column, got shape "
            f"{points.shape}."
        )
    if not np.isfinite(points).all():
        raise ValueError("X contains NaN or infinite values.")
    if n_inducing < 1:
        raise ValueError(f"n_inducing must be at least 1, got {n_inducing}.")

    if method == "random":
        chosen = _random_rows(points, n_inducing, random_state)
    elif method == "kmeans":
        chosen = _kmeans_centers(points, n_inducing, random_state)
    else:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    return _add_shifted_rows(points, chosen, n_inducing, random_state)


def _distinct(points: Floats) -> Floats:
    """Return the distinct rows in order of appearance."""
    _, first = np.unique(points, axis=0, return_index=True)
    return points[np.sort(first)]


def _random_rows(points: Floats, n_inducing: int, random_state: np.random.RandomState) -> Floats:
    """Draw distinct rows without replacement, fewer than wanted if there are no more."""
    shuffled = points[random_state.permutation(points.shape[0])]
    # Most tables have hardly any repeated rows, so a short stretch usually holds enough.
    n_seen = 2 * n_inducing
    distinct = _distinct(shuffled[:n_seen])
    if distinct.shape[0] < n_inducing and n_seen < points.shape[0]:
        distinct = _distinct(shuffled)
    return distinct[:n_inducing]


def _kmeans_centers(points: Floats, n_inducing: int, random_state: np.random.RandomState) -> Floats:
    """Return the distinct k-means centres, fewer than wanted if rows are too few."""
    if points.shape[0] > _SAMPLE_ROWS:
        points = points[random_state.choice(points.shape[0], _SAMPLE_ROWS, replace=False)]
    n_distinct = _distinct(points).shape[0]
    origin = points[0]
    unit = float(np.abs(points - origin).max()) or 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(
            n_clusters=min(n_inducing, n_distinct), n_init=1, random_state=random_state
        ).fit((points - origin) / unit)
    return _distinct(origin + unit * model.cluster_centers_)


def _spread(points: Floats) -> float:
    """Return the largest standard deviation of a column, or a stand-in if there is none."""
    size = float(np.abs(points).max())
    deviations = points - points[0]
    unit = float(np.abs(deviations).max())
    if unit == 0.0:
        # Without any spread the size of the entries is the only scale there is.
        return max(size, 1.0)
    # A shift must survive being added to the entries, however close together they are.
    smallest = max(1e6 * float(np.finfo(np.float64).eps) * size, 1e-280)
    return max(unit * float((deviations / unit).std(axis=0).max()), smallest)


def _add_shifted_rows(
    points: Floats, chosen: Floats, n_inducing: int, random_state: np.random.RandomState
) -> Floats:
    """Add slightly shifted rows until there are enough points."""
    scale = _spread(points)
    while chosen.shape[0] < n_inducing:
        n_missing = n_inducing - chosen.shape[0]
        rows = points[random_state.randint(points.shape[0], size=n_missing)]
        shifts = _JITTER * scale * random_state.standard_normal(rows.shape)
        chosen = _distinct(np.vstack([chosen, rows + shifts]))
    return chosen
