"""``sgpmic fit`` in several processes: who speaks, who writes, and how all end together."""

from __future__ import annotations

import copy
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from sgpmic.cli.console import console, fail
from sgpmic.storage.outputs import replacing, table_bytes, write_bytes
from sgpmic.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC
    from sgpmic.parallel import Job
    from sgpmic.tables.reader import Table


def join_job(processes: int) -> CommandJob:
    """Join the job this process was started in; or start the processes that are asked for.

    Parameters
    ----------
    processes : int
        Of ``--processes``: how many to start on this machine. They are this command again; the
        process that started them ends with them.
    """
    from sgpmic.parallel import JobError, find_job, initialize, launch

    try:
        if processes > 1 and find_job(os.environ) is None:
            command = [
                sys.executable,
                "-c",
                "from sgpmic.cli.app import main; main()",
                *sys.argv[1:],
            ]
            raise typer.Exit(launch(command, processes))
        job = CommandJob(initialize())
    except JobError as error:
        raise fail(str(error), error.code) from None
    console.quiet = not job.speaks
    return job


class CommandJob:
    """The processes of a job, of which this is one; or this process by itself.

    Parameters
    ----------
    job : Job or None
    """

    def __init__(self, job: Job | None) -> None:
        self._job = job
        self.share = (0, 1) if job is None else (job.process, job.n_processes)
        self.alone = job is None
        self.speaks = self.share[0] == 0
        self.group: Any = None

    def do(self, prepare: Callable[[], Any]) -> Any:
        """Do something that can go wrong in any process; all end where one of them fails.

        ``prepare`` raises ValueError, TypeError or OSError with a sentence for the user.
        """
        from sgpmic.parallel import together
        from sgpmic.parallel.watchdog import is_loss

        with together(self.share[1]):
            return self._do(prepare, is_loss)

    def _do(self, prepare: Callable[[], Any], is_loss: Callable[[BaseException], bool]) -> Any:
        result, sentence = None, None
        try:
            result = prepare()
        except (ValueError, TypeError, OSError) as error:
            if not self.alone and is_loss(error):
                raise
            sentence = " ".join(str(error).split())
        if sentence is not None and self.alone:
            raise fail(sentence)
        if not self.alone:
            failed = _gather(np.array([sentence is not None]))[:, 0]
            # One sentence is enough where all have the same complaint.
            if sentence is not None and np.argmax(failed) == self.share[0]:
                fail(sentence)
            if failed.any():
                self.leave(2)
        return result

    def leave(self, code: int) -> None:
        """End all processes, which all call this."""
        _gather(np.zeros(1))  # until everybody has said what there is to say
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def meet(self, values: np.ndarray, checkpoint: Path | None) -> None:
        """Find out who has which rows.

        Parameters
        ----------
        values : ndarray of shape (n_own, n_features)
        checkpoint : Path or None
            What is to be gone on from: one process can go on from what several have left.
        """
        if self.alone and (checkpoint is None or not checkpoint.is_dir()):
            return
        from sgpmic.parallel import share

        self.group = share(values).group

    def table(self, values: np.ndarray) -> Any:
        """Return what ``fit`` takes: the values, or those of all processes."""
        from sgpmic.parallel.group import SharedTable

        return values if self.group is None else SharedTable(values, self.group)

    def total(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over all processes."""
        return values if self.group is None else self.group.total(values)

    def n_rows(self, data: Table) -> int:
        """Return how many rows all processes have."""
        return len(data.values) if self.group is None else self.group.n_rows

    @property
    def first_row(self) -> int:
        """The number of this process's first row, from 0."""
        return 0 if self.group is None else self.group.first

    def digest(self, data: Table) -> str:
        """Return the data's fingerprint, the same however many processes have read them."""
        if self.group is None:
            return data.digest
        from sgpmic.storage.checkpoints import data_mark

        return data_mark(data.values, self.group)

    def hears(self, value: bool) -> bool:
        """Return what the first process says."""
        return value if self.group is None else bool(self.group.agree(np.array([value]))[0])

    def part(self) -> None:
        """Wait until all have done their work."""
        if self.group is not None:
            self.group.wait("all is done")

    @contextmanager
    def watching(self, model: SGPMIC) -> Iterator[None]:
        """Let learning end where another process is lost or stuck."""
        if self.alone:
            yield
            return
        from sgpmic.parallel import Watchdog, together
        from sgpmic.parallel.watchdog import stuck_after

        with ExitStack() as stack:
            stack.enter_context(together(self.share[1]))
            dog = stack.enter_context(Watchdog(stuck_after(os.environ)))
            model.set_params(callbacks=[dog.beat, *(model.callbacks or [])])
            yield

    def write_labels(self, folder: RunFolder, columns: dict[str, Any]) -> None:
        """Write every process's part of ``labels.csv``, and join them."""
        group = self.group
        parts = [folder.path / f".labels-{number:06d}.part" for number in range(group.n_processes)]
        write_bytes(parts[self.share[0]], table_bytes(columns, header=self.speaks))
        group.wait("labels are written")
        if self.speaks:
            with replacing(folder.labels) as whole:
                for part in parts:
                    with part.open("rb") as lines:
                        shutil.copyfileobj(lines, whole)
            for part in parts:
                part.unlink()

    def sizes(self, model: SGPMIC) -> list[int]:
        """Return how many rows every cluster has, over all processes."""
        counts = np.bincount(model.labels_, minlength=model.n_clusters).astype(np.float64)
        return [int(count) for count in self.total(counts)]

    def sample(self, model: SGPMIC, data: Table) -> tuple[SGPMIC, Table]:
        """Return a sample of all processes' rows, with a model that has them for its own."""
        from sgpmic.learning.reference import sample_numbers

        group = self.group
        numbers = sample_numbers(group.n_rows, np.random.RandomState(0))
        shown = copy.copy(model)
        shown.embedding_, shown.memberships_, values = (
            group.rows_at(a, numbers) for a in (model.embedding_, model.memberships_, data.values)
        )
        shown.labels_ = shown.memberships_.argmax(axis=1)
        table = replace(
            data,
            values=values,
            ids=self._texts_at(data.ids, numbers),
            labels=self._texts_at(data.labels, numbers),
        )
        return shown, table

    def _texts_at(self, own: list[str] | None, numbers: np.ndarray) -> list[str] | None:
        """Return texts of some rows: numbers travel between processes, so as code points."""
        if own is None:
            return None
        width = int(self.group.largest(float(max(map(len, own)))))
        letters = np.array(own, dtype=f"U{max(width, 1)}").view(np.uint32).reshape(len(own), -1)
        found = np.ascontiguousarray(self.group.rows_at(letters, numbers).astype(np.uint32))
        texts: list[str] = found.view(f"U{found.shape[1]}")[:, 0].tolist()
        return texts


def _gather(own: np.ndarray) -> np.ndarray:
    from sgpmic.parallel.group import gathered

    return gathered(own)
