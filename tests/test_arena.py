"""The ruler of ``benchmarks/arena.py``: its scores and its statistics."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from paper.metrics import hungarian_accuracy

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import arena
import arena_data
import arena_summary


@pytest.mark.parametrize("n_clusters", [3, 5, 8])
def test_a_row_is_right_under_the_best_match(n_clusters: int) -> None:
    rng = np.random.default_rng(n_clusters)
    truth, labels = rng.integers(5, size=200), rng.integers(n_clusters, size=200)
    truth[:5], labels[:n_clusters] = np.arange(5), np.arange(n_clusters)
    assert arena.is_right(truth, labels).mean() == pytest.approx(hungarian_accuracy(truth, labels))


def test_the_calibration_error_of_three_bins_by_hand() -> None:
    right = np.array([True, False, True, True])
    certainty = np.array([0.5, 0.55, 0.95, 1.0])  # .5 is the end of a bin
    # A quarter of the rows: |1 − .5|; another: |0 − .55|; the other half: |1 − .975|.
    expected = 0.25 * 0.5 + 0.25 * 0.55 + 0.5 * 0.025
    assert arena.calibration_error(right, certainty) == pytest.approx(expected)


@pytest.mark.parametrize(("n_methods", "q"), [(2, 1.960), (4, 2.569), (10, 3.164)])
def test_the_critical_difference_is_that_of_the_published_table(n_methods: int, q: float) -> None:
    # Demšar (2006), table 5a; its example has 4 methods on 14 data sets and a difference of 1.25.
    expected = q * np.sqrt(n_methods * (n_methods + 1) / (6.0 * 14))
    assert arena_summary.critical_difference(n_methods, 14) == pytest.approx(expected, rel=1e-3)


def test_methods_that_do_not_differ_are_joined_once() -> None:
    ranks = np.array([1.0, 4.5, 1.8, 2.9])
    assert arena_summary.cliques(ranks, 1.5) == [(1.0, 1.8), (1.8, 2.9)]


def test_the_nearest_reference_counts_and_noise_does_not() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    far, near = np.array([1, 2, 1, 2, 1]), np.array([1, 1, 2, 2, 0])
    found = arena.scores(arena.Found(labels), (far, near))
    assert (found["ari"], found["acc"]) == (1.0, 1.0)
    assert np.isnan(found["ece"])


def test_a_folder_is_read_as_written_and_a_run_resumes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    classes = np.repeat([1, 2], 20)
    X = rng.normal(size=(40, 3)) + 20.0 * classes[:, None]
    made = [
        arena_data.DataSet("tables", "two", X, (classes,)),
        arena_data.DataSet("shapes", "several", X, (classes, np.arange(40) % 3 + 1)),
    ]
    arena_data.write_folder(tmp_path, iter(made))
    names = ["k-means", "Ward"]
    tasks = list(arena.tasks(tmp_path, names, 2, set()))
    # Three problems, since one set has references with 2 and with 3 clusters; Ward needs one seed.
    assert [task.methods for task in tasks] == 3 * [names] + 3 * [["k-means"]]
    lines = [line for task in tasks for line in arena.work(task)]
    best = {float(line["ari"]) for line in lines if line["k"] == 2}
    assert best == {1.0}
    done = {arena.key_of(line) for line in lines}
    assert not list(arena.tasks(tmp_path, names, 2, done))
    assert list(arena.tasks(tmp_path, names, 3, done))
