"""A process that is killed or stuck ends the job in seconds; a checkpoint lets it go on."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from tests.scale.jobs import Processes, make_table, run, start

from sgpmic.io.model_file import ModelFileError
from sgpmic.scale.watchdog import TRY_AGAIN

Found = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("table") / "t.npy")


@pytest.fixture(scope="module")
def undisturbed(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run(table, tmp_path_factory.mktemp("undisturbed"), 2)


def wait_for(path: Path, processes: Processes) -> None:
    ends = time.monotonic() + 200
    while not path.exists():
        assert all(process.poll() is None for process in processes), processes[0].stderr.read()  # type: ignore[union-attr]
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.fixture(scope="module")
def broken_off(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a job of which one process was killed after two rounds."""
    folder = tmp_path_factory.mktemp("killed")
    checkpoint = folder / "checkpoint"
    processes = start(table, folder, 2, checkpoint=str(checkpoint), seconds_per_round=0.5)
    wait_for(checkpoint / "round-000002", processes)
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


@pytest.mark.parametrize("n_processes", [2, 1, 3])
def test_a_killed_process(
    table: Path, undisturbed: Found, broken_off: Path, n_processes: int, tmp_path: Path
) -> None:
    """The others end; as many go on to the very same result, more or fewer to the same labels."""
    checkpoint = shutil.copytree(broken_off, tmp_path / "checkpoint")
    found = run(table, tmp_path, n_processes, checkpoint=str(checkpoint))
    assert np.array_equal(found["labels"], undisturbed["labels"])
    if n_processes == 2:
        for name, values in undisturbed.items():
            assert np.array_equal(found[name], values), name
    else:
        np.testing.assert_allclose(found["bounds"], undisturbed["bounds"], rtol=1e-6)
    # What was broken off was gone on with: the newest checkpoint is the last round's.
    assert [p.name for p in sorted(checkpoint.iterdir())] == ["round-000004"]


def test_a_stuck_process(table: Path, tmp_path: Path) -> None:
    """One that is alive and does nothing is found: by itself, and by those that wait for it."""
    processes = start(table, tmp_path, 2, stuck_process=1, stuck_after=60.0)
    for process in processes:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == TRY_AGAIN, errors
        assert "stuck" in errors or "lost" in errors


def test_other_data_are_not_gone_on_with(broken_off: Path, tmp_path: Path) -> None:
    from tests.scale.worker import SETTINGS

    from sgpmic import SGPMIC, scale

    checkpoint = shutil.copytree(broken_off, tmp_path / "checkpoint")
    other = make_table(tmp_path / "other.npy", n_rows=300)
    model = SGPMIC(**SETTINGS, checkpoint=checkpoint)
    with pytest.raises(ModelFileError, match="with other data"):
        model.fit(scale.share(np.load(other)))


def test_lost_rows_are_noticed(table: Path, broken_off: Path, tmp_path: Path) -> None:
    from tests.scale.worker import SETTINGS

    from sgpmic import SGPMIC, scale

    checkpoint = shutil.copytree(broken_off, tmp_path / "checkpoint")
    (lost,) = checkpoint.glob("round-000002/rows-0-*.sgpmic")
    lost.unlink()
    with pytest.raises(ModelFileError, match="lacks rows"):
        SGPMIC(**SETTINGS, checkpoint=checkpoint).fit(scale.share(np.load(table)))
