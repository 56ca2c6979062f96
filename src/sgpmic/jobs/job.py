"""Joining a multi-process job, and exiting when it cannot continue.

To join, a process needs its index, the number of processes and the coordinator's address. Our own
launchers pass them in environment variables. Slurm, Open MPI and Kubernetes are detected by
:func:`jax.distributed.initialize`. A single process is a job of one.

The processes of a job wait for each other in every all-reduce. If one is killed, the all-reduce
fails at once in the others; if one hangs, all of them hang. The remedy is the same: exit, and
resume from the checkpoint.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from types import FrameType
from typing import Any, NamedTuple, NoReturn, Self

COORDINATOR, PROCESSES, PROCESS = "SGPMIC_COORDINATOR", "SGPMIC_PROCESSES", "SGPMIC_PROCESS"
BIND = "SGPMIC_BIND"
#: CPU cores for this process, such as ``0,1``.
CORES = "SGPMIC_CORES"

#: Seconds without a heartbeat after which JAX considers a process dead.
HEARTBEAT = 30

#: Exit code of a process that rejects its input: retrying is useless.
REFUSED = 2
#: Exit code of a process that has lost another one: worth retrying.
TRY_AGAIN = 75

#: Time limit of an EM iteration in seconds; by default a multiple of the longest iteration so far.
STUCK_AFTER = "SGPMIC_STUCK_AFTER"
#: File descriptor of a pipe that closes when the launcher ends.
LAUNCHER = "SGPMIC_LAUNCHER"
#: Log file for output of the runtime; by default, processes that we start discard it.
LOG = "SGPMIC_LOG"

#: Time limit of the first iteration in seconds, ample for startup and compilation.
FIRST_ITERATION = 1800.0
#: Time limit of later iterations: FACTOR times the longest so far, at least SHORTEST seconds.
FACTOR, SHORTEST = 20.0, 120.0


class JobError(RuntimeError):
    """A job cannot be joined or has lost a process.

    ``code`` is the exit code for a program that ends because of it.
    """

    def __init__(self, message: str, code: int = REFUSED) -> None:
        super().__init__(message)
        self.code = code


class Job(NamedTuple):
    """The index of this process in a job, and the size of the job.

    Attributes
    ----------
    process, n_processes : int
        The index of this process, from 0, and the number of processes.
    coordinator : str
        ``HOST:PORT`` where process 0 listens; empty if JAX detected it, or for a single process.
    """

    process: int = 0
    n_processes: int = 1
    coordinator: str = ""


def find_job(environ: Mapping[str, str]) -> Job | None:
    """Return the job described by our own environment variables, or a job of one process.

    None means a job of several processes started by a scheduler that JAX detects. JAX is not asked
    about a single process: it would listen on a port that is the same for all steps of a Slurm
    job, and call the Kubernetes API in any pod.
    """
    if environ.get(PROCESSES) == "1":
        return Job()
    if PROCESSES in environ:
        try:
            job = Job(int(environ[PROCESS]), int(environ[PROCESSES]), environ[COORDINATOR])
            is_valid = 0 <= job.process < job.n_processes
        except (KeyError, ValueError):
            is_valid = False
        if not is_valid or not re.fullmatch(r".+:\d+", job.coordinator):
            raise JobError(
                f"{PROCESSES} is set: set {COORDINATOR} to HOST:PORT, and {PROCESS} to the index "
                "of this process, from 0."
            )
        return job
    counts = {environ.get(name, "1") for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")}
    is_indexed_pod = "JOB_COMPLETION_INDEX" in environ and find_spec("kubernetes") is not None
    return None if is_indexed_pod or counts != {"1"} else Job()


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
        ``HOST:PORT`` where process 0 listens. If None, all three are taken from our own environment
        variables, or from JAX, which detects Slurm, Open MPI and Kubernetes.
    n_processes, process : int or None
    bind : str or None
        ``HOST:PORT`` that process 0 binds to; the coordinator's address by default. If JAX detects
        that address, the default is JAX's: all addresses of the machine.

    Returns
    -------
    Job
        A job of one process if there is no indication of others.
    """
    environ: Mapping[str, str] = os.environ
    if coordinator is not None:
        said = {PROCESSES: n_processes, PROCESS: process, COORDINATOR: coordinator}
        environ = {name: str(value) for name, value in said.items()}
    job, coordinator = find_job(environ), environ.get(COORDINATOR)
    end_with_launcher()
    if CORES in os.environ and hasattr(os, "sched_setaffinity"):
        # Threads of two processes on the same core would wait for each other.
        os.sched_setaffinity(0, {int(core) for core in os.environ[CORES].split(",")})
    if job is not None and job.n_processes == 1:
        return job
    import jax

    # When one process compiled a program and another loaded it from JAX's disk cache, the order of
    # summation was seen to differ, which ends the job. So every process compiles for itself.
    jax.config.update("jax_enable_compilation_cache", False)
    handler = signal.getsignal(signal.SIGTERM)
    process, n_processes = (None, None) if job is None else job[:2]
    _bind_to_loopback(coordinator or "")
    try:
        jax.distributed.initialize(
            coordinator,
            n_processes,
            process,
            cluster_detection_method=None if job is None else "deactivate",
            coordinator_bind_address=bind or os.environ.get(BIND) or coordinator,
            heartbeat_timeout_seconds=HEARTBEAT,
            initialization_timeout=300,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise JobError(
            f"JAX cannot detect the processes of this job ({error}). Set {COORDINATOR}, "
            f"{PROCESSES} and {PROCESS}, or {PROCESSES}=1 to run this one on its own."
        ) from error
    except RuntimeError as error:
        place, why = coordinator or "the address JAX found", str(error).splitlines()[0]
        message = f"This process cannot join the others at {place}: {why}"
        raise JobError(message, TRY_AGAIN) from error
    joined = Job(jax.process_index(), jax.process_count(), coordinator or "")
    if handler is not None and threading.current_thread() is threading.main_thread():
        # JAX's preemption service replaces the SIGTERM handler, so the job would ignore SIGTERM.
        signal.signal(signal.SIGTERM, handler)
    if job not in (None, joined):
        # Seen with launchers that initialize JAX first: every process is then a job of one.
        raise JobError(
            f"JAX counts {joined.n_processes} processes: call initialize before anything uses JAX."
        )
    return joined


def _bind_to_loopback(coordinator: str) -> None:
    """Bind the sockets of JAX's collectives to the coordinator's address if it is a loopback one.

    JAX has no option for it, so this patches a private function of jaxlib, where there is one.
    """
    host = coordinator.rpartition(":")[0].strip("[]")
    private: Any = sys.modules.get("jaxlib._jax")
    original = getattr(private, "make_gloo_tcp_collectives", None)
    if original is not None and re.fullmatch(r"localhost|127\..*|::1", host):
        private.make_gloo_tcp_collectives = partial(original, hostname=host)


def end_process(message: str, code: int = TRY_AGAIN) -> NoReturn:
    """Exit at once: the runtime's own shutdown waits for all processes."""
    if message:
        print(message, file=sys.stderr)
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


def end_with_launcher() -> None:
    """Make this process exit when its launcher ends, for whatever reason."""
    pipe = os.environ.pop(LAUNCHER, None)
    if pipe is None:
        return

    def wait() -> None:
        # Nothing is ever written to the pipe. Not sys.stdin: a thread that blocks while holding its
        # lock breaks interpreter shutdown.
        while os.read(int(pipe), 1):
            pass
        end_process("The program that started this process has ended, so it ends too.")

    threading.Thread(target=wait, name="launcher", daemon=True).start()


class Watchdog:
    """Context manager that ends the process if an EM iteration takes much longer than earlier ones.

    Parameters
    ----------
    limit : float or None
        Time limit of an iteration in seconds. None for a multiple of the longest so far, and half
        an hour for the first, which compiles.
    end : callable
        Called with a message when the time limit is exceeded.
    """

    def __init__(
        self, limit: float | None = None, end: Callable[[str], None] = end_process
    ) -> None:
        self._limit, self._end = limit, end
        self._last, self._longest, self._iterations = time.monotonic(), 0.0, 0
        self._stopped = threading.Event()

    def beat(self, progress: object = None) -> None:
        """Record the end of an iteration; a callback for ``fit``."""
        now = time.monotonic()
        if self._iterations:  # the first one includes compilation
            self._longest = max(self._longest, now - self._last)
        self._last, self._iterations = now, self._iterations + 1

    @property
    def allowed(self) -> float:
        """Time limit of the current iteration in seconds."""
        if self._limit is not None:
            return self._limit
        return FIRST_ITERATION if self._iterations < 2 else max(SHORTEST, FACTOR * self._longest)

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self.allowed / 4)):
            waited = time.monotonic() - self._last
            if waited > self.allowed:
                self._end(
                    f"No progress for {waited:.0f} seconds: a process of the job is stuck. "
                    "Find out why, then run the same command again with --resume."
                )
                return

    def __enter__(self) -> Self:
        self._last = time.monotonic()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()


