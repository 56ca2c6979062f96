"""Jobs of which a process is killed or stopped, and what of the runtime can be seen outside."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.cli.helpers import here

from sgpmic.jobs.job import TRY_AGAIN, _bind_to_loopback
from support.processes import of_one_device

#: A process of a job that sums and sums; the first argument is the folder for its number.
PROCESS = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
here = folder / ("early-" + os.environ["SGPMIC_PROCESS"])
here.with_suffix(".part").write_text(str(os.getpid()))
here.with_suffix(".part").rename(here)
while (folder / "wait").exists():
    time.sleep(0.02)
from sgpmic.jobs import job
from sgpmic.jobs.job import together
from sgpmic.jobs.job import divert_runtime_output
job.HEARTBEAT = 3
divert_runtime_output()
me = job.initialize()
import numpy as np
from sgpmic.process_group import gathered
with together(2):
    gathered(np.zeros(1))
    here.rename(folder / f"joined-{me.process}")
    # Both see the end, or they would wait for each other in different places.
    while not gathered(np.array([float((folder / "end").exists())])).all():
        time.sleep(0.05)
"""
LAUNCHER = """
import sys
import sgpmic.jobs
launch = sys.modules["sgpmic.jobs.launch"]
launch.PATIENCE = 1.0
sys.exit(launch.launch([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], 2))
"""


class Launched:
    """A launcher and its two processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launcher = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, PROCESS, str(folder)],
            env=of_one_device() | {"SGPMIC_LOG": str(folder / "runtime.log")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self, moment: str) -> list[int]:
        """Wait until both processes have come to a moment; return their numbers."""
        files = [self.folder / f"{moment}-{number}" for number in range(2)]
        limit = time.monotonic() + 60
        while not all(file.exists() for file in files):
            assert self.launcher.poll() is None, self.launcher.communicate()
            assert time.monotonic() < limit
            time.sleep(0.02)
        return [int(file.read_text()) for file in files]

    def end(self) -> str:
        """Wait for the end of the launcher, and return what was printed."""
        return "".join(self.launcher.communicate(timeout=30))


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    found = Launched(tmp_path)
    yield found
    found.launcher.kill()
    for file in tmp_path.glob("*-[01]"):
        if is_running(int(file.read_text())):
            os.kill(int(file.read_text()), signal.SIGKILL)
    found.launcher.communicate()


def is_running(pid: int) -> bool:
    """Return whether a process is there; what only waits to be collected is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for_the_end_of(pids: list[int]) -> None:
    limit = time.monotonic() + 10
    while any(map(is_running, pids)):
        assert time.monotonic() < limit, "processes outlive their launcher"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_their_launcher(launched: Launched, number: signal.Signals) -> None:
    pids = launched.processes("joined")
    launched.launcher.send_signal(number)
    wait_for_the_end_of(pids)
    launched.end()
    assert launched.launcher.returncode == (-9 if number == signal.SIGKILL else 130)


@pytest.mark.slow
def test_a_process_told_to_end_does(launched: Launched) -> None:
    """JAX's preemption service would swallow the signal."""
    pids = launched.processes("joined")
    os.kill(pids[1], signal.SIGTERM)
    assert "was lost" in launched.end()
    assert launched.launcher.returncode == TRY_AGAIN


@pytest.mark.slow
def test_a_launcher_killed_before_its_processes_have_joined(launched: Launched) -> None:
    (launched.folder / "wait").touch()
    pids = launched.processes("early")
    launched.launcher.kill()
    (launched.folder / "wait").unlink()
    wait_for_the_end_of(pids)


def one_sentence(words: str) -> None:
    """Check that what is printed is ours."""
    assert "--resume" in words
    for theirs in ("[Gloo]", "Traceback", "stack trace", "client.h", "terminate called"):
        assert theirs not in words


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_stopped_process(launched: Launched, number: int) -> None:
    """The runtime gives it up, and aborts the other, which ends as we promise."""
    pids = launched.processes("joined")
    os.kill(pids[number], signal.SIGSTOP)
    words = launched.end()
    assert launched.launcher.returncode == TRY_AGAIN, words
    assert "does not answer" in words
    one_sentence(words)
    log = (launched.folder / "runtime.log").read_text()
    assert "Terminating process because the JAX distributed" in log


@pytest.mark.slow
def test_a_process_killed_before_it_has_joined(launched: Launched) -> None:
    (launched.folder / "wait").touch()
    pids = launched.processes("early")
    os.kill(pids[1], signal.SIGKILL)
    words = launched.end()
    assert launched.launcher.returncode == TRY_AGAIN, words
    assert "Process 1 of 2 was lost: it was ended by signal 9" in words
    assert "--resume" in words


def test_processes_that_cannot_be_started(tmp_path: Path) -> None:
    error = OSError(errno.EAGAIN, "Resource temporarily unavailable")
    with mock.patch("sgpmic.cli.processes.launch", side_effect=error):
        done = here("fit", tmp_path / "t.npy", "-k", 3, "--processes", 2, "--out", tmp_path / "run")
    assert done.exit_code == 2, done.output
    assert "cannot be started: Resource temporarily unavailable." in done.output


def listening(pid: int) -> set[str]:
    """Return the addresses, as the system writes them, on which a process listens."""
    found = set()
    for name in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(name)
        if target.startswith("socket:["):
            inode = target[len("socket:[") : -1]
            for table in ("tcp", "tcp6"):
                for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[9] == inode and fields[3] == "0A":
                        found.add(fields[1].split(":")[0])
    return found


@pytest.mark.slow
def test_sockets_and_words_of_the_runtime_stay_inside(launched: Launched) -> None:
    pids = launched.processes("joined")
    # 127.0.0.1, by itself and as an address of IPv6.
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    places = [listening(pid) for pid in pids]
    (launched.folder / "end").touch()
    words = launched.end()
    assert all(places), "both listen"
    assert set.union(*places) <= loopback, f"{socket.gethostname()} is another address"
    assert launched.launcher.returncode == 0, words
    assert words == ""


def hostname_given(coordinator: str) -> object:
    """Return the host's name that JAX passes for its sums in a job with this coordinator."""
    from jax._src.lib import xla_client  # where JAX looks for it

    _bind_to_loopback(coordinator)
    return xla_client._xla.make_gloo_tcp_collectives(distributed_client=None)


@pytest.mark.parametrize(
    ("coordinator", "hostname"),
    [
        ("127.0.0.1:5000", "127.0.0.1"),
        ("[::1]:5000", "::1"),
        ("localhost:5000", "localhost"),
        ("10.1.2.3:5000", None),
        ("node17:5000", None),
        ("", None),
    ],
)
def test_sums_of_one_machine_do_not_leave_it(
    monkeypatch: pytest.MonkeyPatch, coordinator: str, hostname: str | None
) -> None:
    """Whatever address the name of the machine stands for."""

    def fake(distributed_client: None, hostname: str | None = None) -> str | None:
        return hostname

    monkeypatch.setattr("jaxlib._jax.make_gloo_tcp_collectives", fake)
    assert hostname_given(coordinator) == hostname


def test_another_jaxlib_only_loses_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("jaxlib._jax.make_gloo_tcp_collectives")
    _bind_to_loopback("127.0.0.1:5000")
    monkeypatch.setitem(sys.modules, "jaxlib._jax", None)
    _bind_to_loopback("127.0.0.1:5000")
