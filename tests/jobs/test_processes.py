"""However many devices and processes share the rows, the answer is the same.

And a process that is killed or stuck ends the job in seconds, and a checkpoint lets it resume.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from tests.jobs.jobs import BY_ROW, Found, Processes, collect, make_table, run, start
from tests.jobs.worker import SAMPLED, SETTINGS, evaluate

from sgpmic import SGPMIC, Committee, jobs
from sgpmic._runtime import numerics
from sgpmic.jobs.job import TRY_AGAIN
from sgpmic.learning import initialization, starts
from sgpmic.learning.em import em_iteration
from sgpmic.process_group import ProcessGroup, SharedTable
from sgpmic.storage.model_file import ModelFileError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("table") / "t.npy")


class Runs(NamedTuple):
    """What a number of processes find."""

    undisturbed: Found
    resumed: Found  # from what a job of two was when it was broken off
    checkpoint: Path
    voted: Found | None  # by a committee
    sampled: Found | None  # from a start that is made from a sample


def all_in_one(
    table: Path, folder: Path, n_processes: int, broken_off: Path, *, votes: bool = False
) -> Runs:
    """Let one job do it all: its processes start once, and compile the same programs once."""
    checkpoint = shutil.copytree(broken_off, folder / "checkpoint")
    found = run(table, folder, n_processes, evaluate=True, resume=str(checkpoint), votes=votes)
    more = [collect(folder, n_processes, f"-{kind}") for kind in ("voted", "sampled") if votes]
    resumed = collect(folder, n_processes, "-resumed")
    return Runs(found, resumed, checkpoint, *(more or (None, None)))


@pytest.fixture(scope="module")
def two(table: Path, broken_off: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return all_in_one(table, tmp_path_factory.mktemp("two"), 2, broken_off, votes=True)


@pytest.fixture(scope="module")
def three(table: Path, broken_off: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return all_in_one(table, tmp_path_factory.mktemp("three"), 3, broken_off)


@pytest.fixture(scope="module")
def plain(table: Path) -> Found:
    """What one process on one device finds, without any mesh."""
    Y = np.load(table)
    model = SGPMIC().set_params(**SETTINGS).fit(Y)
    return {
        **evaluate(SharedTable(Y, ProcessGroup(len(Y)))),
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


def test_two_processes(two: Runs, plain: Found) -> None:
    """They assert themselves that what has an entry a row stays beside its row."""
    assert {len(two.undisturbed[name]) for name in BY_ROW} == {301}
    same(two.undisturbed, plain)


def test_three_processes(three: Runs, plain: Found) -> None:
    same(three.undisturbed, plain)


def test_every_process_learns_from_the_same_sample(
    two: Runs, plain: Found, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "MOST_START_ROWS", SAMPLED[0])
    monkeypatch.setattr(initialization, "SAMPLED_ROWS", SAMPLED[1])
    alone = SGPMIC().set_params(**(SETTINGS | {"max_iter": 2})).fit(np.load(table))
    together = two.sampled
    assert together is not None
    np.testing.assert_array_equal(together["labels"], alone.labels_)
    np.testing.assert_allclose(together["bounds"], alone.history_["bound"], rtol=1e-6)
    # From all rows at once it starts elsewhere.
    assert together["bounds"][0] != pytest.approx(plain["bounds"][0], rel=1e-6)


def test_two_devices_of_one_process(table: Path, plain: Found) -> None:
    shared = jobs.share(np.load(table))
    assert shared.group.mesh.size == 2
    model = SGPMIC().set_params(**SETTINGS).fit(shared)
    found = {
        **evaluate(shared),
        "labels": model.labels_,
        "embedding": model.embedding_,
        "bounds": np.asarray(model.history_["bound"]),
    }
    same(found, plain)


@pytest.mark.parametrize("mapping", ["shared", "per_cluster"])
def test_nothing_of_a_row_s_size_travels(table: Path, mapping: str) -> None:
    """In the compiled iteration, optimizer and all, no array is gathered from the devices."""
    shared = jobs.share(np.load(table))
    model = SGPMIC().set_params(
        **(SETTINGS | {"mapping": mapping, "max_iter": 1, "em__optimizer": "scg"})
    )
    seen = []

    def look(progress: object) -> None:
        seen.append(progress._labels.args[0])  # type: ignore[attr-defined]

    model.set_params(em__callbacks=[look]).fit(shared)
    (state,) = seen
    shardings: Any = jax.tree.map(lambda leaf: leaf.sharding, state)
    assert not shardings.S.is_fully_replicated
    assert shardings.S == shardings.parameters.X
    small = jax.tree.leaves((shardings.mixture, shardings.parameters[1:], shardings.conjugate))
    assert all(sharding.is_fully_replicated for sharding in small)

    with numerics():
        rows = shared.group.lay_out_rows(shared.values, 64, lambda part: part)
        settings = model.check_settings()
        arguments = (state, rows, settings.options)
        function = jax.jit(em_iteration.__wrapped__)
        program = function.lower(*arguments).compile().as_text()
    assert "all-reduce" in program
    assert "all-gather" not in program


def test_the_saved_model_remembers_rows_of_all_processes(table: Path) -> None:
    """Two devices stand in for processes here: the rows that are remembered are in order."""
    Y = np.load(table)
    shared = jobs.share(Y)
    model = SGPMIC().set_params(**(SETTINGS | {"max_iter": 1})).fit(shared)
    np.testing.assert_array_equal(model.predict(Y), model.labels_)
    numbers = np.array([300, 0, 7])
    np.testing.assert_array_equal(shared.group.rows_at(Y, numbers), Y[numbers])


def test_a_process_without_rows_is_named() -> None:
    with pytest.raises(ValueError, match="Process 0 of 1 has no rows"):
        jobs.share(np.zeros((0, 3)))


# ------------------------------------------------------------------------------------ faults


def wait_for(path: Path, processes: Processes) -> None:
    ends = time.monotonic() + 200
    while not path.exists():
        assert all(process.poll() is None for process in processes), processes[0].stderr.read()  # type: ignore[union-attr]
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.fixture(scope="module")
def broken_off(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a job of which one process was killed after two iterations."""
    folder = tmp_path_factory.mktemp("killed")
    checkpoint = folder / "checkpoint"
    processes = start(
        table, folder, 2, computation__checkpoint=str(checkpoint), seconds_per_round=0.5
    )
    wait_for(checkpoint / "iteration-000002", processes)
    os.kill(processes[1].pid, signal.SIGKILL)
    began = time.monotonic()
    _, errors = processes[0].communicate(timeout=60)
    took = time.monotonic() - began
    assert processes[0].returncode == TRY_AGAIN, errors
    assert took < 10.0
    assert "A process of the job was lost" in errors
    assert "--resume" in errors
    processes[1].communicate()
    return checkpoint


