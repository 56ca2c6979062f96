"""A fit that is killed, anywhere, and gone on with ends as one that was left alone."""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.commands.helpers import command, environment, read_csv, said, sgpmic, values, write_csv

from sgpmic import SGPMIC

OPTIONS = ("-k", 3, "--inducing", 10, "--rounds", 8, "--starts", 2)


def start(table: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("fit", table, *OPTIONS, "--out", out, *more),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", values())


@pytest.fixture(scope="module")
def straight(table: Path) -> tuple[Path, float]:
    """Return an uninterrupted run and the seconds it took, with everything compiled before."""
    for name in ("first", "second"):
        out = table.parent / name
        began = time.monotonic()
        done = sgpmic("fit", table, *OPTIONS, "--out", out)
        assert done.returncode == 0, said(done)
    return out, time.monotonic() - began


def same_results(first: Path, second: Path) -> None:
    assert read_csv(first / "labels.csv") == read_csv(second / "labels.csv")
    bounds = [SGPMIC.load(run / "model.sgpmic").lower_bound_ for run in (first, second)]
    assert bounds[0] == bounds[1]


def test_killed_at_twenty_moments(
    straight: tuple[Path, float], table: Path, tmp_path: Path
) -> None:
    """Each kill goes on with what the last one left; finished runs are compared and begun anew."""
    expected, seconds = straight
    moments = random.Random(0)
    out, kills, finished, gone_on = tmp_path / "run0", 0, 0, 0
    while kills < 20:
        gone_on += (out / "checkpoint.sgpmic").exists()
        process = start(table, out, "--resume")
        try:
            # Starting takes half of a run; kills before it are kills of nothing.
            process.wait(moments.uniform(0.4, 1.0) * seconds)
            # Too late: the machine is faster than when it was measured.
            seconds *= 0.95
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        # Whole or not there: whatever is left can be read.
        for file in out.glob("*.csv"):
            assert len(read_csv(file)) == 60
        for file in out.glob("model.sgpmic"):
            SGPMIC.load(file)
        if (out / "run.json").exists():
            same_results(expected, out)
            finished += 1
            out = tmp_path / f"run{finished}"
    assert gone_on >= 3, "kills must leave something to go on from"
    done = sgpmic("fit", table, *OPTIONS, "--out", out, "--resume")
    assert done.returncode == 0, said(done)
    same_results(expected, out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_stop_says_how_to_go_on(
    straight: tuple[Path, float], table: Path, tmp_path: Path, number: signal.Signals
) -> None:
    process = start(table, tmp_path / "run")
    limit = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoint.sgpmic").exists():
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.005)
    process.send_signal(number)
    _, words = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("it had ended before the signal came")
    assert process.returncode == 130
    assert "--resume" in words
    assert "Traceback" not in words
    again = sgpmic("fit", table, *OPTIONS, "--out", tmp_path / "run")
    assert again.returncode == 2
    assert "unfinished run" in " ".join(again.stderr.split())
    done = sgpmic("fit", table, *OPTIONS, "--out", tmp_path / "run", "--resume")
    assert done.returncode == 0, said(done)
    same_results(straight[0], tmp_path / "run")


def test_a_checkpoint_of_other_settings_is_not_gone_on_with(
    straight: tuple[Path, float], table: Path, tmp_path: Path
) -> None:
    process = start(table, tmp_path / "run")
    while not (tmp_path / "run" / "checkpoint.sgpmic").exists():
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.wait()
    if (tmp_path / "run" / "run.json").exists():
        pytest.skip("it had ended before it was killed")
    done = sgpmic("fit", table, *OPTIONS, "--seed", 5, "--out", tmp_path / "run", "--resume")
    assert done.returncode == 2
    assert "other settings" in " ".join(done.stderr.split())
