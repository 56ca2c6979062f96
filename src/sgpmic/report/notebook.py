"""The report's picture in a notebook's cell."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sgpmic._types import Floats
from sgpmic.learning.points import view_axes
from sgpmic.report.content import RunContent, content_from_model
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
    check_is_fitted(model)
    values, embedding, memberships = _rows(model, X)
    words = None if labels is None else [str(label) for label in labels]
    if words is not None and len(words) != len(values):
        raise ValueError(f"There are {len(words)} labels for {len(values)} rows.")
    content: RunContent = content_from_model(
        model,
        values,
        title=title,
        embedding=embedding @ view_axes(model.embedding_),
        memberships=memberships,
        given_labels=words,
        label_name="label",
        cluster_names=list(names),
    )
    return InteractivePicture(render_report(content, only_picture=True), height)


def _rows(model: Any, X: ArrayLike | None) -> tuple[Floats, Floats, Floats]:
    """Return values, latent points and memberships of rows; of None, of the training rows."""
    if X is not None:
        return model._check_rows(X), model.transform(X), model.predict_proba(X)
    reference = model._predictor.reference
    rows = reference.lookup(reference.rows)
    return reference.rows, model.embedding_[rows], model.memberships_[rows]
