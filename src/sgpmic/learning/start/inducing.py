"""Choice of the inducing points of a sparse Gaussian process."""

from __future__ import annotations

import numpy as np

from sgpmic._types import Floats
from sgpmic.learning.points import distinct_rows, k_means, origin_and_unit

METHODS = ("random", "kmeans")

# k-means sees at most this many rows: more do not move a few dozen centers noticeably.
_SAMPLE_ROWS = 10_000

# Size of the shifts that tell repeated points apart, relative to the spread of the data.
_JITTER = 1e-3


def choose_inducing(
    X: Floats, n_inducing: int, method: str, random_state: np.random.RandomState
) -> Floats:
    """Choose inducing points among or between the rows of X, no two of them equal.

    Where X has too few distinct rows, the missing points are rows shifted by about a thousandth
    of the spread of X, since equal points would make the kernel matrix singular.
    """
    choose = {"random": _random_rows, "kmeans": _kmeans_centers}[method]
    chosen = choose(X, n_inducing, random_state)
    scale = _spread(X)
    while len(chosen) < n_inducing:
        n_missing = n_inducing - len(chosen)
        rows = X[random_state.randint(len(X), size=n_missing)]
        shifts = _JITTER * scale * random_state.standard_normal(rows.shape)
        chosen, _, _ = distinct_rows(np.vstack([chosen, rows + shifts]))
    return chosen


def _random_rows(points: Floats, n_inducing: int, random_state: np.random.RandomState) -> Floats:
    """Draw distinct rows without replacement, fewer than wanted if there are no more."""
    shuffled = points[random_state.permutation(len(points))]
    # Most tables have hardly any repeated rows, so a short stretch usually holds enough.
    distinct, _, _ = distinct_rows(shuffled[: 2 * n_inducing])
    if len(distinct) < n_inducing:
        distinct, _, _ = distinct_rows(shuffled)
    return distinct[:n_inducing]


def _kmeans_centers(points: Floats, n_inducing: int, random_state: np.random.RandomState) -> Floats:
    """Return the distinct k-means centers, fewer than wanted if rows are too few."""
    if len(points) > _SAMPLE_ROWS:
        points = points[random_state.choice(len(points), _SAMPLE_ROWS, replace=False)]
    _, centers = k_means(points, n_inducing, 1, random_state)
    return distinct_rows(centers)[0]


def _spread(points: Floats) -> float:
    """Return the largest standard deviation of a column, or a stand-in if there is none."""
    size = float(np.abs(points).max())
    origin, unit = origin_and_unit(points)
    if (points == origin).all():
        # Without any spread the size of the entries is the only scale there is.
        return max(size, 1.0)
    # A shift must survive being added to the entries, however close together they are.
    smallest = max(1e6 * float(np.finfo(np.float64).eps) * size, 1e-280)
    return max(unit * float(((points - origin) / unit).std(axis=0).max()), smallest)
