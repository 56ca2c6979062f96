"""Embeddings: how well ours and UMAP's preserve neighborhoods, and how long they take.

    python benchmarks/pictures.py [--rows 100000] [--only waves] [--peers .venv-peers/bin/python]
        [--out benchmarks/results/pictures.csv]

- *waves*: the table of examples/million.py, six clouds on a curved surface in ten features.
- *groups*: thirty round groups of different sizes in twenty features.
- *digits*: scikit-learn's 1797 images of 64 pixels.

*sgpmic* is ``SGPMIC(n_clusters)`` in two dimensions; tables of more than 10 000 rows are learned in
two iterations, as in the example. *umap* is ``UMAP()`` with its defaults for pictures. It is
not told the number of groups; sgpmic is. Each runs once, with seed 0, in a fresh process on one
core, compilation included, imports not. Seconds are CPU time.

Of up to 5000 rows, drawn at random, the fifteen nearest rows in the picture are looked at, among
all rows. ``same group`` is the share that is of the row's own group, ``same neighbors`` the share
that is also among the fifteen nearest in the features. The line *features* is what the table itself
has; ``same group`` of a picture can exceed it.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

Table = tuple[Any, Any, int]  # rows, groups, number of groups

COLUMNS = ("table", "rows", "picture", "same_group", "same_neighbors", "seconds")
N_NEIGHBORS = 15
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def waves(n_rows: int) -> Table:
    """Return the table of examples/million.py: the same draws in the same order."""
    rng = np.random.default_rng(0)
    centers = np.array([[0, 0], [4, 0], [2, 3.5], [-2, 3.5], [-4, 0], [0, -3.5]])
    cloud = rng.integers(6, size=n_rows)
    plane = centers[cloud] + rng.normal(scale=0.6, size=(n_rows, 2))
    bent = np.sin(plane @ rng.normal(scale=0.5, size=(2, 10)) + rng.uniform(0, 6, size=10))
    return bent + rng.normal(scale=0.05, size=bent.shape), cloud, 6


def groups(n_rows: int) -> Table:
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=2.0, size=(30, 20))
    group = rng.choice(30, size=n_rows, p=rng.dirichlet(np.full(30, 3.0)))
    return centers[group] + rng.normal(size=(n_rows, 20)), group, 30


def digits(_: int) -> Table:
    pixels, digit = load_digits(return_X_y=True)
    return pixels, digit, 10


TABLES = {"waves": waves, "groups": groups, "digits": digits}


def draw_sgpmic(rows: Any, n_groups: int) -> Any:
    from sgpmic import SGPMIC

    model = SGPMIC(n_groups, scale="one", random_state=0)
    if len(rows) > 10_000:
        model.set_params(max_iter=2)
    return model.fit(rows).view_


def draw_umap(rows: Any, _: int) -> Any:
    from umap import UMAP

    return UMAP(random_state=0, n_jobs=1).fit_transform(rows)


#: What is imported before the clock starts, and what draws.
METHODS = {"sgpmic": ("sgpmic.estimator", draw_sgpmic), "umap": ("umap", draw_umap)}


def work(method: str, table: str, n_rows: int, out: str) -> None:
    """Draw one picture and write it with its seconds."""
    rows, _, n_groups = TABLES[table](n_rows)
    module, draw = METHODS[method]
    importlib.import_module(module)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        picture = draw(rows, n_groups)
    np.savez(out, picture=picture, seconds=time.process_time() - begin)


def neighbors(places: Any, rows: Any) -> Any:
    """Return the nearest rows of some rows, themselves left out."""
    found = NearestNeighbors(n_neighbors=N_NEIGHBORS + 1).fit(places)
    nearest = found.kneighbors(places[rows], return_distance=False)
    # Rows that lie on each other come in any order: take out the row, or else the last.
    apart = [near[near != row][:N_NEIGHBORS] for near, row in zip(nearest, rows, strict=True)]
    return np.array(apart)


def measure(table: str, n_rows: int, pythons: dict[str, Path]) -> Iterator[tuple[str, ...]]:
    """Yield a line for the features and one for every picture of a table."""
    rows, group, _ = TABLES[table](n_rows)
    some = np.random.default_rng(0).permutation(len(rows))[:5000]
    true = neighbors(rows, some)
    same = np.mean(group[true] == group[some, None])
    yield table, str(len(rows)), "features", f"{same:.3f}", "1.000", ""
    for method, python in pythons.items():
        with tempfile.TemporaryDirectory() as folder:
            out = str(Path(folder) / "picture.npz")
            call = [str(python), __file__, "--worker", method, table, str(n_rows), out]
            subprocess.run(call, env=os.environ | dict.fromkeys(THREADS, "1"), check=True)
            with np.load(out) as stored:
                picture, seconds = stored["picture"], float(stored["seconds"])
        near = neighbors(picture, some)
        same = np.mean(group[near] == group[some, None])
        kept = np.mean([np.isin(a, b).mean() for a, b in zip(near, true, strict=True)])
        yield table, str(len(rows)), method, f"{same:.3f}", f"{kept:.3f}", f"{seconds:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000, help="of the synthetic tables")
    parser.add_argument("--only", default=",".join(TABLES), help="tables, separated by commas")
    parser.add_argument("--peers", type=Path, help="a Python that has umap-learn")
    parser.add_argument("--out", type=Path, help="a CSV file for the figures")
    options = parser.parse_args()
    pythons = {"sgpmic": Path(sys.executable)}
    if options.peers:
        pythons["umap"] = options.peers
    lines: list[tuple[str, ...]] = [COLUMNS]
    for table in options.only.split(","):
        for line in measure(table, options.rows, pythons):
            print(*line, flush=True)
            lines.append(line)
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    if "--worker" in sys.argv:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        main()
