"""Entry point of the command line; imports the commands after setting up signals."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading


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
    except SystemExit as end:
        in_background = [t for t in threading.enumerate() if not t.daemon][1:]
        if isinstance(end.code, int) and end.code != 0 and in_background:
            # Python would wait seconds for programs that are still compiled.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise
    finally:
        gc.freeze()  # skips the final garbage collection over all modules: a third of a second
