"""Compiled programs: made once for many shapes, kept for the next Python process, let go in time.

Compiling takes most of the time of a first fit. JAX can keep what it has compiled in a folder, but
its setting is one for the whole process, other people's programs included. So it is switched to
our folder only while one of our own programs is compiled, and back afterwards. A user who has set
up JAX's own cache keeps it.

``SGPMIC_CACHE_DIR`` names another folder; set to nothing, it switches this off.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, update_wrapper
from pathlib import Path
from typing import Any, TypeVar

import jax

from sgpmic._runtime import default_device

_R = TypeVar("_R")

#: The environment variable that moves the folder or, set to nothing, switches it off.
CACHE_VARIABLE = "SGPMIC_CACHE_DIR"
#: The folder is kept below this size; the oldest programs go first.
MOST_BYTES = 512 * 2**20
#: Compiled programs are let go when the process has grown by so much with them.
MOST_MEMORY = 2**30

#: What XLA is told, by kind of device. On a GPU, a part of an array goes into a matrix product as
#: it lies, without a copy, and products are left to cuBLAS, which is nearly twice as fast in
#: float64 as XLA's own. On a processor, XLA's older code for fused loops runs as fast as the newer
#: and is compiled much sooner (docs/performance.md).
_COMPILER_OPTIONS = {
    "gpu": {
        "xla_gpu_enable_dynamic_slice_fusion": True,
        "xla_gpu_enable_triton_gemm": False,
    },
    "cpu": {"xla_cpu_use_fusion_emitters": False},
}


@cache
def _compiler_options(platform: str) -> dict[str, bool]:
    """Return those options for a kind of device that this version of XLA knows."""
    known = {}
    for name, value in _COMPILER_OPTIONS.get(platform, {}).items():
        with suppress(Exception):  # of several kinds, from inside XLA
            jax.jit(lambda x: x, compiler_options={name: value})(0)
            known[name] = value
    return known


#: All our compiled programs, to be let go when a process has too many.
_programs: list[_Program] = []
#: Held while a program is compiled: JAX's setting is one for the whole process.
_compiling = threading.RLock()


class _Program:
    """What ``jax.jit`` makes of a function, with options of the compiler where they apply."""

    memory = 0  # by how many bytes compiling all programs has made the process grow

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        self._seen: set[Any] = set()
        self._by_platform: dict[str, Any] = {}
        update_wrapper(self, function)

    def _program(self) -> Any:
        platform = default_device().platform
        if platform not in self._by_platform:
            self._by_platform[platform] = jax.jit(
                self._function, compiler_options=_compiler_options(platform), **self._options
            )
        return self._by_platform[platform]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program, key = self._program(), _signature(args, kwargs)
        if key in self._seen:
            return program(*args, **kwargs)
        with _compiling:
            before = _resident()
            result = self._compile(program, args, kwargs)
            self._seen.add(key)
            _Program.memory += max(_resident() - before, 0)
        return result

    def _compile(self, program: Any, args: Any, kwargs: Any) -> Any:
        """Call a program that has to be compiled or taken from our folder first."""
        for _ in range(2):
            used = False
            try:
                with _kept_programs() as used:
                    return program(*args, **kwargs)
            except Exception:
                if not used:
                    raise
                # A process that was killed may have left half a program behind.
                _forget(self._function.__name__)
        return program(*args, **kwargs)  # without the folder, which cannot be used

    def __getattr__(self, name: str) -> Any:  # lower, eval_shape and the like
        return getattr(self._program(), name)

    def clear_cache(self) -> None:
        """Let go of what was compiled."""
        self._seen.clear()
        for program in self._by_platform.values():
            program.clear_cache()


def _signature(args: Any, kwargs: Any) -> Any:
    """Return what decides whether a call has to be compiled."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    kinds = tuple(
        (leaf.shape, str(leaf.dtype)) if hasattr(leaf, "shape") else leaf for leaf in leaves
    )
    return structure, kinds, default_device()


def compiled(**options: Any) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """Decorate a function to be compiled, and remember it for :func:`release_programs`.

    Not for a function that is called inside another compiled one. Options are ``jax.jit``'s.
    """

    def compile_it(function: Callable[..., _R]) -> Callable[..., _R]:
        program = _Program(function, options)
        _programs.append(program)
        return program

    return compile_it


def release_programs() -> None:
    """Let go of our compiled programs where they take too much of the process.

    That is where it has half the memory maps it may have: a fit of a new shape compiles programs
    that take about a thousand maps, of which Linux allows a process 65 530, and beyond the
    compiler aborts. Or where it has grown by more than :data:`MOST_MEMORY` while they were
    compiled: a shape takes some seventy megabytes. A shape that comes again after that is compiled
    again, or taken from the folder.
    """
    if _share_of_maps() > 0.5 or _Program.memory > MOST_MEMORY:
        for program in _programs:
            program.clear_cache()
        gc.collect()
        _Program.memory = 0
        with suppress(AttributeError, OSError):  # of the GNU C library only
            # What is free again stays with the process otherwise.
            ctypes.CDLL(None).malloc_trim(0)


def _share_of_maps() -> float:
    try:
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
        return Path("/proc/self/maps").read_bytes().count(b"\n") / allowed
    except (OSError, ValueError):  # another system, with other limits
        return 0.0


def _resident() -> int:
    """Return how many bytes of memory this process has, 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


# ------------------------------------------------------------------------- programs on disk


@contextmanager
def _kept_programs() -> Iterator[bool]:
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


def _forget(name: str) -> None:
    """Remove the programs of a function from the folder."""
    folder = cache_folder()
    for path in folder.glob(f"jit_{name}-*") if folder is not None else ():
        with suppress(OSError):
            path.unlink()


def _processor_mark() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        words = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        words = f"{platform.node()} {platform.processor()}"
    return hashlib.sha256(f"{platform.machine()} {words}".encode()).hexdigest()[:12]
