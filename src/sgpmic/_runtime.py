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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, cached_property, update_wrapper, wraps
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


#: Where to compute: where JAX does by itself, or somewhere in particular.
DEVICES = ("auto", "cpu", "gpu")


def on_device(name: str) -> AbstractContextManager[Any]:
    """Return a context in which computations run on a device of this kind.

    Raises
    ------
    ValueError
        Where there is none.
    """
    if name == "auto":
        return nullcontext()
    try:
        device = jax.local_devices(backend=name)[0]
    except RuntimeError:
        raise ValueError(
            f"device={name!r}: JAX finds none here; install pip install 'sgpmic[cuda]' on a "
            "machine with a GPU, or use device='auto'."
        ) from None
    context: AbstractContextManager[Any] = jax.default_device(device)
    return context


def on_chosen_device(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate an estimator's method so that it computes where ``self.device`` says."""

    @wraps(method)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        estimator: Any = args[0]
        with on_device(estimator.device):
            return method(*args, **kwargs)

    return wrapped


#: What XLA is told on a GPU. A part of an array goes into a matrix product as it lies, without a
#: copy, and products are left to cuBLAS, which is nearly twice as fast in float64 as XLA's own.
_GPU_COMPILER = {
    "xla_gpu_enable_dynamic_slice_fusion": True,
    "xla_gpu_enable_triton_gemm": False,
}


@cache
def _gpu_compiler() -> dict[str, bool]:
    """Return those options that this version of XLA knows."""
    known = {}
    for name, value in _GPU_COMPILER.items():
        with suppress(Exception):  # of several kinds, from inside XLA
            jax.jit(lambda x: x, compiler_options={name: value})(0)
            known[name] = value
    return known


def default_device() -> Any:
    """Return the device on which JAX computes what is not on a device yet."""
    device = getattr(jax.config, "jax_default_device", None)  # not declared
    if device is None or isinstance(device, str):
        device = jax.local_devices(backend=device)[0]
    return device


#: Our compiled programs, to be let go when a process has too many.
_programs: list[_Program] = []


class _Program:
    """What ``jax.jit`` makes of a function, with options of the compiler where they apply."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        self._plain: Any = jax.jit(function, **options)
        update_wrapper(self, function)

    @cached_property
    def _tuned(self) -> Any:
        return jax.jit(self._function, compiler_options=_gpu_compiler(), **self._options)

    def _program(self) -> Any:
        return self._tuned if default_device().platform == "gpu" else self._plain

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._program()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:  # lower, eval_shape and the like
        return getattr(self._program(), name)

    def clear_cache(self) -> None:
        """Let go of what was compiled."""
        self._plain.clear_cache()
        if "_tuned" in vars(self):
            self._tuned.clear_cache()


def compiled(**options: Any) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """Decorate a function to be compiled, and remember it for :func:`release_programs`.

    Not for a function that is called inside another compiled one.

    Parameters
    ----------
    **options
        Of ``jax.jit``.
    """

    def compile_it(function: Callable[..., _R]) -> Callable[..., _R]:
        program = _Program(function, options)
        _programs.append(program)
        return program

    return compile_it


def release_programs() -> None:
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
