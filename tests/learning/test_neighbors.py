"""What the nearest rows of a sample say of others, against all distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from sgpmic._runtime import numerics
from sgpmic.learning import neighbors

#: On a processor scikit-learn searches, elsewhere a compiled program does.
METHODS = [neighbors.interpolate, neighbors._on_device]


def _expected(sample: Any, known: Any, rows: Any, k: int) -> Any:
    distances = cdist(rows, sample)
    nearest = np.argsort(distances, axis=1)[:, :k]
    weights = np.take_along_axis(distances, nearest, axis=1) ** -2.0
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("nk,nkd->nd", weights, known[nearest])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_sample", [50, 2500])
def test_means_over_the_nearest(
    monkeypatch: pytest.MonkeyPatch, method: Any, n_sample: int
) -> None:
    monkeypatch.setattr(neighbors, "_PART", 16)  # the last part is not full
    monkeypatch.setitem(neighbors._BLOCKS, "cpu", (7 * 16, 16, 16))
    rng = np.random.default_rng(0)
    offset, scale = rng.normal(size=7) + 1e6, rng.uniform(0.1, 10.0, 7)
    sample, rows = rng.normal(size=(n_sample, 7)), rng.normal(size=(40, 7))
    known = rng.normal(size=(n_sample, 3))
    with numerics():
        found = method(sample, known, rows * scale + offset, 4, offset, scale)
    np.testing.assert_allclose(found, _expected(sample, known, rows, 4), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_row_of_the_sample_is_its_own_neighbor(method: Any) -> None:
    rng = np.random.default_rng(1)
    sample, known = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    with numerics():
        found = method(sample, known, sample, 5, 0.0, 1.0)
    np.testing.assert_array_equal(found, known)


@pytest.mark.parametrize("method", METHODS)
def test_equal_rows_of_the_sample_share_the_weight(method: Any) -> None:
    sample = np.array([[0.0], [0.0], [1.0]])
    with numerics():
        found = method(sample, np.array([[1.0], [3.0], [9.0]]), np.zeros((1, 1)), 3, 0.0, 1.0)
    np.testing.assert_array_equal(found, [[2.0]])


def test_no_rows_and_a_small_sample() -> None:
    known = np.ones((2, 4))
    assert neighbors.interpolate(np.zeros((2, 3)), known, np.empty((0, 3)), 6).shape == (0, 4)
