"""Launching the processes of a job, and waiting for their exits.

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
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sgpmic.jobs import job
from sgpmic.jobs.job import REFUSED, TRY_AGAIN

#: Seconds that the others have to exit by themselves when one has failed.
PATIENCE = 10.0


class Slot(NamedTuple):
    """Room for one process of a job on some machine."""

    host: str  # an address of the machine that the others can reach
    cores: list[int]  # that may be used there; empty where the system does not say
    coordinator: str  # HOST:PORT to meet at, if this is the slot of process 0


def local_slot(host: str = "127.0.0.1") -> Slot:
    """Return a slot on this machine, which has the address ``host``."""
    family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        probe.bind(address)
        port = int(probe.getsockname()[1])
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return Slot(host, cores, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def environments(slots: Sequence[Slot]) -> list[dict[str, str]]:
    """Return the environment variables of every process of a job.

    The processes of a machine share its cores evenly, where there are enough. Python imports
    nothing from the current folder, where a file may have the name of a module.
    """
    hosts = [slot.host for slot in slots]
    found = []
    for process, (host, cores, _) in enumerate(slots):
        rank, n = hosts[:process].count(host), hosts.count(host)
        own = cores[rank * len(cores) // n : (rank + 1) * len(cores) // n]
        variables = {
            job.COORDINATOR: slots[0].coordinator,
            job.PROCESSES: str(len(slots)),
            job.PROCESS: str(process),
            "PYTHONSAFEPATH": "1",
        }
        found.append(variables | ({job.CORES: ",".join(map(str, own))} if own else {}))
    return found


class ProcessExit(NamedTuple):
    """The exit of a process of a job."""

    code: int  # negative for the signal that ended it
    message: str = ""  # the end of its standard error

    def __str__(self) -> str:
        """Return a clause for a message."""
        if self.code == -signal.SIGABRT:
            return "it was aborted, as JAX does when another process is lost or does not answer"
        if self.code < 0:
            return f"it was ended by signal {-self.code}"
        if not self.message:
            return f"it ended with exit code {self.code}"
        # The last line of a traceback names the error; a message of ours may have several lines.
        lines = self.message.splitlines() if "Traceback" in self.message else [self.message]
        return " ".join(lines[-1].split()).removesuffix(".")


def wait_for_exits(
    polls: Sequence[Callable[[], ProcessExit | None]], patience: float = math.inf
) -> list[ProcessExit]:
    """Wait until all processes have ended, or one has failed and the others had time to end.

    Each process has a function that returns its exit, None as long as it runs. One that has not
    ended, in ``patience`` seconds at most, gets an exit that says so.
    """
    found: dict[int, ProcessExit] = {}
    deadline = time.monotonic() + patience
    while len(found) < len(polls) and time.monotonic() < deadline:
        for process, poll in enumerate(polls):
            if process not in found and (ended := poll()) is not None:
                found[process] = ended
                if ended.code != 0:
                    # The others find out by themselves, and one of them may know more.
                    deadline = min(deadline, time.monotonic() + PATIENCE)
        time.sleep(0.05)
    stopped = ProcessExit(TRY_AGAIN, "it had to be stopped after another one failed")
    return [found.get(process, stopped) for process in range(len(polls))]


def root_cause(exits: Sequence[ProcessExit]) -> ProcessExit:
    """Return the exit that explains why a job failed.

    A process that refused its input knows why; one that was killed or has crashed is the cause; the
    others only lost it.
    """
    rank = {REFUSED: 0, -signal.SIGABRT: 2, TRY_AGAIN: 3}
    failed = [each for each in exits if each.code != 0]
    return min(failed, key=lambda each: rank.get(each.code, 1))


def launch(command: Sequence[str], n_processes: int) -> int:
    """Run a command as a job of several processes on this machine; return its exit code.

    The first process has the screen; of the others only errors are shown. Where one fails the
    others have a few seconds to exit, and are then killed. Where this process ends, those that have
    joined the job (:func:`sgpmic.jobs.initialize`) end as well. A Python program imports nothing
    from the current folder or from beside its script.
    """
    with tempfile.NamedTemporaryFile(prefix="sgpmic-", suffix=".log", delete=False) as file:
        log = Path(file.name)
    reader, writer = os.pipe()
    children: list[subprocess.Popen[bytes]] = []

    def poll(child: subprocess.Popen[bytes]) -> ProcessExit | None:
        return None if (code := child.poll()) is None else ProcessExit(code)

    try:
        with job.terminated_as_interrupted():
            for process, variables in enumerate(environments([local_slot()] * n_processes)):
                env = {**os.environ, **variables, job.LAUNCHER: str(reader), job.LOG: file.name}
                screen = None if process == 0 else subprocess.DEVNULL
                children.append(
                    subprocess.Popen(command, env=env, stdout=screen, pass_fds=[reader])
                )
            os.close(reader)
            exits = wait_for_exits([partial(poll, child) for child in children])
    except KeyboardInterrupt as request:
        if request.args:  # a terminal has told the children as well, others have not
            for child in children:
                child.terminate()
        wait_for_exits([partial(poll, child) for child in children], PATIENCE)
        log.unlink()
        return 130
    finally:
        for child in children:
            child.kill()
            child.wait()
        os.close(writer)
    # A process that failed by itself has said why.
    explained = max((code for code, message in exits if code > 0 and not message), default=0)
    failed = any(code for code, _ in exits)
    if failed and not explained:
        cause = root_cause(exits)
        print(
            f"Process {exits.index(cause)} of {len(exits)} was lost: {cause}. Start the same "
            "command again with --resume.",
            file=sys.stderr,
        )
    if not failed or explained == REFUSED or log.stat().st_size == 0:
        log.unlink()
    else:
        print(f"The runtime output of the processes is in {log}.", file=sys.stderr)
    return explained or (TRY_AGAIN if failed else 0)
