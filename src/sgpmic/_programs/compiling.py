"""Programs of this process: compiled or taken from the folder, and let go in time."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, update_wrapper
from pathlib import Path
from typing import Any, TypeVar

import jax

from sgpmic._programs.folder import cache_folder, forget, kept_programs
from sgpmic._programs.traces import (
    CannotBeKeptError,
    arrays_of,
    count_devices,
    find_or_trace,
    is_array,
)
from sgpmic._runtime import default_device

_R = TypeVar("_R")

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
        self._ready: dict[Any, Callable[..., Any]] = {}  # by what they are called with
        self._by_platform: dict[str, Any] = {}
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = _signature(args, kwargs)
        if key in self._ready:
            return self._ready[key](*args, **kwargs)
        with _compiling:
            before = _resident()
            result = self._compile(key, args, kwargs)
            _Program.memory += max(_resident() - before, 0)
        return result

    def _compile(self, key: Any, args: Any, kwargs: Any) -> Any:
        """Call a program that has to be compiled or taken from our folder first."""
        for _ in range(2):
            used = False
            try:
                with kept_programs() as used:
                    program = self._traced(args, kwargs)
                    result = program(*args, **kwargs)
                self._ready[key] = program
                return result
            except Exception:
                if not used:
                    raise
                # A process that was killed may have left half a program behind.
                forget(self._function.__name__)
        self._ready[key] = self._untraced()
        return self._ready[key](*args, **kwargs)  # without the folder, which cannot be used

    def _traced(self, args: Any, kwargs: Any) -> Callable[..., Any]:
        """Return a program whose trace is kept, or one that JAX traces where none can be."""
        folder, platform = cache_folder(), default_device().platform
        if folder is None or platform != "cpu":  # on GPUs this has not been tried
            return self._untraced()
        try:
            trace = find_or_trace(self._function, args, kwargs, folder)
        except (CannotBeKeptError, ImportError):  # flatbuffers, which JAX does not bring
            return self._untraced()
        program = jax.jit(trace.function, compiler_options=_compiler_options(platform))
        return lambda *args, **kwargs: jax.tree.unflatten(
            trace.results, program(*arrays_of((args, kwargs)))
        )

    def _untraced(self) -> Any:
        platform = default_device().platform
        if platform not in self._by_platform:
            self._by_platform[platform] = jax.jit(
                self._function, compiler_options=_compiler_options(platform), **self._options
            )
        return self._by_platform[platform]

    def __getattr__(self, name: str) -> Any:  # lower, eval_shape and the like
        return getattr(self._untraced(), name)

    def __len__(self) -> int:
        """The number of programs."""
        return len(self._ready)

    def clear_cache(self) -> None:
        """Let go of what was compiled."""
        self._ready.clear()
        for program in self._by_platform.values():
            program.clear_cache()


def _signature(args: Any, kwargs: Any) -> Any:
    """Return what decides whether a call has to be compiled."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    kinds = tuple(
        (leaf.shape, str(leaf.dtype), count_devices(leaf)) if is_array(leaf) else leaf
        for leaf in leaves
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
