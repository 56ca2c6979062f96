"""Joining the processes of a job: which one is this, how many are there, where do they meet.

The processes are started by something else: ``srun``, ``mpirun``, Kubernetes, Ray, Dask, or
:mod:`sgpmic.jobs.launch` on one machine. This module finds out from the environment what it
was, and starts JAX's own runtime. A process by itself is a job of one.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from sgpmic.jobs.runtime import (
    end_instead_of_aborting,
    end_with_launcher,
    loopback_where_possible,
)
from sgpmic.jobs.watchdog import REFUSED, TRY_AGAIN

#: Set by our own launchers and recipes, on every process.
COORDINATOR, PROCESSES, PROCESS = "SGPMIC_COORDINATOR", "SGPMIC_PROCESSES", "SGPMIC_PROCESS"
#: Cores for this process, such as ``0,1``.
CORES = "SGPMIC_CORES"

#: Seconds without a sign of life after which JAX gives a process up.
HEARTBEAT = 30


class JobError(RuntimeError):
    """A job that cannot be joined or has lost a process, in one sentence."""

    #: The exit code of a program that ends because of it.
    code = REFUSED


class NotMetError(JobError):
    """The processes did not find each other, but may do so the next time."""

    code = TRY_AGAIN


class Job(NamedTuple):
    """The place of this process in a job.

    Attributes
    ----------
    process, n_processes : int
        Which process this is, from 0, and how many there are.
    coordinator : str
        Host and port where process 0 listens; of no use to a process by itself.
    """

    process: int = 0
    n_processes: int = 1
    coordinator: str = ""


def find_job(environ: Mapping[str, str]) -> Job:
    """Return the job that the environment describes: our variables, Slurm's, or Open MPI's."""
    coordinator = environ.get(COORDINATOR)
    if PROCESSES in environ:
        if coordinator is None or PROCESS not in environ:
            raise JobError(f"{PROCESSES} is set: set {COORDINATOR} (host:port) and {PROCESS} too.")
        return _job(environ[PROCESS], environ[PROCESSES], coordinator)
    # Set under srun, and not in the shell of an allocation.
    if int(environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        if coordinator is None:
            host = first_host(environ["SLURM_STEP_NODELIST"])
            coordinator = f"{host}:{61440 + int(environ['SLURM_JOB_ID']) % 4096}"
        return _job(environ["SLURM_PROCID"], environ["SLURM_STEP_NUM_TASKS"], coordinator)
    size = environ.get("OMPI_COMM_WORLD_SIZE", "1")
    if int(size) > 1:
        if coordinator is None:
            if environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") != size:
                raise JobError(
                    f"Under mpirun on several machines, say where to meet: mpirun -x {COORDINATOR}"
                    "=HOST:PORT, with the machine of the first process and a free port."
                )
            # The number of the job, and not that of the parent process, which is another one for
            # each process where mpirun starts a shell script.
            name = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid", "")
            coordinator = f"127.0.0.1:{61440 + zlib.crc32(name.encode()) % 4096}"
        return _job(environ["OMPI_COMM_WORLD_RANK"], size, coordinator)
    return Job()


def _job(process: str, n_processes: str, coordinator: str) -> Job:
    try:
        job = Job(int(process), int(n_processes), coordinator)
    except ValueError:
        raise JobError(
            f"Process {process!r} of {n_processes!r}: both must be whole numbers."
        ) from None
    if not 0 <= job.process < job.n_processes:
        raise JobError(f"Process {process} of {n_processes}: processes are counted from 0.")
    if not re.fullmatch(r".+:\d+", coordinator):
        raise JobError(f"The coordinator must be HOST:PORT, got {coordinator!r}.")
    return job


def first_host(nodes: str) -> str:
    """Return the first of Slurm's list of nodes, such as ``node[003-007,12],other``."""
    found = re.match(r"([^,\[]+)(?:\[(\w+)[^\]]*\]([^,]*))?", nodes)
    if found is None:
        raise JobError(f"No host in Slurm's list of nodes {nodes!r}.")
    prefix, number, suffix = found.groups(default="")
    return prefix + number + suffix


def initialize(
    coordinator: str | None = None,
    n_processes: int | None = None,
    process: int | None = None,
    *,
    bind: str | None = None,
) -> Job:
    """Join the other processes of the job; call it before anything computes.

    Parameters
    ----------
    coordinator : str or None
        ``HOST:PORT`` where process 0 listens. Without it all three come from the environment
        (our own variables, Slurm, Open MPI).
    n_processes, process : int or None
    bind : str or None
        ``HOST:PORT`` that process 0 listens on; the coordinator's address by default, never all
        addresses of the machine.

    Returns
    -------
    Job
        Of one process where nothing says that there are others.
    """
    if coordinator is None:
        job = find_job(os.environ)
    else:
        job = _job(str(process), str(n_processes), coordinator)
    end_with_launcher()
    _pin(os.environ.get(CORES))
    if job.n_processes == 1:
        return job
    import jax

    # A program that one process compiles and another takes from JAX's cache on disk was seen to
    # sum in another order, which ends the job: every process compiles for itself.
    jax.config.update("jax_enable_compilation_cache", False)
    end_instead_of_aborting()
    with loopback_where_possible(job.coordinator):
        try:
            jax.distributed.initialize(
                job.coordinator,
                job.n_processes,
                job.process,
                coordinator_bind_address=bind or os.environ.get("SGPMIC_BIND") or job.coordinator,
                heartbeat_timeout_seconds=HEARTBEAT,
                initialization_timeout=300,
            )
        except RuntimeError as error:
            raise NotMetError(
                f"Process {job.process} of {job.n_processes} cannot join the others at "
                f"{job.coordinator}: {str(error).splitlines()[0]}"
            ) from error
        joined = jax.process_count()  # this connects the processes with each other
    if joined != job.n_processes:
        # Seen with launchers that start JAX first: every process is then by itself.
        raise JobError(
            f"JAX counts {joined} processes, not {job.n_processes}: call initialize before "
            "anything else uses JAX."
        )
    return job


def _pin(cores: str | None) -> None:
    """Keep this process to its cores: threads of two processes on one core wait for each other."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
