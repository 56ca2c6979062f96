"""The entry point of the command line, which imports the commands after it has set up signals."""

from __future__ import annotations

import gc
import signal


def main() -> None:
    """Run the command line."""
    # While modules are imported there is nothing to lose, and an exception in the middle of one
    # would be shown, or swallowed, by whoever imports it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sgpmic.cli.options import prepare_process

    prepare_process()
    from sgpmic.cli.app import app

    try:
        app()
    finally:
        gc.freeze()  # Python would look for garbage among all modules: a third of a second
