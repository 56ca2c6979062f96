"""What a user waits for: first fits, another k, a grid search, from nothing and with kept programs.

Every line is a Python process of its own (imports are not counted), first with an empty folder of
compiled programs and then with what it left there. Run with ``make bench`` or
``python benchmarks/fit_time.py``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

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
    """Return 10 000 rows of 20 features: round clouds, overlapping classes, or noise."""
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


TASKS: dict[str, Callable[[], None]] = {
    "first fit, Wine": first_fit,
    "first fit, Iris, per_cluster": paper_model,
    "first fit and score_samples, Wine": first_answers,
    "k = 2…10 and 150 rows, Wine": many_shapes,
    "GridSearchCV 3 × 3, Wine": grid_search,
    "the same, no committee": partial(grid_search, committee=None),
    "GridSearchCV 3 × 3, GaussianMixture": mixture_grid_search,
    "twelve tables of twelve shapes": arena_like,
}
for _kind in ("clouds", "classes", "noise"):
    TASKS[f"10 000 × 20, {_kind}"] = partial(fit_ten_thousand, _kind)
    TASKS[f"10 000 × 20, {_kind}, GaussianMixture"] = partial(ten_starts, _kind)


def run_here(name: str) -> None:
    warnings.simplefilter("ignore")
    from sgpmic import SGPMIC  # noqa: F401  (not counted)

    tables()
    began = time.perf_counter()
    TASKS[name]()
    print(time.perf_counter() - began)


def run_there(name: str, cache: str) -> float:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"SGPMIC_CACHE_DIR": cache, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, __file__, "--task", name],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=TASKS, help="run this one, in this process")
    parser.add_argument("--only", default="", help="tasks with this in their names")
    chosen = parser.parse_args()
    if chosen.task:
        run_here(chosen.task)
        return
    print(f"{'':36s} from nothing   kept programs")
    for name in TASKS:
        if chosen.only in name:
            with tempfile.TemporaryDirectory() as cache:
                seconds = run_there(name, cache), run_there(name, cache)
            print(f"{name:36s} {seconds[0]:8.2f} s   {seconds[1]:8.2f} s", flush=True)


if __name__ == "__main__":
    main()
