"""Compiled programs are let go when they have made the process grow, not only by their maps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgpmic import _programs


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a program that takes some memory for every shape."""
    monkeypatch.setattr(_programs, "_programs", [])
    monkeypatch.setattr(_programs._Program, "memory", 0)

    @_programs.compiled()
    def long(x: jax.Array) -> jax.Array:
        for i in range(12):
            x = jnp.sort(jnp.sin(x * i)[::-1].cumsum())
        return x

    return long


def test_growth_is_counted_once_for_every_shape(program: Any) -> None:
    program(np.ones(3, np.float32))
    first = _programs._Program.memory
    assert first > 0
    program(np.ones(3, np.float32))
    assert _programs._Program.memory == first, "nothing was compiled"
    for size in range(4, 8):
        program(np.ones(size, np.float32))
    assert _programs._Program.memory > first


def test_programs_that_take_too_much_are_let_go(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(np.ones(3, np.float32))
    _programs.release_programs()
    assert program._cache_size() == 1, "they do not take too much"
    monkeypatch.setattr(_programs, "MOST_MEMORY", _programs._Program.memory - 1)
    _programs.release_programs()
    assert program._cache_size() == 0
    assert _programs._Program.memory == 0
    program(np.ones(3, np.float32))
    assert program._cache_size() == 1
