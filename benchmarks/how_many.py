"""How often the true number of clusters is found.

    python benchmarks/how_many.py [--folder DIR] [--processes 2] [--out how_many.csv]
        [--known how_many.csv]

The exact number of clusters, found by ``n_clusters='auto'`` and, for comparison, by the BIC of
mixtures (full covariances, and the best of all kinds), the silhouette of k-means, HDBSCAN and the
Dirichlet mixture, on at most 1000 rows of every table: 96 synthetic shapes, 50 sets of blobs, 40
tables with categories and 40 with missing cells, half of them noise (none from the generator that
the committee learned from), the public data of ``arena.py``, and the tables and shapes of
``--folder`` (the layout of ``arena.py``). The others get imputed cells.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

if __name__ in ("__main__", "__mp_main__"):
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_variable, "1")

import numpy as np

from arena_data import Floats, problems, public_data, read_folder, scaled
from how_many_data import blobs, shape, with_categories, with_missing_cells

MOST_ROWS, MOST_CLUSTERS = 1000, 15
N_SHAPES, N_BLOBS, N_ROUGH = 96, 50, 40
METHODS = ("SGPMIC", "BIC, full", "BIC, any", "silhouette", "HDBSCAN", "Dirichlet mixture")
FIELDS = ("part", "name", "true", "probability", "p", "seconds", *METHODS)

#: What the other methods found, by part and name.
Known = dict[tuple[str, str], dict[str, Any]]
#: A part, a name, scaled rows and the numbers of clusters that are right.
Task = tuple[str, str, Floats, tuple[int, ...]]


def tasks(folder: Path | None, public: Path | None) -> Iterator[Task]:
    """Yield all tables."""
    for part, name, make, numbers in (
        ("synthetic shapes", "shape", shape, range(N_SHAPES)),
        ("blobs", "blobs", blobs, range(2000, 2000 + N_BLOBS)),
    ):
        for number in numbers:
            clusters = make(number)
            Y = scaled(np.concatenate(clusters), each=False)
            yield part, f"{name} {number}", _some(Y), (len(clusters),)
    for part, draw in (("categories", with_categories), ("missing cells", with_missing_cells)):
        for number in range(N_ROUGH):
            Y, k = draw(number)
            kind = "clouds" if number % 2 else "noise"
            yield f"{kind} with {part}", f"{part} {number}", Y, (k,)
    for start, source in (
        ("public ", read_folder(public) if public else public_data()),
        ("", read_folder(folder) if folder else ()),
    ):
        for dataset in source:
            found = problems(dataset)
            right = tuple(problem.k for problem in found)
            yield start + dataset.group, dataset.name, _some(found[0].Y), right


def _some(Y: Floats) -> Floats:
    if len(Y) <= MOST_ROWS:
        return Y
    return Y[np.sort(np.random.RandomState(0).choice(len(Y), MOST_ROWS, replace=False))]


def run_one(task: Task, known: Known) -> dict[str, Any]:
    """Return what every method finds; what others found is reused if it is known."""
    from sgpmic.committee.dimensions import committee_view
    from sgpmic.committee.examination import examine
    from sgpmic.learning.gaps import impute_rows
    from sgpmic.learning.preprocessing import fit_scaler
    from sgpmic.process_group import ProcessGroup

    warnings.simplefilter("ignore")
    part, name, Y, right = task
    began = time.perf_counter()
    group = ProcessGroup(len(Y))
    scaler = fit_scaler(Y, group, "one" if part.endswith("categories") else "auto")
    imputed = impute_rows(Y, group, scaler) if np.isnan(Y).any() else Y
    view = committee_view(Y, imputed, scaler, group)
    found = examine(view, group, tendency=True, clusters=True, dimensions=False)
    tendency, ours = found.tendency, found.clusters
    assert tendency is not None
    assert ours is not None
    seconds = time.perf_counter() - began
    return {
        "part": part,
        "name": name,
        "true": right,
        "probability": round(max(ours.probability), 3),
        "p": tendency.p_value,
        "seconds": round(seconds, 1),
        "SGPMIC": ours.chosen,
        **(known.get((part, name)) or of_others(scaler.transform(imputed))),
    }


def of_others(Y: Floats) -> dict[str, int]:
    """Return the number of clusters that the other methods find."""
    from sklearn.cluster import HDBSCAN, KMeans
    from sklearn.metrics import silhouette_score
    from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

    from sgpmic.committee.geometry import Geometry

    Z = Geometry(Y, 2).components
    most = min(MOST_CLUSTERS, len(Y) - 1)
    bic: dict[tuple[str, int], float] = {}
    for k in range(1, most + 1):
        for kind in ("full", "tied", "diag", "spherical"):
            mixture = GaussianMixture(
                k, covariance_type=kind, n_init=2, reg_covar=1e-4, random_state=0
            )
            try:
                bic[kind, k] = mixture.fit(Z).bic(Z)
            except ValueError:
                continue
    full = {k: value for (kind, k), value in bic.items() if kind == "full"}
    silhouettes = {
        k: silhouette_score(Y, KMeans(k, n_init=5, random_state=0).fit_predict(Y))
        for k in range(2, most + 1)
    }
    dirichlet = BayesianGaussianMixture(n_components=most, reg_covar=1e-4, random_state=0).fit(Z)
    chosen = (
        min(full, key=full.__getitem__),
        min(bic, key=bic.__getitem__)[1],
        max(silhouettes, key=silhouettes.__getitem__),
        max(len(set(HDBSCAN(copy=True).fit_predict(Y)) - {-1}), 1),  # all noise: one cluster
        len(np.unique(dirichlet.predict(Z))),
    )
    return dict(zip(METHODS[1:], chosen, strict=True))


def summarize(rows: list[dict[str, Any]]) -> None:
    """Print how often each method is right, and whether our probabilities are calibrated."""
    parts = list(dict.fromkeys(row["part"] for row in rows))
    print(f"| | {' | '.join(METHODS)} |\n| --- {'| ---: ' * len(METHODS)}|")
    for part in parts:
        mine = [row for row in rows if row["part"] == part]
        shares = [np.mean([row[method] in row["true"] for row in mine]) for method in METHODS]
        print(f"| {part} ({len(mine)}) | {' | '.join(f'{100 * s:.0f} %' for s in shares)} |")
    kept = [(row["probability"], row["SGPMIC"] in row["true"]) for row in rows]
    for low, high in ((0.0, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.01)):
        inside = np.array([pair for pair in kept if low <= pair[0] < high])
        if len(inside):
            said, right = inside.mean(axis=0)
            print(f"{len(inside)} tables, probability {said:.2f}, right {right:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="tables and shapes beside the synthetic blobs")
    parser.add_argument("--public", type=Path, help="the public data as arena.py --export wrote it")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--known", type=Path, help="an earlier --out, for what the others found")
    options = parser.parse_args()
    known: Known = {}
    if options.known:
        with options.known.open(newline="") as file:
            for row in csv.DictReader(file):
                found = {method: int(row[method]) for method in METHODS[1:]}
                known[row["part"], row["name"]] = found
    everything = tasks(options.folder, options.public)
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(partial(run_one, known=known), everything))
    summarize(rows)
    if options.out:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows({**row, "true": " ".join(map(str, row["true"]))} for row in rows)


if __name__ == "__main__":
    main()
