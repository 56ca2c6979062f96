"""A process of a job as the child of something that outlives it: a Ray actor, a Dask worker.

It is a process of its own because JAX can join a job once in the life of a process, and because
its runtime may end the process in which it loses another one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sgpmic.parallel import job
from sgpmic.parallel.launch import share_out
from sgpmic.parallel.watchdog import TRY_AGAIN

#: Exit code of a process that has refused to do what it was asked for, in one sentence.
REFUSED = 2

_MOST_WORDS = 4_000


class Ending(NamedTuple):
    """How a process of a job has ended.

    Attributes
    ----------
    code : int
        Its exit code; negative for the signal that ended it.
    words : str
        The last of what it wrote to its standard error.
    """

    code: int
    words: str


class Child:
    """A process that runs :mod:`sgpmic.parallel.worker`, and ends when its parent does.

    Parameters
    ----------
    arguments : sequence of str
        For the program.
    variables : mapping of str to str
        For its environment, beside those of the parent.
    shown : bool
        Whether what it prints goes where the parent's goes. Errors are kept in any case.
    """

    def __init__(
        self, arguments: Sequence[str], variables: Mapping[str, str], *, shown: bool = False
    ) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process is there)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sgpmic.parallel.worker", *arguments],
            env={**os.environ, **variables},
            # Nothing is ever written to it: its end is the parent's end.
            stdin=subprocess.PIPE,
            stdout=None if shown else subprocess.DEVNULL,
            stderr=self._said,
        )

    def wait(self) -> Ending:
        """Wait for its end."""
        code = self._process.wait()
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(self._said.tell() - _MOST_WORDS, 0))
        words = self._said.read().decode(errors="replace").strip()
        return Ending(code, words)

    def end(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


def place_processes(
    coordinator: str, hosts: Sequence[str], cores: Sequence[Sequence[int]]
) -> list[dict[str, str]]:
    """Return what every process of a job has to find in its environment.

    Parameters
    ----------
    coordinator : str
        ``HOST:PORT`` where process 0 listens.
    hosts : sequence of str
        The machine of every process.
    cores : sequence of sequences of int
        The cores that each may use. Processes of one machine share them out.
    """
    found = []
    for process, host in enumerate(hosts):
        beside = [other for other, name in enumerate(hosts) if name == host]
        variables = {
            job.COORDINATOR: coordinator,
            job.PROCESSES: str(len(hosts)),
            job.PROCESS: str(process),
            **share_out(cores[process], beside.index(process), len(beside)),
        }
        found.append(variables)
    return found


def most_telling(endings: Iterable[Ending]) -> Ending:
    """Return the ending that says most about why a job failed.

    One that refused knows why; one that was killed or broke down is the cause; the others only
    lost it.
    """
    return min(
        (ending for ending in endings if ending.code != 0),
        key=lambda ending: (ending.code != REFUSED, ending.code in (0, TRY_AGAIN)),
    )


def describe(ending: Ending) -> str:
    """Return a sentence's worth of an ending."""
    if ending.code < 0:
        return f"it was ended by signal {-ending.code}"
    # Of a traceback the last line says what it was; a sentence of ours may have line ends in it.
    lines = ending.words.splitlines() or ["it said nothing"]
    last = lines[-1] if "Traceback" in ending.words else " ".join(" ".join(lines).split())
    return f"exit code {ending.code}: {last[-1000:]}"
