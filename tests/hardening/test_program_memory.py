"""Compiled programs are let go when they have made the process grow, not only by their maps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgpmic import compile_cache as programs


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a program that takes some memory for every shape."""
    monkeypatch.setattr(programs, "_programs", [])
    monkeypatch.setattr(programs.Program, "memory", 0)

    @programs.compiled
    def long(x: jax.Array) -> jax.Array:
        for i in range(12):
            x = jnp.sort(jnp.sin(x * i)[::-1].cumsum())
        return x

    return long


def test_growth_is_counted_once_for_every_shape(program: Any) -> None:
    program(np.ones(3, np.float32))
    first = programs.Program.memory
    assert first > 0
    program(np.ones(3, np.float32))
    assert programs.Program.memory == first, "nothing was compiled"
    for size in range(4, 8):
        program(np.ones(size, np.float32))
    assert programs.Program.memory > first


def test_programs_that_take_too_much_are_let_go(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(np.ones(3, np.float32))
    programs.release_programs()
    assert len(program) == 1, "they do not take too much"
    monkeypatch.setattr(programs, "MOST_MEMORY", programs.Program.memory - 1)
    programs.release_programs()
    assert len(program) == 0
    assert programs.Program.memory == 0
    program(np.ones(3, np.float32))
    assert len(program) == 1
