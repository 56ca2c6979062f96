"""Runs over processes, as a user starts them: killed, resumed, spread, and given bad words."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = ("--data", "iris,Wine", "--methods", "pca-fcm,PPCA-FCM,dec", "--repeats", "5")
N_RUNS = 5 * (3 + 3 + 2 + 3 + 3 + 2)  # DEC is not defined for one dimension


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from sgpmic.cli.app import main; main()", "paper", *arguments]


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"COLUMNS": "120"}


def table(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("table", *arguments), env=environment(), capture_output=True, text=True, timeout=300
    )


def runs(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "runs.jsonl").read_text().splitlines()[1:]
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted")
    done = table(*ARGUMENTS, "--jobs", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "91.33" in done.stdout, "PCA-FCM on Iris in one dimension"
    return out


def test_everything_is_run_once_and_written(uninterrupted: Path) -> None:
    found = runs(uninterrupted)
    assert len(found) == N_RUNS
    assert {run["seed"] for run in found} == set(range(5))
    assert all(run["error"] is None and 0 < run["scores"]["acc"] <= 100 for run in found)
    assert (uninterrupted / "table.csv").stat().st_size > 1000
    assert b"</html>" in (uninterrupted / "table.html").read_bytes()
    again = table(*ARGUMENTS, "--jobs", "1", "--out", str(uninterrupted))
    assert f"All {N_RUNS} runs are there" in again.stdout


@pytest.mark.parametrize("n_lines", [20])
def test_a_killed_campaign_goes_on_to_the_same_file(
    uninterrupted: Path, tmp_path: Path, n_lines: int
) -> None:
    process = subprocess.Popen(
        command("table", *ARGUMENTS, "--jobs", "2", "--out", str(tmp_path)),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    path = tmp_path / "runs.jsonl"
    limit = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < n_lines:
        assert time.monotonic() < limit
        assert process.poll() is None, "finished before it could be killed"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < len(runs(tmp_path)) < N_RUNS
    done = table(*ARGUMENTS, "--jobs", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert runs(tmp_path) == runs(uninterrupted)


def test_processes_of_a_killed_campaign_do_not_stay(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("table", *ARGUMENTS, "--jobs", "2", "--out", str(tmp_path)),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    path = tmp_path / "runs.jsonl"
    limit = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < 3:
        assert time.monotonic() < limit
        time.sleep(0.002)
    process.kill()
    process.wait()
    while True:  # all of its session must end, workers that were in the middle of a run too
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < limit
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data", "irsi"), "no data set irsi; there are Iris, Wine"),
        (("--methods", "kmeans"), "no method kmeans; there are PCA-FCM"),
        (("--data", "Iris", "--out", "{file}"), "cannot be made"),
        (("--data", "Yale"), "None of the data sets could be had"),
        (("--data", "Iris", "--folder", "/no/such/folder"), "/no/such/folder"),
    ],
)
def test_bad_words_get_one_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    given = [a.format(file=file) for a in arguments]
    if "--out" not in given:
        given += ["--out", str(tmp_path / "out")]
    done = table(*given)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in said
    assert "Traceback" not in said
