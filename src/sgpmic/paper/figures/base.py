"""What a figure needs and gives, and how all of them look."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sgpmic.paper.datasets import DataSet
from sgpmic.paper.results import Case, Record
from sgpmic.report.picture import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

#: Line styles beside colours and markers: a figure must survive a black-and-white printer.
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))

_LOOK: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.titlesize": 12,
    "legend.frameon": False,
    "legend.fontsize": 8,
    # The same figure must give the same file.
    "svg.hashsalt": "sgpmic",
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    Attributes
    ----------
    name : str
        Of its files.
    datasets : tuple of str
        What it needs.
    draw : callable
        ``draw(data, records)`` returns a matplotlib figure; ``data`` are the loaded data sets by
        name, ``records`` the runs asked for by ``cases``.
    cases : callable
        ``cases(data)`` returns the runs that must be made first; none for a figure that fits its
        few models while it is drawn.
    """

    name: str
    datasets: tuple[str, ...]
    draw: Callable[[dict[str, DataSet], Sequence[Record]], Drawing]
    cases: Callable[[dict[str, DataSet]], list[Case]] = lambda data: []


@contextmanager
def house_style() -> Iterator[None]:
    """Draw without a screen, in our style, and leave the user's settings alone."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")
    with plt.rc_context(_LOOK):
        yield


def as_files(drawing: Drawing) -> dict[str, bytes]:
    """Return the figure as PNG and SVG, by ending, and close it."""
    import matplotlib.pyplot as plt

    files = {}
    # The date in the metadata would make every file different.
    for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        buffer = io.BytesIO()
        drawing.savefig(buffer, format=ending, dpi=160, metadata=metadata)
        files[ending] = buffer.getvalue()
    plt.close(drawing)
    return files


def scatter_classes(axes: Axes, points: NDArray[np.float64], classes: NDArray[Any]) -> None:
    """Draw points with a colour and a marker for each class."""
    for number in np.unique(classes):
        mine = classes == number
        axes.scatter(
            points[mine, 0],
            points[mine, 1],
            s=16,
            marker=MARKERS[number % len(MARKERS)],
            facecolors=COLOURS[number % len(COLOURS)],
            edgecolors="black",
            linewidths=0.3,
            alpha=0.85,
            label=f"class {number + 1}",
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.06)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(True)
        axes.spines[side].set_color("#b8c0cc")


def class_legend(drawing: Drawing, axes: Axes) -> None:
    """Put one legend for all panels under the figure."""
    handles, labels = axes.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=len(labels))
