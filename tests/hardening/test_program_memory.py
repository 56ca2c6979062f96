"""Compiled programs are let go when there are too many, not only by their maps."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from sgpmic import compile_cache as programs


def test_too_many_programs_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_programs", [])
    monkeypatch.setattr(programs, "MOST_PROGRAMS", 2)

    @programs.compiled
    def double(x: jax.Array) -> jax.Array:
        return 2 * x

    @programs.compiled
    def triple(x: jax.Array) -> jax.Array:
        return 3 * x

    def programs_after(program: Any, size: int) -> tuple[int, int]:
        program(np.ones(size, np.float32))
        programs.release_programs()
        return len(double), len(triple)

    assert programs_after(double, 3) == (1, 0)
    assert programs_after(double, 3) == (1, 0), "nothing was compiled"
    assert programs_after(triple, 3) == (1, 1)
    assert programs_after(triple, 4) == (0, 0)
    assert programs_after(double, 3) == (1, 0)
