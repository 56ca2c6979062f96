"""Accuracy against the number of clusters and of inducing points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from paper.datasets import DataSet
from paper.figures.base import Figure, set_title
from paper.results import Case, Record
from sgpmic.colors import MARKERS
from sgpmic.colors import OKABE_ITO as COLORS

_SHARE = 0.95

#: Of the number of classes. The paper goes up to 80.
_MULTIPLES = (1, 2, 5, 10, 20, 40, 80)
_CLUSTER_METHODS = ("PCA-FCM", "ISOMAP-FCM", "PPCA-FCM", "FGPLVM-FCM", "SGP-MIC", "defaults")
_CLUSTER_DATA = ("Aust", "Segment")

_INDUCING = (1, 3, 5, 10, 30, 50, 100, 150)  # and N
_INDUCING_DATA = ("Wine", "Sonar", "Yale")

#: Line styles in addition to colors and markers: figures must be readable in black and white.
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))


def _cluster_cases(data: dict[str, DataSet]) -> list[Case]:
    return [
        Case(
            dataset.name,
            dataset.n_components(_SHARE),
            method,
            multiple * dataset.n_classes,
            dataset.n_inducing,
        )
        for dataset in (data[name] for name in _CLUSTER_DATA if name in data)
        for method in _CLUSTER_METHODS
        for multiple in _MULTIPLES
    ]


def _inducing_cases(data: dict[str, DataSet]) -> list[Case]:
    return [
        Case(name, data[name].n_components(_SHARE), "SGP-MIC", data[name].n_classes, number)
        for name in _INDUCING_DATA
        if name in data
        for number in (*_INDUCING, len(data[name].Y))
    ]


def _draw_clusters(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    drawing, panels = plt.subplots(1, 2, figsize=(9.0, 4.2))
    for axes, name in zip(panels, _CLUSTER_DATA, strict=True):
        axes.set(title=name, xlabel="number of clusters", ylabel="ACC (purity, %)", xscale="log")
        for number, method in enumerate(_CLUSTER_METHODS):
            pairs = (
                (r.case.n_clusters, r.scores["acc"])
                for r in records
                if (r.case.dataset, r.case.method) == (name, method) and r.error is None
            )
            _plot_means(axes, pairs, number, method)
    panels[0].legend(loc="upper left")
    set_title(drawing, "Purity grows with the number of clusters for every method")
    return drawing


def _draw_inducing(data: dict[str, DataSet], records: Sequence[Record]) -> Drawing:
    measures: dict[str, Callable[[Record], float]] = {
        "ACC (%)": lambda r: r.scores["acc"],
        "NMI (%)": lambda r: r.scores["nmi"],
        "seconds": lambda r: r.seconds,
    }
    drawing, panels = plt.subplots(1, 3, figsize=(10.5, 3.8))
    for axes, (words, measure) in zip(panels, measures.items(), strict=True):
        axes.set(xscale="log", xlabel="number of inducing points N′", ylabel=words)
        first_seed = 1 if words == "seconds" else 0  # the first run of every shape is compiled
        for number, name in enumerate(_INDUCING_DATA):
            pairs = (
                (r.case.n_inducing, measure(r))
                for r in records
                if r.case.dataset == name and r.seed >= first_seed and r.error is None
            )
            _plot_means(axes, pairs, number, name)
    panels[2].set_yscale("log")
    panels[0].legend(loc="best")
    set_title(drawing, "Beyond some tens of inducing points little is gained, and time grows")
    return drawing


def _plot_means(axes: Axes, pairs: Iterable[tuple[int, float]], number: int, label: str) -> None:
    """Draw means and standard deviations of the values at each point as the curve ``number``."""
    groups: dict[int, list[float]] = {}
    for place, value in pairs:
        groups.setdefault(place, []).append(value)
    places = sorted(groups)
    axes.errorbar(
        np.array(places),
        np.array([np.mean(groups[place]) for place in places]),
        yerr=np.array([np.std(groups[place]) for place in places]),
        color=COLORS[number],
        marker=MARKERS[number],
        linestyle=_LINES[number],
        markersize=5,
        markeredgecolor="black",
        markeredgewidth=0.4,
        capsize=2,
        linewidth=1.4,
        label=label,
    )


CLUSTERS = Figure("clusters", _CLUSTER_DATA, _draw_clusters, _cluster_cases)
INDUCING = Figure("inducing", _INDUCING_DATA, _draw_inducing, _inducing_cases)
