"""Programs of this process: compiled or taken from the disk, and let go in time."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache, update_wrapper
from pathlib import Path
from typing import Any, TypeVar

import jax
from jax import export

from sgpmic._runtime import default_device
from sgpmic.compile_cache.disk import KeptProgram, cache_folder, compilation_cache, give_up

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

#: Settings of JAX that change what is traced.
_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion")
#: Stands for an array among arguments.
_ARRAY = object()

#: All our compiled programs, to be let go when a process has too many.
_programs: list[_Program] = []
#: Held while a program is compiled: JAX's settings are those of the whole process.
_compiling = threading.RLock()


class _Program:
    """A function that is compiled for every kind of arguments it is called with.

    Arrays are traced; everything else is static.
    """

    memory = 0  # by how many bytes compiling all programs has made the process grow

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._ready: dict[Any, Callable[..., Any]] = {}  # by what they are called with
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs))
        settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
        key = structure, tuple(map(_kind, leaves)), default_device(), settings
        program = self._ready.get(key) or self._compile_once(key, leaves)
        return program(*filter(_is_array, leaves))

    def _compile_once(self, key: Any, leaves: list[Any]) -> Callable[..., Any]:
        with _compiling:
            if key not in self._ready:  # another thread may have been here first
                before = _resident()
                self._ready[key] = _compile(self._function, leaves, *key)
                _Program.memory += max(_resident() - before, 0)
            return self._ready[key]

    def __len__(self) -> int:
        """The number of programs."""
        return len(self._ready)

    def clear_cache(self) -> None:
        """Let go of what was compiled."""
        with _compiling:
            self._ready.clear()


def compiled(function: Callable[..., _R]) -> Callable[..., _R]:
    """Decorate a function of this package to be compiled; :func:`release_programs` lets go of it.

    Arrays among its arguments are traced, everything else is static. Not for a function that is
    called inside another compiled one.
    """
    program = _Program(function)
    _programs.append(program)
    return program


def _compile(
    function: Callable[..., Any],
    leaves: list[Any],
    structure: Any,
    kinds: tuple[Any, ...],
    device: Any,
    settings: tuple[Any, ...],
) -> Callable[..., Any]:
    """Return a function of arrays that is compiled, or taken from our folder."""
    arrays = list(filter(_is_array, leaves))
    static = [_ARRAY if _is_array(leaf) else leaf for leaf in leaves]
    spread = any(_placement(array) is not None for array in arrays)
    where = device.platform, device.device_kind, spread and jax.device_count()
    name = f"{function.__module__}.{function.__qualname__}"
    digest = hashlib.sha256(
        repr((name, _nodes(structure), kinds, where, settings)).encode()
    ).hexdigest()

    def on_arrays(*arrays: jax.Array) -> Any:
        remaining = iter(arrays)
        filled = [next(remaining) if leaf is _ARRAY else leaf for leaf in static]
        args, kwargs = jax.tree.unflatten(structure, filled)
        return function(*args, **kwargs)

    # The digest is in the name, so that JAX keeps every program under a name of its own.
    on_arrays.__name__ = f"{function.__name__}_{digest[:16]}"
    folder = cache_folder() if _is_lasting(function, static) else None
    options = compiler_options(device.platform)
    if folder is None:
        return jax.jit(on_arrays).lower(*arrays).compile(options)

    kept = KeptProgram(folder, on_arrays.__name__, digest)
    traced = kept.load()
    trace = b"" if traced or spread or device.platform != "cpu" else _export(on_arrays, arrays)
    # What is exported now is read back like what was kept: the next process finds the same program.
    call = traced or (export.deserialize(bytearray(trace)).call if trace else on_arrays)
    lowered = jax.jit(_named(call, on_arrays.__name__)).lower(*arrays)
    try:
        with compilation_cache(folder):
            program = lowered.compile(options)
    except MemoryError:
        raise
    except Exception as error:  # JAX's, zlib's, the system's
        kept.remove()
        if isinstance(error, OSError):  # a full disk
            give_up(error)
        return lowered.compile(options)
    if traced is None:
        kept.save(trace)
    return program


def _export(function: Callable[..., Any], arrays: list[Any]) -> bytes:
    """Return the trace of a function of such arrays; nothing where its results have other types."""
    # For a processor, also where JAX would rather compute on a GPU.
    exported = export.export(jax.jit(function), platforms=["cpu"])(*arrays)
    try:
        return bytes(exported.serialize())
    except (ValueError, ImportError):  # types that are not keepable, or no flatbuffers
        return b""


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def renamed(*arrays: jax.Array) -> Any:
        return function(*arrays)

    renamed.__name__ = name
    return renamed


def _is_array(leaf: Any) -> bool:
    """Return whether a leaf is JAX's or NumPy's array, or a scalar of theirs."""
    return hasattr(leaf, "shape")


def _placement(array: Any) -> Any:
    """Return how an array is laid out over devices; None on the one that JAX computes on."""
    if not isinstance(array, jax.Array) or array.sharding.device_set == {default_device()}:
        return None
    return array.sharding


def _kind(leaf: Any) -> Any:
    """Return what of an argument a program is compiled for."""
    if not _is_array(leaf):
        return type(leaf), leaf  # 1, 1.0 and True are equal
    return leaf.shape, str(leaf.dtype), getattr(leaf, "weak_type", False), _placement(leaf)


def _is_lasting(function: Callable[..., Any], static: list[Any]) -> bool:
    """Return whether names and reprs say all about a function and its static arguments."""
    return function.__closure__ is None and all(
        leaf is _ARRAY or isinstance(leaf, bool | int | float | str) or is_dataclass(leaf)
        for leaf in static
    )


def _nodes(structure: Any) -> Any:
    """Return the types of a pytree's nodes, with what they hold beside their children."""
    return structure.node_data(), [_nodes(child) for child in structure.children()]


@cache
def compiler_options(platform: str) -> dict[str, str | bool]:
    """Return those options for a kind of device that this version of XLA knows."""
    known: dict[str, str | bool] = {}
    for name, value in _COMPILER_OPTIONS.get(platform, {}).items():
        with suppress(Exception):  # of several kinds, from inside XLA
            jax.jit(lambda x: x, compiler_options={name: value})(0)
            known[name] = value
    return known


def release_programs() -> None:
    """Let go of our compiled programs where they take too much of the process.

    That is where it has half the memory maps it may have: a fit of a new shape compiles programs
    that take about a thousand maps, of which Linux allows a process 65 530, and beyond the
    compiler aborts. Or where it has grown by more than :data:`MOST_MEMORY` while they were
    compiled: a shape takes some seventy megabytes. A shape that comes again after that is compiled
    again, or taken from the folder.
    """
    if _share_of_maps() > 0.5 or _Program.memory > MOST_MEMORY:
        clear_programs()
        with suppress(AttributeError, OSError):  # of the GNU C library only
            # What is free again stays with the process otherwise.
            ctypes.CDLL(None).malloc_trim(0)


def clear_programs() -> None:
    """Let go of all our compiled programs."""
    for program in _programs:
        program.clear_cache()
    gc.collect()
    _Program.memory = 0


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
