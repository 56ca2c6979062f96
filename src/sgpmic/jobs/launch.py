"""Starting the processes of a job, and waiting for their ends.

:func:`launch` runs a command in several processes on one machine: for its many cores, and to try
out what a cluster will do. Ray and Dask start theirs by way of :mod:`sgpmic.jobs.workers`.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from sgpmic.jobs import job, runtime
from sgpmic.jobs.watchdog import REFUSED, TRY_AGAIN

#: Seconds that the others have to end by themselves when one has failed.
PATIENCE = 10.0


class Place(NamedTuple):
    """Where a process of a job can run."""

    host: str  # an address of the machine that the others can reach
    cores: list[int]  # that may be used there; empty where the system does not say
    coordinator: str  # HOST:PORT to meet at, if this is the place of the first process


def this_place(host: str = "127.0.0.1") -> Place:
    """Return this machine as a place, by one of its addresses."""
    family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        probe.bind(address)
        port = int(probe.getsockname()[1])
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return Place(host, cores, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def environments(places: Sequence[Place]) -> list[dict[str, str]]:
    """Return the variables for the environment of every process of a job.

    Processes of one machine share out its cores evenly, where there are enough. Python imports
    nothing from the current folder, where a file may have the name of a module.
    """
    found = []
    for process, place in enumerate(places):
        beside = [other for other, it in enumerate(places) if it.host == place.host]
        number, n, cores = beside.index(process), len(beside), place.cores
        mine = cores[number * len(cores) // n : (number + 1) * len(cores) // n]
        found.append(
            {
                job.COORDINATOR: places[0].coordinator,
                job.PROCESSES: str(len(places)),
                job.PROCESS: str(process),
                **({job.CORES: ",".join(map(str, mine))} if mine else {}),
                "PYTHONSAFEPATH": "1",
            }
        )
    return found


class Ending(NamedTuple):
    """How a process of a job has ended."""

    code: int  # negative for the signal that ended it
    message: str = ""  # the last that it wrote to its standard error

    def __str__(self) -> str:
        """Return a sentence without its full stop."""
        if self.code < 0:
            return f"it was ended by signal {-self.code}"
        if not self.message:
            return f"it ended with exit code {self.code}"
        # The last line of a traceback names the error; a sentence of ours may have several lines.
        lines = self.message.splitlines() if "Traceback" in self.message else [self.message]
        return " ".join(lines[-1].split()).removesuffix(".")


def wait_for_endings(
    looks: Sequence[Callable[[], Ending | None]], patience: float = math.inf
) -> list[Ending]:
    """Wait until all processes have ended, or one has failed and the others had time to end.

    For every process there is a function that returns its ending, None as long as it runs. Those
    that did not end, in ``patience`` seconds at most, get an ending that says so.
    """
    found: dict[int, Ending] = {}
    deadline = time.monotonic() + patience
    while len(found) < len(looks) and time.monotonic() < deadline:
        for process, look in enumerate(looks):
            ending = None if process in found else look()
            if ending is not None:
                found[process] = ending
                if ending.code != 0:
                    # The others find out by themselves, and one of them may know more.
                    deadline = min(deadline, time.monotonic() + PATIENCE)
        time.sleep(0.05)
    stopped = Ending(TRY_AGAIN, "it had to be stopped after another one failed")
    return [found.get(process, stopped) for process in range(len(looks))]


def most_telling(endings: Sequence[Ending]) -> Ending:
    """Return the ending that says most about why a job failed.

    A process that refused knows why; one that was killed or broke down is the cause; the others
    only lost it.
    """
    failed = [ending for ending in endings if ending.code != 0]
    return min(failed, key=lambda ending: (ending.code != REFUSED, ending.code == TRY_AGAIN))


def launch(command: Sequence[str], n_processes: int) -> int:
    """Run a command as a job of several processes on this machine; return its exit code.

    The first process has the screen; of the others only errors are shown. Where one fails the
    others have a few seconds to end, and are then ended. Where this process ends, those that have
    joined the job (:func:`sgpmic.jobs.initialize`) end as well. A Python program imports
    nothing from the current folder or from beside its script.
    """
    descriptor, log = tempfile.mkstemp(prefix="sgpmic-", suffix=".log")
    os.close(descriptor)
    ours, theirs = os.pipe()[::-1]
    children = [
        subprocess.Popen(
            command,
            env={**os.environ, **variables, runtime.LAUNCHER: str(theirs), runtime.LOG: log},
            stdout=None if number == 0 else subprocess.DEVNULL,
            pass_fds=[theirs],
        )
        for number, variables in enumerate(environments([this_place()] * n_processes))
    ]
    os.close(theirs)
    looks = [lambda child=child: _ending(child) for child in children]
    try:
        with terminated_as_interrupted():
            endings = wait_for_endings(looks)
    except KeyboardInterrupt as request:
        if request.args:  # a terminal has told the children as well, others have not
            for child in children:
                child.terminate()
        wait_for_endings(looks, PATIENCE)
        Path(log).unlink()
        return 130
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
        os.close(ours)
    if all(ending.code == 0 for ending in endings):
        Path(log).unlink()
        return 0
    return _explain(endings, Path(log))


def _ending(child: subprocess.Popen[bytes]) -> Ending | None:
    code = child.poll()
    return None if code is None else Ending(code)


def _explain(endings: Sequence[Ending], log: Path) -> int:
    """Say how a job failed, as far as its processes have not; return the exit code."""
    spoken = max(
        (ending.code for ending in endings if ending.code > 0 and not ending.message), default=0
    )
    if not spoken:
        cause = most_telling(endings)
        print(
            f"Process {endings.index(cause)} of {len(endings)} was lost: {cause}. Start the same "
            "command again with --resume.",
            file=sys.stderr,
        )
    if log.stat().st_size == 0 or spoken == REFUSED:
        log.unlink()
    else:
        print(f"What the runtime of the processes has printed is in {log}.", file=sys.stderr)
    return spoken or TRY_AGAIN


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let Ctrl-C and a polite request to end (SIGTERM, as schedulers send) leave alike."""
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    before_interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, before_interrupt)
