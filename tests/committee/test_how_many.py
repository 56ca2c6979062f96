"""The synthetic problems of the benchmark of the number of clusters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from how_many_data import blobs, shape
from sgpmic.committee.examination import choose_number
from sgpmic.committee.tendency import cluster_tendency


@pytest.mark.parametrize("make", [blobs, shape])
def test_every_number_is_another_table_and_always_the_same(make: Any) -> None:
    sizes = set()
    for number in range(32):
        clusters = make(number)
        assert all(len(cluster) >= 10 and np.isfinite(cluster).all() for cluster in clusters)
        sizes.add((len(clusters), sum(map(len, clusters))))
    np.testing.assert_array_equal(make(7)[0], make(7)[0])
    assert len(sizes) > 25


@pytest.mark.slow
def test_heavy_tails_are_one_cluster_and_clusters_that_the_test_found_are_several() -> None:
    rng = np.random.default_rng(0)
    tails = rng.standard_t(3, (150, 4))
    tendency = cluster_tendency(tails)
    assert tendency.p_value > 0.3
    found = choose_number(tails, tendency)
    assert found.chosen == 1
    assert found.expected[0] == found.probability[0] == max(found.expected)

    two = rng.normal(size=(150, 4)) + 6.0 * (np.arange(150) % 2)[:, None]
    tendency = cluster_tendency(two)
    found = choose_number(two, tendency)
    assert tendency.supported
    assert found.probability[0] == found.expected[0] == 0.0
    assert found.chosen == found.candidates[int(np.argmax(found.expected))] == 2
