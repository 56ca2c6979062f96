"""Double precision for our own computations, without changing JAX for anyone else.

JAX computes in float32 unless its global ``jax_enable_x64`` switch is on. Flipping that switch
would change the numbers of every other JAX program in the process, so each public function that
computes with JAX enters a context instead.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

_P = ParamSpec("_P")
_R = TypeVar("_R")


def double_precision() -> AbstractContextManager[None]:
    """Return a context in which JAX computes in float64."""
    if hasattr(jax, "enable_x64"):  # jax >= 0.8
        context: AbstractContextManager[None] = jax.enable_x64(True)
        return context
    from jax.experimental import enable_x64

    return enable_x64(True)  # type: ignore[no-any-return,unused-ignore]


def in_double_precision(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate ``function`` so that everything JAX does inside it is in float64."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with double_precision():
            return function(*args, **kwargs)

    return wrapped
