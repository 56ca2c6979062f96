"""What all plots share: axes, their ground, and legends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend


#: A legend of more entries stands beside the axes.
MOST_INSIDE = 12

#: One of still more says nothing that could be found in it.
MOST_ENTRIES = 60

# Lines of a legend beside the axes, in one column; and the area of its marks, in points².
_LINES, _AREA = 20, 36.0


class Display:
    """What every display has after ``plot``, besides its own attributes.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    ax_: Axes
    figure_: Figure

    def _draw_on(self, ax: Axes | None, width: float, height: float) -> Axes:
        """Take the axes given, or new ones of this size in inches."""
        if ax is None:
            ax = new_axes(width, height)
        self.ax_ = ax
        figure: Any = ax.figure
        self.figure_ = figure
        return ax


def new_axes(width: float, height: float) -> Axes:
    """Return the axes of a new figure, or say what is missing."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("Plots need matplotlib: pip install 'sgpmic[plot]'.") from None
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def is_dark(ax: Axes) -> bool:
    """Return whether axes have dark ground, as in matplotlib's style ``dark_background``."""
    from matplotlib.colors import to_rgba

    red, green, blue, alpha = to_rgba(ax.get_facecolor())
    if alpha == 0.0:  # what is behind it shows
        red, green, blue, _ = to_rgba(ax.figure.get_facecolor())
    return 0.299 * red + 0.587 * green + 0.114 * blue < 0.5


def ink(ax: Axes) -> str:
    """Return the color of words on these axes."""
    return "white" if is_dark(ax) else "black"


def finish(ax: Axes, x_name: str, y_name: str) -> None:
    """Name the axes and take away what says nothing."""
    ax.set_xlabel(x_name)
    ax.set_ylabel(y_name)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.2)


def legend_columns(n_entries: int) -> int:
    """Return how many columns a legend beside the axes has."""
    return math.ceil(n_entries / _LINES)


def legend_width(n_entries: int) -> float:
    """Return about how many inches a legend takes beside the axes."""
    if not MOST_INSIDE < n_entries <= MOST_ENTRIES:
        return 0.0
    return 1.75 * legend_columns(n_entries)


def add_legend(ax: Axes, *, beside: bool, handles: list[Any] | None = None) -> Legend | None:
    """Explain the marks: in the emptiest corner, or in columns beside the axes."""
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    if not handles or len(handles) > MOST_ENTRIES:
        return None
    if beside:
        legend = ax.legend(
            handles=handles,
            frameon=False,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            borderaxespad=0.0,
            ncols=legend_columns(len(handles)),
            fontsize=8 if len(handles) > MOST_INSIDE else None,
            columnspacing=1.0,
            handletextpad=0.3,
        )
    else:
        legend = ax.legend(handles=handles, frameon=False, loc="best")
    marks: list[Any] = legend.legend_handles
    for mark in marks:
        if hasattr(mark, "set_sizes"):  # of points, which may be tiny or pale
            mark.set_sizes([_AREA])
            mark.set_facecolor(mark.get_facecolor()[:1, :3])
    return legend
