"""However many devices and processes share the rows, the answer is the same."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from tests.scale.jobs import BY_ROW, make_table, run
from tests.scale.worker import SETTINGS, evaluate

from sgpmic import SGPMIC, scale
from sgpmic._runtime import numerics
from sgpmic.learning.crew import Alone, SharedTable
from sgpmic.learning.em import em_round

Found = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("table") / "t.npy")


@pytest.fixture(scope="module")
def plain(table: Path) -> Found:
    """What one process on one device finds, without any mesh."""
    Y = np.load(table)
    model = SGPMIC(**SETTINGS).fit(Y)
    return {
        **evaluate(SharedTable(Y, Alone(len(Y)))),
        "labels": model.labels_,
        "memberships": model.memberships_,
        "embedding": model.embedding_,
        "bound": np.asarray(model.lower_bound_),
        "bounds": np.asarray(model.history_["bound"]),
    }


def same(found: Found, expected: Found) -> None:
    """Compare evaluations to 1e-11, and whole fits, whose line searches amplify rounding."""
    for name in ("value", "dX", "dT", "d_gamma", "d_variance", "dZ"):
        scale_ = np.abs(expected[name]).max()
        np.testing.assert_allclose(
            found[name], expected[name], rtol=1e-11, atol=1e-11 * scale_, err_msg=name
        )
    assert np.array_equal(found["labels"], expected["labels"])
    np.testing.assert_allclose(found["bounds"], expected["bounds"], rtol=1e-6)
    np.testing.assert_allclose(found["embedding"], expected["embedding"], atol=1e-4)


@pytest.mark.parametrize("n_processes", [2, 4])
def test_processes(table: Path, plain: Found, n_processes: int, tmp_path: Path) -> None:
    """Processes that assert themselves that what has an entry a row stays beside its row."""
    found = run(table, tmp_path, n_processes, evaluate=True)
    assert {len(found[name]) for name in BY_ROW} == {301}
    same(found, plain)


def test_two_devices_of_one_process(table: Path, plain: Found) -> None:
    shared = scale.share(np.load(table))
    assert shared.crew.mesh.size == 2
    model = SGPMIC(**SETTINGS).fit(shared)
    found = {
        **evaluate(shared),
        "labels": model.labels_,
        "embedding": model.embedding_,
        "bounds": np.asarray(model.history_["bound"]),
    }
    same(found, plain)


@pytest.mark.parametrize("mapping", ["shared", "per_cluster"])
def test_nothing_of_a_row_s_size_travels(table: Path, mapping: str) -> None:
    """In the compiled round, optimiser and all, no array is gathered from the devices."""
    shared = scale.share(np.load(table))
    model = SGPMIC(**(SETTINGS | {"mapping": mapping, "max_iter": 1, "optimizer": "scg"}))
    seen = []

    def look(progress: object) -> None:
        seen.append(jax.tree.map(lambda leaf: leaf.sharding, progress._labels.args[0]))  # type: ignore[attr-defined]

    model.set_params(callbacks=[look]).fit(shared)
    (shardings,) = seen
    assert not shardings.S.is_fully_replicated
    assert shardings.S == shardings.parameters.X
    small = jax.tree.leaves((shardings.mixture, shardings.parameters[1:], shardings.conjugate))
    assert all(sharding.is_fully_replicated for sharding in small)
    from sgpmic.learning.crew import lay_out_rows

    with numerics():
        rows = lay_out_rows(shared.values, shared.crew, 64, lambda part: part)
        program = em_round.lower(model._state, rows, model._options()).compile().as_text()
    assert "all-reduce" in program
    assert "all-gather" not in program


def test_the_saved_model_remembers_rows_of_all_processes(table: Path) -> None:
    """Two devices stand in for processes here: the rows that are remembered are in order."""
    Y = np.load(table)
    shared = scale.share(Y)
    model = SGPMIC(**(SETTINGS | {"max_iter": 1})).fit(shared)
    np.testing.assert_array_equal(model.predict(Y), model.labels_)
    numbers = np.array([300, 0, 7])
    np.testing.assert_array_equal(shared.crew.rows_at(Y, numbers), Y[numbers])


def test_a_process_without_rows_is_named() -> None:
    with pytest.raises(ValueError, match="Process 0 of 1 has no rows"):
        scale.share(np.zeros((0, 3)))
