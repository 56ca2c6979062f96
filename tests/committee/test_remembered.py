"""What was found out about a table is remembered, also where threads ask at once."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sgpmic._types import Floats
from sgpmic.committee import examination


def test_threads_that_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one answer each thread throws out what the others have just found."""
    monkeypatch.setattr(examination, "_MOST_REMEMBERED", 1)
    monkeypatch.setattr(examination, "_found", {})
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    wrong: list[object] = []

    def total(sample: Floats) -> float:
        return float(sample.sum())

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(2000):
            number = float(rng.integers(5))
            try:
                found = examination._once(total, np.full((1, 1), number))
            except Exception as error:
                wrong.append(error)
                return
            if found != number:
                wrong.append(found)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    sys.setswitchinterval(interval)
    assert not wrong
    assert len(examination._found) <= 8


def test_no_more_are_remembered_than_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_MOST_REMEMBERED", 2)
    monkeypatch.setattr(examination, "_found", {})
    asked: list[float] = []

    def note(sample: Floats) -> str:
        asked.append(float(sample[0, 0]))
        return "found"

    for number in (1.0, 2.0, 1.0, 3.0, 2.0, 1.0):
        assert examination._once(note, np.full((1, 1), number)) == "found"
    assert asked == [1.0, 2.0, 3.0, 2.0, 1.0]
