"""Shared by all plots: axes, background, legends, and text annotations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sgpmic._types import Floats
from sgpmic._words import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text

#: A legend with more entries is placed beside the axes; with still more, it is useless and omitted.
MOST_INSIDE, MOST_ENTRIES = 6, 60

# Entries per column of a legend beside the axes; and the area of its markers, in points².
_LINES, _AREA = 20, 36.0


class Display:
    """Base class of displays, whose attributes are set by ``plot``."""

    ax_: Axes
    figure_: Figure

    def _draw_on(self, ax: Axes | None, width: float, height: float) -> Axes:
        """Use the given axes, or create a figure of this size in inches."""
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise ImportError("Plots need matplotlib: pip install 'sgpmic[plot]'.") from None
            ax = plt.subplots(figsize=(width, height), layout="constrained")[1]
        self.ax_, self.figure_ = ax, cast("Figure", ax.figure)
        return ax


def ink(ax: Axes) -> Any:
    """Return the text color of these axes."""
    return ax.xaxis.label.get_color()


def is_dark(ax: Axes) -> bool:
    """Return whether the axes are for a dark background, as in the style ``dark_background``."""
    from matplotlib.colors import to_rgb

    return sum(to_rgb(ink(ax))) > 1.5


def finish(ax: Axes, x_name: str, y_name: str) -> None:
    """Label the axes and remove clutter."""
    ax.set(xlabel=x_name, ylabel=y_name)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.2)


def legend_width(n_entries: int) -> float:
    """Return the approximate width in inches of a legend beside the axes."""
    beside = MOST_INSIDE < n_entries <= MOST_ENTRIES
    return 1.75 * math.ceil(n_entries / _LINES) if beside else 0.0


def add_legend(ax: Axes, *, beside: bool) -> Legend | None:
    """Add a legend: in the emptiest corner, or in columns beside the axes."""
    handles = ax.get_legend_handles_labels()[0]
    if not handles or len(handles) > MOST_ENTRIES:
        return None
    place: dict[str, Any] = {"loc": "best"}
    if beside:
        place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
        place |= {"columnspacing": 1.0, "handletextpad": 0.3}
        place["ncols"] = math.ceil(len(handles) / _LINES)
        place["fontsize"] = 8 if len(handles) > MOST_INSIDE else None
    legend = ax.legend(handles=handles, frameon=False, **place)
    marks: list[Any] = legend.legend_handles
    for mark in marks:
        if hasattr(mark, "set_sizes"):  # scatter points, which may be tiny or transparent
            mark.set_sizes([_AREA])
            mark.set_facecolor(mark.get_facecolor()[:1, :3])
    return legend


def plain(words: str) -> str:
    """Escape dollar signs, which matplotlib would parse as math."""
    return words.replace("$", r"\$")


def write_texts(ax: Axes, places: Floats, labels: Any) -> list[Text]:
    """Annotate points, (n_rows, 2), except rows without any value."""
    n_rows = len(places)
    if not isinstance(labels, Mapping):
        if len(labels) != n_rows:
            raise ValueError(f"{plural(len(labels), 'label')} for {plural(n_rows, 'row')}.")
        labels = {row: text for row, text in enumerate(labels) if text is not None}
    for row in labels:
        if not 0 <= row < n_rows:
            raise ValueError(f"labels has row {row}, but rows are 0 to {n_rows - 1}.")
    drawn = {row: text for row, text in labels.items() if np.isfinite(places[row, 0])}
    return [_write(ax, places[row], str(text), 4, fontsize=8) for row, text in drawn.items()]


def write_number(ax: Axes, place: Any, text: str) -> Text:
    """Write the number of a cluster at its center."""
    return _write(ax, place, text, 0, fontsize=9, ha="center", va="center", fontweight="bold")


def _write(ax: Axes, place: Any, text: str, offset: int, **style: Any) -> Text:
    from matplotlib.patheffects import withStroke

    style |= {"textcoords": "offset points", "zorder": 5, "color": ink(ax)}
    ground = "black" if is_dark(ax) else "white"
    style["path_effects"] = [withStroke(linewidth=2.5, foreground=ground, alpha=0.8)]
    # Dollar signs are literal.
    return ax.annotate(text, (place[0], place[1]), (offset, offset), parse_math=False, **style)
