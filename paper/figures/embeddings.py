"""Two-dimensional embeddings of Iris and Wine by six methods, and with two kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure as Drawing

from paper.datasets import DataSet
from paper.figures.base import Figure, problem_of, scatter_classes, set_title
from paper.methods import METHODS, Clustering
from paper.methods.gaussian_process import run_published
from paper.metrics import scores
from paper.results import Record
from sgpmic.report.words import signed

#: The six panels: the table's method and the name the paper gives its embedding.
_PANELS = {
    "ISOMAP-FCM": "ISOMAP",
    "PPCA-FCM": "PPCA",
    "AML": "AML",
    "UNCA": "UNCA",
    "FGPLVM-FCM": "GP-LVM",
    "SGP-MIC": "SGP-MIC",
}

_PAPER = {
    "Iris": (76.67, 76.00, 77.33, 88.27, 74.00, 93.33),
    "Wine": (72.47, 61.80, 60.67, 50.45, 69.10, 75.28),
}

#: Of the linear and the RBF kernel.
_PAPER_KERNELS = {"Iris": (82.67, 93.33), "Wine": (74.16, 75.28)}


def _draw_methods(name: str, data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    dataset = data[name]
    drawing, panels = plt.subplots(2, 3, figsize=(8.4, 5.9))
    measured = {}
    for axes, method, published in zip(panels.flat, _PANELS, _PAPER[name], strict=True):
        found, accuracy = _best(method, dataset)
        measured[_PANELS[method]] = accuracy
        scatter_classes(axes, found.embedding, dataset.classes)
        axes.set_title(f"{_PANELS[method]}: ACC {accuracy:.2f} (paper {published:.2f})")
    best, accuracy = max(measured.items(), key=lambda item: item[1])
    set_title(
        drawing,
        f"{name} in two dimensions: {best} recovers the classes best ({accuracy:.1f} %)",
    )
    handles, labels = panels.flat[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return drawing


def _best(method_name: str, dataset: DataSet) -> tuple[Clustering, float]:
    """Return the run at the best point of the tuning grid, chosen as in the paper."""
    method = METHODS[method_name]
    runs = [method.run(problem_of(dataset, 2), 0, **setting) for setting in method.settings]
    accuracies = [scores(dataset.classes, run.labels)["acc"] for run in runs]
    best = int(np.argmax(accuracies))
    return runs[best], accuracies[best]


def _draw_kernels(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    drawing, panels = plt.subplots(2, 2, figsize=(6.6, 6.3))
    gains = []
    for line, (name, published) in zip(panels, _PAPER_KERNELS.items(), strict=True):
        dataset = data[name]
        measured = []
        for axes, kernel, printed in zip(line, ("linear", "rbf"), published, strict=True):
            found = run_published(problem_of(dataset, 2), 0, kernel=kernel)
            measured.append(scores(dataset.classes, found.labels)["acc"])
            scatter_classes(axes, found.embedding, dataset.classes)
            words = "RBF" if kernel == "rbf" else "linear"
            axes.set_title(f"{name}, {words}: ACC {measured[-1]:.2f} (paper {printed:.2f})")
        line[1].legend(loc="best")
        gains.append(f"{signed(measured[1] - measured[0], 1)} on {name}")
    set_title(drawing, f"RBF less linear kernel, points of ACC: {', '.join(gains)}")
    return drawing


IRIS = Figure("iris", ("Iris",), partial(_draw_methods, "Iris"))
WINE = Figure("wine", ("Wine",), partial(_draw_methods, "Wine"))
KERNELS = Figure("kernels", ("Iris", "Wine"), _draw_kernels)
