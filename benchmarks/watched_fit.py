"""A fit for fault injection: it is monitored while it runs, and what it leaves is checked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

OPTIONS = ("-k", "3", "--inducing", "8", "--max-iter", "12", "--no-committee")
RESULTS = {"labels.csv", "model.sgpmic", "report.html", "run.json"}
#: Output of the runtime, C++ and Python that is not ours.
NOT_OURS = ("Traceback", "[Gloo]", "stack trace", "terminate called", "client.h", "Errno")
#: The variable that marks the processes of a case, however they are related.
MARK = "SGPMIC_ATTACK"
#: Seconds after which a case hangs.
LONGEST = 600.0


class Broken(Exception):
    """What must not happen."""


class Fit:
    """A fit that runs with all its processes and temporary files in a folder of its own.

    ``words`` are options besides those of every fit, ``out`` is another run folder than usual.
    """

    def __init__(
        self, box: Path, *words: str, n_processes: int = 1, out: Path | None = None
    ) -> None:
        self.box = box
        self.out = out or box / "run"
        job = ("--processes", str(n_processes)) if n_processes > 1 else ()
        self._words = ("fit", str(box.parent / "t.npy"), *OPTIONS, "--out", str(self.out), *job)
        self._before = {*self.out.glob("checkpoint.sgpmic/iteration-*")}
        self._said = (box / f"said-{time.monotonic_ns()}").open("w+")
        self.process = subprocess.Popen(
            command(*self._words, *words),
            env=environment(box),
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
        )
        self.began = time.monotonic()

    def runs(self) -> bool:
        return self.process.poll() is None

    def has_checkpoint(self) -> bool:
        return any(self.out.glob("checkpoint.sgpmic/iteration-*"))

    def has_learned(self) -> bool:
        """Return whether there is a checkpoint that was not there at the start."""
        with suppress(FileNotFoundError):  # a fit that ends removes it
            return bool({*self.out.glob("checkpoint.sgpmic/iteration-*")} - self._before)
        return True

    def wait_for(self, moment: Callable[[], object]) -> bool:
        """Wait for a moment; return whether it came before the end."""
        while not moment():
            if not self.runs():
                return False
            self._check_time()
            time.sleep(0.004)
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for a while; return whether it has not ended yet."""
        end = time.monotonic() + seconds
        while self.runs() and time.monotonic() < end:
            time.sleep(0.004)
        return self.runs()

    def workers(self) -> list[int]:
        """Return the ids of the processes that it has started."""
        pid = self.process.pid
        with suppress(FileNotFoundError):
            return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        return []

    def has_started(self) -> bool:
        """Return whether both processes of a job are there."""
        return len(self.workers()) == 2

    def end(self) -> tuple[int, str]:
        """Wait for its end; return the exit code and what was said, in one line."""
        while self.runs():
            self._check_time()
            time.sleep(0.02)
        self._said.seek(0)
        return self.process.returncode, " ".join(self._said.read().split())

    def _check_time(self) -> None:
        if time.monotonic() - self.began > LONGEST:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise Broken(f"it runs for {LONGEST:.0f} seconds")


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-c", "from sgpmic.cli.startup import main; main()", *words]


def environment(box: Path) -> dict[str, str]:
    # Processes of a job compile for themselves, so that nothing may take long to compile.
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    return os.environ | {"TMPDIR": str(box), MARK: str(box), "COLUMNS": "200", "XLA_FLAGS": quick}


def still_there(box: Path) -> list[int]:
    """Return all processes of a case that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={box}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(folder.name)] if state != "Z" else []
    return found


@dataclass
class Left:
    """Results and times of an undisturbed run; the times depend on the machine's load."""

    labels: bytes
    n_bytes: int  # of all its files
    whole: float  # seconds from the start to the end
    learning: float  # and from the first checkpoint


def undisturbed(folder: Path, n_processes: int) -> Left:
    for name in ("first", "second"):  # the second compiles nothing that can be kept
        box = folder / f"undisturbed-{n_processes}-{name}"
        box.mkdir()
        fit = Fit(box, n_processes=n_processes)
        if not fit.wait_for(fit.has_checkpoint):
            raise SystemExit(f"No checkpoint was seen: {fit.end()[1]}")
        first = time.monotonic()
        code, said = fit.end()
        if code != 0:
            raise SystemExit(f"A fit that nobody disturbs ends with {code}: {said}")
    now = time.monotonic()
    n_bytes = sum(file.stat().st_size for file in fit.out.iterdir())
    return Left((fit.out / "labels.csv").read_bytes(), n_bytes, now - fit.began, now - first)


# ------------------------------------------------------------------------------- what has to hold


def check_words(said: str, *needed: str) -> None:
    for words in needed:
        if words not in said:
            raise Broken(f"{words!r} is not said: {said[-600:]}")
    for words in NOT_OURS:
        if words in said:
            raise Broken(f"{words!r} is said: {said[-600:]}")


def check_gone(box: Path, patience: float = 10.0) -> float:
    """Raise unless all processes of a case end soon; return the seconds that it took."""
    began = time.monotonic()
    while left := still_there(box):
        if time.monotonic() - began > patience:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            raise Broken(f"{len(left)} processes are left after {patience:.0f} seconds")
        time.sleep(0.05)
    return time.monotonic() - began


def check_resumed(fit: Fit, expected: bytes, *words: str, n_processes: int = 1) -> None:
    """Raise unless a fit can be resumed, and ends as an undisturbed one."""
    again = Fit(fit.box, *(words or ("--resume",)), n_processes=n_processes, out=fit.out)
    code, said = again.end()
    if code != 0:
        raise Broken(f"resuming ends with {code}: {said[-600:]}")
    check_words(said)
    if (fit.out / "labels.csv").read_bytes() != expected:
        raise Broken("other labels")
    strangers = {path.name for path in fit.out.iterdir()} - RESULTS
    if strangers:
        raise Broken(f"{sorted(strangers)} stay in the folder")
    strays = [path.name for path in fit.box.glob("sgpmic-*") if path.suffix != ".log"]
    if strays:
        raise Broken(f"{strays} stay among temporary files")


def moment_of(fit: Fit) -> str:
    """Return how far a fit had come."""
    if (fit.out / "run.json").exists() or (fit.out / ".complete").exists():
        return "results complete"
    if any((fit.out / ".new").glob("[!.]*")):
        return "results being written"
    if fit.has_checkpoint():
        return "with a checkpoint"
    return "before the first checkpoint"
