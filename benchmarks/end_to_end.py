"""A whole clustering, from table to labels: time and quality compared with two common pipelines.

    python benchmarks/end_to_end.py [--only iris,wine] [--peers .venv-peers/bin/python]
    python benchmarks/end_to_end.py --expected

- *sgpmic*: ``SGPMIC(n_clusters, n_components)``, defaults.
- *pca + gmm*: scikit-learn's GaussianMixture on as many principal components, best of 5 starts.
- *umap + hdbscan*: UMAP for clustering as its manual advises (30 neighbors, no minimal distance),
  then scikit-learn's HDBSCAN with clusters of at least a fiftieth of the rows. It is not told the
  number of clusters, the others are. It runs in the peers' environment (``make bench-peers``);
  without it it is left out.

Every fit is made in a fresh process on one core: ``first`` is the first fit there, compilation
(JAX's, Numba's) included, imports not; ``again`` is a second fit of the same table. Seconds are CPU
time. Scores are against classes that no method has seen: accuracy under the best one-to-one match
(rows that HDBSCAN calls noise count as one more cluster), NMI, ARI. One run with seed 0 is not a
study: see docs/paper.md for one.

With ``--expected``, what ``sgpmic fit --dry-run`` says of eight fits is compared with what the same
commands take without it: CPU time, with programs cached by a first run, and peak memory.
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
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Table = tuple[Any, Any, int, int]  # Y, classes, clusters, dimensions

COLUMNS = ("data", "N", "P", "method", "first", "again", "ACC", "NMI", "ARI", "clusters")
EXPECTED = ("command", "seconds expected", "seconds taken", "GB expected", "GB taken")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def curved(n_rows: int = 50_000, n_clusters: int = 6, n_features: int = 10) -> tuple[Any, Any]:
    """Return clusters on a curved surface: Gaussian ones in the plane, mapped to features."""
    rng = np.random.default_rng(0)
    classes = rng.integers(n_clusters, size=n_rows)
    angle = 2.0 * np.pi * classes / n_clusters
    centers = 3.0 * np.column_stack([np.cos(angle), np.sin(angle)])
    latent = centers + 0.6 * rng.standard_normal((n_rows, 2))
    waves = np.cos(latent @ (0.4 * rng.standard_normal((2, 50))) + rng.uniform(0, 2 * np.pi, 50))
    Y = waves @ rng.standard_normal((50, n_features)) / 5.0
    return Y + 0.1 * rng.standard_normal(Y.shape), classes


def table(name: str, arcs: Path) -> Table:
    from sklearn import datasets
    from sklearn.preprocessing import scale

    if name == "arcs":
        stored = np.load(arcs)
        return stored["Y"], stored["classes"], 5, 2
    if name == "curved":
        return *curved(), 6, 2
    if name == "digits":
        Y, classes = datasets.load_digits(return_X_y=True)
        return Y / 16.0, classes, 10, 5
    load = {
        "iris": datasets.load_iris,
        "wine": datasets.load_wine,
        "wdbc": datasets.load_breast_cancer,
    }[name]
    Y, classes = load(return_X_y=True)
    # Iris is in centimetres throughout; the others' features have units of their own.
    return (Y if name == "iris" else scale(Y)), classes, len(set(classes)), 2


def sgpmic(Y: Any, n_clusters: int, n_components: int) -> Any:
    from sgpmic import SGPMIC

    return SGPMIC(n_clusters, n_components, random_state=0).fit_predict(Y)


def pca_gmm(Y: Any, n_clusters: int, n_components: int) -> Any:
    from sklearn.decomposition import PCA
    from sklearn.mixture import GaussianMixture

    scores = PCA(min(n_components, Y.shape[1])).fit_transform(Y)
    return GaussianMixture(n_clusters, n_init=5, random_state=0).fit_predict(scores / scores.std())


def umap_hdbscan(Y: Any, n_clusters: int, n_components: int) -> Any:
    from sklearn.cluster import HDBSCAN
    from umap import UMAP

    embedding = UMAP(
        n_components=n_components, n_neighbors=30, min_dist=0.0, random_state=0, n_jobs=1
    ).fit_transform(Y)
    return HDBSCAN(min_cluster_size=max(5, len(Y) // 50), copy=True).fit_predict(embedding)


METHODS: dict[str, Callable[[Any, int, int], Any]] = {
    "sgpmic": sgpmic,
    "pca + gmm": pca_gmm,
    "umap + hdbscan": umap_hdbscan,
}
IMPORTS = {
    "sgpmic": ("jax", "sgpmic"),
    "pca + gmm": ("sklearn.mixture", "sklearn.decomposition"),
    "umap + hdbscan": ("umap", "sklearn.cluster"),
}


def work(method: str, data: str, arcs: Path) -> None:
    """Fit twice and print times and labels; in a process of its own."""
    warnings.simplefilter("ignore")
    Y, classes, n_clusters, n_components = table(data, arcs)
    for name in IMPORTS[method]:
        __import__(name)
    times, labels = [], None
    for _ in range(2):
        began = time.process_time()
        labels = METHODS[method](Y, n_clusters, n_components)
        times.append(time.process_time() - began)
    report = {"times": times, "labels": np.asarray(labels).tolist(), "P": Y.shape[1]}
    print(json.dumps(report | {"classes": np.asarray(classes).tolist()}))


def run(method: str, data: str, python: str, arcs: Path, limit: float) -> dict[str, Any] | None:
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    from paper.metrics import hungarian_accuracy

    environment = os.environ | dict.fromkeys(THREADS, "1") | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [python, __file__, "--method", method, "--data", data, "--arcs", str(arcs)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"{data}: {method} took more than {limit:.0f} s, left out", file=sys.stderr)
        return None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["?"])[-1]
        print(f"{data}: {method} left out: {reason}", file=sys.stderr)
        return None
    found = json.loads(done.stdout.splitlines()[-1])
    classes, labels = found["classes"], found["labels"]
    return {
        "data": data,
        "N": len(classes),
        "P": found["P"],
        "method": method,
        "first": round(found["times"][0], 2),
        "again": round(found["times"][1], 2),
        "ACC": round(hungarian_accuracy(classes, np.asarray(labels) + 1), 3),
        "NMI": round(normalized_mutual_info_score(classes, labels), 3),
        "ARI": round(adjusted_rand_score(classes, labels), 3),
        "clusters": len(set(labels) - {-1}),
    }


#: Name, rows, features and clusters of synthetic tables, and options.
COMMANDS: dict[str, tuple[tuple[int, int, int] | None, tuple[str, ...]]] = {
    "wine": (None, ()),
    "digits": (None, ("-k", "10")),
    "10,000 × 20": ((10_000, 5, 20), ()),
    "10,000 × 20, `--starts 3`": ((10_000, 5, 20), ("-k", "5", "--starts", "3")),
    "50,000 × 10, `--no-committee`": ((50_000, 6, 10), ("-k", "6", "--no-committee")),
    "100,000 × 10": ((100_000, 6, 10), ()),
    "20,000 × 40, `--inducing 100`": (
        (20_000, 5, 40),
        ("-k", "5", "--inducing", "100"),
    ),
    "300 × 2000": ((300, 4, 2000), ("-k", "4")),
}


def expected(out: Path, scratch: Path) -> None:
    """Compare estimates with the time and memory that fits take, and write the result file."""
    from sklearn import datasets

    results = []
    for name, (made_up, words) in COMMANDS.items():
        loaded = {"wine": datasets.load_wine, "digits": datasets.load_digits}
        Y = loaded[name]().data if made_up is None else curved(*made_up)[0]
        path = scratch / "table.csv"
        np.savetxt(
            path, Y, delimiter=",", header=",".join(map(str, range(Y.shape[1]))), comments=""
        )
        command = ("fit", str(path), *words, "--out", str(scratch / "run"), "--force")
        said = " ".join(sgpmic_command(scratch, *command, "--dry-run")[0].split())
        found = re.search(r"about (\d+) s of CPU time and ([\d.]+) GB", said)
        assert found, said
        sgpmic_command(scratch, *command)  # caches its programs for the next
        _, seconds, gigabytes = sgpmic_command(scratch, *command)
        row = (name, found[1], round(seconds, 1), found[2], round(gigabytes, 2))
        results.append(dict(zip(EXPECTED, row, strict=True)))
        print(json.dumps(results[-1]), flush=True)
    write_csv(out / "expected.csv", EXPECTED, results)


def sgpmic_command(scratch: Path, *words: str) -> tuple[str, float, float]:
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


def write_csv(path: Path, columns: Sequence[str], rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def markdown(results: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "| " + " | ".join("---" for _ in COLUMNS) + " |"]
    lines += ["| " + " | ".join(str(row[c]) for c in COLUMNS) + " |" for row in results]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="iris,wine,wdbc,digits,arcs,curved")
    parser.add_argument("--peers", default=".venv-peers/bin/python", help="a Python with UMAP")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--expected", action="store_true", help="compare fit --dry-run with fits")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for two fits")
    parser.add_argument("--method", help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    parser.add_argument("--arcs", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.method:
        work(options.method, options.data, options.arcs)
        return
    if options.expected:
        with tempfile.TemporaryDirectory() as folder:
            expected(options.out, Path(folder))
        return
    if hasattr(os, "sched_setaffinity"):  # inherited by all fits
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from paper.datasets import five_arcs

    results: list[dict[str, Any]] = []
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # The peers' environment has no sgpmic to make arcs with.
        arcs = Path(folder) / "arcs.npz"
        Y, classes = five_arcs(random_state=0)
        np.savez(arcs, Y=Y, classes=classes)
        for data in options.only.split(","):
            for method in METHODS:
                own = method != "umap + hdbscan"
                if not own and not Path(options.peers).exists():
                    print(f"{data}: {method} left out: no {options.peers}", file=sys.stderr)
                    continue
                python = sys.executable if own else options.peers
                row = run(method, data, python, arcs, options.limit)
                if row is not None:
                    results.append(row)
                    print(json.dumps(row), flush=True)
    write_csv(options.out / "end_to_end.csv", COLUMNS, results)
    (options.out / "end_to_end.md").write_text(markdown(results))


if __name__ == "__main__":
    main()
