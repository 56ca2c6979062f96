"""One program at a time writes to a run's folder, and a killed one keeps nobody out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.helpers import here
from tests.hardening.conftest import QUICK, record

from sgpmic.storage.run_folder import RunFolder, RunFolderError

HOLD = """
import sys, time
from sgpmic.storage.run_folder import RunFolder
folder = RunFolder(sys.argv[1])
folder.make_ready(force=True, resume=False)
folder.new.labels.write_text("half")
print("ready", flush=True)
time.sleep(60)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """Start a process that writes to a folder until it is ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("command", ["fit", "fit --resume", "report"])
def test_a_second_program_is_refused_at_once(run: Path, table: Path, command: str) -> None:
    if command == "fit --resume":
        (run / "run.json").unlink()
        (run / "checkpoint.sgpmic" / "iteration-000001").mkdir(parents=True)
    process = holder(run)
    try:
        if command == "report":
            done = here("report", run)
        else:
            flag = "--resume" if "resume" in command else "--force"
            done = here("fit", table, *QUICK, "--out", run, flag)
        words = " ".join(done.output.split())
        assert done.exit_code == 2, words
        assert "Another sgpmic is writing" in words
        assert (run / ".new" / "labels.csv").read_text() == "half", "the first goes on"
    finally:
        process.kill()
        process.wait()


def test_those_who_read_are_not_kept_out(run: Path, table: Path, tmp_path: Path) -> None:
    process = holder(run)
    try:
        assert here("info", run).exit_code == 0
        assert here("predict", run, table, "--out", tmp_path / "o.csv").exit_code == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_killed_program_keeps_nobody_out(run: Path) -> None:
    process = holder(run)
    process.send_signal(signal.SIGKILL)
    process.wait()
    folder = RunFolder(run)
    folder.make_ready(force=True, resume=False)
    assert not folder.new.labels.exists(), "nothing is left of what it was writing"
    folder.leave()
    assert sorted(path.name for path in run.iterdir()) == [
        *("labels.csv", "model.sgpmic", "report.html", "run.json")
    ]


def test_of_many_that_come_and_go_one_has_it(tmp_path: Path) -> None:
    """Including those that opened the file just before it was removed."""
    inside, most, refused = 0, 0, 0
    count = threading.Lock()

    def work(_: int) -> None:
        nonlocal inside, most, refused
        for _ in range(300):
            try:
                with RunFolder(tmp_path).locked():
                    with count:
                        inside += 1
                        most = max(most, inside)
                    os.sched_yield()
                    with count:
                        inside -= 1
            except RunFolderError:
                refused += 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert most == 1
    assert refused > 0, "they must meet, or this tests nothing"


@pytest.mark.slow
def test_two_fits_at_once_leave_one_fit_s_results(table: Path, tmp_path: Path) -> None:
    """Of two that begin together one is refused, or comes after the other."""
    run = RunFolder(tmp_path / "run")
    barrier = threading.Barrier(2)
    said: list[str] = []

    def fit(name: str) -> None:
        folder = RunFolder(tmp_path / "run")
        barrier.wait()
        try:
            folder.make_ready(force=True, resume=False)
        except RunFolderError as error:
            said.append(str(error))
            return
        for file in folder.new[:3]:
            file.write_text(name)
        folder.finish(record(name))
        folder.leave()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fit, "ab"))
    name = run.read_record()["table"]
    assert {file.read_text() for file in run.results[:3]} == {name}
    assert all(re.search("Another sgpmic is writing", words) for words in said)
