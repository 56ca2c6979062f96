"""The folder in which programs are kept for the next Python process.

JAX can keep what it has compiled in a folder, but its setting is one for the whole process, other
people's programs included. So it is switched to our folder only while one of our own programs is
compiled, and back afterwards. A user who has set up JAX's own cache keeps it.

``SGPMIC_CACHE_DIR`` names another folder; set to nothing, it switches this off.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax

#: The environment variable that moves the folder or, set to nothing, switches it off.
CACHE_VARIABLE = "SGPMIC_CACHE_DIR"
#: The folder is kept below this size; the oldest programs go first.
MOST_BYTES = 512 * 2**20


@contextmanager
def kept_programs() -> Iterator[bool]:
    """Take compiled programs from our folder, and put new ones there; yield whether that is so."""
    config: Any = jax.config
    folder = cache_folder()
    if (
        folder is None
        or config.jax_compilation_cache_dir
        or not config.jax_enable_compilation_cache
    ):
        yield False
        return
    from jax.experimental.compilation_cache import compilation_cache

    ours = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_raise_persistent_cache_errors": True,
    }
    theirs = {name: getattr(config, name) for name in ours}
    try:
        for name, value in ours.items():
            config.update(name, value)
        compilation_cache.reset_cache()
        yield True
    finally:
        for name, value in theirs.items():
            config.update(name, value)
        compilation_cache.reset_cache()


@cache
def cache_folder() -> Path | None:
    """Return where compiled programs are kept: a folder for each kind of processor and packing.

    None where it is switched off, or where there is no place for it: no home directory, or one
    that cannot be written to.

    A home directory can be shared by machines of different kinds, and a program compiled for one
    may end with an illegal instruction on another.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen == "":
        return None
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        base = Path(chosen) if chosen else Path(home) / "sgpmic"
        # From Python 3.14 on JAX packs programs in another way, under the same names.
        packed = "-zstd" if sys.version_info >= (3, 14) else ""
        folder = base / f"compiled-{_processor_mark()}{packed}"
        folder.mkdir(parents=True, exist_ok=True)
        _prune(folder)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


def _prune(folder: Path, most: int = MOST_BYTES) -> None:
    """Remove the oldest programs of a folder that has grown too large."""
    entries = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process may remove it first
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= most:
            break
        with suppress(OSError):
            path.unlink()
        total -= size


def forget(name: str) -> None:
    """Remove the programs and traces of a function from the folder."""
    folder = cache_folder()
    for kind in ("jit", "traced"):
        for path in folder.glob(f"{kind}_{name}-*") if folder is not None else ():
            with suppress(OSError):
                path.unlink()


def _processor_mark() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        words = f"{platform.node()} {platform.processor()}"
    return hashlib.sha256(f"{platform.machine()} {words}".encode()).hexdigest()[:12]
