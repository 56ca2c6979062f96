"""The command line at its edges: an early Ctrl-C, a full screen, names that are no text."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import unicodedata
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from tests.cli.helpers import cheaply, command, environment, here, values, write_csv
from tests.hardening.conftest import QUICK

import sgpmic
from sgpmic.storage.run_folder import RunFolder

#: Presses Ctrl-C when a module begins to be imported.
EARLY = """
import os, signal, sys
from sgpmic.cli.startup import main
module = sys.argv.pop(1)
def press(event, arguments):
    if event == "import" and arguments[0] == module:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(press)
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer", "rich.progress", "pyarrow", "sklearn", "jax"])
def test_ctrl_c_while_modules_are_imported(table: Path, tmp_path: Path, module: str) -> None:
    words = cheaply(("fit", table, *QUICK, "--out", tmp_path / "run"))
    done = subprocess.run(
        [sys.executable, "-c", EARLY, module, *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""
    assert not (tmp_path / "run" / "run.json").exists()


#: A failing command, while a thread compiles for a minute.
COMPILING = """
import sys, threading, time
from sgpmic.cli.startup import main
threading.Thread(target=time.sleep, args=(60,)).start()
main()
"""


@pytest.mark.slow
def test_a_command_that_fails_does_not_wait_for_the_compiler(tmp_path: Path) -> None:
    missing = tmp_path / "missing.csv"
    done = subprocess.run(
        [sys.executable, "-c", COMPILING, "fit", missing],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=45,
    )
    assert done.returncode == 2
    assert "missing.csv" in done.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are text there")
def test_a_table_whose_name_is_no_text(tmp_path: Path) -> None:
    table = tmp_path / os.fsdecode(b"t\xff.csv")
    write_csv(table, values())
    done = here("fit", table, *QUICK, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.exception
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert record["table"] == str(table)
    assert here("report", tmp_path / "run").exit_code == 0


def test_a_link_to_itself(run: Path, table: Path, tmp_path: Path) -> None:
    link = tmp_path / "loop.csv"
    link.symlink_to(link)
    for words in (
        ("fit", link, *QUICK, "--out", tmp_path / "other"),
        ("fit", table, *QUICK, "--out", link),
        ("predict", run, link, "--out", tmp_path / "o.csv"),
        ("predict", link, table),
        ("report", run, "--table", link),
        ("info", link),
    ):
        done = here(*words)
        assert done.exit_code == 2, (words, done.output, done.exception)
        assert len(done.output.strip().split("sgpmic: ")) == 2, done.output


def test_a_fit_from_a_folder_that_nobody_has_installed(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(name: str) -> str:
        if name == "sgpmic":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr("sgpmic.cli.results.version", installed)
    done = here("fit", table, *QUICK, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    versions = json.loads((tmp_path / "run" / "run.json").read_text())["versions"]
    assert versions["sgpmic"] == sgpmic.__version__
    assert versions["numpy"] == version("numpy")


#: Clears the screen, sets its title, its color, goes back one character, turns text around.
HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\b\u202e"


def test_control_characters_from_files_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """In names of columns, levels, ids and labels, and in those of columns that are left out."""
    rows = values()
    levels = [f"level {i % 3}{HOSTILE}" for i in range(len(rows))]
    named = {f"kind{HOSTILE}": levels, f"label{HOSTILE}": levels}
    ids = {f"id{HOSTILE}": [f"{i}{HOSTILE}" for i in range(len(rows))]}
    table = write_csv(tmp_path / "t.csv", rows, **named, **ids)
    other = write_csv(tmp_path / "other.csv", rows, **named, **ids, **{f"new{HOSTILE}": levels})
    run = tmp_path / "run"
    roles = ("--id", next(iter(ids)), "--label", list(named)[1])
    for words in (
        ("fit", table, *QUICK, *roles, "--out", run),
        ("fit", table, *QUICK, "--number", next(iter(named)), "--out", tmp_path / "refused"),
        ("info", run),
        ("predict", run, other, "--out", tmp_path / "o.csv"),
        ("predict", run, table, "--id", f"none{HOSTILE}", "--out", tmp_path / "refused.csv"),
        ("report", run),
    ):
        done = here(*words)
        assert done.exit_code == (2 if "refused" in str(words[-1]) else 0), done.output
        control = {c for c in done.output if c != "\n" and unicodedata.category(c) in ("Cc", "Cf")}
        assert not control, words
        if words[0] in ("fit", "info", "predict"):
            assert "x1b" in done.output, "it is shown, so that it can be found"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no such device")
def test_a_full_screen_does_not_end_a_fit(table: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("fit", table, *QUICK, "--out", tmp_path / "run"),
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert RunFolder(tmp_path / "run").read_record()["data"]["rows"] == 60
