"""Ending a job that cannot continue: a process was lost, or is alive and stuck.

Processes of a job wait for each other in every sum. When one is killed the others' sums fail at
once; when one is alive but does nothing, nothing ever fails. Recovery is the same for both: end,
and resume from the checkpoint.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn, Self

#: Exit code of a process that cannot use what it was given: trying again is of no use.
REFUSED = 2
#: Exit code of a process that ended because another one is lost: worth trying again.
TRY_AGAIN = 75

#: The variable for the seconds that a round may take before a process counts as stuck; many times
#: the longest round so far by default.
STUCK_AFTER = "SGPMIC_STUCK_AFTER"

#: Longer than the start, with its compilation, of any job.
FIRST_ROUND = 1800.0
#: A round may take this many times as long as the longest so far, and at least SHORTEST seconds.
FACTOR, SHORTEST = 20.0, 120.0


def end_process(message: str, code: int = TRY_AGAIN) -> NoReturn:
    """End now, without waiting for anybody: the runtime's own end waits for all processes."""
    if message:
        print(message, file=sys.stderr)
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


class Watchdog:
    """Ends the process when no round has ended for much longer than rounds take.

    Parameters
    ----------
    limit : float or None
        Seconds that a round may take. None for many times the longest so far, with half an hour
        for the first, which compiles.
    end : callable
        Called with a sentence when time is up.
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
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def beat(self, progress: object = None) -> None:
        """Say that a round has ended; a callback for ``fit``."""
        now = time.monotonic()
        if self._rounds:  # the first one compiles, which says nothing about the others
            self._longest = max(self._longest, now - self._last)
        self._last, self._rounds = now, self._rounds + 1

    @property
    def allowed(self) -> float:
        """Seconds that the present round may take."""
        if self._limit is not None:
            return self._limit
        if self._rounds < 2:
            return FIRST_ROUND
        return max(SHORTEST, FACTOR * self._longest)

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
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()


# How JAX's runtime begins its messages when it cannot reach another process.
_LOST = re.compile("(ABORTED|CANCELLED|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|UNKNOWN): ")


def is_loss(error: BaseException) -> bool:
    """Return whether an error is JAX's for having lost another process.

    Its class depends on where the loss is noticed; a plain ValueError was seen too.
    """
    jax = sys.modules.get("jax")  # whoever has not imported it has no error of its
    if jax is not None and isinstance(error, jax.errors.JaxRuntimeError):
        return True
    return isinstance(error, ValueError) and _LOST.match(str(error)) is not None


@contextmanager
def together(n_processes: int) -> Iterator[None]:
    """Let a failure inside end this process at once, so that the others find out in seconds.

    Parameters
    ----------
    n_processes : int
        Where there is only one, errors leave as usual.
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
        # Whatever it is, leaving as usual would wait for processes that wait for this one.
        code = getattr(error, "exit_code", getattr(error, "code", None))
        if code is None:
            traceback.print_exc()
        end_process("", code if isinstance(code, int) else 1)


@contextmanager
def supervised(n_processes: int) -> Iterator[list[Callable[[object], None]]]:
    """Let this process end where a fit inside fails, or another process is lost or stuck.

    Parameters
    ----------
    n_processes : int

    Yields
    ------
    callbacks : list of callables
        For the fit: they tell a :class:`Watchdog` that a round has ended. Where there is only
        one process, nobody waits for it, and there is none.
    """
    with ExitStack() as stack:
        stack.enter_context(together(n_processes))
        if n_processes == 1:
            yield []
            return
        limit = os.environ.get(STUCK_AFTER)
        yield [stack.enter_context(Watchdog(float(limit) if limit else None)).beat]
