"""The made-up problems of the benchmark of the number of clusters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from how_many_data import blobs, shape


@pytest.mark.parametrize("make", [blobs, shape])
def test_every_number_is_another_table_and_always_the_same(make: Any) -> None:
    sizes = set()
    for number in range(32):
        clusters = make(number)
        assert all(len(cluster) >= 10 and np.isfinite(cluster).all() for cluster in clusters)
        sizes.add((len(clusters), sum(map(len, clusters))))
    np.testing.assert_array_equal(make(7)[0], make(7)[0])
    assert len(sizes) > 25
