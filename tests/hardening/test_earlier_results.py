"""Results of an earlier run, and files that are read, stay until there are new results."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from tests.cli.helpers import here, values, write_csv
from tests.hardening.conftest import QUICK, record

from sgpmic.storage.run_folder import RunFolder, RunFolderError


def content(folder: Path) -> dict[str, bytes]:
    """Return every file in a folder, hidden ones and those in folders included."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def sentence(done: object) -> str:
    """Return what a command that refused has said."""
    assert done.exit_code == 2, done.output  # type: ignore[attr-defined]
    return " ".join(done.output.split())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("cell", "options"),
    [(1e300, ()), (0.0, ("--seed", 2**40))],
    ids=["a cell too large", "a seed too large"],
)
def test_a_fit_that_is_refused_costs_nothing(
    run: Path, tmp_path: Path, cell: float, options: tuple[object, ...]
) -> None:
    rows = values()
    rows[7, 1] = cell
    table = write_csv(tmp_path / "other.csv", rows)
    before = content(run)
    sentence(here("fit", table, *QUICK, *options, "--out", run, "--force"))
    assert content(run) == before


def test_a_fit_that_is_refused_leaves_the_checkpoint_of_an_unfinished_run(
    run: Path, tmp_path: Path
) -> None:
    (run / "checkpoint.sgpmic" / "iteration-000001").mkdir(parents=True)
    (run / "checkpoint.sgpmic" / "iteration-000001" / "rest.sgpmic").write_text("hours of work")
    before = content(run)
    rows = values()
    rows[7, 1] = 1e300
    table = write_csv(tmp_path / "other.csv", rows)
    sentence(here("fit", table, *QUICK, "--out", run, "--force"))
    assert content(run) == before


def test_new_results_replace_all_of_the_old_ones(run: Path, tmp_path: Path) -> None:
    before = content(run)
    (run / "mine.txt").write_text("precious")
    table = write_csv(tmp_path / "other.csv", values(4))
    done = here("fit", table, *QUICK, "--out", run, "--force")
    assert done.exit_code == 0, done.output
    after = content(run)
    assert after.pop("mine.txt") == b"precious"
    assert set(after) == set(before)
    assert all(after[name] != before[name] for name in before)


class KilledError(BaseException):
    """Stands for a kill: nobody handles it."""


#: Every rename of a fit's end: before the first everything is old, and after the last all is new.
@pytest.mark.parametrize("moves", range(6))
def test_killed_while_new_results_take_their_places(run: Path, moves: int) -> None:
    folder = RunFolder(run)
    folder.make_ready(force=True, resume=False)
    (folder.checkpoint / "iteration-000001").mkdir(parents=True)
    for name in ("labels", "model", "report"):
        getattr(folder.new, name).write_bytes(b"new " + name.encode())
    done = -1  # writing the record is a rename as well, with os itself

    def replace(source: Path, target: Path) -> None:
        nonlocal done
        if done == moves:
            raise KilledError
        done += 1
        os.rename(source, target)

    with mock.patch("sgpmic.storage.run_folder.os.replace", replace):
        try:
            folder.finish(record("new.csv"))
            killed = False
        except KilledError:
            killed = True
    assert killed == (moves < 5)
    again = RunFolder(run)
    assert again.is_finished != killed
    if moves < 4:
        with pytest.raises(RunFolderError, match="an unfinished run; finish it"):
            again.read_record()
    else:
        assert again.read_record()["table"] == "new.csv"
        assert (run / "model.sgpmic").read_bytes() == b"new model"


def test_an_interrupted_replacement_can_be_resumed(run: Path) -> None:
    """A checkpoint beside results is that of a later fit; the results are still answered from."""
    folder = RunFolder(run)
    folder.make_ready(force=True, resume=False)
    (folder.checkpoint / "iteration-000001").mkdir(parents=True)
    folder.leave()
    again = RunFolder(run)
    assert again.is_complete
    assert not again.is_finished
    assert again.read_record()["data"]["rows"] == 60
    with pytest.raises(RunFolderError, match="unfinished run"):
        again.make_ready(force=False, resume=False)
    again.make_ready(force=False, resume=True)
    assert again.has_checkpoint


def test_predict_does_not_write_over_what_it_reads(run: Path, tmp_path: Path) -> None:
    new = write_csv(tmp_path / "new.csv", values(1, n_each=2))
    link = tmp_path / "link.csv"
    link.symlink_to(new)
    before = content(tmp_path)
    for target in (new, link, *(run / name for name in ("model.sgpmic", "run.json"))):
        words = sentence(here("predict", run, new, "--out", target, "--force"))
        assert "name another file with --out" in words
    assert content(tmp_path) == before


def test_fit_does_not_write_over_its_table(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoint.sgpmic"
    folder.mkdir(parents=True)
    np.save(folder / "t.npy", values())
    words = sentence(here("fit", folder / "t.npy", *QUICK, "--out", tmp_path / "run", "--force"))
    assert "would be overwritten" in words
    assert (folder / "t.npy").exists()
