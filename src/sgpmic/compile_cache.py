"""Cache of compiled programs, on disk across processes and in memory within one.

Tracing and compiling take most of the time of a first fit. So executables are stored, each with a
digest of what it was made from.

Compiled programs are native code, so the folder is trusted like the Python environment itself: it
is used only if it is owned by this user and not writable by anyone else. A digest binds each
program to its inputs; it protects against mix-ups, not against this user.

``SGPMIC_CACHE_DIR`` sets another folder; an empty value disables the cache on disk.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import pickle
import platform
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from functools import cache, update_wrapper
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jax.experimental import serialize_executable
from platformdirs import user_cache_path

from sgpmic._runtime import default_device, double_precision
from sgpmic.exceptions import SGPMICWarning

_R = TypeVar("_R")

CACHE_VARIABLE = "SGPMIC_CACHE_DIR"
#: Maximum size of the cache folder; the oldest programs are evicted first.
MOST_BYTES = 512 * 2**20
#: Keeps several threads from issuing the same warning.
_warning_once = threading.Lock()
_DIGEST_BYTES = hashlib.sha256().digest_size
#: Maximum number of programs kept in memory. Each takes about 17 MB and two hundred memory maps, of
#: which Linux allows a process 65 530; beyond these the compiler aborts.
MOST_PROGRAMS = 60

#: XLA compiler options, by kind of device. On a GPU, slices are fused into matrix products without
#: a copy, and products are left to cuBLAS, which is nearly twice as fast in float64 as XLA's own.
#: On a CPU, XLA's older emitters for fused loops and LLVM's -O2 give code as fast as the newer
#: ones and -O3, and compile much faster (docs/performance.md).
_COMPILER_OPTIONS: dict[str, dict[str, str | bool]] = {
    "gpu": {"xla_gpu_enable_dynamic_slice_fusion": True, "xla_gpu_enable_triton_gemm": False},
    "cpu": {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": "2"},
}

#: JAX settings that affect tracing.
_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion")
#: Placeholder for an array among arguments.
_ARRAY = object()

#: All compiled functions of this package, to be released together.
_programs: list[Program[Any]] = []


class Program(Generic[_R]):
    """A function compiled per argument signature: arrays are traced, other arguments static.

    Not to be called inside another.
    """

    def __init__(self, function: Callable[..., _R]) -> None:
        self.function = function
        self._begun: dict[Any, Future[Callable[..., _R]]] = {}  # by call signature
        update_wrapper(self, function)
        _programs.append(self)

    def __call__(self, *args: Any, **kwargs: Any) -> _R:
        """Call the function, compiling it first if necessary."""
        key, leaves = _key(args, kwargs)
        new: Future[Callable[..., _R]] = Future()
        program = self._begun.setdefault(key, new)
        if program is new:
            self._compile(new, key, leaves)
        return program.result()(*filter(_is_array, leaves))

    def prepare(self, *args: Any, **kwargs: Any) -> bool:
        """Compile in the background for a later call; return whether a compilation was started.

        Arrays may be given as shapes and dtypes. Nothing is started if the program exists already,
        or on a GPU, for which programs are autotuned by timing them.
        """
        key, leaves = _key(args, kwargs)
        _, _, device, settings = key
        new: Future[Callable[..., _R]] = Future()
        if device.platform != "cpu" or self._begun.setdefault(key, new) is not new:
            return False

        def compile_like_caller() -> None:  # these JAX settings are thread-local
            double = double_precision() if settings[0] else nullcontext()
            with double, jax.default_device(device):
                self._compile(new, key, leaves)

        threading.Thread(target=compile_like_caller, name="compiling").start()
        return True

    def _compile(self, program: Future[Callable[..., _R]], key: Any, leaves: list[Any]) -> None:
        try:
            program.set_result(_compile(self.function, leaves, key))
        except BaseException as error:
            self._begun.pop(key, None)  # perhaps interrupted: the next call tries again
            program.set_exception(error)

    def __len__(self) -> int:
        """Number of compiled programs."""
        return len(self._begun)

    def clear_cache(self) -> None:
        """Clear the compilation cache."""
        self._begun = {}


compiled = Program


def _key(args: Any, kwargs: Any) -> tuple[Any, list[Any]]:
    """Return the signature of a call that a program is compiled for, and the argument leaves."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
    return (structure, tuple(map(_kind, leaves)), default_device(), settings), leaves


def _compile(function: Callable[..., Any], leaves: list[Any], key: Any) -> Callable[..., Any]:
    """Return an executable function of arrays, compiled or loaded from the cache folder."""
    structure, kinds, device, settings = key
    arrays = list(filter(_is_array, leaves))
    static = [_ARRAY if _is_array(leaf) else leaf for leaf in leaves]
    placed = (_placement(array) for array in arrays)
    every = {device}.union(*(sharding.device_set for sharding in placed if sharding is not None))
    devices = sorted(every, key=lambda d: (d.process_index, d.id))
    where = device.platform, device.device_kind, [each.id for each in devices]
    name = f"{function.__module__}.{function.__qualname__}"
    unoptimized = jax.config.read("jax_disable_most_optimizations")
    inputs = repr((name, structure, kinds, where, settings, unoptimized))
    path = None
    # A function with a closure depends on more than its inputs.
    if function.__closure__ is None and (folder := _cache_folder()) is not None:
        path = folder / f"{function.__name__}_{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
        with suppress(Exception):  # missing, damaged, or not readable by this version
            return _load(path, inputs, devices)

    def on_arrays(*arrays: jax.Array) -> Any:
        remaining = iter(arrays)
        filled = [next(remaining) if leaf is _ARRAY else leaf for leaf in static]
        args, kwargs = jax.tree.unflatten(structure, filled)
        return function(*args, **kwargs)

    on_arrays.__name__ = function.__name__
    program = jax.jit(on_arrays).lower(*arrays).compile(compiler_options(device.platform))
    if path is not None:
        _store(path, inputs, program)
    return program


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape")


