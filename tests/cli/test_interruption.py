"""A fit that is killed, anywhere, and resumed ends as one that was left alone."""

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.helpers import (
    command,
    environment,
    read_csv,
    said,
    started,
    values,
    write_csv,
)

from sgpmic import SGPMIC

pytestmark = pytest.mark.slow

OPTIONS = ("-k", 3, "--inducing", 10, "--max-iter", 8, "--starts", 2)


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
def straight(table: Path) -> Path:
    """Return an uninterrupted run, in a process like those that are interrupted.

    The tests' own process has two devices, and XLA may round differently there.
    """
    out = table.parent / "straight"
    done = started("fit", table, *OPTIONS, "--out", out)
    assert done.returncode == 0, said(done)
    return out


def same_results(first: Path, second: Path) -> None:
    assert read_csv(first / "labels.csv") == read_csv(second / "labels.csv")
    bounds = [SGPMIC.load(run / "model.sgpmic").lower_bound_ for run in (first, second)]
    assert bounds[0] == bounds[1]


#: What a folder shows when its run is stopped, in the order of a run: a file, and how often it has
#: been written by then. What is being written begins with a point. There is a checkpoint from the
#: first iteration on, one more in every iteration of both starts, and its folder goes last.
MOMENTS = (
    ("", 1),  # the folder itself: nothing is learned yet
    ("checkpoint.sgpmic/.iteration-*", 1),  # in the middle of the first checkpoint
    ("checkpoint.sgpmic/iteration-*", 1),  # in the second iteration
    ("checkpoint.sgpmic/.iteration-*", 3),  # in the middle of a later one
    ("checkpoint.sgpmic/iteration-*", 4),  # near the end of the first start, or in the second
    (".new/labels.csv", 1),  # all is learned, the first result is written
    (".new/model.sgpmic", 1),  # labels are there already
    (".new/.report.html.*", 1),  # only the report and the record are missing
    ("run.json", 1),  # finished
)


def versions(out: Path, name: str) -> set[tuple[str, int, int]]:
    """Return what there is of a file: itself, or those that are to take its place."""
    found = set()
    for file in out.glob(name) if name else [out]:
        with contextlib.suppress(FileNotFoundError):  # gone between two looks
            about = file.stat()
            # A file that is being written changes; one that has a name of its own is replaced.
            changes = file == out or file.name.startswith(".")
            found.add((file.name, about.st_ino, 0 if changes else about.st_mtime_ns))
    return found


def has_checkpoint(out: Path) -> bool:
    return any(out.glob("checkpoint.sgpmic/iteration-*"))


def wait_for(process: subprocess.Popen[str], out: Path, name: str, times: int) -> bool:
    """Return whether a file was written so often from now on, before the process ended."""
    before = versions(out, name) if name else set()
    seen: set[tuple[str, int, int]] = set()
    limit = time.monotonic() + 120
    while process.poll() is None and len(seen) < times:
        assert time.monotonic() < limit
        seen |= versions(out, name) - before
        time.sleep(0.0005)  # a core to itself would slow down what it waits for
    return len(seen) >= times


@contextlib.contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    """Keep a process from running: on the disk it is as if it were killed."""
    if process.poll() is not None:
        yield
        return
    process.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{process.pid}/stat")
    while state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] not in "TZ":
        time.sleep(0.0005)
    yield
    process.send_signal(signal.SIGCONT)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_killed_at_nine_moments(straight: Path, table: Path, tmp_path: Path) -> None:
    """What a run has on the disk at a moment is what a kill leaves: each is resumed to the end."""
    out, in_time = tmp_path / "run", 0
    process = start(table, out)
    for number, (name, times) in enumerate(MOMENTS):
        in_time += wait_for(process, out, name, times)
        with stopped(process):
            shutil.copytree(out, tmp_path / str(number))
    _, words = process.communicate()
    assert process.returncode == 0, words
    same_results(straight, out)
    assert in_time >= 6, "the moments must come, or this tests nothing"
    learned = [has_checkpoint(tmp_path / str(number)) for number in range(len(MOMENTS))]
    assert sum(learned) >= 3, "kills must leave something to resume from"
    for number in range(len(MOMENTS)):
        left = tmp_path / str(number)
        # Whole or not there: whatever is left can be read.
        for file in left.glob("*.csv"):
            assert len(read_csv(file)) == 60
        for file in left.glob("model.sgpmic"):
            SGPMIC.load(file)
        done = started("fit", table, *OPTIONS, "--out", left, "--resume")
        assert done.returncode == 0, said(done)
        same_results(straight, left)


def test_polite_stops_say_how_to_resume(straight: Path, table: Path, tmp_path: Path) -> None:
    """Stopped, resumed, stopped in another way, and resumed."""
    out, more = tmp_path / "run", ()
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(table, out, *more)
        assert wait_for(process, out, "checkpoint.sgpmic/iteration-*", 1)
        process.send_signal(number)
        _, words = process.communicate(timeout=60)
        if process.returncode == 0:
            pytest.skip("it had ended before the signal came")
        assert process.returncode == 130
        assert "--resume" in words
        assert "Traceback" not in words
        again = started("fit", table, *OPTIONS, "--out", out)
        assert again.returncode == 2
        assert "unfinished run" in " ".join(again.stderr.split())
        more = ("--resume",)
    done = started("fit", table, *OPTIONS, "--out", out, "--resume")
    assert done.returncode == 0, said(done)
    same_results(straight, out)


def test_a_checkpoint_of_other_settings_is_not_resumed(
    straight: Path, table: Path, tmp_path: Path
) -> None:
    """After a real kill, which then is resumed with the right ones."""
    out = tmp_path / "run"
    process = start(table, out)
    assert wait_for(process, out, "checkpoint.sgpmic/iteration-*", 1)
    process.kill()
    process.communicate()
    if (out / "run.json").exists():
        pytest.skip("it had ended before it was killed")
    done = started("fit", table, *OPTIONS, "--seed", 5, "--out", out, "--resume")
    assert done.returncode == 2
    assert "different settings" in " ".join(done.stderr.split())
    done = started("fit", table, *OPTIONS, "--out", out, "--resume")
    assert done.returncode == 0, said(done)
    same_results(straight, out)
