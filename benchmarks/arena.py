"""Quality of the clusters: SGPMIC compared with other methods on many labeled data sets.

    make bench-arena                                       # everything, in hours
    python benchmarks/arena.py --methods "k-means; Ward"    # some of it; a run resumes
    python benchmarks/arena.py --summary --plot docs/images/ranks.svg
    python benchmarks/arena.py --export DIR                # the public data as NPZ files
    python benchmarks/arena.py --folder DIR --out x.csv    # data of your own (arena_data.py)

Every method gets scaled rows, the number of classes and a seed; those that find the number
themselves (HDBSCAN, PLSCAN, EVoC) do. One line of the CSV is one fit; existing fits are not
repeated. Methods whose packages are not installed are listed and skipped.

- ARI and NMI are scikit-learn's. ACC is accuracy under the best one-to-one match of clusters to
  classes. ECE is the expected calibration error of the largest membership, in ten bins, for methods
  that have memberships; a row is right if it is under that match.
- Rows that HDBSCAN calls noise count as one more cluster. Rows that a reference calls noise are not
  scored. Of several references with the same number of clusters the best match counts.
- A fit that fails has ARI, NMI and ACC 0, and its error is in the CSV.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena_data import Floats, Ints, Problem, problems, public_data, read_folder, write_folder
from arena_summary import draw_ranks, summarize

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # --jobs says how many cores; for the workers as well

COLUMNS = ("group", "set", "k", "method", "seed", "ari", "nmi", "acc", "ece", "seconds", "error")
#: Set, number of clusters, method and seed: what a line of the CSV is about.
Key = tuple[str, str, int, str, int]
Line = dict[str, Any]
Bools = NDArray[np.bool_]


# ----------------------------------------------------------------------------------- the methods


class Found(NamedTuple):
    """Labels, memberships if there are any, and seconds that a cache has saved."""

    labels: Any
    memberships: Any = None
    seconds_saved: float = 0.0


def sgpmic(Y: Floats, k: int, seed: int) -> Found:
    from sgpmic import SGPMIC

    model = SGPMIC(n_clusters=k, random_state=seed).fit(Y)
    return Found(model.labels_, model.memberships_)


def sgpmic_alone(Y: Floats, k: int, seed: int) -> Found:
    from sgpmic import SGPMIC

    model = SGPMIC(n_clusters=k, committee=None, random_state=seed).fit(Y)
    return Found(model.labels_, model.memberships_)


def k_means(Y: Floats, k: int, seed: int) -> Found:
    from sklearn.cluster import KMeans

    return Found(KMeans(k, n_init=10, random_state=seed).fit_predict(Y))


def principal_components(Y: Floats) -> Floats:
    """Return the components that hold 95 % of the variance."""
    from sklearn.decomposition import PCA

    return PCA(0.95, svd_solver="full").fit_transform(Y)


def _mixture(mixture: Any, Z: Floats, seconds_saved: float = 0.0) -> Found:
    memberships = mixture.fit(Z).predict_proba(Z)
    return Found(memberships.argmax(axis=1), memberships, seconds_saved)


def gaussian_mixture(Y: Floats, k: int, seed: int) -> Found:
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(k, n_init=10, reg_covar=1e-4, random_state=seed)
    return _mixture(mixture, principal_components(Y))


def dirichlet_mixture(Y: Floats, k: int, seed: int) -> Found:
    from sklearn.mixture import BayesianGaussianMixture

    mixture = BayesianGaussianMixture(
        n_components=k, n_init=3, max_iter=300, reg_covar=1e-4, random_state=seed
    )
    return _mixture(mixture, principal_components(Y))


def ward(Y: Floats, k: int, seed: int) -> Found:
    from sklearn.cluster import AgglomerativeClustering

    return Found(AgglomerativeClustering(k).fit_predict(Y))


def spectral(Y: Floats, k: int, seed: int) -> Found:
    from sklearn.cluster import SpectralClustering

    graph = {"affinity": "nearest_neighbors", "n_neighbors": 10}
    return Found(SpectralClustering(k, random_state=seed, **graph).fit_predict(Y))


def genie(Y: Floats, k: int, seed: int) -> Found:
    from genieclust import Genie

    return Found(Genie(n_clusters=k).fit_predict(Y))


def lumbermark(Y: Floats, k: int, seed: int) -> Found:
    from lumbermark import Lumbermark

    return Found(Lumbermark(n_clusters=k).fit_predict(Y))


def plscan(Y: Floats, k: int, seed: int) -> Found:
    from fast_plscan import PLSCAN

    return Found(PLSCAN(num_threads=1).fit_predict(Y))


def evoc(Y: Floats, k: int, seed: int) -> Found:
    from evoc import EVoC

    n_components = Y.shape[1] if Y.shape[1] < 4 else None  # it must be told of few features
    clusterer = EVoC(random_state=seed, node_embedding_dim=n_components)
    return Found(clusterer.fit_predict(Y.astype(np.float32)))


def hdbscan(Y: Floats, k: int, seed: int) -> Found:
    from sklearn.cluster import HDBSCAN

    return Found(HDBSCAN(copy=True).fit_predict(Y))


@lru_cache(maxsize=1)
def _umap(rows: bytes, n_features: int, seed: int) -> tuple[Floats, float]:
    """Return UMAP's embedding and its seconds; cached, as two methods use it."""
    from umap import UMAP

    Y = np.frombuffer(rows).reshape(-1, n_features)
    began = time.perf_counter()
    n_neighbors = min(30, len(Y) - 1)
    reducer = UMAP(n_neighbors=n_neighbors, min_dist=0.0, random_state=seed, n_jobs=1)
    return reducer.fit_transform(Y), time.perf_counter() - began


