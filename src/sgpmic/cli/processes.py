"""Commands in several processes: only the first prints, and all exit together on errors."""

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
    """Join the job this process was started in, or launch processes that run the same command."""
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
            opt.prepare_process()  # again, for the diverted streams
        job = CommandJob(initialize())
    except JobError as error:
        raise fail(str(error), error.code) from None
    except OSError as error:  # log cannot be created, or process limit reached
        raise fail(f"The processes cannot be started: {error.strerror or error}.") from None
    console.quiet = not job.is_first
    job.do(lambda: opt.check_device(device))
    return job


class CommandJob:
    """Member of the group of processes that run a command together, or the only process."""

    group: ProcessGroup  # assignment of rows to processes; set once they are read

    def __init__(self, job: Job) -> None:
        self.process, self.n_processes, _ = job
        self.is_alone, self.is_first = self.n_processes == 1, self.process == 0

    def do(self, step: Callable[[], _T]) -> _T:
        """Run a step; if it raises a ValueError, TypeError or OSError in any process, all exit."""
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
            # Only the first failed process prints, since all may have the same error.
            if sentence and np.argmax(failed) == self.process:
                fail(sentence)
            if failed.any():
                self._gather(np.zeros(1))  # barrier: wait until it is printed
                raise typer.Exit(REFUSED)
            return result

    def _gather(self, own: np.ndarray) -> np.ndarray:
        if self.is_alone:  # avoids importing JAX just to report a missing table
            return own[None]
        from sgpmic.process_group import gathered

        return gathered(own)

    def tell_all(self, text: str) -> list[str]:
        """Return the texts of all processes."""
        own = np.frombuffer(text.encode(), np.uint8)
        sizes = self._gather(np.array([len(own)]))[:, 0].astype(int)
        # Processes exchange only numeric arrays of equal shape.
        told = self._gather(np.resize(own, sizes.max()).astype(np.int64)).astype(np.uint8)
        return [row[:size].tobytes().decode() for row, size in zip(told, sizes, strict=True)]
