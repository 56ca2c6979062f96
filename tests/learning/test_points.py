"""The nearest rows of a sample and their weights, against all distances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from sgpmic.learning import points
from sgpmic.learning.points import weights_of_nearest


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_places_and_weights(monkeypatch: pytest.MonkeyPatch, offset: float) -> None:
    monkeypatch.setattr(points, "_PART", 16)  # the last part is not full
    rng = np.random.default_rng(0)
    sample, rows = rng.normal(size=(50, 7)) + offset, rng.normal(size=(40, 7)) + offset
    places, weights = weights_of_nearest(sample, rows, 4)
    distances = cdist(rows, sample)
    expected = np.argsort(distances, axis=1)[:, :4]
    np.testing.assert_array_equal(places, expected)
    inverse = np.take_along_axis(distances, expected, axis=1) ** -2.0
    np.testing.assert_allclose(weights, inverse / inverse.sum(axis=1, keepdims=True), rtol=1e-6)


def test_a_row_of_the_sample_is_its_own_neighbor() -> None:
    sample = np.random.default_rng(1).normal(size=(30, 3))
    places, weights = weights_of_nearest(sample, sample, 5)
    np.testing.assert_array_equal(places[:, 0], np.arange(30))
    np.testing.assert_array_equal(weights, np.eye(5)[np.zeros(30, int)])


def test_no_rows_and_a_small_sample() -> None:
    places, weights = weights_of_nearest(np.zeros((2, 3)), np.empty((0, 3)), 6)
    assert places.shape == weights.shape == (0, 2)
