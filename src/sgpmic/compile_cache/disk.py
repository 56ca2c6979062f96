"""Programs on disk, for the next Python process: traces, and what JAX compiles from them.

Tracing and compiling take most of the time of a first fit. JAX's own compilation cache keeps what
was compiled; what was traced is kept beside it, in the form that ``jax.export`` gives it.

Compiled programs are native code, so the folder is trusted like the Python environment itself: it
is used only if it belongs to this user and nobody else can write to it. A digest binds every
program to what it was made from; it guards against mix-ups, not against this user.

``SGPMIC_CACHE_DIR`` names another folder; set to nothing, it switches this off.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import jax
from jax import export
from platformdirs import user_cache_path

from sgpmic.exceptions import SGPMICWarning

_T = TypeVar("_T")

#: The environment variable that moves the folder or, set to nothing, switches it off.
CACHE_VARIABLE = "SGPMIC_CACHE_DIR"
#: The folder is kept below this size; the oldest programs go first.
MOST_BYTES = 512 * 2**20
#: Set where the folder turned out to be of no use.
_given_up = False
_DIGEST_BYTES = hashlib.sha256().digest_size


def keepable(kind: type[_T]) -> type[_T]:
    """Decorate a NamedTuple that programs return, so that their traces can be kept.

    A trace names the types of its results; only registered types are known by name.
    """
    name = f"{kind.__module__}.{kind.__qualname__}"
    return export.register_namedtuple_serialization(kind, serialized_name=name)


class KeptProgram:
    """A program in the folder: its trace, and what JAX has compiled from it.

    Parameters
    ----------
    folder : Path
    name : str
        What JAX knows the program by; no other program has this name.
    made_from : str
        A digest of the function and of its arguments, but for the numbers in arrays.
    """

    def __init__(self, folder: Path, name: str, made_from: str) -> None:
        self._folder, self._name = folder, name
        self._trace = folder / f"trace_{name}"
        self._made_from = made_from

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
            for path in self._compiled():
                path.chmod(0o600)
            _write(self._trace, self._digest(trace) + trace)

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
def compilation_cache(folder: Path) -> Iterator[None]:
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


def cache_folder() -> Path | None:
    """Return :func:`_find_folder`'s folder, unless it was given up."""
    return None if _given_up else _find_folder()


def give_up(error: OSError) -> None:
    """Do without the folder in this process: it cannot be written to after all."""
    global _given_up
    _given_up = True
    _warn(f"{error.strerror or error} ({CACHE_VARIABLE} moves the folder).")


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
                    f"{place} belongs to another user, or others can write to it. Take that right "
                    f"away (chmod go-w), or let {CACHE_VARIABLE} name a folder of your own."
                )
                return None
        _prune(base)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


def _warn(why: str) -> None:
    warnings.warn(f"Compiled programs are not kept: {why}", SGPMICWarning, stacklevel=2)


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
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Write a file for this user in one piece, also where several processes write it at once."""
    descriptor, beside = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
