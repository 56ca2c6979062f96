"""Joining a job: a process's number, the number of processes, and the coordinator's address.

Our own launchers pass them in environment variables. Slurm, Open MPI and Kubernetes are recognized
by :func:`jax.distributed.initialize`. A process by itself is a job of one.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

from sgpmic.jobs.failures import REFUSED, TRY_AGAIN, end_with_launcher

COORDINATOR, PROCESSES, PROCESS = "SGPMIC_COORDINATOR", "SGPMIC_PROCESSES", "SGPMIC_PROCESS"
BIND = "SGPMIC_BIND"
#: Cores for this process, such as ``0,1``.
CORES = "SGPMIC_CORES"

#: Seconds without a heartbeat after which JAX considers a process dead.
HEARTBEAT = 30


class JobError(RuntimeError):
    """A job that cannot be joined, or that has lost a process."""

    #: The exit code of a program that ends because of it.
    code = REFUSED


class NotMetError(JobError):
    """Processes that could not connect, but may the next time."""

    code = TRY_AGAIN


class Job(NamedTuple):
    """The place of this process in a job.

    Attributes
    ----------
    process, n_processes : int
        The number of this process, from 0, and how many there are.
    coordinator : str
        ``HOST:PORT`` where process 0 listens; empty where JAX has found it, or nobody listens.
    """

    process: int = 0
    n_processes: int = 1
    coordinator: str = ""


def find_job(environ: Mapping[str, str]) -> Job | None:
    """Return the job of our own environment variables, or of one process.

    None stands for a job of several processes that a scheduler has started and JAX recognizes. JAX
    is not asked about a process by itself: it would listen at a port that is the same for all steps
    of a Slurm job, and call the Kubernetes API in any pod.
    """
    if environ.get(PROCESSES) == "1":
        return Job()
    if PROCESSES in environ:
        if COORDINATOR not in environ or PROCESS not in environ:
            raise JobError(f"{PROCESSES} is set: set {COORDINATOR} (host:port) and {PROCESS} too.")
        return _job(environ[PROCESS], environ[PROCESSES], environ[COORDINATOR])
    counts = {environ.get(name, "1") for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")}
    is_indexed_pod = "JOB_COMPLETION_INDEX" in environ and find_spec("kubernetes") is not None
    return None if is_indexed_pod or counts != {"1"} else Job()


def _job(process: object, n_processes: object, coordinator: str) -> Job:
    try:
        job = Job(int(str(process)), int(str(n_processes)), coordinator)
    except ValueError:
        raise JobError(
            f"Process {process!r} of {n_processes!r}: both must be whole numbers."
        ) from None
    if not 0 <= job.process < job.n_processes:
        raise JobError(f"Process {process} of {n_processes}: processes are counted from 0.")
    if not re.fullmatch(r".+:\d+", coordinator):
        raise JobError(f"The coordinator must be HOST:PORT, got {coordinator!r}.")
    return job


def initialize(
    coordinator: str | None = None,
    n_processes: int | None = None,
    process: int | None = None,
    *,
    bind: str | None = None,
) -> Job:
    """Join the other processes of the job; call it before anything uses JAX.

    Parameters
    ----------
    coordinator : str or None
        ``HOST:PORT`` where process 0 listens. Without it all three come from our own environment
        variables, or from JAX, which recognizes Slurm, Open MPI and Kubernetes.
    n_processes, process : int or None
    bind : str or None
        ``HOST:PORT`` that process 0 binds to; the coordinator's address by default. Where JAX finds
        that address, the default is JAX's: all addresses of the machine.

    Returns
    -------
    Job
        Of one process where nothing says that there are others.
    """
    if coordinator is None:
        job = find_job(os.environ)
        coordinator = os.environ.get(COORDINATOR)
    else:
        job = _job(process, n_processes, coordinator)
    end_with_launcher()
    if CORES in os.environ and hasattr(os, "sched_setaffinity"):
        # Threads of two processes on one core would wait for each other.
        os.sched_setaffinity(0, {int(core) for core in os.environ[CORES].split(",")})
    if job is not None and job.n_processes == 1:
        return job
    import jax

    # A program that one process compiles and another takes from JAX's cache on disk was seen to
    # sum in another order, which ends the job: every process compiles for itself.
    jax.config.update("jax_enable_compilation_cache", False)
    with _loopback_collectives(coordinator or ""):
        _connect(job, coordinator, bind or os.environ.get(BIND) or coordinator)
        joined = Job(jax.process_index(), jax.process_count(), coordinator or "")
    if job not in (None, joined):
        # Seen with launchers that start JAX first: every process is then by itself.
        raise JobError(
            f"JAX counts {joined.n_processes} processes: call initialize before anything uses JAX."
        )
    return joined


def _connect(job: Job | None, coordinator: str | None, bind: str | None) -> None:
    import jax

    process, n_processes = (None, None) if job is None else job[:2]
    try:
        jax.distributed.initialize(
            coordinator,
            n_processes,
            process,
            cluster_detection_method=None if job is None else "deactivate",
            coordinator_bind_address=bind,
            heartbeat_timeout_seconds=HEARTBEAT,
            initialization_timeout=300,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise JobError(
            f"JAX cannot tell which processes belong together ({error}). Set {COORDINATOR}, "
            f"{PROCESSES} and {PROCESS}, or {PROCESSES}=1 if this one is by itself."
        ) from error
    except RuntimeError as error:
        raise NotMetError(
            f"This process cannot join the others at {coordinator or 'the address JAX found'}: "
            f"{str(error).splitlines()[0]}"
        ) from error


@contextmanager
def _loopback_collectives(coordinator: str) -> Iterator[None]:
    """Bind the sockets of JAX's sums to the coordinator's address if that is a loopback address.

    JAX binds them to the address of the host's name and has no option for it. This replaces a
    private function of jaxlib; where there is none, or it takes no address, JAX does as it does.
    """
    host = coordinator.rpartition(":")[0].strip("[]")
    name = "make_gloo_tcp_collectives"
    try:
        private: Any = importlib.import_module("jaxlib._jax")
        original = getattr(private, name)
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (ImportError, AttributeError, ValueError):
        is_loopback = False
    if not is_loopback:
        yield
        return

    def bound_to_loopback(**options: Any) -> Any:
        try:
            return original(**options, hostname=host)
        except TypeError:
            return original(**options)

    setattr(private, name, bound_to_loopback)
    try:
        yield
    finally:
        setattr(private, name, original)
