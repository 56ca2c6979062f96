"""Exit of a process whose job cannot continue, because another one is lost or stuck.

Processes of a job wait for each other in every sum. When one is killed the others' sums fail at
once; when one is stuck, nothing ever fails. Recovery is the same: exit, and resume from the
checkpoint.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, Self

#: Exit code of a process that cannot use its input: another try is of no use.
REFUSED = 2
#: Exit code of a process that has lost another one: worth another try.
TRY_AGAIN = 75

#: Seconds that a round may take; by default many times the longest round so far.
STUCK_AFTER = "SGPMIC_STUCK_AFTER"
#: File descriptor of a pipe that closes when the launcher ends.
LAUNCHER = "SGPMIC_LAUNCHER"

#: Longer than the start of any job, with its compilation.
FIRST_ROUND = 1800.0
#: A round may take this many times as long as the longest so far, and at least SHORTEST seconds.
FACTOR, SHORTEST = 20.0, 120.0


def end_process(message: str, code: int = TRY_AGAIN) -> NoReturn:
    """Exit at once: the runtime's own shutdown waits for all processes."""
    if message:
        print(message, file=sys.stderr)
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


def end_with_launcher(clean_up: Callable[[], object] = lambda: None) -> None:
    """Let this process exit when the one that launched it does, in whatever way."""
    pipe = os.environ.pop(LAUNCHER, None)
    if pipe is None:
        return

    def wait() -> None:
        # Nothing is ever written to it. Not sys.stdin: a thread that waits with its lock held
        # breaks the end of the interpreter.
        while os.read(int(pipe), 1):
            pass
        clean_up()
        end_process("The program that started this process is gone; it ends as well.")

    threading.Thread(target=wait, name="launcher", daemon=True).start()


class Watchdog:
    """Context manager that ends the process when a round takes much longer than those before.

    Parameters
    ----------
    limit : float or None
        Seconds that a round may take. None for many times the longest so far, with half an hour
        for the first, which compiles.
    end : callable
        Called with a message when time is up.
    """

    def __init__(
        self, limit: float | None = None, end: Callable[[str], None] = end_process
    ) -> None:
        self._limit = limit
        self._end = end
        self._longest = 0.0
        self._last = time.monotonic()
        self._rounds = 0
        self._stopped = threading.Event()

    def beat(self, progress: object = None) -> None:
        """Note the end of a round; a callback for ``fit``."""
        now = time.monotonic()
        if self._rounds:  # the first one compiles, which says nothing about the others
            self._longest = max(self._longest, now - self._last)
        self._last, self._rounds = now, self._rounds + 1

    @property
    def allowed(self) -> float:
        """Seconds that the present round may take."""
        if self._limit is not None:
            return self._limit
        return FIRST_ROUND if self._rounds < 2 else max(SHORTEST, FACTOR * self._longest)

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self.allowed / 4)):
            waited = time.monotonic() - self._last
            if waited > self.allowed:
                self._end(
                    f"Nothing has moved for {waited:.0f} seconds: a process of the job is stuck. "
                    "Look at it, then start the same command again with --resume."
                )
                return

    def __enter__(self) -> Self:
        self._last = time.monotonic()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()


# How JAX's runtime begins its messages when it cannot reach another process.
_LOST = re.compile("(ABORTED|CANCELLED|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|UNKNOWN): ")


def is_loss(error: BaseException) -> bool:
    """Return whether an error is JAX's for having lost another process.

    Its class depends on where the loss is noticed; a plain ValueError was seen too.
    """
    jax = sys.modules.get("jax")  # not imported: no error of JAX's
    if jax is not None and isinstance(error, jax.errors.JaxRuntimeError):
        return True
    return isinstance(error, ValueError) and _LOST.match(str(error)) is not None


@contextmanager
def together(n_processes: int) -> Iterator[None]:
    """Exit at once on any exception, so that the other processes find out in seconds.

    Parameters
    ----------
    n_processes : int
        Where there is only one, exceptions propagate as usual.
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
    """Exit when a fit inside fails, or when another process is lost or stuck.

    Parameters
    ----------
    n_processes : int

    Yields
    ------
    callbacks : list of callables
        For the fit: they tell a :class:`Watchdog` that a round has ended. None where there is only
        one process.
    """
    if n_processes == 1:
        yield []
        return
    limit = os.environ.get(STUCK_AFTER)
    with together(n_processes), Watchdog(float(limit) if limit else None) as watchdog:
        yield [watchdog.beat]
