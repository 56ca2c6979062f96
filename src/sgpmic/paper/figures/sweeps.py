"""Accuracy against the number of clusters and of inducing points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sgpmic._validation import count_components
from sgpmic.paper.datasets import DataSet
from sgpmic.paper.figures.base import LINES, Figure
from sgpmic.paper.results import Case, Record
from sgpmic.report.picture import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_SHARE = 0.95

#: Of the number of classes. The paper goes up to 80.
_MULTIPLES = (1, 2, 5, 10, 20, 40, 80)
_CLUSTER_METHODS = ("PCA-FCM", "ISOMAP-FCM", "PPCA-FCM", "FGPLVM-FCM", "SGP-MIC", "defaults")
_CLUSTER_DATA = ("Aust", "Segment")

_INDUCING = (1, 3, 5, 10, 30, 50, 100, 150)  # and N
_INDUCING_DATA = ("Wine", "Sonar", "Yale")


def _cluster_cases(data: dict[str, DataSet]) -> list[Case]:
    return [
        Case(
            name,
            count_components(_SHARE, data[name].Y),
            method,
            multiple * data[name].n_classes,
            data[name].n_inducing,
        )
        for name in _CLUSTER_DATA
        if name in data
        for method in _CLUSTER_METHODS
        for multiple in _MULTIPLES
    ]


def _inducing_cases(data: dict[str, DataSet]) -> list[Case]:
    return [
        Case(name, count_components(_SHARE, data[name].Y), "SGP-MIC", data[name].n_classes, number)
        for name in _INDUCING_DATA
        if name in data
        for number in (*_INDUCING, len(data[name].Y))
    ]


def _draw_clusters(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    import matplotlib.pyplot as plt

    drawing, panels = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained")
    for axes, name in zip(panels, _CLUSTER_DATA, strict=True):
        axes.set_title(name)
        axes.set_xlabel("number of clusters")
        axes.set_ylabel("ACC (purity, %)")
        axes.set_xscale("log")
        for number, method in enumerate(_CLUSTER_METHODS):
            mine = [r for r in records if r.case.dataset == name and r.case.method == method]
            x, mean, spread = _curve(mine, lambda r: r.case.n_clusters, lambda r: r.scores["acc"])
            _plot(axes, x, mean, spread, number, method)
    panels[0].legend(loc="upper left")
    drawing.suptitle("Purity grows with the number of clusters for every method", x=0.01, ha="left")
    return drawing


def _draw_inducing(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    import matplotlib.pyplot as plt

    measures: tuple[tuple[str, Callable[[Record], float]], ...] = (
        ("ACC (%)", lambda r: r.scores["acc"]),
        ("NMI (%)", lambda r: r.scores["nmi"]),
        ("seconds", lambda r: r.seconds),
    )
    drawing, panels = plt.subplots(1, 3, figsize=(10.5, 3.8), layout="constrained")
    for axes, (words, measure) in zip(panels, measures, strict=True):
        axes.set_xscale("log")
        axes.set_xlabel("number of inducing points N′")
        axes.set_ylabel(words)
        for number, name in enumerate(_INDUCING_DATA):
            mine = [r for r in records if r.case.dataset == name]
            if words == "seconds":  # the first run of every shape is compiled
                mine = [r for r in mine if r.seed > 0]
            x, mean, spread = _curve(mine, lambda r: r.case.n_inducing, measure)
            _plot(axes, x, mean, spread, number, name)
    panels[2].set_yscale("log")
    panels[0].legend(loc="best")
    drawing.suptitle(
        "Beyond some tens of inducing points little is gained, and time grows", x=0.01, ha="left"
    )
    return drawing


def _curve(
    records: Sequence[Record],
    place: Callable[[Record], int],
    measure: Callable[[Record], float],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return places, means and standard deviations over the repeats."""
    groups: dict[int, list[float]] = {}
    for record in records:
        if record.error is None:
            groups.setdefault(place(record), []).append(measure(record))
    x = np.array(sorted(groups), dtype=np.int64)
    mean = np.array([np.mean(groups[int(p)]) for p in x])
    spread = np.array([np.std(groups[int(p)]) for p in x])
    return x, mean, spread


def _plot(
    axes: Axes,
    x: NDArray[np.int64],
    mean: NDArray[np.float64],
    spread: NDArray[np.float64],
    number: int,
    label: str,
) -> None:
    axes.errorbar(
        x,
        mean,
        yerr=spread,
        color=COLOURS[number],
        marker=MARKERS[number],
        linestyle=LINES[number],
        markersize=5,
        markeredgecolor="black",
        markeredgewidth=0.4,
        capsize=2,
        linewidth=1.4,
        label=label,
    )


CLUSTERS = Figure("clusters", _CLUSTER_DATA, _draw_clusters, _cluster_cases)
INDUCING = Figure("inducing", _INDUCING_DATA, _draw_inducing, _inducing_cases)
