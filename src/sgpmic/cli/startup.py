"""The entry point of the command line, and process-wide setup: signals and output streams.

It imports nothing heavy: signals are set up before the commands are imported, streams before JAX.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


def main() -> None:
    """Run the command line."""
    # While modules are imported there is nothing to lose, and an exception in the middle of one
    # would be shown, or swallowed, by whoever imports it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    prepare_process()
    from sgpmic.cli.app import app

    app()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise a KeyboardInterrupt, as long as there is something to tidy up."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def prepare_process() -> None:
    """Suppress XLA's log messages, and ignore write errors of the output streams.

    Loading a compiled program makes XLA print errors about tuning flags that no processor has.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    screens: Any = sys
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is not None:
            setattr(screens, name, Screen(getattr(sys, name)))


class Screen:
    """Stream wrapper that drops output on write errors, and escapes what it cannot encode.

    The disk may be full, or the program that reads may have stopped.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write text, or drop it."""
        try:
            self._stream.write(text)
        except OSError:
            self._give_up()
        return len(text)

    def flush(self) -> None:
        """Write what was held back."""
        try:
            self._stream.flush()
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        # Python tries again at its end to write what is held back, and would complain.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
