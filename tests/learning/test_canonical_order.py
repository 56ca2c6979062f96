"""The order that a fit takes rows and features in, whatever order they came in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine

from sgpmic import SGPMIC, Progress
from sgpmic.learning.preprocessing import AS_GIVEN, canonical_order
from sgpmic.process_group import ProcessGroup
from sgpmic.storage.model_file import read_model

RNG = np.random.RandomState(0)


def whole_numbers() -> np.ndarray:
    """Return a table of few different values, most of which come often."""
    return RNG.randint(4, size=(200, 6)).astype(float)


def with_gaps() -> np.ndarray:
    Y = load_wine().data.copy()
    Y[RNG.uniform(size=Y.shape) < 0.3] = np.nan
    return Y


def alike() -> np.ndarray:
    """Return a table of features with the same values, in different rows."""
    return np.column_stack([RNG.permutation(50.0 * np.arange(40)) for _ in range(5)])


TABLES = {
    "wine": lambda: load_wine().data,
    "equal rows": lambda: load_iris().data,
    "whole numbers": whole_numbers,
    "gaps": with_gaps,
    "features of the same values": alike,
    "a constant": lambda: np.column_stack([np.full(30, 7.0), RNG.rand(30, 2)]),
    "one feature": lambda: RNG.rand(30, 1),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_table_is_the_same_from_any_order_and_in_any_unit(name: str) -> None:
    Y = TABLES[name]()
    group = ProcessGroup(len(Y))
    expected = canonical_order(Y, group).apply(Y)
    for seed in range(5):
        rng = np.random.RandomState(seed)
        moved = Y[rng.permutation(len(Y))][:, rng.permutation(Y.shape[1])]
        np.testing.assert_array_equal(canonical_order(moved, group).apply(moved), expected)
    units = 2.0 ** np.arange(Y.shape[1])
    np.testing.assert_array_equal(
        canonical_order(units * Y, group).rows, canonical_order(Y, group).rows
    )


def test_it_is_undone() -> None:
    Y = with_gaps()
    order = canonical_order(Y, ProcessGroup(len(Y)))
    undone = order.apply(Y)[order.row_places][:, order.feature_places]
    np.testing.assert_array_equal(undone, Y)
    assert not np.array_equal(order.apply(Y), Y, equal_nan=True)


def test_noise_in_the_last_digits_moves_few_rows() -> None:
    Y = whole_numbers()
    noisy = Y * (1.0 + 1e-12 * RNG.standard_normal(Y.shape))
    group = ProcessGroup(len(Y))
    np.testing.assert_allclose(
        canonical_order(noisy, group).apply(noisy), canonical_order(Y, group).apply(Y), rtol=1e-10
    )


def test_indicators_of_a_category_stay_side_by_side() -> None:
    levels = np.eye(4)[RNG.randint(4, size=60)]
    Y = np.column_stack([RNG.rand(60), levels, RNG.rand(60)])
    np.testing.assert_array_equal(canonical_order(Y, ProcessGroup(60)).features, np.arange(6))


def test_very_large_tables_are_taken_as_they_come() -> None:
    Y = np.broadcast_to(np.float64(1.0), (2**22, 5))
    assert canonical_order(Y, ProcessGroup(len(Y))) is AS_GIVEN


@pytest.mark.parametrize("gaps", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_checkpoint_keeps_the_users_order(gaps: bool, tmp_path: Path) -> None:
    """Any number of processes may resume from it, and several take the table as it comes."""
    Y = load_wine().data
    if gaps:  # so many that missing cells have posteriors
        Y = np.column_stack([with_gaps(), with_gaps()])
    iterations: list[int] = []
    model = SGPMIC(3, n_inducing=10, random_state=0)
    model.set_params(max_iter=4, tol=0.0)
    straight = clone(model).fit(Y)

    def stop(progress: Progress) -> None:
        iterations.append(progress.iteration)
        if progress.iteration == 2 and len(iterations) == 2:
            raise KeyboardInterrupt

    model.set_params(computation__checkpoint=tmp_path, em__callbacks=[stop])
    with pytest.raises(KeyboardInterrupt):
        model.fit(Y)
    if gaps:
        _, arrays = read_model(next(tmp_path.iterdir()) / f"rows-0-{len(Y)}.sgpmic")
        # Means of missing cells, 0 for observed ones.
        cells = arrays["0.cells"][:, : Y.shape[1]]
        np.testing.assert_array_equal(cells != 0.0, np.isnan(Y))
    model.fit(Y)
    assert iterations == [1, 2, 2, 3, 4]  # iteration 2 was not kept yet
    np.testing.assert_array_equal(model.embedding_, straight.embedding_)
    np.testing.assert_array_equal(model.labels_, straight.labels_)


def test_the_rows_of_a_checkpoint_are_those_of_the_table(tmp_path: Path) -> None:
    Y = load_wine().data
    model = SGPMIC(3, n_inducing=10, random_state=0)
    model.set_params(max_iter=2, tol=0.0, computation__checkpoint=tmp_path).fit(Y)
    _, arrays = read_model(next(tmp_path.iterdir()) / f"rows-0-{len(Y)}.sgpmic")
    np.testing.assert_array_equal(arrays["0.X"], model.embedding_)
