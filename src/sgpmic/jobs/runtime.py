"""What JAX's runtime does on the side: its sockets, sudden ends, and lines on the screen."""

from __future__ import annotations

import ctypes
import importlib
import io
import ipaddress
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TextIO

from sgpmic.jobs.watchdog import end_process

#: The variable for the pipe that closes when the launcher ends.
LAUNCHER = "SGPMIC_LAUNCHER"
#: The variable for the file that takes what the runtime prints.
LOG = "SGPMIC_LOG"


@contextmanager
def loopback_where_possible(coordinator: str) -> Iterator[None]:
    """Let processes that meet at a loopback address use no other for their sums, either.

    By itself JAX takes the address that the host's name stands for. There is no option for it;
    where the insides of another version differ, it does as it likes.
    """
    inside: Any = importlib.import_module("jaxlib._jax")
    name = "make_gloo_tcp_collectives"
    host = coordinator.rpartition(":")[0].strip("[]")
    if not (_is_loopback(host) and hasattr(inside, name)):
        yield
        return
    before = getattr(inside, name)
    setattr(inside, name, partial(before, hostname=host))
    try:
        yield
    finally:
        setattr(inside, name, before)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _end_aborted(number: int) -> None:
    end_process(
        "A process of the job is lost or does not answer, and the others cannot continue without "
        "it. Look at it, then start the same command again with --resume."
    )


#: C calls it, at any time, so it is never collected.
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)(_end_aborted)


def end_instead_of_aborting() -> None:
    """Let a process that JAX's runtime gives up end as we do, with a sentence.

    Where another process does not answer any more, the runtime aborts this one from a thread of
    its own. Python's own handlers of signals would never be run then, so this one is C's.
    """
    if os.name != "posix":
        return
    library = ctypes.CDLL(None)
    library.signal.argtypes = [ctypes.c_int, type(_HANDLER)]
    library.signal.restype = ctypes.c_void_p
    library.signal(signal.SIGABRT, _HANDLER)


def end_with_launcher() -> None:
    """Let this process end when the program that launched it does, however that ends."""
    pipe = os.environ.pop(LAUNCHER, None)
    if pipe is None:
        return
    descriptor = int(pipe)
    os.set_inheritable(descriptor, False)

    def wait() -> None:
        # Nothing is ever written to it: reading ends when the other side is closed.
        while os.read(descriptor, 1):
            pass
        end_process("The program that started this process is gone; it ends as well.")

    threading.Thread(target=wait, name="launcher", daemon=True).start()


def divert_runtime_output() -> None:
    """Keep what libraries print themselves off the screen, where Python still prints.

    It goes to the file that the variable ``SGPMIC_LOG`` names, else to the standard error.
    """
    log = os.environ.get(LOG)
    sys.stdout = _moved(sys.stdout, 1)
    if log:
        sys.stderr = _moved(sys.stderr, 2)
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    os.dup2(2, 1)


def _moved(stream: TextIO, descriptor: int) -> TextIO:
    """Return a stream on another descriptor of the same file, if it is on the usual one."""
    try:
        if stream.fileno() != descriptor:
            return stream
    except (OSError, ValueError, io.UnsupportedOperation):
        return stream
    stream.flush()
    return os.fdopen(
        os.dup(descriptor), "w", buffering=1, encoding=stream.encoding, errors=stream.errors
    )
