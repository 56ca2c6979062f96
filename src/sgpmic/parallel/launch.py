"""Several processes on one machine: for its many cores, and to try out what a cluster will do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

from sgpmic.parallel import job

#: Seconds that the others have to end by themselves when one has failed.
PATIENCE = 10.0


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on, at an address of this machine."""
    family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        probe.bind(address)
        return int(probe.getsockname()[1])


def meeting_point(host: str) -> str:
    """Return ``HOST:PORT`` for a coordinator at an address of this machine."""
    return f"[{host}]:{free_port(host)}" if ":" in host else f"{host}:{free_port(host)}"


def usable_cores() -> list[int]:
    """Return the cores this process may run on; nothing where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def share_out(cores: Sequence[int], place: int, n_processes: int) -> dict[str, str]:
    """Return the variable that keeps one of several processes to its share of the cores."""
    mine = cores[place * len(cores) // n_processes : (place + 1) * len(cores) // n_processes]
    return {job.CORES: ",".join(map(str, mine))} if mine else {}


def environments(n_processes: int) -> list[dict[str, str]]:
    """Return what the processes of a job on this machine have to find in their environments.

    The cores are shared out evenly where there are enough.
    """
    coordinator = f"127.0.0.1:{free_port()}"
    cores = usable_cores()
    return [
        {
            job.COORDINATOR: coordinator,
            job.PROCESSES: str(n_processes),
            job.PROCESS: str(process),
            **share_out(cores, process, n_processes),
        }
        for process in range(n_processes)
    ]


def launch(command: Sequence[str], n_processes: int) -> int:
    """Run a command as a job of several processes and return its exit code.

    The first process has the screen; of the others only errors are shown, which the first one
    has as well. Where one fails the rest is given a few seconds to say so, and is then ended.
    """
    children = [
        subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdout=None if number == 0 else subprocess.DEVNULL,
        )
        for number, variables in enumerate(environments(n_processes))
    ]
    try:
        _wait(children)
    except KeyboardInterrupt:
        # The terminal has told the children as well.
        _wait(children, PATIENCE)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
    codes = [child.returncode for child in children]
    # A child that a signal ended has a negative code; that of another is more telling.
    return next((code for code in sorted(codes, reverse=True) if code != 0), 0) % 256


def _wait(children: Sequence[subprocess.Popen[bytes]], patience: float | None = None) -> None:
    """Wait until all have ended, or one has failed and the rest has had its time."""
    deadline = None if patience is None else time.monotonic() + patience
    while any(child.poll() is None for child in children):
        if deadline is None and any(child.poll() not in (None, 0) for child in children):
            deadline = time.monotonic() + PATIENCE
        if deadline is not None and time.monotonic() > deadline:
            for child in children:
                if child.poll() is None:
                    child.send_signal(signal.SIGTERM)
            return
        time.sleep(0.05)
