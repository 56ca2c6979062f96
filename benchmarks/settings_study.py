"""Which settings cluster best? Every row of the paper's table and arcs, one line a setting.

    python benchmarks/settings_study.py FOLDER-OF-CSV [--seeds 3] [--only NAME;NAME] [--out FILE]

Accuracies are purities in percent, means over the seeds. Scores use the labels, so settings chosen
from this table are chosen in-sample; docs/paper.md says what was.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.mixture import GaussianMixture

from paper.comparison import distinct
from paper.datasets import DataSet, five_arcs, load
from paper.metrics import scores
from paper.published import published_rows
from sgpmic import SGPMIC
from sgpmic.learning.initialization import embed

Settings = dict[str, Any]

# Each differs from the defaults, or from the published settings, by what it names.
SETTINGS: dict[str, tuple[str, Settings]] = {
    "defaults": ("defaults", {}),
    "published": ("published", {}),
    "shared, pca": ("defaults", {"start__embedding": "pca"}),
    "shared, pca, prior 1": (
        "defaults",
        {"start__embedding": "pca", "em__prior_strength": 1.0},
    ),
    "shared, prior 1": ("defaults", {"em__prior_strength": 1.0}),
    "per cluster": ("defaults", {"mapping": "per_cluster"}),
    "per cluster, pca": ("defaults", {"mapping": "per_cluster", "start__embedding": "pca"}),
    "per cluster, pca, prior 1": (
        "defaults",
        {"mapping": "per_cluster", "start__embedding": "pca", "em__prior_strength": 1.0},
    ),
    "shared, 5 starts": ("defaults", {"start__n_init": 5}),
    "shared, 9 starts": ("defaults", {"start__n_init": 9}),
}


def problems(folder: Path) -> list[tuple[str, DataSet, int]]:
    """Return the distinct rows of the table, and arcs drawn three times."""
    found = []
    for row in distinct(published_rows()):
        dataset = load(row.dataset, folder)
        found.append((f"{row.dataset} {row.n_components}", dataset, row.n_components))
    for seed in range(3):
        Y, classes = five_arcs(random_state=seed)
        arcs = DataSet("arcs", Y, classes, 5, "made", Y, False, 50)
        found.append((f"arcs {seed}", arcs, 2))
    return found


def mixture_alone(dataset: DataSet, n_components: int, seed: int) -> np.ndarray[Any, Any]:
    """Return the labels of scikit-learn's mixture on principal components, for comparison."""
    rng = np.random.RandomState(seed)
    scores_, _ = embed(dataset.Y, n_components, "pca", random_state=rng)
    scores_ = scores_ / scores_.std()
    mixture = GaussianMixture(dataset.n_classes, n_init=3, random_state=seed, reg_covar=1e-4)
    return np.asarray(mixture.fit_predict(scores_))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--extra", default="{}", help="JSON: more settings, name to parameters")
    parser.add_argument("--skip", default="", help="data sets to leave out, with commas")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    wanted = [name for name in options.only.split(";") if name] or ["mixture alone", *SETTINGS]
    extra = {name: ("defaults", given) for name, given in json.loads(options.extra).items()}
    known = SETTINGS | extra
    wanted += list(extra)
    table: dict[str, dict[str, float]] = {name: {} for name in wanted}
    for label, dataset, n_components in problems(options.folder):
        if dataset.name in options.skip.split(","):
            continue
        for name in wanted:
            began = time.perf_counter()
            accuracies, iterations = [], []
            for seed in range(options.seeds):
                if name == "mixture alone":
                    labels = mixture_alone(dataset, n_components, seed)
                else:
                    base, changes = known[name]
                    maker = SGPMIC.as_published if base == "published" else SGPMIC
                    more = {"n_inducing": dataset.n_inducing} if base == "published" else {}
                    model = maker(dataset.n_classes, n_components)
                    # The model alone: a committee would determine what is studied here.
                    model.set_params(committee=None, random_state=seed, **(more | changes))
                    model.fit(dataset.Y)
                    labels = model.labels_
                    iterations.append(model.n_iter_)
                accuracies.append(scores(dataset.classes, labels)["acc"])
            table[name][label] = float(np.mean(accuracies))
            line = {"row": label, "setting": name, "acc": accuracies, "iterations": iterations}
            print(json.dumps(line | {"seconds": round(time.perf_counter() - began, 1)}), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    for name, values in table.items():
        arcs = [v for k, v in values.items() if k.startswith("arcs")]
        rows = [v for k, v in values.items() if not k.startswith("arcs")]
        print(f"{np.mean(rows or [np.nan]):6.2f}  arcs {np.mean(arcs or [np.nan]):6.2f}  {name}")


if __name__ == "__main__":
    main()
