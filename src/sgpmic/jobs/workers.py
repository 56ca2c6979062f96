"""Jobs whose processes something else places on machines: Ray, Dask.

What one process of a job has to do is a folder (:func:`write_job`). ``python -m
sgpmic.jobs.worker FOLDER`` does it and leaves the results there (:func:`read_results`). It is a
process of its own because JAX can join a job only once in the life of a process, and because its
runtime may end the process in which it loses another one.

Ray and Dask choose the places, start :class:`LocalWorkers` there, and notice when one is lost; the
rest is here.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgpmic.jobs.job import JobError
from sgpmic.jobs.launch import Ending, Place, environments, most_telling, wait_for_endings
from sgpmic.jobs.runtime import LOG
from sgpmic.jobs.watchdog import REFUSED

if TYPE_CHECKING:
    from sgpmic.estimator import SGPMIC

#: The files in the folder of a process: what it reads, and what it leaves.
SETTINGS, JOB, ROWS = "settings.sgpmic", "job.json", "rows.npy"
MODEL, WARNINGS = "model.sgpmic", "warnings.json"
BY_ROW = ("labels", "memberships", "embedding")

_LONGEST_MESSAGE = 4_000


class JobFit(NamedTuple):
    """The result of a fit in several processes.

    Attributes
    ----------
    model : SGPMIC
        The fitted model, for new rows. Of the rows it was fitted to it knows a sample.
    labels, memberships, embedding : array
        Of all rows, in the order of the table: NumPy arrays from Ray, and from Dask Dask arrays
        with the table's chunks (but for those without rows).
    """

    model: SGPMIC
    labels: Any
    memberships: Any
    embedding: Any


def job_parameters(model: SGPMIC) -> dict[str, Any]:
    """Return an estimator's parameters for :func:`write_job`, or raise for those without use.

    A RandomState is asked for a seed, and a relative path means what it means here.
    """
    model.check_settings()
    parameters: dict[str, Any] = model.get_params(deep=False)
    start, em, computation = model.start, model.em, model.computation
    for name in ("embedding", "memberships"):
        if not isinstance(getattr(start, name), str):
            raise ValueError(
                f"A fit in several processes takes start__{name} by its name only, not as an array."
            )
    if em.callbacks:
        raise ValueError("Callbacks cannot follow a fit into other processes: leave them out.")
    if isinstance(model.random_state, np.random.RandomState):
        parameters["random_state"] = int(model.random_state.randint(2**31 - 1))
    if computation.checkpoint is not None:
        checkpoint = os.path.abspath(computation.checkpoint)
        parameters["computation"] = replace(computation, checkpoint=checkpoint)
    return parameters


def write_job(
    folder: Path,
    parameters: Mapping[str, Any],
    *,
    table: str | None = None,
    columns: Sequence[str] = (),
    rows: Sequence[np.ndarray] = (),
) -> None:
    """Write what one process of a job has to do into a folder of its own.

    It reads its share of a file, ``table``, of which ``columns`` are the features (all by default).
    Without a file, ``rows`` are pieces of its rows; it then removes the folder if its parent is
    lost, since nobody else will.
    """
    from sgpmic.storage.settings_file import write_settings

    folder.mkdir(parents=True, exist_ok=True)
    write_settings(folder / SETTINGS, parameters)
    computation = parameters["computation"]
    job = {
        "table": table,
        "columns": list(columns),
        "checkpoint": computation.checkpoint,
        "device": computation.device,
    }
    (folder / JOB).write_text(json.dumps(job))
    if table is None:
        shape = (sum(map(len, rows)), rows[0].shape[1])
        values = np.lib.format.open_memmap(folder / ROWS, "w+", np.float64, shape)
        np.concatenate(rows, out=values, casting="unsafe")
        values.flush()


class Results(NamedTuple):
    """What one process of a job has left."""

    labels: np.ndarray  # of its own rows, as the next two
    memberships: np.ndarray
    embedding: np.ndarray
    #: What all processes have in common, from the first one: the model file, and the category and
    #: message of every warning of the package. Others leave nothing.
    shared: tuple[bytes, list[list[str]]]


def read_results(folder: Path) -> Results:
    """Return the results that a process has left in its folder."""
    shared: tuple[bytes, list[list[str]]] = (b"", [])
    if (folder / MODEL).exists():
        shared = ((folder / MODEL).read_bytes(), json.loads((folder / WARNINGS).read_text()))
    labels, memberships, embedding = (np.load(folder / f"{name}.npy") for name in BY_ROW)
    return Results(labels, memberships, embedding, shared)


def load_model(model: SGPMIC, shared: tuple[bytes, list[list[str]]]) -> SGPMIC:
    """Return the fitted model of a job's :class:`Results`; warn of what it has warned of."""
    from sgpmic import exceptions

    for name, message in shared[1]:
        category = getattr(exceptions, name, exceptions.SGPMICWarning)
        warnings.warn(message, category, stacklevel=3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / MODEL
        path.write_bytes(shared[0])
        return type(model).load(path)


class LocalWorkers:
    """The processes of a job beside a Ray actor or a Dask worker; they end with it."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._ended = False

    def run(self, folder: Path, variables: Mapping[str, str], *, shown: bool = False) -> Ending:
        """Run the job in a folder to its end, with more variables in its environment.

        ``shown`` says whether its output is shown where that of this process is.
        """
        log = folder / "runtime.log"
        log.touch()
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "sgpmic.jobs.worker", str(folder)],
                # XLA logs what no user can act on.
                env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **variables, LOG: str(log)},
                # Nothing is ever written to it: it closes when this process ends.
                stdin=subprocess.PIPE,
                stdout=None if shown else subprocess.DEVNULL,
                stderr=errors,
            )
            self._children.append(child)
            if self._ended:
                child.kill()
            code = child.wait()
            errors.seek(max(errors.seek(0, os.SEEK_END) - _LONGEST_MESSAGE, 0))
            return Ending(code, errors.read().decode(errors="replace").strip())

    def end(self) -> None:
        """End all of them now, and those that are still to come as soon as they start."""
        self._ended = True
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.wait()


def run_job(
    places: Sequence[Place],
    start: Callable[[int, dict[str, str]], Callable[[], Ending | None]],
) -> None:
    """Run a job to its end; one process at each place.

    Given the number of a process and the variables for its environment, ``start`` starts it and
    returns what tells its ending, None as long as it runs. A ValueError says that a process refused
    what it was given, a JobError that one was lost or failed otherwise; others may still run.
    """
    variables = environments(places)
    endings = wait_for_endings([start(process, mine) for process, mine in enumerate(variables)])
    if all(ending.code == 0 for ending in endings):
        return
    cause = most_telling(endings)
    if cause.code == REFUSED:
        raise ValueError(cause.message)
    process = endings.index(cause)
    raise JobError(
        f"Process {process} of {len(places)}, on {places[process].host}, has failed: {cause}."
    )
