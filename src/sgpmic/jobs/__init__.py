"""Many devices and many processes, each with some of the rows.

In a script that ``srun``, ``mpirun``, Kubernetes, Ray or :func:`launch` starts many times::

    from sgpmic import EM, SGPMIC, jobs

    job = jobs.initialize()  # before anything else computes
    with jobs.supervised(job.n_processes) as callbacks:
        table = jobs.read_share("big.parquet")
        model = SGPMIC(n_clusters=5, em=EM(callbacks=callbacks), random_state=0).fit(table)
    model.labels_  # of the rows of this process
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from sgpmic.jobs.job import Job, JobError, find_job, initialize
from sgpmic.jobs.launch import launch
from sgpmic.jobs.watchdog import Watchdog, supervised, together

__all__ = [
    "Job",
    "JobError",
    "Watchdog",
    "find_job",
    "initialize",
    "launch",
    "read_share",
    "share",
    "supervised",
    "together",
]


def share(own: Any, *, devices: Sequence[Any] | None = None) -> Any:
    """Return a table for ``fit`` of which this process has the rows ``own``.

    Every process of the job calls it; the table's rows are those of process 0, then those of
    process 1, and so on, spread over all their devices.

    Parameters
    ----------
    own : array-like of shape (n_own, n_features)
        Also memory-mapped.
    devices : sequence of jax.Device or None
        All devices of the job by default.

    Returns
    -------
    SharedTable
    """
    import jax

    from sgpmic.process_group import ProcessGroup, SharedTable

    values = np.asarray(own, dtype=np.float64) if not isinstance(own, np.ndarray) else own
    devices = jax.devices() if devices is None else devices
    return SharedTable(values, ProcessGroup(len(values), devices))


def read_share(path: str | os.PathLike[str], *, columns: Sequence[str] = ()) -> Any:
    """Read this process's part of a Parquet or ``.npy`` file; return a table for ``fit``.

    Parameters
    ----------
    path : path-like
        A file that every process can read; each reads its own rows only.
    columns : sequence of str
        The features; all columns by default.

    Returns
    -------
    SharedTable
    """
    import jax

    from sgpmic.tables.reader import read_table

    part = (jax.process_index(), jax.process_count())
    return share(read_table(path, columns=columns, share=part).values)
