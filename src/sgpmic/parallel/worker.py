"""What a process of a job runs that Ray or Dask has started: ``python -m sgpmic.parallel.worker``.

``fit …``
    the command line's own fit, with its words;
``rows FOLDER``
    a fit of ``FOLDER/rows.npy``, this process's rows, with the estimator ``FOLDER/model.pickle``.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import threading
import warnings
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from sgpmic.cli.startup import prepare_process
from sgpmic.parallel.child import REFUSED
from sgpmic.parallel.watchdog import end_process

#: What a process leaves for its rows in the folder, as ``.npy``.
RESULTS = ("labels", "memberships", "embedding")


def main(words: list[str]) -> None:
    """Do what the words say."""
    folder = Path(words[1]) if words[0] == "rows" else None
    threading.Thread(target=_end_with_parent, args=[folder], name="parent", daemon=True).start()
    prepare_process()
    if words[0] == "fit":
        from sgpmic.cli.app import app

        app(words)
    elif folder is not None:
        fit_rows(folder)


def _end_with_parent(folder: Path | None) -> None:
    # Not sys.stdin: a thread that waits with its lock held breaks the end of the interpreter.
    while os.read(0, 1):
        pass
    if folder is not None:  # nobody is left to remove it
        shutil.rmtree(folder, ignore_errors=True)
    end_process("The program that started this process is gone.")


def fit_rows(folder: Path) -> None:
    """Fit the rows in a folder as one process of a job, and leave the results there.

    Parameters
    ----------
    folder : Path
        Of this process alone. The first one also leaves ``model.sgpmic``, and in
        ``warnings.pickle`` what the model warned of.
    """
    from sgpmic import parallel
    from sgpmic.exceptions import ConvergenceWarning, SGPMICWarning
    from sgpmic.parallel.watchdog import is_loss, stuck_after

    try:
        job = parallel.initialize()
    except parallel.JobError as error:
        end_process(str(error), error.code)
    process, n_processes = (0, 1) if job is None else (job.process, job.n_processes)
    with ExitStack() as stack:
        stack.enter_context(parallel.together(n_processes))
        rows = np.load(folder / "rows.npy", mmap_mode="r")
        model = pickle.loads((folder / "model.pickle").read_bytes())
        table = rows if n_processes == 1 else parallel.share(rows)
        if n_processes > 1:
            dog = stack.enter_context(parallel.Watchdog(stuck_after(os.environ)))
            model.set_params(callbacks=[dog.beat, *(model.callbacks or [])])
        said = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        try:
            model.fit(table)
        except (ValueError, TypeError) as error:
            if is_loss(error):
                raise
            end_process(str(error), REFUSED)
        for name in RESULTS:
            np.save(folder / f"{name}.npy", getattr(model, f"{name}_"))
        if process == 0:
            ours = (SGPMICWarning, ConvergenceWarning)
            notes = [(w.category, str(w.message)) for w in said if issubclass(w.category, ours)]
            (folder / "warnings.pickle").write_bytes(pickle.dumps(notes))
            model.save(folder / "model.sgpmic")
        if n_processes > 1:
            table.group.wait("all is done")


if __name__ == "__main__":
    main(sys.argv[1:])
