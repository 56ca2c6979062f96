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

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, wraps
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
    """Decorate an estimator's method so that it computes where its settings say."""

    @wraps(method)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        estimator: Any = args[0]
        with on_device(estimator.computation.device):
            return method(*args, **kwargs)

    return wrapped


def default_device() -> Any:
    """Return the device on which JAX computes what is not on a device yet."""
    device = getattr(jax.config, "jax_default_device", None)  # not declared
    if device is None or isinstance(device, str):
        device = jax.local_devices(backend=device)[0]
    return device
