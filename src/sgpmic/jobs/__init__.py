"""Multi-process fits: joining a job, sharding its rows, launching and supervising it.

In a script that ``srun``, ``mpirun``, Kubernetes or :func:`launch` runs in every process::

    from sgpmic import EM, SGPMIC, jobs

    job = jobs.initialize()  # before anything else uses JAX
    with jobs.supervised(job.n_processes) as callbacks:
        table = jobs.read_share("big.parquet")
        model = SGPMIC(n_clusters=5, em=EM(callbacks=callbacks), random_state=0).fit(table)
    model.labels_  # labels of this process's rows
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgpmic.jobs.job import Job, JobError, Watchdog, find_job, initialize, supervised, together
from sgpmic.jobs.launch import launch

if TYPE_CHECKING:
    from sgpmic.process_group import SharedTable

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


def share(own: Any, *, devices: Sequence[Any] | None = None) -> SharedTable:
    """Return a table for ``fit`` that is distributed over the job; this process holds ``own``.

    Every process of the job calls it. The rows of process 0 come first, then those of process 1,
    and so on.

    Parameters
    ----------
    own : array-like of shape (n_own, n_features)
        May be memory-mapped.
    devices : sequence of jax.Device or None
        All devices of the job by default.
    """
    import jax

    from sgpmic.process_group import ProcessGroup, SharedTable

    values = own if isinstance(own, np.ndarray) else np.asarray(own, dtype=np.float64)
    return SharedTable(values, ProcessGroup(len(values), devices or jax.devices()))


def read_share(path: str | os.PathLike[str], *, columns: Sequence[str] = ()) -> SharedTable:
    """Read this process's rows of a Parquet or ``.npy`` file; return a table for ``fit``.

    Parameters
    ----------
    path : path-like
        A file that every process can read.
    columns : sequence of str
        The features; all columns by default.
    """
    import jax

    from sgpmic.tables.dataset import read_table

    part = (jax.process_index(), jax.process_count())
    return share(read_table(path, columns=columns, share=part).values)
