"""A small table and a run on it, which tests copy before they break something."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.helpers import here, values, write_csv

QUICK = ("-k", 3, "--max-iter", 2, "--inducing", 10)


def record(table: str) -> dict[str, Any]:
    """Return what a fit might write to ``run.json``."""
    data = {"rows": 1, "features": ["a"], "id": None, "label": None, "fingerprint": ""}
    return {
        "table": table,
        "data": data,
        "settings": {},
        "unusual_below": 0.0,
        "warnings": [],
        "seconds": {},
        "versions": {},
    }


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", values())


@pytest.fixture(scope="session")
def finished(table: Path) -> Path:
    """Return the folder of a run; nobody writes to it."""
    out = table.parent / "run"
    done = here("fit", table, *QUICK, "--out", out)
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """Return a copy of a finished run, to be written to."""
    return shutil.copytree(finished, tmp_path / "run")
