"""Inducing points: rows, never two the same."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist

from sgpmic.learning.initialization import choose_inducing

Floats = NDArray[np.float64]


def rng(seed: int = 0) -> np.random.RandomState:
    return np.random.RandomState(seed)


def test_random_points_are_distinct_rows() -> None:
    X = rng(1).standard_normal((100, 3))
    found = choose_inducing(X, 20, rng())
    assert found.shape == (20, 3)
    assert np.all(cdist(found, X).min(axis=1) == 0.0)
    assert pdist(found).min() > 0.0


def test_random_points_follow_the_seed() -> None:
    X = rng(1).standard_normal((100, 3))
    found = choose_inducing(X, 20, rng(2))
    assert np.array_equal(found, choose_inducing(X, 20, rng(2)))
    assert not np.array_equal(found, choose_inducing(X, 20, rng(3)))


def test_random_points_reach_every_row() -> None:
    X = np.arange(10.0)[:, None]
    seen = {float(choose_inducing(X, 1, rng(seed))[0, 0]) for seed in range(200)}
    assert seen == set(range(10))


def test_all_rows_are_taken_when_as_many_are_wanted() -> None:
    X = rng(1).standard_normal((15, 2))
    found = choose_inducing(X, 15, rng())
    assert {tuple(row) for row in found} == {tuple(row) for row in X}


def test_rare_distinct_rows_are_preferred_to_repeated_ones() -> None:
    """Five values, one of them 5000 times: all five must be found."""
    X = np.concatenate([np.zeros(5000), [1.0, 2.0, 3.0, 4.0]])[:, None]
    found = choose_inducing(X, 5, rng())
    np.testing.assert_array_equal(np.sort(found[:, 0]), [0.0, 1.0, 2.0, 3.0, 4.0])


def test_missing_points_are_slightly_shifted_rows() -> None:
    """Three places far apart and 30 points: the extra ones are near, not on, a place."""
    X = 7.0 + np.repeat([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], 20, axis=0)
    found = choose_inducing(X, 30, rng())
    gaps = cdist(found, X).min(axis=1)
    shifted = np.sort(gaps)[3:]
    assert np.all(np.sort(gaps)[:3] < 1e-12)
    assert np.all(shifted > 0.0)
    # Root mean square of a two-dimensional shift with a thousandth of the column's deviation.
    deviation = 10.0 * np.sqrt(2.0) / 3.0
    assert np.sqrt(np.mean(shifted**2)) == pytest.approx(1e-3 * deviation * np.sqrt(2), rel=0.4)
    assert pdist(found).min() > 0.0


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((1, 1)),
        np.full((6, 2), 0.1),
        np.full((3, 1), 1e20),
        np.full((3, 1), 5e-324),
        np.array([[1.0], [1.0 + 3e-16]]),
        np.array([[1e200, 0.0], [2e200, 0.0], [2e200, -0.0]]),
        np.arange(4.0)[:, None],
    ],
)
def test_degenerate_tables_give_distinct_finite_points_without_warnings(X: Floats) -> None:
    with warnings.catch_warnings(action="error"):
        found = choose_inducing(X, 12, rng())
    assert found.shape == (12, X.shape[1])
    assert np.isfinite(found).all()
    assert np.unique(found, axis=0).shape[0] == 12
