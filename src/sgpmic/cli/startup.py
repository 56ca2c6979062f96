"""What a process of our own sets before JAX is imported. A library must not; a program may."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import warnings
from pathlib import Path
from typing import Any


def prepare_process() -> None:
    """Keep compiled programs for the next process, and keep XLA's chatter off the screen.

    Compiling takes most of the time of a small fit (Iris: 10.6 s on a busy machine, and 1.9 s
    with what an earlier process had compiled). Whatever the user has set already is left alone,
    so ``JAX_COMPILATION_CACHE_DIR=""`` switches this off.
    """
    folder = cache_folder()
    settings = {
        **({} if folder is None else {"JAX_COMPILATION_CACHE_DIR": str(folder)}),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # Loading a program makes XLA print errors about tuning flags that no processor has.
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    shown = warnings.showwarning

    def show(message: Warning | str, *others: Any, **named: Any) -> None:
        if not forget_damaged(str(message)):
            shown(message, *others, **named)

    warnings.showwarning = show


def forget_damaged(message: str) -> bool:
    """Remove a compiled program that JAX says it cannot read; return whether that was the message.

    A process that is killed while it writes one leaves a part of it, which JAX never replaces: it
    would warn and compile again at every start.
    """
    found = re.match(r"Error reading persistent compilation cache entry for '([\w.<>-]+)'", message)
    if found is None:
        return False
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    for entry in Path(folder).glob(f"{found[1]}-*-cache") if folder else ():
        with contextlib.suppress(OSError):
            entry.unlink()
    return True


def cache_folder() -> Path | None:
    """Return where compiled programs are kept: a folder for each kind of processor.

    None where there is no place for it: no home directory, or one that cannot be written to.

    A home directory can be shared by machines of different kinds, and a program compiled for one
    may end with an illegal instruction on another.
    """
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "sgpmic" / f"compiled-{_processor_mark()}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


def _processor_mark() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        words = f"{platform.node()} {platform.processor()}"
    return hashlib.sha256(f"{platform.machine()} {words}".encode()).hexdigest()[:12]
