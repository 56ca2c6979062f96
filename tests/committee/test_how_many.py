"""The benchmark of the number of clusters: its problems, and how weights are learned from them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from how_many import learn, unseen
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


@pytest.fixture(scope="module")
def problems() -> list[dict[str, Any]]:
    """Numbers of clusters that were drawn with known weights."""
    rng = np.random.RandomState(0)
    rows = []
    for _ in range(400):
        figures = rng.standard_normal((6, 2)) * (1.0, 10.0)
        evidence = figures @ (3.0, -0.2) + rng.gumbel(size=6)
        rows.append(
            {
                "part": "drawn",
                "true": (2 + int(evidence.argmax()),),
                "figures": dict(enumerate(map(tuple, figures), start=2)),
                "plausible": True,
            }
        )
    return rows


def test_weights_are_found_again(problems: list[dict[str, Any]]) -> None:
    np.testing.assert_allclose(learn(problems, penalty=0.01), [3.0, -0.2], rtol=0.15)


def test_tables_that_were_not_learned_from(problems: list[dict[str, Any]]) -> None:
    right = unseen(problems)["drawn"]
    assert len(right) == len(problems)
    assert 0.6 < np.mean(right) < 0.95
    for row in problems:  # one cluster is the answer where more are not plausible
        row["plausible"] = False
    assert not any(unseen(problems)["drawn"])