def test_as_many_resume_to_the_very_same_result(two: Runs) -> None:
    for name, values in two.resumed.items():
        assert np.array_equal(values, two.undisturbed[name]), name
    # What was broken off was resumed: the newest checkpoint is the last iteration's.
    assert [p.name for p in two.checkpoint.iterdir()] == ["iteration-000004"]


def test_more_resume_to_the_same_labels(two: Runs, three: Runs) -> None:
    assert np.array_equal(three.resumed["labels"], two.undisturbed["labels"])
    np.testing.assert_allclose(three.resumed["bounds"], two.undisturbed["bounds"], rtol=1e-6)
    assert [p.name for p in three.checkpoint.iterdir()] == ["iteration-000004"]


def test_one_resumes_to_the_same_labels(
    table: Path, two: Runs, broken_off: Path, tmp_path: Path
) -> None:
    checkpoint = shutil.copytree(broken_off, tmp_path / "checkpoint")
    model = SGPMIC().set_params(**SETTINGS, computation__checkpoint=checkpoint)
    model.fit(np.load(table))
    assert np.array_equal(model.labels_, two.undisturbed["labels"])
    np.testing.assert_allclose(model.history_["bound"], two.undisturbed["bounds"], rtol=1e-6)
    assert [p.name for p in checkpoint.iterdir()] == ["iteration-000004"]


def test_a_stuck_process(table: Path, tmp_path: Path) -> None:
    """One that is alive and does nothing is found: by itself, and by those that wait for it."""
    processes = start(table, tmp_path, 2, stuck=True)
    ends = [(process.communicate(timeout=200)[1], process.returncode) for process in processes]
    # Whose time is up first says so; JAX itself may end the other before it can.
    assert all(code != 0 for _, code in ends), ends
    assert any(code == TRY_AGAIN and "stuck" in errors for errors, code in ends), ends


def test_other_data_are_not_resumed_with(broken_off: Path, tmp_path: Path) -> None:
    checkpoint = shutil.copytree(broken_off, tmp_path / "checkpoint")
    other = make_table(tmp_path / "other.npy", n_rows=300)
    model = SGPMIC().set_params(**SETTINGS, computation__checkpoint=checkpoint)
    with pytest.raises(ModelFileError, match="with different data"):
        model.fit(jobs.share(np.load(other)))


def test_lost_rows_are_noticed(table: Path, broken_off: Path, tmp_path: Path) -> None:
    checkpoint = shutil.copytree(broken_off, tmp_path / "checkpoint")
    (lost,) = checkpoint.glob("iteration-000002/rows-0-*.sgpmic")
    lost.unlink()
    with pytest.raises(ModelFileError, match="rows are missing"):
        SGPMIC().set_params(**SETTINGS, computation__checkpoint=checkpoint).fit(
            jobs.share(np.load(table))
        )


def test_a_committee_votes_for_all_processes(table: Path, two: Runs) -> None:
    """Every process asks it about the same rows, fits of its own included, and gets its share."""
    together = two.voted
    assert together is not None
    settings = SETTINGS | {"committee": Committee(), "max_iter": 1, "scale": "one"}
    alone = SGPMIC().set_params(**settings).fit(np.load(table))
    np.testing.assert_array_equal(together["labels"], alone.labels_)
    np.testing.assert_allclose(together["memberships"], alone.memberships_, atol=0.02)
