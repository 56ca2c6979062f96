"""A few random attacks of every kind; ``python -m tests.hardening.fuzz`` makes them for hours."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.hardening import fuzz
from tests.hardening.random_attacks import Rng

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "origin").mkdir()
    fuzz.prepare(folder / "origin")
    return folder


@pytest.mark.parametrize("kind", fuzz.ATTACKS)
def test_random_attacks(base: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "LONGEST", 240)  # other tests may be running
    endings = [fuzz.judge(base, kind, number) for number in range(4)]
    assert 2 in endings  # some of it was noticed


def test_the_judge_sees_what_is_wrong(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def writes_elsewhere(box: Path, rng: Rng) -> tuple[object, ...]:
        return ("predict", box / "run", box / "t.csv", "--out", box / "elsewhere.csv")

    monkeypatch.setitem(fuzz.ATTACKS, "words", writes_elsewhere)
    with pytest.raises(fuzz.Found, match="elsewhere"):
        fuzz.judge(base, "words", 0)

    def breaks(box: Path, rng: Rng) -> tuple[object, ...]:
        monkeypatch.setattr("sgpmic.cli.report.load_model", lambda path: 1 / 0)
        return ("info", box / "run")

    monkeypatch.setitem(fuzz.ATTACKS, "words", breaks)
    with pytest.raises(fuzz.Found, match="ZeroDivisionError"):
        fuzz.judge(base, "words", 0)


def fails_first(folder: Path, first: int, end: float) -> None:
    """Note a case; the first process that does so is lost as the folder says."""
    with (folder / fuzz.NOTES).open("a", buffering=1) as notes:
        notes.write(json.dumps(("words", first, "begun")) + "\n")
        if first == 0 and folder.name == "dies":
            os._exit(7)
        if first == 0:
            time.sleep(600)
        notes.write(json.dumps(("words", first, "2")) + "\n")


@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_a_lost_attacker_is_noticed_and_replaced(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / how).mkdir()
    limit = time.time() + 100
    attacker = fuzz.Attacker(tmp_path / how, 0, limit, fails_first, patience=100)
    while not attacker.has_ended():
        assert time.time() < limit
        if how == "hangs":
            attacker.patience = 0 if attacker.notes() and not attacker.lost else 100
        time.sleep(0.02)
    assert attacker.notes() == [("words", 0, "begun"), ("words", 1, "2")]
    (lost,) = attacker.lost
    assert lost.startswith("words:0")
    assert ("ended with 7" if how == "dies" else "nothing has moved") in lost
    assert not fuzz.report([attacker])
    said = capsys.readouterr().out
    assert "1 cases, by exit code {'2': 1}" in said
    assert lost in said


def test_an_alarm_is_nobodys_error() -> None:
    """A handler of all errors in what is attacked does not hear it."""

    def handles_everything() -> None:
        with suppress(Exception):
            time.sleep(10)

    with pytest.raises(fuzz.Found, match="more than 1 s"), fuzz.at_most(1):
        handles_everything()
