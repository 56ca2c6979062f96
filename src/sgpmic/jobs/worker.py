"""One process of a job that Ray or Dask has placed: ``python -m sgpmic.jobs.worker FOLDER``.

The folder says what to do (:func:`sgpmic.jobs.workers.write_job`); results are left in it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgpmic import jobs
from sgpmic.jobs.runtime import divert_runtime_output
from sgpmic.jobs.watchdog import REFUSED, end_process, is_loss, supervised
from sgpmic.jobs.workers import BY_ROW, JOB, MODEL, ROWS, SETTINGS, WARNINGS

if TYPE_CHECKING:
    from sgpmic.process_group import SharedTable


def main(folder: Path) -> None:
    """Do the job in a folder."""
    divert_runtime_output()
    threading.Thread(target=_end_with_parent, args=[folder], daemon=True).start()
    try:
        job = jobs.initialize()
    except jobs.JobError as error:
        end_process(str(error), error.code)
    with supervised(job.n_processes) as callbacks:
        try:
            table = _fit(folder, job, callbacks)
        except (ValueError, TypeError) as error:
            if is_loss(error):
                raise
            end_process(str(error), REFUSED)
        table.group.wait("results are written")


def _fit(folder: Path, job: jobs.Job, callbacks: list[Callable[[object], None]]) -> SharedTable:
    """Fit the rows of this process, and leave the results in the folder."""
    from sgpmic import SGPMIC
    from sgpmic.exceptions import collected_warnings
    from sgpmic.storage.settings_file import read_settings

    task = json.loads((folder / JOB).read_text())
    model = SGPMIC(**read_settings(folder / SETTINGS))
    model.set_params(
        computation__checkpoint=task["checkpoint"],
        computation__device=task["device"],
        em__callbacks=callbacks,
    )
    values, names = _read_rows(folder, task["table"], task["columns"], job)
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
    return table


def _read_rows(
    folder: Path, table: str | None, columns: list[str], job: jobs.Job
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return this process's rows and the names of the features, if they have any."""
    if table is None:
        return np.load(folder / ROWS, mmap_mode="r"), ()
    from sgpmic.tables.reader import read_table

    data = read_table(table, columns=columns, share=(job.process, job.n_processes))
    return data.values, () if table.endswith(".npy") else data.names


def _end_with_parent(folder: Path) -> None:
    # Not sys.stdin: a thread that waits with its lock held breaks the end of the interpreter.
    while os.read(0, 1):
        pass
    if (folder / ROWS).exists():  # a copy that nobody is left to remove
        shutil.rmtree(folder, ignore_errors=True)
    end_process("The program that started this process is gone.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
