"""Compiled programs: kept on disk for the next Python process, let go in time in this one.

Tracing and compiling take most of the time of a first fit. JAX's own compilation cache keeps what
was compiled; what was traced is kept beside it, in the form that ``jax.export`` gives it.

Compiled programs are native code, so the folder is trusted like the Python environment itself: it
is used only if it belongs to this user and nobody else can write to it. A digest binds every
program to what it was made from; it guards against mix-ups, not against this user.

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

#: The environment variable that moves the folder or, set to nothing, switches it off.
CACHE_VARIABLE = "SGPMIC_CACHE_DIR"
#: The folder is kept below this size; the oldest programs go first.
MOST_BYTES = 512 * 2**20
#: Set where the folder turned out to be of no use: it cannot be written to after all.
_given_up = False
#: Held where a warning is given that others would give too.
_warning_once = threading.Lock()
_DIGEST_BYTES = hashlib.sha256().digest_size
#: Compiled programs are let go when the process has grown by so much with them.
MOST_MEMORY = 2**30

#: What XLA is told, by kind of device. On a GPU, a part of an array goes into a matrix product as
#: it lies, without a copy, and products are left to cuBLAS, which is nearly twice as fast in
#: float64 as XLA's own. On a processor, XLA's older code for fused loops and LLVM's second level
#: run as fast as the newer and the third, and are compiled much sooner (docs/performance.md).
_COMPILER_OPTIONS: dict[str, dict[str, str | bool]] = {
    "gpu": {"xla_gpu_enable_dynamic_slice_fusion": True, "xla_gpu_enable_triton_gemm": False},
    "cpu": {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": "2"},
}

#: Settings of JAX that change what is traced.
_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion")
#: Stands for an array among arguments.
_ARRAY = object()

#: All our compiled programs, to be let go when a process has too many.
_programs: list[Program[Any]] = []


class Program(Generic[_R]):
    """A function that is compiled for every kind of arguments: arrays are traced, others static.

    Not one that is called inside another. :func:`release_programs` lets go of what was compiled.
    """

    memory = 0  # by how many bytes compiling all programs has made the process grow

    def __init__(self, function: Callable[..., _R]) -> None:
        self.function = function
        self._begun: dict[Any, Future[Callable[..., _R]]] = {}  # by what they are called with
        self._lock = threading.Lock()
        update_wrapper(self, function)
        _programs.append(self)

    def __call__(self, *args: Any, **kwargs: Any) -> _R:
        """Return what the function does, compiled first where it has to be."""
        key, leaves = _key(args, kwargs)
        program = self._begun.get(key)
        if program is None:
            with self._lock:  # another thread may have been here first
                if is_new := key not in self._begun:
                    self._begun[key] = Future()
                program = self._begun[key]
            if is_new:
                self._compile(program, key, leaves)
        return program.result()(*filter(_is_array, leaves))

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Compile in the background what will be called soon; of arrays only the shapes count.

        Only on a processor: a GPU's programs are tuned by timing them.
        """
        key, leaves = _key(args, kwargs)
        _, _, device, settings = key
        with self._lock:
            if device.platform != "cpu" or key in self._begun:
                return
            program = self._begun[key] = Future()

        def compile_like_caller() -> None:  # settings of JAX are those of a thread
            double = double_precision() if settings[0] else nullcontext()
            with double, jax.default_device(device):
                self._compile(program, key, leaves)

        threading.Thread(target=compile_like_caller, name="compiling").start()

    def has(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether such a call would find its program, or one that is being compiled."""
        return _key(args, kwargs)[0] in self._begun

    def _compile(self, program: Future[Callable[..., _R]], key: Any, leaves: list[Any]) -> None:
        try:
            with _measuring_memory:
                program.set_result(_compile(self.function, leaves, *key))
        except BaseException as error:
            self._begun.pop(key, None)  # it may have been interrupted: the next call tries again
            program.set_exception(error)

    def __len__(self) -> int:
        """The number of programs."""
        return len(self._begun)

    def clear_cache(self) -> None:
        """Let go of what was compiled."""
        self._begun = {}


#: Decorates functions of this package.
compiled = Program


def _key(args: Any, kwargs: Any) -> tuple[Any, list[Any]]:
    """Return what of the arguments of a call a program is compiled for, and their leaves."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
    return (structure, tuple(map(_kind, leaves)), default_device(), settings), leaves


@contextmanager
def _growth() -> Iterator[None]:
    before = _resident()
    try:
        yield
    finally:
        Program.memory += max(_resident() - before, 0)


_measuring_memory = SharedContext(_growth)


def _compile(
    function: Callable[..., Any],
    leaves: list[Any],
    structure: Any,
    kinds: tuple[Any, ...],
    device: Any,
    settings: tuple[Any, ...],
) -> Callable[..., Any]:
    """Return a function of arrays that is compiled, or taken from our folder."""
    global _given_up
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
    with _warning_once:  # other threads compile too
        folder = None if _given_up or not _is_lasting(function, static) else _find_folder()
    options = compiler_options(device.platform)
    if folder is None:
        with _our_cache.left():
            return jax.jit(on_arrays).lower(*arrays).compile(options)

    kept = _KeptProgram(folder, on_arrays.__name__, digest)
    traced = kept.load()
    trace = b"" if traced or spread or device.platform != "cpu" else _export(on_arrays, arrays)
    # What is exported now is read back like what was kept: the next process finds the same program.
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
    except Exception as error:  # JAX's, zlib's, the system's
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
    """Return the trace of a function of such arrays; nothing where its results have other types."""
    # For a processor, also where JAX would rather compute on a GPU.
    exported = export.export(jax.jit(function), platforms=["cpu"])(*arrays)
    try:
        return bytes(exported.serialize())
    except (ValueError, ImportError):  # types that are not keepable, or no flatbuffers
        return b""


def _is_array(leaf: Any) -> bool:
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
    every = _COMPILER_OPTIONS.get(platform, {})
    for options in (every, *({name: value} for name, value in every.items())):
        with suppress(Exception):  # of several kinds, from inside XLA
            jax.jit(lambda x: x, compiler_options=options)(0)
            known |= options
            if options is every:
                break
    return known


def release_programs() -> None:
    """Let go of our compiled programs where they take too much of the process.

    That is where it has half the memory maps it may have: a fit of a new shape compiles programs
    that take about a thousand maps, of which Linux allows a process 65 530, and beyond the
    compiler aborts. Or where it has grown by more than :data:`MOST_MEMORY` while they were
    compiled: a shape takes some seventy megabytes. A shape that comes again after that is compiled
    again, or taken from the folder.
    """
    if _share_of_maps() > 0.5 or Program.memory > MOST_MEMORY:
        clear_programs()
        with suppress(AttributeError, OSError):  # of the GNU C library only
            # What is free again stays with the process otherwise.
            ctypes.CDLL(None).malloc_trim(0)


def clear_programs() -> None:
    """Let go of all our compiled programs."""
    for program in _programs:
        program.clear_cache()
    gc.collect()
    Program.memory = 0


def _share_of_maps() -> float:
    with suppress(OSError, ValueError):  # another system, with other limits
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
        return Path("/proc/self/maps").read_bytes().count(b"\n") / allowed
    return 0.0


def _resident() -> int:
    """Return how many bytes of memory this process has, 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def keepable(kind: type[_T]) -> type[_T]:
    """Decorate a NamedTuple that programs return, so that their traces can be kept.

    A trace names the types of its results; only registered types are known by name.
    """
    name = f"{kind.__module__}.{kind.__qualname__}"
    return export.register_namedtuple_serialization(kind, serialized_name=name)


class _KeptProgram:
    """A program in the folder: its trace, and what JAX has compiled from it.

    JAX knows it by its name, which no other program has; ``made_from`` is a digest of the function
    and of its arguments, but for the numbers in arrays.
    """

    def __init__(self, folder: Path, name: str, made_from: str) -> None:
        self._folder, self._name, self._made_from = folder, name, made_from
        self._trace = folder / f"trace_{name}"

    def load(self) -> Callable[..., Any] | None:
        """Return the traced function if there is one; remove whatever is not as it was kept."""
        with suppress(Exception):  # there is none, or it is damaged
            content = self._trace.read_bytes()
            digest, trace = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            files = [self._trace, *self._compiled()]
            if all(map(_is_private, files)) and digest == self._digest(trace):
                return export.deserialize(bytearray(trace)).call if trace else None
        self.remove()
        return None

    def save(self, trace: bytes) -> None:
        """Keep a trace, or nothing in place of one, bound to what JAX has just compiled."""
        with suppress(OSError):  # a full disk, or another process has removed it
            self._trace.touch()
            for path in (self._trace, *self._compiled()):
                path.chmod(0o600)
            # Whoever reads half of it, as another process writes it, finds another digest.
            self._trace.write_bytes(self._digest(trace) + trace)

    def remove(self) -> None:
        """Remove the trace and the compiled program."""
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
    """Let JAX keep what it compiles in our folder, unless the user has set its cache otherwise.

    The setting is one for the whole process, so it is ours only while we compile.
    """
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
    """Return the folder of programs made by this version of the package on such a processor.

    None where it is switched off, where there is no place for it (no home directory, or one that
    cannot be written to), and, with a warning, where others could have put programs there.
    """
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
    """Return whether a file or folder is this user's and nobody else may write to it."""
    status = path.stat(follow_symlinks=follow_symlinks)
    if not hasattr(os, "getuid"):  # Windows, where a user's folders are the user's own
        return True
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _prune(base: Path, most: int = MOST_BYTES) -> None:
    """Remove the oldest programs where all of them take too much."""
    entries = []
    for path in base.glob("programs-*/*"):
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


@cache
def _environment() -> str:
    """Return a digest of what all programs depend on.

    That is our source, JAX, XLA's flags and the processor: a home directory can be shared by
    machines of different kinds, and a program for one may end with an illegal instruction on
    another.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        features = f"{platform.node()} {platform.processor()}"
    # From Python 3.14 on JAX packs programs in another way, under the same names.
    packed = "zstd" if sys.version_info >= (3, 14) else ""
    flags = os.environ.get("XLA_FLAGS", "")
    versions = jax.__version__, version("jaxlib"), packed
    digest = hashlib.sha256(repr((versions, flags, platform.machine(), features)).encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
