"""The report, and its picture in a notebook's cell, of a model in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from sgpmic.report.content import content_of_rows
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
    content = content_of_rows(model, X, labels=labels, title=title, cluster_names=list(names))
    return InteractivePicture(render_report(content, only_picture=True), height)


def write_report(
    model: Any, path: Any, X: Any, *, labels: Sequence[Any] | None, title: str
) -> None:
    """Write the report on rows; :meth:`sgpmic.SGPMIC.report` says of what."""
    columns = [] if model.encoder_ is None else [asdict(c) for c in model.encoder_.columns_]
    content = content_of_rows(model, X, labels=labels, title=title, columns=columns)
    Path(path).write_text(render_report(content), encoding="utf-8")
