"""UNCA: its objective, its gradient, and what it does with simple data."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("equinox", reason="the neural methods need the extra 'paper'")
pytest.importorskip("optax", reason="the neural methods need the extra 'paper'")

import jax
import jax.numpy as jnp

from paper.methods import METHODS, training, unca
from paper.methods.base import Problem
from sgpmic._runtime import double_precision

pytestmark = pytest.mark.slow

METHOD = METHODS["UNCA"]


def objective_by_loops(
    A: np.ndarray, X: np.ndarray, labels: np.ndarray, penalty: float, chosen: list[int]
) -> float:
    """Return Σ_i over chosen rows of (HPHᵀ)_ii / their number, less λ‖A‖²/N."""
    total = 0.0
    for i in chosen:
        weights = {
            j: math.exp(-sum((A.T @ X[i] - A.T @ X[j]) ** 2)) for j in range(len(X)) if j != i
        }
        inside = sum(weight for j, weight in weights.items() if labels[j] == labels[i])
        total += inside / sum(weights.values())
    return total / len(chosen) - penalty * sum(A.ravel() ** 2) / len(X)


def evaluate(
    A: np.ndarray, X: np.ndarray, labels: np.ndarray, penalty: float, chosen: list[int]
) -> tuple[float, np.ndarray]:
    with double_precision():
        rows = unca.Rows(jnp.asarray(X), jnp.arange(len(X)), jnp.asarray(labels))
        batch = jax.tree.map(lambda array: array[np.array(chosen)], rows)
        value, slope = jax.value_and_grad(unca.negative_objective)(
            jnp.asarray(A), batch, (rows, jnp.asarray(penalty))
        )
        return -float(value), -np.asarray(slope)


@pytest.mark.parametrize("chosen", [list(range(8)), [6, 1, 3]], ids=["all rows", "a batch"])
@pytest.mark.parametrize("penalty", [1e-3, 10.0])
def test_the_objective_and_its_gradient_against_loops(penalty: float, chosen: list[int]) -> None:
    rng = np.random.RandomState(0)
    X, A = rng.standard_normal((8, 4)), 0.5 * rng.standard_normal((4, 2))
    labels = np.array([0, 1, 1, 0, 2, 2, 0, 1])
    value, slope = evaluate(A, X, labels, penalty, chosen)
    assert value == pytest.approx(objective_by_loops(A, X, labels, penalty, chosen), rel=1e-12)
    # Central differences err by h² and by 1e-16/h; h = 1e-5 makes both about 1e-10.
    h = 1e-5
    for place in np.ndindex(*A.shape):
        up, down = A.copy(), A.copy()
        up[place] += h
        down[place] -= h
        difference = objective_by_loops(up, X, labels, penalty, chosen) - objective_by_loops(
            down, X, labels, penalty, chosen
        )
        assert slope[place] == pytest.approx(difference / (2.0 * h), abs=1e-8)


def test_it_finds_clusters_that_lie_apart() -> None:
    classes = np.arange(40) % 3
    Y = 20.0 * np.eye(3, 4)[classes] + np.random.RandomState(0).standard_normal((40, 4))
    found = unca.run(Problem(Y, n_clusters=3, n_components=2), 0, penalty=1.0)
    pairs = {(int(a), int(b)) for a, b in zip(classes, found.labels, strict=True)}
    assert len(pairs) == len(set(found.labels)) == 3


def test_a_large_penalty_makes_the_map_small() -> None:
    Y = np.random.RandomState(0).standard_normal((40, 4))
    problem = Problem(Y, n_clusters=3, n_components=2)
    sizes = [
        np.linalg.norm(unca.run(problem, 0, penalty=penalty).embedding)
        for penalty in (1e-3, 1.0, 1e3)
    ]
    assert sizes[0] > sizes[1] > 2.0 * sizes[2]


def test_equal_seeds_give_equal_results_in_either_precision() -> None:
    Y = np.random.RandomState(0).standard_normal((40, 4))
    problem = Problem(Y, n_clusters=3, n_components=2)
    first, second = unca.run(problem, 5, penalty=0.1), unca.run(problem, 5, penalty=0.1)
    with double_precision():
        third = unca.run(problem, 5, penalty=0.1)
    for other in (second, third):
        np.testing.assert_array_equal(first.labels, other.labels)
        np.testing.assert_array_equal(first.embedding, other.embedding)


def test_the_grid_is_compiled_once() -> None:
    Y = np.random.RandomState(0).standard_normal((40, 4))
    problem = Problem(Y, n_clusters=3, n_components=2)
    METHOD.run(problem, 0, **METHOD.settings[0])
    compiled = training._adam_steps._cache_size()
    for setting in METHOD.settings[1:]:
        METHOD.run(problem, 1, **setting)
    assert training._adam_steps._cache_size() == compiled
    assert [setting["penalty"] for setting in METHOD.settings] == pytest.approx(
        [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]
    )


@pytest.mark.parametrize("penalty", [1e-3, 1e3])
@pytest.mark.parametrize(
    "Y",
    [
        np.repeat([[0.0, 7.0], [4000.0, 7.0], [9000.0, 7.0]], 5, axis=0),
        np.full((6, 2), 3.0),
        np.array([[1.0, 2.0]]),
    ],
    ids=["three distinct rows", "all rows equal", "one row"],
)
def test_awkward_data_give_finite_results(Y: np.ndarray, penalty: float) -> None:
    found = unca.run(Problem(Y, n_clusters=4, n_components=2), 0, penalty=penalty)
    assert found.embedding.shape == (Y.shape[0], 2)
    assert np.isfinite(found.embedding).all()
    assert set(found.labels) <= set(range(4))
