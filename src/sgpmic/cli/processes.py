"""The processes that run a command: which one speaks, and how all end together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import typer

from sgpmic.cli import options as opt
from sgpmic.cli.options import console, fail
from sgpmic.jobs import Job, JobError, find_job, initialize, launch, together
from sgpmic.jobs.job import REFUSED, divert_runtime_output, is_loss

if TYPE_CHECKING:
    from sgpmic.process_group import ProcessGroup

_T = TypeVar("_T")


def join_job(processes: int, device: str) -> CommandJob:
    """Join the job this process was started in; or start as many processes as are asked for.

    They run this command again; the process that started them ends with them.
    """
    opt.name_device(device)
    try:
        found = find_job(os.environ)
        is_alone = found is not None and found.n_processes == 1
        if processes > 1 and is_alone:
            start = "from sgpmic.cli.startup import main; main()"
            command = [sys.executable, "-P", "-c", start, *sys.argv[1:]]
            raise typer.Exit(launch(command, processes))
        if not is_alone:
            divert_runtime_output()
            opt.prepare_process()  # other streams now
        job = CommandJob(initialize())
    except JobError as error:
        raise fail(str(error), error.code) from None
    except OSError as error:  # no place for the log, or the system starts no more processes
        raise fail(f"The processes cannot be started: {error.strerror or error}.") from None
    console.quiet = not job.is_first
    job.do(lambda: opt.check_device(device))
    return job


class CommandJob:
    """The processes that run a command together, of which this is one; or the only one."""

    group: ProcessGroup  # who has which rows; known once they are read

    def __init__(self, job: Job) -> None:
        self.process, self.n_processes, _ = job
        self.is_alone, self.is_first = self.n_processes == 1, self.process == 0

    def do(self, step: Callable[[], _T]) -> _T:
        """Take a step that can fail in any process; all end where one of them fails.

        ``step`` raises ValueError, TypeError or OSError with a sentence for the user.
        """
        with together(self.n_processes):
            result: Any = None
            sentence = ""
            try:
                result = step()
            except (ValueError, TypeError, OSError) as error:
                if is_loss(error):
                    raise
                sentence = " ".join(str(error).split()) or type(error).__name__
            failed = self._gather(np.array([sentence != ""]))[:, 0]
            # One sentence is enough where all have the same complaint.
            if sentence and np.argmax(failed) == self.process:
                fail(sentence)
            if failed.any():
                self._gather(np.zeros(1))  # wait until it is said
                raise typer.Exit(REFUSED)
            return result

    def _gather(self, own: np.ndarray) -> np.ndarray:
        if self.is_alone:  # no need to import JAX, only to say that a table is not there
            return own[None]
        from sgpmic.process_group import gathered

        return gathered(own)

    def tell(self, text: str) -> str:
        """Return the first process's text to all of them; others may give anything."""
        own = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
        length = int(self._gather(np.array([len(own)]))[0, 0])
        # Only numbers of one shape travel between processes.
        padded = np.zeros(length, np.int64)
        padded[: min(len(own), length)] = own[:length]
        return self._gather(padded)[0].astype(np.uint8).tobytes().decode()
