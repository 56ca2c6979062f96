"""How our computations run, without changing anything for other code in the process.

Two things have to be set around them:

- **float64.** JAX computes in float32 unless its global ``jax_enable_x64`` switch is on. Flipping
  that would change the numbers of every other JAX program in the process, so a context does it.
- **One BLAS thread.** JAX's factorisations on a CPU are LAPACK calls of SciPy's OpenBLAS, which
  splits even a 50 × 50 matrix over all cores and lets its threads wait for each other. On two
  cores of which one was busy, a round of EM took 2.9 s instead of 0.05 s. Our matrices are small
  and XLA has threads of its own for the large products.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
from threadpoolctl import ThreadpoolController

_P = ParamSpec("_P")
_R = TypeVar("_R")


def double_precision() -> AbstractContextManager[None]:
    """Return a context in which JAX computes in float64."""
    if hasattr(jax, "enable_x64"):  # jax >= 0.8
        context: AbstractContextManager[None] = jax.enable_x64(True)
        return context
    from jax import experimental

    older: AbstractContextManager[None] = experimental.enable_x64(True)  # type: ignore[attr-defined,unused-ignore]
    return older


@cache
def _thread_pools() -> ThreadpoolController:
    # Looking for the libraries takes milliseconds, setting their threads microseconds.
    import scipy.linalg.cython_lapack  # noqa: F401  (the library must be loaded to be found)

    return ThreadpoolController()


@contextmanager
def numerics() -> Iterator[None]:
    """Enter float64 and one BLAS thread."""
    with double_precision(), _thread_pools().limit(limits=1, user_api="blas"):
        yield


def with_numerics(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate ``function`` so that it runs inside :func:`numerics`."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with numerics():
            return function(*args, **kwargs)

    return wrapped


#: Our compiled programs, to be let go when a process has too many.
_programs: list[Any] = []


def compiled(**options: Any) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """Decorate a function to be compiled, and remember it for :func:`leave_room`.

    Parameters
    ----------
    **options
        Of ``jax.jit``.
    """

    def compile_it(function: Callable[..., _R]) -> Callable[..., _R]:
        program = jax.jit(function, **options)
        _programs.append(program)
        return program

    return compile_it


def leave_room() -> None:
    """Let go of our compiled programs where the process has half the memory maps it may have.

    A fit of a new shape compiles programs that take about a thousand maps, of which Linux allows
    a process 65 530. Without this, the seventieth shape would end the process in an abort of the
    compiler. A shape that comes again after that is compiled again.
    """
    try:
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
        used = Path("/proc/self/maps").read_bytes().count(b"\n")
    except (OSError, ValueError):  # another system, with other limits
        return
    if used > allowed // 2:
        for program in _programs:
            program.clear_cache()
        gc.collect()