def _placement(array: Any) -> Any:
    """Return the sharding of an array; None if it is on the default device."""
    if not isinstance(array, jax.Array) or array.sharding.device_set == {default_device()}:
        return None
    return array.sharding


def _kind(leaf: Any) -> Any:
    """Return the part of an argument that determines compilation."""
    if not _is_array(leaf):
        return type(leaf), leaf  # 1, 1.0 and True are equal
    return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), _placement(leaf)


@cache
def compiler_options(platform: str) -> dict[str, str | bool]:
    """Return the options for a kind of device that this version of XLA supports."""
    known: dict[str, str | bool] = {}
    for name, value in _COMPILER_OPTIONS.get(platform, {}).items():
        with suppress(Exception):  # XLA raises several kinds
            jax.jit(lambda x: x, compiler_options={name: value})(0)
            known[name] = value
    return known


def release_programs() -> None:
    """Clear the compilation caches if there are many programs."""
    if sum(map(len, _programs)) > MOST_PROGRAMS:
        clear_programs()
        with suppress(AttributeError, OSError):  # only glibc keeps the freed memory
            ctypes.CDLL(None).malloc_trim(0)


def clear_programs() -> None:
    """Clear the compilation caches."""
    for program in _programs:
        program.clear_cache()
    gc.collect()


def _load(path: Path, inputs: str, devices: list[Any]) -> Callable[..., Any]:
    """Load a program; raise if it is missing, damaged, or another, or if others can write to it."""
    content = path.read_bytes()
    stored = content[_DIGEST_BYTES:]
    if not _is_private(path.lstat()) or content[:_DIGEST_BYTES] != _digest(inputs, stored):
        raise ValueError(path)
    _initialize_lapack()
    # Programs are native code: unpickling them adds no risk.
    program, in_tree, out_tree = pickle.loads(stored)
    return serialize_executable.deserialize_and_load(
        program, in_tree, out_tree, backend=devices[0].client, execution_devices=devices
    )


@cache
def _initialize_lapack() -> None:
    # Only lowering does so, and a loaded program that calls LAPACK would crash.
    jax.jit(jax.numpy.linalg.cholesky).lower(np.eye(1, dtype=np.float32))


def _store(path: Path, inputs: str, program: jax.stages.Compiled) -> None:
    """Store a program with its digest; warn if there is no space."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        stored = pickle.dumps(serialize_executable.serialize(program))
        partial.touch(0o600)
        partial.write_bytes(_digest(inputs, stored) + stored)
        partial.replace(path)
    except OSError as error:  # a full disk
        partial.unlink(missing_ok=True)
        with _warning_once:
            _warn(f"{error.strerror or error} (set {CACHE_VARIABLE} to use another folder).")
    except Exception:  # not every device can serialize every program
        return


def _digest(inputs: str, stored: bytes) -> bytes:
    return hashlib.sha256(f"{_environment()} {inputs} ".encode() + stored).digest()


def _cache_folder() -> Path | None:
    """Return the cache folder; None if there is none, or JAX's own cache is to be used."""
    config: Any = jax.config
    # A program that JAX has loaded from its cache cannot be serialized.
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return None
    with _warning_once:  # other threads compile too
        return _find_folder()


@cache
def _find_folder() -> Path | None:
    """Return the cache folder for this package and CPU; None if there is none that is only ours."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen == "":
        return None
    try:
        base = Path(chosen) if chosen else user_cache_path("sgpmic", appauthor=False)
        folder = base / f"programs-{_environment()[:16]}"
        for place in (base, folder):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(place.stat()):
                _warn(
                    f"{place} belongs to another user, or others can write to it. Revoke write "
                    f"access (chmod go-w), or set {CACHE_VARIABLE} to a folder of your own."
                )
                return None
        _prune(base)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


@cache  # once
def _warn(why: str) -> None:
    warnings.warn(f"Compiled programs are not cached: {why}", SGPMICWarning, stacklevel=2)


def _is_private(status: os.stat_result) -> bool:
    """Return whether a file or folder is owned by this user and not writable by others."""
    if not hasattr(os, "getuid"):  # Windows, where user folders are private
        return True
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _prune(base: Path, most: int = MOST_BYTES) -> None:
    """Evict the oldest programs until the cache is at most ``most`` bytes."""
    entries = []
    for path in base.glob("programs-*/*"):
        with suppress(OSError):  # removed by another process
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= most:
            break
        with suppress(OSError):
            path.unlink()
        total -= size


@cache
def _environment() -> str:
    """Return a digest of what all programs depend on: our source, JAX, XLA's flags and the CPU."""
    # Machines of different kinds can share a home directory, and their programs are not portable.
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        features = f"{platform.node()} {platform.processor()}"
    flags = os.environ.get("XLA_FLAGS", "")
    versions = sys.version, jax.__version__, version("jaxlib")
    digest = hashlib.sha256(repr((versions, flags, platform.machine(), features)).encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
