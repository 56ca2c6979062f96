"""``sgpmic fit`` in one or several processes: which one prints and writes, how all end together."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import typer

from sgpmic.cli.console import console, fail, prepare_process
from sgpmic.cli.options import check_device, name_device
from sgpmic.jobs import Job, JobError, find_job, initialize, launch, together
from sgpmic.jobs.job import REFUSED, is_loss
from sgpmic.jobs.launch import divert_runtime_output
from sgpmic.storage.outputs import replacing, table_bytes, write_bytes
from sgpmic.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.process_group import ProcessGroup
    from sgpmic.tables.dataset import EncodedTable

_T = TypeVar("_T")


def join_job(processes: int, device: str) -> CommandJob:
    """Join the job this process was started in; or start as many processes as are asked for.

    They run this command again; the process that started them ends with them.
    """
    name_device(device)
    try:
        found = find_job(os.environ)
        is_alone = found is not None and found.n_processes == 1
        if processes > 1 and is_alone:
            start = "from sgpmic.cli.startup import main; main()"
            command = [sys.executable, "-P", "-c", start, *sys.argv[1:]]
            raise typer.Exit(launch(command, processes))
        if not is_alone:
            divert_runtime_output()
            prepare_process()  # other streams now
        job = CommandJob(initialize())
    except JobError as error:
        raise fail(str(error), error.code) from None
    except OSError as error:  # no place for the log, or the system starts no more processes
        raise fail(f"The processes cannot be started: {error.strerror or error}.") from None
    console.quiet = not job.is_first
    job.do(lambda: check_device(device))
    return job


class CommandJob:
    """The processes that run a command together, of which this is one; or the only one."""

    group: ProcessGroup  # who has which rows; known after `meet`

    def __init__(self, job: Job) -> None:
        self._job = job
        self.share = (job.process, job.n_processes)
        self.n_processes = job.n_processes
        self.is_alone = job.n_processes == 1
        self.is_first = job.process == 0

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
            if sentence and np.argmax(failed) == self._job.process:
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

    def meet(self, values: np.ndarray) -> None:
        """Find out which process has which rows; ``values`` are those of this one."""
        from sgpmic.process_group import ProcessGroup

        self.group = ProcessGroup(len(values))

    def write_labels(self, folder: RunFolder, columns: dict[str, Any]) -> None:
        """Write every process's part of ``labels.csv``, and join them."""
        name = folder.new.labels.with_name
        parts = [name(f".labels-{number:06d}.part") for number in range(self.n_processes)]
        write_bytes(parts[self._job.process], table_bytes(columns, header=self.is_first))
        self.group.wait("labels are written")
        if not self.is_first:
            return
        with replacing(folder.new.labels) as whole:
            for part in parts:
                whole.write(part.read_bytes())
                part.unlink()

    def sample(self, model: SGPMIC, data: EncodedTable) -> tuple[SGPMIC, EncodedTable]:
        """Return what the report shows: a sample of all processes' rows, or all of this one's."""
        if self.is_alone:
            return model, data
        from sgpmic.learning.preprocessing import sample_numbers

        numbers = sample_numbers(self.group.n_rows, np.random.RandomState(0))
        shown = copy.copy(model)
        shown.embedding_, shown.memberships_, values = (
            self.group.rows_at(own, numbers)
            for own in (model.embedding_, model.memberships_, data.values)
        )
        shown.labels_ = shown.memberships_.argmax(axis=1)
        ids, labels = (self._texts_at(own, numbers) for own in (data.ids, data.labels))
        return shown, replace(data, values=values, ids=ids, labels=labels)

    def _texts_at(self, own: list[str] | None, numbers: np.ndarray) -> list[str] | None:
        """Return texts of some rows. Only numbers travel between processes, so as code points."""
        if own is None:
            return None
        width = int(self.group.largest(float(max(map(len, own)))))
        letters = np.array(own, dtype=f"U{max(width, 1)}").view(np.uint32).reshape(len(own), -1)
        found = np.ascontiguousarray(self.group.rows_at(letters, numbers).astype(np.uint32))
        return found.view(f"U{found.shape[1]}")[:, 0].tolist()
