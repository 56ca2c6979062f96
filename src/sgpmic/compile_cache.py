"""Cache of compiled programs, on disk across processes and in memory within one.

Tracing and compiling take most of the time of a first fit. JAX's persistent compilation cache
stores executables; traces are stored next to them, as serialized by ``jax.export``.

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
import platform
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import is_dataclass
from functools import cache, update_wrapper
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
from jax import export
from platformdirs import user_cache_path

from sgpmic._runtime import SharedContext, default_device, double_precision
from sgpmic.exceptions import SGPMICWarning

_T = TypeVar("_T")
_R = TypeVar("_R")

CACHE_VARIABLE = "SGPMIC_CACHE_DIR"
#: Maximum size of the cache folder; the oldest programs are evicted first.
MOST_BYTES = 512 * 2**20
#: Set once writing to the folder has failed.
_given_up = False
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

    Not to be called inside another. :func:`release_programs` clears the compilation caches.
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
        program = self._begun.setdefault(key, new)  # atomic: one of several threads compiles
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
    global _given_up
    structure, kinds, device, settings = key
    arrays = list(filter(_is_array, leaves))
    static = [_ARRAY if _is_array(leaf) else leaf for leaf in leaves]
    spread = any(_placement(array) is not None for array in arrays)
    where = device.platform, device.device_kind, spread and jax.device_count()
    name = f"{function.__module__}.{function.__qualname__}"
    made_from = repr((name, _nodes(structure), kinds, where, settings))
    digest = hashlib.sha256(made_from.encode()).hexdigest()

    def on_arrays(*arrays: jax.Array) -> Any:
        remaining = iter(arrays)
        filled = [next(remaining) if leaf is _ARRAY else leaf for leaf in static]
        args, kwargs = jax.tree.unflatten(structure, filled)
        return function(*args, **kwargs)

    # The name includes the digest, so that each program has its own file in JAX's cache.
    on_arrays.__name__ = f"{function.__name__}_{digest[:16]}"
    with _warning_once:  # other threads compile too
        folder = None if _given_up or not _is_lasting(function, static) else _find_folder()
    options = compiler_options(device.platform)
    if folder is None:
        with _our_cache.left():
            return jax.jit(on_arrays).lower(*arrays).compile(options)

    kept = _KeptProgram(folder, on_arrays.__name__, digest)
    traced = kept.load()
    trace = b"" if traced or spread or device.platform != "cpu" else _export(on_arrays, arrays)
    # A new export is deserialized like a cached one, so that the next process hits JAX's cache.
    call = traced or (export.deserialize(bytearray(trace)).call if trace else on_arrays)

    def named(*arrays: jax.Array) -> Any:
        return call(*arrays)

    named.__name__ = on_arrays.__name__
    lowered = jax.jit(named).lower(*arrays)
    try:
        with _our_cache:
            program = lowered.compile(options)
    except MemoryError:
        raise
    except Exception as error:  # from JAX, zlib or the operating system
        kept.remove()
        with _warning_once:
            if isinstance(error, OSError) and not _given_up:  # a full disk
                _given_up = True
                _warn(f"{error.strerror or error} (set {CACHE_VARIABLE} to use another folder).")
        with _our_cache.left():
            return lowered.compile(options)
    if traced is None:
        kept.save(trace)
    return program


def _export(function: Callable[..., Any], arrays: list[Any]) -> bytes:
    """Return the serialized trace of a function; empty if its result cannot be serialized."""
    # For the CPU, even if JAX's default is a GPU.
    exported = export.export(jax.jit(function), platforms=["cpu"])(*arrays)
    try:
        return bytes(exported.serialize())
    except (ValueError, ImportError):  # types that are not registered, or no flatbuffers
        return b""


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


def _is_lasting(function: Callable[..., Any], static: list[Any]) -> bool:
    """Return whether a function and its static arguments are identified by names and reprs."""
    return function.__closure__ is None and all(
        leaf is _ARRAY or isinstance(leaf, bool | int | float | str) or is_dataclass(leaf)
        for leaf in static
    )


def _nodes(structure: Any) -> Any:
    """Return the node types and auxiliary data of a pytree, recursively."""
    return structure.node_data(), [_nodes(child) for child in structure.children()]


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


def keepable(kind: type[_T]) -> type[_T]:
    """Register a NamedTuple for serialization, so that programs that return it can be cached.

    A serialized trace refers to its result types by name, which only registered types have.
    """
    name = f"{kind.__module__}.{kind.__qualname__}"
    return export.register_namedtuple_serialization(kind, serialized_name=name)


class _KeptProgram:
    """A program in the cache folder: its trace, and JAX's executable of the same, unique name."""

    def __init__(self, folder: Path, name: str, made_from: str) -> None:
        self._folder, self._name, self._made_from = folder, name, made_from
        self._trace = folder / f"trace_{name}"

    def load(self) -> Callable[..., Any] | None:
        """Return the traced function if there is one; remove files that do not match the digest."""
        with suppress(Exception):  # missing or corrupt
            content = self._trace.read_bytes()
            digest, trace = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            files = [self._trace, *self._compiled()]
            if all(map(_is_private, files)) and digest == self._digest(trace):
                return export.deserialize(bytearray(trace)).call if trace else None
        self.remove()
        return None

    def save(self, trace: bytes) -> None:
        """Store a trace, possibly empty, with a digest of it and JAX's executable."""
        with suppress(OSError):  # disk full, or removed by another process
            self._trace.touch()
            for path in (self._trace, *self._compiled()):
                path.chmod(0o600)
            # A process that reads a partial write finds that the digest does not match.
            self._trace.write_bytes(self._digest(trace) + trace)

    def remove(self) -> None:
        """Remove the trace and the executable."""
        for path in (self._trace, *self._compiled()):
            with suppress(OSError):
                path.unlink()

    def _compiled(self) -> list[Path]:
        return sorted(self._folder.glob(f"jit_{self._name}-*"))

    def _digest(self, trace: bytes) -> bytes:
        digest = hashlib.sha256(f"{_environment()} {self._made_from}".encode())
        for content in (trace, *(path.read_bytes() for path in self._compiled())):
            digest.update(hashlib.sha256(content).digest())
        return digest.digest()


@contextmanager
def compilation_cache(folder: Path | None) -> Iterator[None]:
    """Point JAX's cache, in this process, to our folder unless the user has configured it."""
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        yield
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
        yield
    finally:
        for name, value in theirs.items():
            config.update(name, value)
        compilation_cache.reset_cache()


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
            if not _is_private(place, follow_symlinks=True):
                _warn(
                    f"{place} belongs to another user, or others can write to it. Revoke write "
                    f"access (chmod go-w), or set {CACHE_VARIABLE} to a folder of your own."
                )
                return None
        _prune(base)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


_our_cache = SharedContext(lambda: compilation_cache(_find_folder()))


def _warn(why: str) -> None:
    warnings.warn(f"Compiled programs are not cached: {why}", SGPMICWarning, stacklevel=2)


def _is_private(path: Path, *, follow_symlinks: bool = False) -> bool:
    """Return whether a file or folder is owned by this user and not writable by others."""
    status = path.stat(follow_symlinks=follow_symlinks)
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
    # From Python 3.14 on, JAX compresses executables differently, under the same names.
    packed = "zstd" if sys.version_info >= (3, 14) else ""
    flags = os.environ.get("XLA_FLAGS", "")
    versions = jax.__version__, version("jaxlib"), packed
    digest = hashlib.sha256(repr((versions, flags, platform.machine(), features)).encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