# Start of the JAX runtime's error messages when another process is unreachable.
_LOST = re.compile("(ABORTED|CANCELLED|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|UNKNOWN): ")


def is_loss(error: BaseException) -> bool:
    """Return whether an error means that JAX has lost another process."""
    jax = sys.modules.get("jax")  # if JAX is not imported, the error is not from JAX
    if jax is not None and isinstance(error, jax.errors.JaxRuntimeError):
        return True
    # The class depends on where the loss is detected: this one was seen too.
    return isinstance(error, ValueError) and _LOST.match(str(error)) is not None


@contextmanager
def together(n_processes: int) -> Iterator[None]:
    """Exit at once on any exception, so that the other processes notice within seconds.

    If ``n_processes`` is 1, exceptions propagate as usual.
    """
    if n_processes == 1:
        yield
        return
    try:
        yield
    except KeyboardInterrupt:
        end_process("Stopped. The same command with --resume resumes from the checkpoint.", 130)
    except BaseException as error:
        if is_loss(error):
            first_line = (str(error).splitlines() or [type(error).__name__])[0][:200]
            end_process(
                "A process of the job was lost, and the others cannot continue without it "
                f"({first_line}). Start the same command again with --resume."
            )
        code = getattr(error, "exit_code", getattr(error, "code", None))
        if code is None:
            traceback.print_exc()
        end_process("", code if isinstance(code, int) else 1)


@contextmanager
def supervised(n_processes: int) -> Iterator[list[Callable[[object], None]]]:
    """Exit when the fit in the ``with`` block fails, or when another process is lost or hangs.

    Yields callbacks for the fit, which notify a :class:`Watchdog` of the end of every iteration;
    none for a single process.
    """
    if n_processes == 1:
        yield []
        return
    limit = os.environ.get(STUCK_AFTER)
    with together(n_processes), Watchdog(float(limit) if limit else None) as watchdog:
        yield [watchdog.beat]


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, which schedulers send, as on Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # only it can handle signals
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    before_interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, before_interrupt)


def divert_runtime_output() -> None:
    """Redirect output of native libraries, not of Python, to ``SGPMIC_LOG`` or standard error."""
    sys.stdout.flush()
    sys.stdout = open(os.dup(1), "w", 1, errors="backslashreplace")  # noqa: SIM115
    if os.environ.get(LOG):
        sys.stderr = open(os.dup(2), "w", 1, errors="backslashreplace")  # noqa: SIM115
        with open(os.environ[LOG], "ab") as log:
            os.dup2(log.fileno(), 2)
    os.dup2(2, 1)
