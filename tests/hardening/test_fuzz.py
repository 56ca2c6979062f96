"""A few random attacks of every kind; ``python -m tests.hardening.fuzz`` makes them for hours."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hardening import fuzz


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "origin").mkdir()
    fuzz.prepare(folder / "origin")
    return folder


@pytest.mark.parametrize("kind", fuzz.ATTACKS)
def test_random_attacks(base: Path, kind: str) -> None:
    endings = [fuzz.judge(base, kind, number) for number in range(4)]
    assert 2 in endings  # some of it was noticed


def test_the_judge_sees_what_is_wrong(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def writes_elsewhere(box: Path, rng: fuzz.Rng) -> tuple[object, ...]:
        return ("predict", box / "run", box / "t.csv", "--out", box / "elsewhere.csv")

    monkeypatch.setitem(fuzz.ATTACKS, "words", writes_elsewhere)
    with pytest.raises(fuzz.Found, match="elsewhere"):
        fuzz.judge(base, "words", 0)

    def breaks(box: Path, rng: fuzz.Rng) -> tuple[object, ...]:
        monkeypatch.setattr("sgpmic.cli.report.load_model", lambda path: 1 / 0)
        return ("info", box / "run")

    monkeypatch.setitem(fuzz.ATTACKS, "words", breaks)
    with pytest.raises(fuzz.Found, match="ZeroDivisionError"):
        fuzz.judge(base, "words", 0)
