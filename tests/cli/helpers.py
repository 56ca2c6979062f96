"""Commands, in this process or in one of their own, and tables for them."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from typer.testing import CliRunner

from support.processes import of_one_device

NAMES = ("height", "width", "depth")


def cheaply(arguments: tuple[object, ...]) -> list[str]:
    """Return a command's words; a fit asks no committee unless it is about one."""
    words = [*map(str, arguments)]
    if words and words[0] == "fit" and "--committee" not in words:
        words.append("--no-committee")
    return words


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "sgpmic", *cheaply(arguments)]


def environment() -> dict[str, str]:
    return of_one_device() | {"COLUMNS": "140"}


def started(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: takes seconds until it has imported everything."""
    return subprocess.run(
        command(*arguments),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )


def sgpmic(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, and return what :func:`started` would."""
    from sgpmic.cli.app import app

    out, err, words = io.StringIO(), io.StringIO(), cheaply(arguments)
    with (
        # A command may say where JAX computes, which is not for the tests that follow.
        mock.patch.dict(os.environ, {"COLUMNS": "140"}),
        contextlib.chdir(folder or "."),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            app(words)
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def here(*arguments: object) -> Any:
    """Run a command in this process, and return what Typer makes of it."""
    from sgpmic.cli.app import app

    # A command may say where JAX computes, which is not for the tests that follow.
    with mock.patch.dict(os.environ):
        return CliRunner().invoke(app, cheaply(arguments))


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Return what was printed, without the line ends that the terminal's width put in."""
    return " ".join((done.stdout + done.stderr).split())


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one sentence of a command that refused to do something."""
    assert done.returncode == 2, said(done)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("sgpmic: "), done.stderr
    return " ".join(done.stderr.split())


def values(seed: int = 0, n_each: int = 20) -> np.ndarray:
    rng = np.random.RandomState(seed)
    return np.vstack([rng.standard_normal((n_each, 3)) + 6.0 * k for k in range(3)])


def write_csv(path: Path, rows: np.ndarray, **more: list[str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*NAMES, *more])
        writer.writerows(
            [*map(repr, map(float, row)), *extra]
            for row, *extra in zip(rows, *more.values(), strict=True)
        )
    return path


def arrow_table(rows: np.ndarray) -> pa.Table:
    return pa.table({name: rows[:, i] for i, name in enumerate(NAMES)})


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
