"""The report's picture in a notebook's cell."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from sgpmic.learning.points import view_axes
from sgpmic.report.content import content_from_model
from sgpmic.report.page import render_report


class InteractivePicture:
    """A picture that can be pointed at, zoomed and selected in: one page of HTML.

    Notebooks show it as the value of a cell; elsewhere, :meth:`save` it and open the file.

    Parameters
    ----------
    page : str
    height : int
        Of the cell, in pixels.
    """

    def __init__(self, page: str, height: int) -> None:
        self.page = page
        self.height = height

    def save(self, path: str | Path) -> None:
        """Write the picture as a file that opens in any browser, without a network."""
        Path(path).write_text(self.page, encoding="utf-8")

    def _repr_html_(self) -> str:
        # A frame of its own: the notebook's styles and scripts and ours leave each other alone.
        return (
            f'<iframe srcdoc="{escape(self.page)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{self.height}px;border:0" '
            'title="Clusters and latent space"></iframe>'
        )


def interactive_picture(
    model: Any,
    X: ArrayLike | None,
    *,
    labels: Sequence[Any] | None,
    names: Sequence[str],
    title: str,
    height: int,
) -> InteractivePicture:
    """Return the picture of rows; :meth:`sgpmic.SGPMIC.plot_interactive` says of what."""
    drawn = model._rows_to_draw(X)
    words = None if labels is None else [str(label) for label in labels]
    if words is not None and len(words) != len(drawn.values):
        raise ValueError(f"There are {len(words)} labels for {len(drawn.values)} rows.")
    content = content_from_model(
        model,
        drawn.values,
        title=title,
        embedding=drawn.embedding @ view_axes(model.embedding_),
        memberships=drawn.memberships,
        given_labels=words,
        label_name="label",
        cluster_names=list(names),
    )
    return InteractivePicture(render_report(content, only_picture=True), height)