def umap_embedding(Y: Floats, seed: int) -> tuple[Floats, float]:
    """Return UMAP's embedding, for clustering as its manual advises, and seconds saved."""
    hits = _umap.cache_info().hits
    embedding, seconds = _umap(np.ascontiguousarray(Y).tobytes(), Y.shape[1], seed)
    return embedding, seconds if _umap.cache_info().hits > hits else 0.0


def umap_hdbscan(Y: Floats, k: int, seed: int) -> Found:
    from sklearn.cluster import HDBSCAN

    Z, saved = umap_embedding(Y, seed)
    # With the default of 5 rows, there would be a hundred clusters.
    clusterer = HDBSCAN(min_cluster_size=max(5, len(Y) // 50), copy=True)
    return Found(clusterer.fit_predict(Z), None, saved)


def umap_mixture(Y: Floats, k: int, seed: int) -> Found:
    from sklearn.mixture import GaussianMixture

    Z, saved = umap_embedding(Y, seed)
    mixture = GaussianMixture(k, n_init=10, reg_covar=1e-4, random_state=seed)
    return _mixture(mixture, Z.astype(np.float64), saved)


def deepc(Y: Floats, k: int, seed: int) -> Found:
    from paper.methods import Problem as PaperProblem
    from paper.methods.deepc import run

    # As many dimensions as the mixture sees, at most the ten of its authors.
    n_components = min(10, principal_components(Y).shape[1])
    return Found(run(PaperProblem(Y, k, n_components), seed).labels)


class Method(NamedTuple):
    """A clustering method, the packages it needs, and whether it depends on a seed."""

    run: Callable[[Floats, int, int], Found]
    packages: tuple[str, ...] = ()
    seeded: bool = True


METHODS = {
    "SGPMIC": Method(sgpmic, ("sgpmic", "jax")),
    "SGPMIC, no committee": Method(sgpmic_alone, ("sgpmic", "jax")),
    "k-means": Method(k_means),
    "Gaussian mixture": Method(gaussian_mixture),
    "Dirichlet mixture": Method(dirichlet_mixture),
    "Ward": Method(ward, seeded=False),
    "spectral": Method(spectral),
    "Genie": Method(genie, ("genieclust",), seeded=False),
    "Lumbermark": Method(lumbermark, ("lumbermark",), seeded=False),
    "HDBSCAN": Method(hdbscan, seeded=False),
    "PLSCAN": Method(plscan, ("fast_plscan",), seeded=False),
    "EVoC": Method(evoc, ("evoc",)),
    "UMAP + HDBSCAN": Method(umap_hdbscan, ("umap",)),
    "UMAP + mixture": Method(umap_mixture, ("umap",)),
    "DEEPC": Method(deepc, ("paper", "equinox", "optax")),
}


def available(wanted: list[str]) -> list[str]:
    """Return the methods that can run here, and say which cannot."""
    unknown = sorted(set(wanted) - set(METHODS))
    if unknown:
        raise SystemExit(
            f"There is no method {', '.join(unknown)}. There are: {'; '.join(METHODS)}"
        )
    found = []
    for name in wanted:
        missing = [p for p in METHODS[name].packages if importlib.util.find_spec(p) is None]
        if missing:
            print(f"{name} is left out: {', '.join(missing)} not installed")
        else:
            found.append(name)
    return found


# ------------------------------------------------------------------------------------ the scores


def is_right(truth: Ints, labels: Ints) -> Bools:
    """Return which rows agree with the classes under the best one-to-one match."""
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((labels.max() + 1, truth.max() + 1))
    np.add.at(table, (labels, truth), 1)
    class_of = np.full(len(table), -1)  # clusters without a class of their own are wrong
    cluster, matched = linear_sum_assignment(table, maximize=True)
    class_of[cluster] = matched
    right: Bools = class_of[labels] == truth
    return right


def calibration_error(right: Bools, certainty: Floats) -> float:
    """Return Σ_b n_b/n |accuracy − mean certainty| over ten bins of the certainty."""
    edges = np.linspace(0.0, 1.0, 11)[1:-1]
    bins = np.searchsorted(edges, certainty, side="left")  # (b/10, (b + 1)/10]
    gaps = np.bincount(bins, weights=right - certainty, minlength=10)
    return float(np.abs(gaps).sum() / len(certainty))


def scores(found: Found, references: tuple[Ints, ...]) -> dict[str, float]:
    """Return ARI, NMI, ACC and ECE against the nearest reference."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    labels = np.unique(found.labels, return_inverse=True)[1]
    best: dict[str, float] = {}
    for reference in references:
        scored = reference > 0
        truth = np.unique(reference[scored], return_inverse=True)[1]
        mine = labels[scored]
        right = is_right(truth, mine)
        ece = float("nan")
        if found.memberships is not None:
            ece = calibration_error(right, np.max(found.memberships, axis=1)[scored])
        ari = float(adjusted_rand_score(truth, mine))
        if not best or ari > best["ari"]:
            nmi = float(normalized_mutual_info_score(truth, mine))
            best = {"ari": ari, "nmi": nmi, "acc": float(right.mean()), "ece": ece}
    return best


def fit_and_score(name: str, problem: Problem, seed: int) -> Line:
    """Return the line of one fit."""
    began, saved, error = time.perf_counter(), 0.0, ""
    values = {"ari": 0.0, "nmi": 0.0, "acc": 0.0, "ece": float("nan")}
    with warnings.catch_warnings(action="ignore"):
        try:
            found = METHODS[name].run(problem.Y, problem.k, seed)
            seconds, saved = time.perf_counter() - began, found.seconds_saved
            values = scores(found, problem.references)
        except Exception as failure:  # a failure is a result here
            seconds, error = time.perf_counter() - began, repr(failure)[:150]
    line: Line = {"group": problem.group, "set": problem.name, "k": problem.k}
    line |= {"method": name, "seed": seed}
    line |= {column: "" if np.isnan(v) else f"{v:.4f}" for column, v in values.items()}
    return line | {"seconds": f"{seconds + saved:.3f}", "error": error}


# --------------------------------------------------------------------------------------- the run


class Task(NamedTuple):
    """All fits of one problem with one seed, run by one process."""

    problem: Problem
    seed: int
    methods: list[str]


def work(task: Task) -> list[Line]:
    """Return the lines of a task."""
    return [fit_and_score(name, task.problem, task.seed) for name in task.methods]


def key_of(line: Line) -> Key:
    return line["group"], line["set"], int(line["k"]), line["method"], int(line["seed"])


def read_lines(path: Path) -> list[Line]:
    """Return the lines of a CSV file, none if there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tasks(folder: Path | None, methods: list[str], n_seeds: int, done: set[Key]) -> Iterator[Task]:
    """Yield the missing fits: first all problems with one seed, then with the next."""
    datasets = public_data() if folder is None else read_folder(folder)
    todo = [problem for dataset in datasets for problem in problems(dataset)]
    for seed in range(n_seeds):
        for problem in todo:
            missing = [
                name
                for name in methods
                if (seed == 0 or METHODS[name].seeded)
                and (problem.group, problem.name, problem.k, name, seed) not in done
            ]
            if missing:
                yield Task(problem, seed, missing)


def run(todo: Iterator[Task], out: Path, jobs: int) -> None:
    """Run the tasks and append their lines to a CSV file as they finish."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        out.open("a", encoding="utf-8", newline="") as file,
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
    ):
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        for lines in pool.map(work, todo):
            writer.writerows(lines)
            file.flush()
            for line in lines:
                print(*(line[column] for column in COLUMNS), sep="  ", flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by semicolons")
    parser.add_argument("--folder", type=Path, help="NPZ files in place of the public data")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/arena.csv"))
    parser.add_argument("--export", type=Path, metavar="DIR", help="write the public data there")
    parser.add_argument("--summary", action="store_true", help="tables of what --out has; no fits")
    parser.add_argument("--markdown", action="store_true", help="of the summary")
    parser.add_argument("--extremes", type=int, default=6, help="best and worst problems to name")
    parser.add_argument("--plot", type=Path, help="draw mean ranks and the critical difference")
    return parser.parse_args()


def main() -> None:
    chosen = options()
    if chosen.export:
        print(write_folder(chosen.export, public_data()), "data sets written to", chosen.export)
    elif chosen.summary or chosen.plot:
        lines = read_lines(chosen.out)
        if not lines:
            raise SystemExit(f"{chosen.out} has no results yet.")
        fixed = {name for name, method in METHODS.items() if not method.seeded}
        if chosen.summary:
            print(summarize(lines, list(METHODS), fixed, chosen.markdown, chosen.extremes))
        if chosen.plot:
            draw_ranks(lines, list(METHODS), chosen.plot)
    else:
        methods = available([name.strip() for name in chosen.methods.split(";")])
        done = {key_of(line) for line in read_lines(chosen.out)}
        run(tasks(chosen.folder, methods, chosen.seeds, done), chosen.out, chosen.jobs)


if __name__ == "__main__":
    main()
