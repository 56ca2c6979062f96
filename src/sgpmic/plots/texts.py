"""Texts at points, as many as can be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgpmic._types import Floats
from sgpmic.plots.base import ink
from sgpmic.plots.hues import is_missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

# Points that are looked at for a text; and a letter's width and a line's height, in font sizes.
_MOST_TRIED = 2_000
_LETTER, _LINE = 0.62, 1.35

# Of texts at points, in points.
_SIZE = 8.0


def plain(words: str) -> str:
    """Return words of the data for matplotlib, which takes dollar signs for mathematics."""
    return words.replace("$", r"\$")


def write_texts(ax: Axes, places: Floats, labels: Any) -> list[Text]:
    """Write texts at the places of rows, (n_rows, 2), on axes that have their limits already.

    Of a mapping from row numbers, all are written. Of a sequence with one for each row, empty ones
    are left out, and those that would lie over an earlier one.
    """
    if isinstance(labels, Mapping):
        rows = [int(row) for row in labels]
        wrong = next((row for row in rows if not 0 <= row < len(places)), None)
        if wrong is not None:
            raise ValueError(f"labels has row {wrong}, but rows are 0 to {len(places) - 1}.")
        chosen = [(row, str(text)) for row, text in zip(rows, labels.values(), strict=True)]
    else:
        if len(labels) != len(places):
            raise ValueError(
                f"labels has {len(labels)} entries, but there are {len(places)} rows: give one for "
                "each (None for no text), or a dict from row numbers to texts."
            )
        filled = [(row, str(text)) for row, text in enumerate(labels) if not is_missing(text)]
        chosen = _apart(ax, places, filled[:_MOST_TRIED])
    return [_write(ax, places[row], text, _SIZE, (4, 4)) for row, text in chosen]


def write_number(ax: Axes, place: Floats, text: str) -> Text:
    """Write the number of a cluster at its center."""
    written = _write(ax, place, text, 9.0, (0, 0))
    written.set(ha="center", va="center", fontweight="bold")
    return written


def _write(ax: Axes, place: Floats, text: str, size: float, offset: tuple[int, int]) -> Text:
    from matplotlib.patheffects import withStroke

    written = ax.annotate(
        text, (place[0], place[1]), offset, textcoords="offset points", fontsize=size, zorder=5
    )
    written.set_parse_math(False)  # a dollar sign is one
    written.set_color(ink(ax))
    ground = "black" if ink(ax) == "white" else "white"
    written.set_path_effects([withStroke(linewidth=2.5, foreground=ground, alpha=0.8)])
    return written


def _apart(ax: Axes, places: Floats, texts: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the texts that do not lie over those before them."""
    figure: Any = ax.figure
    unit = _SIZE * figure.dpi / 72.0
    taken = np.empty((0, 4))
    kept = []
    for row, text in texts:
        x, y = ax.transData.transform(places[row])
        box = np.array([x, y, x + _LETTER * unit * len(text), y + _LINE * unit])
        apart = (
            (taken[:, 0] > box[2])
            | (taken[:, 2] < box[0])
            | (taken[:, 1] > box[3])
            | (taken[:, 3] < box[1])
        )
        if apart.all():
            taken = np.vstack([taken, box])
            kept.append((row, text))
    return kept
