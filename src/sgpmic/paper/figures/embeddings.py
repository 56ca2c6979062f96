"""Two-dimensional pictures of Iris and Wine: six methods, and two kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sgpmic.estimator import SGPMIC
from sgpmic.paper.datasets import DataSet
from sgpmic.paper.figures.base import Figure, class_legend, scatter_classes
from sgpmic.paper.methods import Clustering, Problem, get_method
from sgpmic.paper.methods.sgp_mic import fit_quietly
from sgpmic.paper.metrics import scores
from sgpmic.paper.results import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

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


def problem_of(dataset: DataSet, n_components: int) -> Problem:
    """Return a data set as methods see it."""
    return Problem(dataset.Y, dataset.n_classes, n_components, dataset.n_inducing, dataset.images)


def _draw_methods(name: str, data: dict[str, DataSet]) -> Drawing:
    import matplotlib.pyplot as plt

    dataset = data[name]
    drawing, panels = plt.subplots(2, 3, figsize=(8.4, 5.9), layout="constrained")
    measured = {}
    for axes, method, published in zip(panels.flat, _PANELS, _PAPER[name], strict=True):
        found, accuracy = _best(method, dataset)
        measured[method] = accuracy
        scatter_classes(axes, found.embedding, dataset.classes)
        axes.set_title(f"{_PANELS[method]}: ACC {accuracy:.2f} (paper {published:.2f})")
    best = max(measured, key=lambda method: measured[method])
    drawing.suptitle(
        f"{name} in two dimensions: {_PANELS[best]} recovers the classes best "
        f"({measured[best]:.1f} %)",
        x=0.01,
        ha="left",
    )
    class_legend(drawing, panels.flat[0])
    return drawing


def _best(method_name: str, dataset: DataSet) -> tuple[Clustering, float]:
    """Return the run with the best place in the tuning grid, as the paper chose it."""
    method = get_method(method_name)
    problem = problem_of(dataset, 2)
    runs = [method.run(problem, 0, **setting) for setting in method.settings]
    accuracies = [scores(dataset.classes, run.labels)["acc"] for run in runs]
    best = int(np.argmax(accuracies))
    return runs[best], accuracies[best]


def _draw_iris(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    return _draw_methods("Iris", data)


def _draw_wine(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    return _draw_methods("Wine", data)


def _draw_kernels(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    import matplotlib.pyplot as plt

    drawing, panels = plt.subplots(2, 2, figsize=(6.6, 6.3), layout="constrained")
    gains = []
    for line, (name, published) in zip(panels, _PAPER_KERNELS.items(), strict=True):
        dataset = data[name]
        measured = []
        for axes, kernel, printed in zip(line, ("linear", "rbf"), published, strict=True):
            model = SGPMIC.as_published(dataset.n_classes, 2, kernel=kernel, random_state=0)
            found = fit_quietly(model, problem_of(dataset, 2))
            measured.append(scores(dataset.classes, found.labels)["acc"])
            scatter_classes(axes, found.embedding, dataset.classes)
            words = "RBF" if kernel == "rbf" else "linear"
            axes.set_title(f"{name}, {words}: ACC {measured[-1]:.2f} (paper {printed:.2f})")
        gains.append(f"{measured[1] - measured[0]:+.1f} on {name}".replace("-", "−"))
    drawing.suptitle(
        f"RBF less linear kernel, points of ACC: {', '.join(gains)}", x=0.01, ha="left"
    )
    for axes in panels[:, 1]:
        axes.legend(loc="best")
    return drawing


IRIS = Figure("iris", ("Iris",), _draw_iris)
WINE = Figure("wine", ("Wine",), _draw_wine)
KERNELS = Figure("kernels", ("Iris", "Wine"), _draw_kernels)
