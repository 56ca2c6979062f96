"""A table, and its fit by two plain processes, which other ways to start them must agree with."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.helpers import said, started, values

#: Of ``sgpmic fit``, and the same for the estimator.
OPTIONS = {"clusters": 3, "inducing": 10, "max-iter": 6}
SETTINGS: dict[str, Any] = {
    "n_clusters": 3,
    "committee": None,
    "n_inducing": 10,
    "max_iter": 6,
    "random_state": 0,
}


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "t.npy"
    np.save(path, values()[np.random.RandomState(0).permutation(60)])
    return path


@pytest.fixture(scope="session")
def plain(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run with two processes.

    Where tests run in several processes themselves, the first that needs it makes it for all.
    """
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    out = place / "plain"
    words = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    with (place / "plain.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "run.json").exists():
            done = started("fit", table, *words, "--processes", 2, "--out", out, "--force")
            assert done.returncode == 0, said(done)
    return out
