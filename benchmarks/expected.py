"""Compare what ``sgpmic fit --dry-run`` expects with what eight fits take.

    python benchmarks/expected.py [--out benchmarks/results/expected.csv]

CPU time, with programs cached by a first run, and peak memory of the whole command.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_wine

Rows = np.ndarray[Any, Any]

COLUMNS = ("command", "seconds expected", "seconds taken", "GB expected", "GB taken")


def curved(n_rows: int, n_clusters: int, n_features: int) -> Rows:
    """Return clusters on a curved surface: Gaussian ones in the plane, mapped to features."""
    rng = np.random.default_rng(0)
    angle = 2.0 * np.pi * rng.integers(n_clusters, size=n_rows) / n_clusters
    centers = 3.0 * np.column_stack([np.cos(angle), np.sin(angle)])
    latent = centers + 0.6 * rng.standard_normal((n_rows, 2))
    waves = np.cos(latent @ (0.4 * rng.standard_normal((2, 50))) + rng.uniform(0, 2 * np.pi, 50))
    Y = waves @ rng.standard_normal((50, n_features)) / 5.0
    return Y + 0.1 * rng.standard_normal(Y.shape)


#: Table and options of each command.
COMMANDS: dict[str, tuple[Callable[[], Rows], str]] = {
    "wine": (lambda: load_wine().data, ""),
    "digits": (lambda: load_digits().data, "-k 10"),
    "10,000 × 20": (partial(curved, 10_000, 5, 20), ""),
    "10,000 × 20, `--starts 3`": (partial(curved, 10_000, 5, 20), "-k 5 --starts 3"),
    "50,000 × 10, `--no-committee`": (partial(curved, 50_000, 6, 10), "-k 6 --no-committee"),
    "100,000 × 10": (partial(curved, 100_000, 6, 10), ""),
    "20,000 × 40, `--inducing 100`": (partial(curved, 20_000, 5, 40), "-k 5 --inducing 100"),
    "300 × 2000": (partial(curved, 300, 4, 2000), "-k 4"),
}


def compare(name: str, scratch: Path) -> dict[str, str]:
    make, words = COMMANDS[name]
    path = scratch / "table.csv"
    Y = make()
    np.savetxt(path, Y, delimiter=",", header=",".join(map(str, range(Y.shape[1]))), comments="")
    command = ("fit", str(path), *words.split(), "--out", str(scratch / "run"), "--force")
    said = " ".join(sgpmic(scratch, *command, "--dry-run")[0].split())
    expected = re.search(r"about (\d+) s of CPU time and ([\d.]+) GB", said)
    assert expected, said
    sgpmic(scratch, *command)  # caches its programs for the next
    _, seconds, gigabytes = sgpmic(scratch, *command)
    row = (name, expected[1], f"{seconds:.1f}", expected[2], f"{gigabytes:.2f}")
    return dict(zip(COLUMNS, row, strict=True))


def sgpmic(scratch: Path, *words: str) -> tuple[str, float, float]:
    """Run the command line; return its output, its CPU time, and gigabytes of memory."""
    start = "from sgpmic.cli.startup import main; main()"
    said = scratch / "said"
    environment = os.environ | {"SGPMIC_CACHE_DIR": str(scratch / "cache")}
    with said.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", start, *words], stdout=file, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, said.read_text()
    return said.read_text(), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/expected.csv"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name in COMMANDS:
            writer.writerow(found := compare(name, Path(folder)))
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
