"""Entry point of the command line; imports the commands after setting up signals."""

from __future__ import annotations

import gc
import signal


def main() -> None:
    """Run the command line."""
    # During imports there is nothing to save, and a KeyboardInterrupt in the middle of one would be
    # shown, or swallowed, by the importing code.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sgpmic.cli.options import prepare_process

    prepare_process()
    from sgpmic.cli.app import app

    try:
        app()
    finally:
        gc.freeze()  # skips the final garbage collection over all modules: a third of a second
