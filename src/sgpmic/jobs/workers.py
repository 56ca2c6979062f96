"""Worker processes of a job on Ray or Dask.

The task of a process is a folder (:func:`write_task`). ``python -m sgpmic.jobs.workers FOLDER``
runs it and writes the results there. It runs in a separate process because JAX can join a job only
once in the life of a process, and may abort one that loses another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgpmic import jobs
from sgpmic.jobs.job import LAUNCHER, LOG, REFUSED, end_process, is_loss
from sgpmic.jobs.launch import ProcessExit, Slot, environments, root_cause, wait_for_exits

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC

# Input files in the folder of a process; output files of process 0; and the outputs of every
# process for its rows, NAME.npy.
TASK, ROWS = "task.sgpmic", "rows.npy"
MODEL, WARNINGS = "model.sgpmic", "warnings.json"
BY_ROW = ("labels", "memberships", "embedding")

_LONGEST_MESSAGE = 4_000


class JobFit(NamedTuple):
    """The result of a multi-process fit.

    Attributes
    ----------
    model : SGPMIC
        The fitted model, for new rows. It holds only a sample of the training rows.
    labels, memberships, embedding : array
        For all rows, in the order of the table: NumPy arrays from Ray; from Dask, Dask arrays with
        the table's chunks (except empty ones).
    """

    model: SGPMIC
    labels: Any
    memberships: Any
    embedding: Any


def job_parameters(model: SGPMIC) -> dict[str, Any]:
    """Return an estimator's parameters for :func:`write_task`; raise if one cannot be written."""
    model.check_settings()
    parameters: dict[str, Any] = model.get_params(deep=False)
    for name in ("embedding", "memberships"):
        if not isinstance(getattr(model.start, name), str):
            raise ValueError(
                f"A fit in several processes accepts start__{name} only by name, not as an array."
            )
    if model.em.callbacks:
        raise ValueError("Callbacks cannot be sent to other processes: leave them out.")
    if isinstance(model.random_state, np.random.RandomState):
        parameters["random_state"] = int(model.random_state.randint(2**31 - 1))
    if model.computation.checkpoint is not None:
        checkpoint = os.path.abspath(model.computation.checkpoint)
        parameters["computation"] = replace(model.computation, checkpoint=checkpoint)
    return parameters


def write_task(
    folder: Path,
    parameters: Mapping[str, Any],
    *,
    table: str | None = None,
    columns: Sequence[str] = (),
    rows: Sequence[np.ndarray] = (),
) -> None:
    """Write the task of one process to its folder: a share of ``table``, or these ``rows``."""
    from sgpmic.storage.model_file import write_model
    from sgpmic.storage.models import encode_parameters

    folder.mkdir(parents=True, exist_ok=True)
    encoded, arrays = encode_parameters(parameters)
    task = {"table": table, "columns": list(columns), "parameters": encoded}
    computation = parameters["computation"]
    task |= {"checkpoint": computation.checkpoint, "device": computation.device}
    write_model(folder / TASK, task, arrays)
    if table is None:
        shape = (sum(map(len, rows)), rows[0].shape[1])
        values = np.lib.format.open_memmap(folder / ROWS, "w+", np.float64, shape)
        np.concatenate(rows, out=values, casting="unsafe")
        values.flush()


def load_model(model: SGPMIC, folder: Path) -> SGPMIC:
    """Load the model that process 0 has written to its folder, and reissue its warnings."""
    from sklearn.exceptions import ConvergenceWarning

    from sgpmic.exceptions import SGPMICWarning, warn

    kinds = {one.__name__: one for one in (ConvergenceWarning, *SGPMICWarning.__subclasses__())}
    for name, message in json.loads((folder / WARNINGS).read_text()):
        warn(message, kinds.get(name, SGPMICWarning))
    return type(model).load(folder / MODEL)


class LocalWorker:
    """A child process of a Ray actor or a Dask worker, which ends with it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._ended = False

    def run(
        self, folder: Path, variables: Mapping[str, str], *, shown: bool = False
    ) -> ProcessExit:
        """Run the task in a folder in a child process, whose standard output may be ``shown``."""
        # XLA's logs are of no use to users. Standard input closes when this process ends.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(folder)],
            env={**os.environ, **variables, LOG: str(folder / "runtime.log"), LAUNCHER: "0"},
            stdin=subprocess.PIPE,
            stdout=None if shown else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        if self._ended:
            self._child.kill()
        assert self._child.stderr is not None
        message = self._child.stderr.read().strip()[-_LONGEST_MESSAGE:]
        return ProcessExit(self._child.wait(), message)

    def end(self) -> None:
        """Kill the child process, or one that is started later."""
        self._ended = True
        if self._child is not None:
            self._child.kill()
            self._child.wait()


def run_job(
    slots: Sequence[Slot], start: Callable[[int, dict[str, str]], Callable[[], ProcessExit | None]]
) -> None:
    """Run a job to completion, one process in each slot.

    ``start`` takes the index and environment variables of a process, and returns what polls it.
    When this raises, since a process rejected its input or was lost, others may still be running.
    """
    exits = wait_for_exits([start(process, own) for process, own in enumerate(environments(slots))])
    if all(code == 0 for code, _ in exits):
        return
    cause = root_cause(exits)
    if cause.code == REFUSED:
        raise ValueError(cause.message)
    process = exits.index(cause)
    raise jobs.JobError(
        f"Process {process} of {len(slots)}, on {slots[process].host}, has failed: {cause}."
    )


def main(folder: Path) -> None:
    """Run the task in a folder as one process of a job."""
    jobs.job.divert_runtime_output()
    try:
        job = jobs.initialize()
    except jobs.JobError as error:
        end_process(str(error), error.code)
    with jobs.supervised(job.n_processes) as callbacks:
        try:
            _fit(folder, job, callbacks)
        except (ValueError, TypeError) as error:
            if is_loss(error):
                raise
            end_process(str(error), REFUSED)


def _fit(folder: Path, job: jobs.Job, callbacks: list[Callable[[object], None]]) -> None:
    from sgpmic import SGPMIC
    from sgpmic.exceptions import collected_warnings
    from sgpmic.storage.model_file import read_model
    from sgpmic.storage.models import decode_parameters
    from sgpmic.tables.dataset import read_table

    task, arrays = read_model(folder / TASK)
    model = SGPMIC(**decode_parameters(task["parameters"], arrays))
    model.set_params(
        computation__checkpoint=task["checkpoint"],
        computation__device=task["device"],
        em__callbacks=callbacks,
    )
    names: tuple[str, ...] = ()
    if task["table"] is None:
        values = np.load(folder / ROWS, mmap_mode="r")
    else:
        data = read_table(task["table"], columns=task["columns"], share=job[:2])
        values, names = data.values, () if task["table"].endswith(".npy") else data.names
    table = jobs.share(values)
    with collected_warnings() as said:
        model.fit(table)
    for name in BY_ROW:
        np.save(folder / f"{name}.npy", getattr(model, f"{name}_"))
    if job.process == 0:
        pairs = [(warning.category.__name__, str(warning.message)) for warning in said]
        (folder / WARNINGS).write_text(json.dumps(pairs))
        if names:
            model.feature_names_in_ = np.array(names, dtype=object)
        model.save(folder / MODEL)
    table.group.wait("results are written")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
