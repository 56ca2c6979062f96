"""Launching the processes of a job and waiting for them to exit.

:func:`launch` runs a command in several processes on one machine, to use many cores or to test
cluster runs locally. Ray and Dask start their processes with :mod:`sgpmic.jobs.workers`.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from sgpmic.jobs import job
from sgpmic.jobs.job import REFUSED, TRY_AGAIN

#: Grace period in seconds for the others to exit after one process has failed.
PATIENCE = 10.0


class Slot(NamedTuple):
    """A slot for one process of a job on some machine."""

    host: str  # an address of the machine that the others can reach
    cores: list[int]  # available CPU cores; empty if unknown
    coordinator: str  # the coordinator's HOST:PORT, if this is the slot of process 0


def local_slot(host: str = "127.0.0.1") -> Slot:
    """Return a slot on this machine, whose address is ``host``."""
    family = socket.getaddrinfo(host, 0)[0][0]
    with socket.create_server((host, 0), family=family) as probe:
        port = probe.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return Slot(host, cores, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def environments(slots: Sequence[Slot]) -> list[dict[str, str]]:
    """Return the environment variables for every process; those on a machine share its cores."""
    hosts = [slot.host for slot in slots]
    found = []
    for process, (host, cores, _) in enumerate(slots):
        rank, n = hosts[:process].count(host), hosts.count(host)
        own = cores[rank * len(cores) // n : (rank + 1) * len(cores) // n]
        variables = {
            job.COORDINATOR: slots[0].coordinator,
            job.PROCESSES: str(len(slots)),
            job.PROCESS: str(process),
            "PYTHONSAFEPATH": "1",  # files in the current folder may have the name of a module
        }
        found.append(variables | ({job.CORES: ",".join(map(str, own))} if own else {}))
    return found


class ProcessExit(NamedTuple):
    """Exit status of a process of a job."""

    code: int  # negative if ended by a signal
    message: str = ""  # the end of its standard error

    def __str__(self) -> str:
        """Return a clause for an error message."""
        if self.code == -signal.SIGABRT:
            return "it was aborted, as JAX does when another process is lost or does not answer"
        if self.code < 0:
            return f"it was ended by signal {-self.code}"
        if not self.message:
            return f"it ended with exit code {self.code}"
        # The last line of a traceback names the error; our own messages may have several lines.
        lines = self.message.splitlines() if "Traceback" in self.message else [self.message]
        return " ".join(lines[-1].split()).removesuffix(".")


def wait_for_exits(
    polls: Sequence[Callable[[], ProcessExit | None]], patience: float = math.inf
) -> list[ProcessExit]:
    """Wait until all processes have exited, at most ``patience`` seconds, less after a failure.

    The functions in ``polls`` return the exit of a process, or None while it runs.
    """
    found: dict[int, ProcessExit] = {}
    deadline = time.monotonic() + patience
    while len(found) < len(polls) and time.monotonic() < deadline:
        for process, poll in enumerate(polls):
            if process not in found and (ended := poll()) is not None:
                found[process] = ended
                if ended.code != 0:
                    # The others will notice, and one of them may have a better explanation.
                    deadline = min(deadline, time.monotonic() + PATIENCE)
        time.sleep(0.1)
    stopped = ProcessExit(TRY_AGAIN, "it had to be stopped after another one failed")
    return [found.get(process, stopped) for process in range(len(polls))]


def root_cause(exits: Sequence[ProcessExit]) -> ProcessExit:
    """Return the exit that explains why a job failed."""
    # Those that were aborted or ended with TRY_AGAIN have only lost contact with the cause.
    rank = {REFUSED: 0, -signal.SIGABRT: 2, TRY_AGAIN: 3}
    failed = [each for each in exits if each.code != 0]
    return min(failed, key=lambda each: rank.get(each.code, 1))


def launch(command: Sequence[str], n_processes: int) -> int:
    """Run a command as a job of several processes on this machine; return its exit code.

    The output of process 0 is shown; of the others, only standard error. If one fails, the others
    have a few seconds to exit before they are killed. If this process ends, those that have joined
    the job (:func:`sgpmic.jobs.initialize`) end as well. A Python program imports nothing from the
    current folder or from the folder of its script.
    """
    log = os.environ.get(job.LOG, os.devnull)
    reader, writer = os.pipe()
    children: list[subprocess.Popen[bytes]] = []

    def poll(child: subprocess.Popen[bytes]) -> ProcessExit | None:
        return None if (code := child.poll()) is None else ProcessExit(code)

    try:
        with job.terminated_as_interrupted():
            for process, variables in enumerate(environments([local_slot()] * n_processes)):
                env = {**os.environ, **variables, job.LAUNCHER: str(reader), job.LOG: log}
                screen = None if process == 0 else subprocess.DEVNULL
                children += [subprocess.Popen(command, env=env, stdout=screen, pass_fds=[reader])]
            exits = wait_for_exits([partial(poll, child) for child in children])
    except KeyboardInterrupt as request:
        if request.args:  # SIGTERM: unlike Ctrl-C, it did not reach the children
            for child in children:
                child.terminate()
        wait_for_exits([partial(poll, child) for child in children], PATIENCE)
        return 130
    finally:
        for child in children:
            child.kill()
            child.wait()
        os.close(reader)
        os.close(writer)
    # A process with a positive exit code has printed its own error.
    explained = max((code for code, message in exits if code > 0 and not message), default=0)
    failed = any(code for code, _ in exits)
    if failed and not explained:
        cause = root_cause(exits)
        print(
            f"Process {exits.index(cause)} of {len(exits)} was lost: {cause}. Start the same "
            f"command again with --resume; {job.LOG}=FILE keeps the output of the runtime.",
            file=sys.stderr,
        )
    return explained or (TRY_AGAIN if failed else 0)
