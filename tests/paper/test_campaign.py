"""Runs over processes, as a user starts them: killed, resumed, and given bad words."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from paper.cli import app

ARGUMENTS = ("--data", "iris,Wine", "--methods", "pca-fcm,PPCA-FCM,dec", "--repeats", "5")
N_RUNS = 5 * (3 + 3 + 2 + 3 + 3 + 2)  # DEC is not defined for one dimension

# Processes of their own, each of which imports JAX.
pytestmark = pytest.mark.slow


def table(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["table", *arguments])


def runs(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "runs.jsonl").read_text().splitlines()[1:]
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted")
    done = table(*ARGUMENTS, "--jobs", "1", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "91.33" in done.stdout, "PCA-FCM on Iris in one dimension"
    return out


def test_everything_is_run_once_and_written(uninterrupted: Path) -> None:
    found = runs(uninterrupted)
    assert len(found) == N_RUNS
    assert {run["seed"] for run in found} == set(range(5))
    assert all(run["error"] is None and 0 < run["scores"]["acc"] <= 100 for run in found)
    assert (uninterrupted / "table.csv").stat().st_size > 1000
    assert b"</html>" in (uninterrupted / "table.html").read_bytes()
    again = table(*ARGUMENTS, "--out", str(uninterrupted))
    assert again.exit_code == 0
    assert f"All {N_RUNS} runs are there" in again.stdout


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a campaign that was killed, once all its processes have ended."""
    out = tmp_path_factory.mktemp("killed")
    process = subprocess.Popen(
        [sys.executable, "-m", "paper", "table", *ARGUMENTS, "--jobs", "2", "--out", str(out)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    path = out / "runs.jsonl"
    limit = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < 20:
        assert time.monotonic() < limit
        assert process.poll() is None, "finished before it could be killed"
        time.sleep(0.002)
    process.kill()
    process.wait()
    while True:  # all of its session must end, workers that were in the middle of a run too
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return out
        assert time.monotonic() < limit, "a process of the campaign stays"
        time.sleep(0.1)


def test_a_killed_campaign_resumes_to_the_same_file(uninterrupted: Path, killed: Path) -> None:
    assert 0 < len(runs(killed)) < N_RUNS
    done = table(*ARGUMENTS, "--jobs", "1", "--out", str(killed))
    assert done.exit_code == 0, done.output
    assert runs(killed) == runs(uninterrupted)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data", "irsi"), "no data set irsi; there are Iris, Wine"),
        (("--methods", "kmeans"), "no method kmeans; there are PCA-FCM"),
        (("--data", "Iris", "--out", "{file}"), "File exists"),
        (("--data", "Yale"), "None of the data sets is available"),
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
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit), "not a traceback"
    assert words in " ".join(done.stderr.split())
