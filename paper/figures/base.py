"""Interface and common style of the figures."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from numpy.typing import NDArray

from paper.datasets import DataSet
from paper.methods import Problem
from paper.results import Case, Record
from sgpmic._types import Floats
from sgpmic.colors import MARKERS
from sgpmic.colors import OKABE_ITO as COLORS

_LOOK: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.titlesize": 12,
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    # The same figure must give the same file.
    "svg.hashsalt": "sgpmic",
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    name: str  # of its files
    datasets: tuple[str, ...]  # what it needs
    #: Draws the loaded data sets, by name, and the runs asked for by ``cases``.
    draw: Callable[[dict[str, DataSet], Sequence[Record]], Drawing]
    #: Returns the runs that it shows; none where it fits its few models while it is drawn.
    cases: Callable[[dict[str, DataSet]], list[Case]] = lambda data: []


@contextmanager
def house_style() -> Iterator[None]:
    """Draw without a display, in our style, without changing the user's settings."""
    matplotlib.use("Agg")
    with plt.rc_context(_LOOK):
        yield


def as_files(drawing: Drawing) -> dict[str, bytes]:
    """Return the figure as PNG and SVG, by extension, and close it."""
    files = {}
    # The date in the metadata would make every file different.
    for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        buffer = io.BytesIO()
        drawing.savefig(buffer, format=ending, dpi=160, metadata=metadata)
        files[ending] = buffer.getvalue()
    plt.close(drawing)
    return files


def set_title(drawing: Drawing, sentence: str) -> None:
    """Add a left-aligned title."""
    drawing.suptitle(sentence, x=0.01, ha="left")


def problem_of(dataset: DataSet, n_components: int) -> Problem:
    """Return a data set as a problem for a method."""
    return Problem(dataset.Y, dataset.n_classes, n_components, dataset.n_inducing, dataset.images)


def scatter_classes(axes: Axes, points: Floats, classes: NDArray[Any]) -> None:
    """Draw points with a color and a marker for each class."""
    for number in np.unique(classes):
        mine = classes == number
        axes.scatter(
            points[mine, 0],
            points[mine, 1],
            s=16,
            marker=MARKERS[number % len(MARKERS)],
            facecolors=COLORS[number % len(COLORS)],
            edgecolors="black",
            linewidths=0.3,
            alpha=0.85,
            label=f"class {number + 1}",
        )
    axes.set(xticks=[], yticks=[])
    axes.margins(0.06)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color("#b8c0cc")
