"""Fit times: first fits, a grid search, larger tables, predictions; compared with targets.

    python benchmarks/fit_time.py [--quick] [--only WORDS] [--out FILE]

Every line is a separate Python process (imports and data generation are not counted), first with an
empty cache of compiled programs and then with a filled one. CPU time is shown next to wall time,
for shared machines. ``--quick`` leaves out what takes longer than a few seconds, and what has no
target.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


def tables() -> tuple[Any, Any]:
    from sklearn.datasets import load_iris, load_wine

    return load_iris().data, load_wine().data


def fit(Y: Any, n_clusters: int = 3, **parameters: Any) -> Any:
    from sgpmic import SGPMIC

    return SGPMIC(n_clusters, random_state=0, **parameters).fit(Y)


def first_fit() -> None:
    fit(tables()[1])


def paper_model() -> None:
    fit(tables()[0], mapping="per_cluster")


def first_answers() -> None:
    fit(tables()[1]).score_samples(tables()[1] + 0.01)


def many_shapes() -> None:
    """k = 2…10, and 150 of the rows, on one table."""
    _, wine = tables()
    for k in range(2, 11):
        fit(wine, k)
    fit(wine[:150])


def grid_search(**parameters: Any) -> None:
    """Three numbers of clusters, three folds, and the refit."""
    from sklearn.model_selection import GridSearchCV

    from sgpmic import SGPMIC

    model = SGPMIC(random_state=0, **parameters)
    GridSearchCV(model, {"n_clusters": [2, 3, 4]}, cv=3).fit(tables()[1])


def mixture_grid_search() -> None:
    """The same with scikit-learn's Gaussian mixture."""
    from sklearn.mixture import GaussianMixture
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(GaussianMixture(random_state=0), {"n_components": [2, 3, 4]}, cv=3)
    search.fit(tables()[1])


def arena_like() -> None:
    """Twelve tables of different shapes."""
    rng = np.random.default_rng(0)
    for n, p, k in zip(range(90, 1100, 85), range(3, 15), range(2, 14), strict=False):
        fit(rng.normal(size=(n, p)) + 4 * rng.integers(k, size=(n, 1)), k)


def ten_thousand(kind: str) -> Any:
    """Return 10,000 rows of 20 features: round clouds, overlapping classes, or noise."""
    from sklearn.datasets import make_blobs, make_classification

    if kind == "clouds":
        return make_blobs(10_000, 20, centers=5, cluster_std=8.0, random_state=0)[0]
    if kind == "classes":
        shape = {"n_informative": 8, "n_redundant": 6, "n_classes": 5, "n_clusters_per_class": 1}
        return make_classification(10_000, 20, **shape, random_state=0)[0]
    return np.random.default_rng(0).normal(size=(10_000, 20))


def fit_ten_thousand(kind: str) -> None:
    fit(ten_thousand(kind), 5)


def ten_starts(kind: str) -> None:
    """Fit scikit-learn's mixture with full covariances."""
    from sklearn.mixture import GaussianMixture

    GaussianMixture(5, n_init=10, random_state=0).fit(ten_thousand(kind))


def predictions(n_rows: int, method: str = "predict") -> Callable[[], Any]:
    """Return a function that predicts new rows of five curved sheets (model: 20,000 × 20)."""
    model = fit(sheets(20_000, 1), 5)
    few, rows = sheets(1000, 2), sheets(n_rows, 3)
    getattr(model, method)(few)  # compiles
    return lambda: getattr(model, method)(rows)


def sheets(n_rows: int, seed: int) -> np.ndarray:
    """Return rows of five curved sheets in twenty dimensions."""
    rng = np.random.default_rng(seed)
    axes = np.random.default_rng(0).normal(size=(5, 3, 20))
    sheet = rng.integers(5, size=n_rows)
    t = rng.uniform(-1.0, 1.0, size=(n_rows, 2))
    bent = np.column_stack([t, t[:, 0] ** 2 - t[:, 1]])
    rows = np.empty((n_rows, 20))
    for number, its_axes in enumerate(axes):
        own = sheet == number
        rows[own] = bent[own] @ its_axes + 2.0 * its_axes.sum(axis=0)
    return rows + 0.3 * rng.normal(size=rows.shape)


