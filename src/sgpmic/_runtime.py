"""Runtime settings of our computations, without side effects on other code in the process.

Two things are set by context managers:

- **float64.** JAX computes in float32 unless its global ``jax_enable_x64`` flag is set. That would
  change the results of all other JAX code in the process, so it is set only within a context.
- **One BLAS thread.** JAX's factorizations on a CPU are LAPACK calls to SciPy's OpenBLAS, which
  splits even a 50 × 50 matrix over all cores and lets its threads wait for each other. On two
  cores of which one was busy, an EM iteration took 2.9 s instead of 0.05 s. Our matrices are small,
  and XLA has its own threads for the large products.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import jax
from jax import lax
from threadpoolctl import ThreadpoolController

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C")


def double_precision() -> AbstractContextManager[None]:
    """Return a context in which JAX computes in float64."""
    if hasattr(jax, "enable_x64"):  # jax >= 0.8
        return jax.enable_x64(True)
    from jax import experimental

    return experimental.enable_x64(True)  # type: ignore[attr-defined,unused-ignore]


@cache
def _thread_pools() -> ThreadpoolController:
    # Cached, because finding the libraries takes milliseconds, setting their threads microseconds.
    import scipy.linalg.cython_lapack  # noqa: F401  (only loaded libraries are found)

    return ThreadpoolController()


class SharedContext:
    """Reference-counted context manager for process-wide settings that several threads need.

    The first thread enters it and the last one exits it: otherwise one thread would restore the
    settings while others still need them changed.
    """

    def __init__(self, context: Callable[[], AbstractContextManager[Any]]) -> None:
        self._context = context
        self._changed = threading.Condition()
        self._users = 0
        self._entered = ExitStack()

    def __enter__(self) -> None:
        with self._changed:
            if not self._users:
                self._entered.enter_context(self._context())
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._users -= 1
            if not self._users:
                try:
                    self._entered.close()
                finally:
                    self._changed.notify_all()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Wait until no thread is inside, and keep others out; not to be called from inside."""
        with self._changed:
            self._changed.wait_for(lambda: not self._users)
            yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit BLAS to one thread, and restore the previous numbers on exit."""
    pools = [p for p in _thread_pools().lib_controllers if p.user_api == "blas"]
    before = [(pool, pool.num_threads) for pool in pools]
    for pool in pools:
        _set_threads(pool, 1)
    try:
        yield
    finally:
        for pool, number in before:
            _set_threads(pool, number)


def _set_threads(pool: Any, number: int) -> None:
    # Since threadpoolctl 3.7 the public method lets only one Python thread change OpenBLAS, and the
    # last to exit may be another. Without the private one, BLAS may be left with one thread.
    try:
        pool._real_set_num_threads(number)
    except (AttributeError, TypeError):
        pool.set_num_threads(number)


_one_blas_thread = SharedContext(_one_thread)


#: The process in which JAX has started. Its threads and locks do not survive a fork: a child that
#: computes would wait for them forever.
_jax_process: int | None = None


def _before_fork() -> None:
    """Note whether JAX has started, while its lock cannot yet be held by a lost thread."""
    global _jax_process
    from jax._src import xla_bridge

    # No public function tells without initializing the backends; without this one, we only know
    # whether this package has computed.
    started = getattr(xla_bridge, "backends_are_initialized", None)
    if _jax_process is None and started is not None and started():
        _jax_process = os.getpid()


def _after_fork() -> None:
    global _one_blas_thread
    _one_blas_thread = SharedContext(_one_thread)  # another thread may have held the lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def refuse_after_fork() -> None:
    """Raise if this process was forked after JAX had computed in its parent: it would hang."""
    global _jax_process
    if _jax_process not in (None, os.getpid()):
        raise RuntimeError(
            "This process was forked after its parent had used JAX, which leaves JAX "
            "unusable: start processes with multiprocessing.get_context('spawn') or 'forkserver', "
            "with joblib's default backend, or fork before the first fit or predict."
        )
    _jax_process = os.getpid()


@contextmanager
def numerics() -> Iterator[None]:
    """Enter float64 and one BLAS thread; also a decorator, ``@numerics()``."""
    refuse_after_fork()
    with double_precision(), _one_blas_thread:
        yield


def on_device(name: str) -> AbstractContextManager[Any]:
    """Return a context in which computations run on a device of this kind; raise if none."""
    if name == "auto":
        return nullcontext()
    try:
        device = jax.local_devices(backend=name)[0]
    except RuntimeError:
        raise ValueError(
            f"device={name!r}: JAX finds none here; run pip install 'sgpmic[cuda]' on a "
            "machine with a GPU, or use device='auto'."
        ) from None
    return jax.default_device(device)


def on_chosen_device(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate an estimator's method to run on the device in its settings."""

    @wraps(method)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        estimator: Any = args[0]
        refuse_after_fork()
        # Without a device, another object is rejected later, with the other settings.
        with on_device(getattr(estimator.computation, "device", "auto")):
            return method(*args, **kwargs)

    return wrapped


def default_device() -> Any:
    """Return JAX's default device."""
    device = getattr(jax.config, "jax_default_device", None)  # not declared
    if device is None or isinstance(device, str):
        device = jax.local_devices(backend=device)[0]
    return device


def map_components(function: Callable[[Any], _R], components: Any) -> _R:
    """Map ``function`` over the components of a model and stack the results.

    A single component needs no loop, which would only slow down compilation. Several are mapped
    sequentially on a CPU, where batched factorizations deadlock in some versions of JAX, and by
    ``vmap`` elsewhere: a GPU takes six times as long for ten small matrices in sequence.
    """
    if _count(components) == 1:
        return loop_components(function, components)
    return lax.platform_dependent(
        components, cpu=lambda each: lax.map(function, each), default=jax.vmap(function)
    )


def loop_components(function: Callable[[Any], _R], components: Any) -> _R:
    """Like :func:`map_components`, but sequential on any device."""
    return scan(lambda carry, each: (carry, function(each)), (), components)[1]


def scan(function: Callable[[_C, Any], tuple[_C, _R]], carry: _C, items: Any) -> tuple[_C, _R]:
    """``lax.scan`` over components or parts of the rows, without a loop for a single one."""
    if _count(items) > 1:
        return lax.scan(function, carry, items)
    carry, found = function(carry, jax.tree.map(lambda leaf: leaf[0], items))
    return carry, jax.tree.map(lambda leaf: leaf[None], found)


def _count(components: Any) -> int:
    return int(jax.tree.leaves(components)[0].shape[0])


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Callable[[str], None] | None) -> Iterator[None]:
    """Report the stages of a fit to a function; None silences those of a fit inside another."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def announce(words: str) -> None:
    """Report the next stage to the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(words)
