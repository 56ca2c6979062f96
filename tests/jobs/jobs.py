"""Starting jobs of several processes, and reading what they left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sgpmic.jobs.launch import environments, local_slot
from support.processes import of_one_device

WORKER = Path(__file__).parent / "worker.py"
#: What has an entry a row.
BY_ROW = ("labels", "memberships", "embedding", "dX", "dT")

Processes = list["subprocess.Popen[str]"]
Found = dict[str, np.ndarray]


def make_table(path: Path, n_rows: int = 301) -> Path:
    """Write three well separated groups on a curve; rows that no number of processes divides."""
    rng = np.random.RandomState(0)
    centers = np.array([[4.0, 0.0, 1.0, 0.0], [0.0, 5.0, 0.0, -2.0], [-4.0, -4.0, 2.0, 1.0]])
    values = centers[rng.randint(3, size=n_rows)] + rng.standard_normal((n_rows, 4))
    np.save(path, values + 0.1 * values[:, ::-1] ** 2)
    return path


def start(table: Path, folder: Path, n_processes: int, **settings: Any) -> Processes:
    """Start a job of ``worker.py``."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(WORKER), str(table), str(folder), json.dumps(settings)]
    variables = environments([local_slot()] * n_processes)
    return [
        subprocess.Popen(
            command,
            env=of_one_device() | mine,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for mine in variables
    ]


def collect(folder: Path, n_processes: int, suffix: str = "") -> Found:
    """Return what the processes of a job found, rows in their order."""
    parts = [np.load(folder / f"{number}{suffix}.npz") for number in range(n_processes)]
    return {
        name: np.concatenate([part[name] for part in parts]) if name in BY_ROW else parts[0][name]
        for name in parts[0].files
    }


def run(table: Path, folder: Path, n_processes: int, **settings: Any) -> Found:
    """Run a job to its end."""
    for process in start(table, folder, n_processes, **settings):
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    return collect(folder, n_processes)