def second_fit() -> Callable[[], Any]:
    """Return a fit of a table of the same shape as one that was fitted before."""
    first_fit()
    other = tables()[1] * np.random.default_rng(0).uniform(0.99, 1.01, size=(178, 13))
    return lambda: fit(other)


class Task(NamedTuple):
    """What is timed: ``run``, or with ``prepare`` the function that it returns."""

    run: Callable[[], Any]
    targets: tuple[float | None, float | None] = (None, None)  # from nothing, kept programs
    prepare: bool = False
    quick: bool = True


#: Targets are seconds on two cores.
TASKS = {
    "first fit, Wine": Task(first_fit, (7.0, 1.3)),
    "another fit of that shape": Task(second_fit, (None, 0.4), prepare=True),
    "first fit, Iris, per_cluster": Task(paper_model),
    "first fit and score_samples, Wine": Task(first_answers),
    "k = 2…10 and 150 rows, Wine": Task(many_shapes),
    "GridSearchCV 3 × 3, Wine": Task(grid_search, (14.0, 5.0)),
    "the same, no committee": Task(partial(grid_search, committee=None)),
    "the same, GaussianMixture": Task(mixture_grid_search),
    "twelve tables of twelve shapes": Task(arena_like),
}
for _kind in ("clouds", "classes", "noise"):
    TASKS[f"10 000 × 20, {_kind}"] = Task(partial(fit_ten_thousand, _kind), (None, 4.0))
    TASKS[f"10 000 × 20, {_kind}, GaussianMixture"] = Task(partial(ten_starts, _kind))
TASKS |= {
    "predict 1000 rows": Task(partial(predictions, 1000), (None, 0.1), True, False),
    "predict 1 000 000 rows": Task(partial(predictions, 1_000_000), (None, 40.0), True, False),
    "score_samples 100 000 rows": Task(
        partial(predictions, 100_000, "score_samples"), (None, None), True, False
    ),
}


def run_here(name: str) -> None:
    warnings.simplefilter("ignore")
    from sgpmic import SGPMIC  # noqa: F401  (not counted)

    tables()
    task = TASKS[name]
    call = task.run() if task.prepare else task.run
    wall, processor = time.perf_counter(), time.process_time()
    call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(time.perf_counter() - wall, time.process_time() - processor, peak)


def run_there(name: str, cache: str) -> list[float]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"SGPMIC_CACHE_DIR": cache, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, __file__, "--task", name],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return [float(number) for number in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=TASKS, help="run this one, in this process")
    parser.add_argument("--only", default="", help="tasks with this in their names")
    parser.add_argument("--quick", action="store_true", help="short ones with a target")
    parser.add_argument("--out", type=Path, help="a CSV file for the figures")
    chosen = parser.parse_args()
    if chosen.task:
        run_here(chosen.task)
        return
    lines = []
    print(f"{'':40s} {'programs':12s} {'seconds':>8s} {'processor':>10s} {'GB':>6s} {'target':>7s}")
    for name, task in TASKS.items():
        if chosen.only not in name or (chosen.quick and not (task.quick and any(task.targets))):
            continue
        with tempfile.TemporaryDirectory() as cache:
            for programs, target in zip(("from nothing", "kept"), task.targets, strict=True):
                wall, processor, peak = run_there(name, cache)
                if task.prepare and programs != "kept":
                    continue  # what is compiled is not counted
                outcome = "" if target is None else ("pass" if wall <= target else "miss")
                print(
                    f"{name:40s} {programs:12s} {wall:8.2f} {processor:10.2f} {peak:6.2f}"
                    f" {'' if target is None else f'{target:7.1f} {outcome}'}",
                    flush=True,
                )
                lines.append([name, programs, f"{wall:.2f}", f"{processor:.2f}", target or ""])
    if chosen.out:
        with chosen.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["task", "programs", "seconds", "processor", "target"])
            writer.writerows(lines)


if __name__ == "__main__":
    main()
