"""The prior of ``benchmarks/judge``: what three hundred of its problems have in common."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from judge.clouds import COVARIANCES, TAILS, mixture
from judge.observe import observe_numbers, observe_votes, seen
from judge.priors import sizes_of
from judge.problems import KINDS, Problem, make_gaps, make_mixed, make_noise, make_problem
from judge.shapes import SHAPES, shape
from sgpmic.committee import examination
from sgpmic.committee.examination import examine, gather_evidence
from sgpmic.committee.tendency import cluster_tendency
from sgpmic.learning.preprocessing import find_categories

TABLES = ("table", "signal", "expression")


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [make_problem(seed) for seed in range(300)]


def test_a_seed_gives_one_problem_and_another_seed_another() -> None:
    first, again, other = make_problem(7), make_problem(7), make_problem(8)
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.y, again.y)
    assert first[2:] == again[2:]
    assert not np.array_equal(first.X, other.X)


def test_noise_has_one_mode() -> None:
    np.testing.assert_array_equal(make_noise(7).X, make_noise(7).X)
    tables = [make_noise(seed) for seed in range(12)]
    assert all(np.isfinite(X).all() and not y.any() for X, y, _, _ in tables)
    scaled = [(X - X.mean(axis=0)) / X.std(axis=0) for X, _, _, _ in tables]
    assert sum(cluster_tendency(Y).supported for Y in scaled) <= 1
    # Some are skewed and have heavy tails, as is little of the other noise.
    assert max(np.abs((Y**3).mean(axis=0)).max() for Y in scaled) > 2
    assert max((Y**4).mean(axis=0).max() for Y in scaled) > 10


def test_mixed_tables_have_categories_and_missing_cells() -> None:
    np.testing.assert_array_equal(make_mixed(7).X, make_mixed(7).X)
    tables = [make_mixed(seed) for seed in range(30)]
    assert all(find_categories(each.X) for each in tables)
    assert {each.y.max() == 0 for each in tables} == {True, False}
    has_gaps = [bool(np.isnan(each.X).any()) for each in tables]
    assert 3 <= sum(has_gaps) <= 20
    # Indicators have the weights of the encoder: a variance of one less the level's share.
    complete = next(each.X for each in tables if not np.isnan(each.X).any())
    category = max(find_categories(complete), key=lambda each: each.n_features)
    block = complete[:, category.first : category.first + category.n_features]
    np.testing.assert_allclose(block.var(axis=0), 1.0 - (block > 0).mean(axis=0))


@pytest.mark.slow
def test_networks_are_trained_on_what_they_see_in_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen_in_a_fit = []

    def record(*args: Any) -> Any:
        seen_in_a_fit.append(gather_evidence(*args))
        return seen_in_a_fit[-1]

    monkeypatch.setattr(examination, "gather_evidence", record)
    seed = next(seed for seed in range(20) if len(make_mixed(seed).y) < 300)
    examine(*seen(make_mixed(seed)), tendency=True, clusters=True, dimensions=False)
    trained_on = observe_numbers(seed, make_mixed)["inputs"]
    np.testing.assert_array_equal(seen_in_a_fit[0][0].astype(np.float32), trained_on)


def test_few_rows_for_many_clusters() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(20))
    np.testing.assert_array_equal(sizes_of(weights, 60), np.full(20, 3))
    assert sizes_of(weights, 1000).min() >= 20


@pytest.mark.slow
def test_features_that_are_constant_in_a_sample() -> None:
    """Of 160 features of this problem, five have their only values outside of the sample."""
    assert np.isfinite(observe_votes(1_003_465)["inputs"]).all()


@pytest.mark.slow
def test_every_problem_is_in_range(problems: list[Problem]) -> None:
    for X, y, _, _ in problems:
        assert X.dtype == np.float64
        assert y.dtype == np.int64
        assert len(X) == len(y)
        assert 60 <= len(X) <= 3000
        assert 2 <= X.shape[1] <= 200
        assert np.isfinite(X).all()
        assert (np.ptp(X, axis=0) > 0).all()


def test_every_cluster_is_there_and_has_rows_that_differ(problems: list[Problem]) -> None:
    for X, y, _, _ in problems:
        labels = np.unique(y)
        np.testing.assert_array_equal(labels, np.arange(len(labels)))
        assert len(labels) <= 20
        assert all(len(np.unique(X[y == label], axis=0)) >= 2 for label in labels)


def test_the_kinds_have_their_shares(problems: list[Problem]) -> None:
    kinds = np.array([problem.kind for problem in problems])
    for kind, (share, _) in KINDS.items():
        deviation = np.sqrt(share * (1 - share) / len(kinds))
        assert (kinds == kind).mean() == pytest.approx(share, abs=4 * deviation)
    assert sum(KINDS[kind][0] for kind in TABLES) >= 0.45
    assert sum(share for share, _ in KINDS.values()) == pytest.approx(1.0)


def test_noise_has_one_cluster_and_nothing_else_has(problems: list[Problem]) -> None:
    for problem in problems:
        assert (problem.y.max() == 0) == (problem.kind == "noise")


def test_units_differ_in_tables_and_not_in_shapes(problems: list[Problem]) -> None:
    assert all(problem.each for problem in problems if problem.kind == "table")
    assert not any(problem.each for problem in problems if problem.kind == "shape")


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_has_two_to_twenty_clusters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judge.shapes.SHAPES", {name: SHAPES[name]})
    for k in (2, 5, 20):
        X, y = shape(np.random.default_rng(k), 100, k)
        assert np.isfinite(X).all()
        assert 2 <= len(np.unique(y)) <= 20


@pytest.mark.parametrize("error", [0.02, 0.1, 0.3])
def test_clouds_overlap_as_much_as_asked(error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two equal round Gaussians: the Bayes rule is the side of the plane between their centers.
    monkeypatch.setattr("judge.clouds.COVARIANCES", {"spherical": COVARIANCES["spherical"]})
    monkeypatch.setattr("judge.clouds.TAILS", {"gaussian": TAILS["gaussian"]})
    y = np.repeat([0, 1], 2000)
    X = mixture(np.random.default_rng(0), y, y, 3, error)
    a, b = X[y == 0].mean(0), X[y == 1].mean(0)
    wrong = ((X - (a + b) / 2) @ (b - a) > 0) != (y == 1)
    assert wrong.mean() == pytest.approx(error, abs=0.03)


def test_clusters_show_in_few_features_of_the_tables_for_the_calibration() -> None:
    np.testing.assert_array_equal(make_gaps(7).X, make_gaps(7).X)
    for problem in map(make_gaps, range(12)):
        X, y = problem.X, problem.y
        assert problem.each
        assert np.isfinite(X).all()
        assert 2 <= y.max() + 1 <= 6
        within = sum(X[y == k].var(axis=0) * np.mean(y == k) for k in range(y.max() + 1))
        telling = within < 0.8 * X.var(axis=0)
        assert 1 <= telling.sum() <= 3
