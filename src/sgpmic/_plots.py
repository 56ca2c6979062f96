"""Plots, report and summary of the estimator, with lazy imports."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgpmic import plots
    from sgpmic.report.explanations import Explanation
    from sgpmic.report.page import InteractivePicture


#: Columns with a value per number of clusters.
_BY_NUMBER = ("candidates", "probability", "expected")


def _data_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as a pandas or polars data frame, or as a dict if neither is installed."""
    for library in ("pandas", "polars"):
        with suppress(ImportError):
            return import_module(library).DataFrame(columns)
    return dict(columns)


class PlotsMixin:
    """Plots, report and summary of a fitted model, and their contents as tables.

    Plots use the given matplotlib axes or new ones; each returns a display object from
    :mod:`sgpmic.plots`, with the attributes ``ax_`` and ``figure_``.
    """

    _explained: list[Explanation] | None

    @property
    def committee_(self: Any) -> Any:
        """The members of the committee, by decreasing weight."""
        check_is_fitted(self)
        names = ("name", "weight", "expected", "agreement", "cut", "reason")
        return _data_frame({name: [m.get(name) for m in self._committee] for name in names})

    @property
    def number_of_clusters_(self: Any) -> Any:
        """The probability of each number of clusters; None if the number was given."""
        check_is_fitted(self)
        if (found := self._number_of_clusters) is None:
            return None
        chosen = [k == found["chosen"] for k in found["candidates"]]
        return _data_frame({k: v for k, v in found.items() if k in _BY_NUMBER} | {"chosen": chosen})

    @property
    def profiles_(self: Any) -> Any:
        """Name, description and rule of each cluster, computed on first access."""
        explained = self._explain()
        rules, numbers = [found.rule for found in explained], range(len(explained))
        columns = {
            "cluster": [*numbers],
            "rows": [int((self.labels_ == m).sum()) for m in numbers],
            "described": [found.size for found in explained],
            "name": [found.name for found in explained],
            "sentence": [found.sentence for found in explained],
            "rule": [rule and " and ".join(rule.conditions) for rule in rules],
            "precision": [rule and rule.precision for rule in rules],
            "coverage": [rule and rule.coverage for rule in rules],
        }
        return _data_frame(columns)

    def _explain(self: Any) -> list[Explanation]:
        check_is_fitted(self)
        if self._explained is None:
            from sgpmic.report.content import content_of_rows
            from sgpmic.report.explanations import explain

            self._explained = explain(content_of_rows(self))
        return self._explained

    def summary(self: Any) -> None:
        """Print the summary of ``sgpmic fit``: the clusters, and how they were found."""
        explained = self._explain()
        from sgpmic.report.explanations import print_summary

        print_summary(self, explained)

    def report(
        self: Any,
        path: str | os.PathLike[str],
        X: Any = None,
        *,
        labels: Sequence[Any] | None = None,
        title: str = "Clusters",
    ) -> None:
        """Write the report, a single HTML file that works offline in any browser.

        Parameters
        ----------
        path : str or path-like
        X : array-like or data frame of shape (n_samples, n_features), or None
            Rows to show, in the format of ``fit``, named by their ids, texts and index. None for
            the training rows (a sample of 20 000 if there are more).
        labels : sequence of n_samples labels or None
            Known labels to compare the clusters with.
        title : str, default='Clusters'
        """
        check_is_fitted(self)
        from sgpmic.report.content import content_of_rows
        from sgpmic.report.page import render_report

        columns = [] if self.encoder_ is None else [asdict(c) for c in self.encoder_.columns_]
        content = content_of_rows(self, X, labels=labels, title=title, columns=columns)
        Path(path).write_text(render_report(content), encoding="utf-8")

    def plot_embedding(
        self: Any,
        *,
        color_by: Any = None,
        X: Any = None,
        size: float | ArrayLike | None = None,
        labels: Any = None,
        title: str | None = None,
        ax: Axes | None = None,
    ) -> plots.EmbeddingDisplay:
        """Plot the latent points, colored by cluster or other values, and the Gaussians.

        With more than two latent dimensions, the first two principal axes are plotted (``view_``);
        a single dimension is plotted with random heights.

        Parameters
        ----------
        color_by : None, 'cluster', 'certainty', array-like of shape (n_samples,), or column name
            Clusters by default, paler for uncertain rows. Numbers get a color bar, labels and
            integers with at most twelve distinct values a legend. Missing values are gray.
        X : data frame, dict of columns, or array, or None
            The training rows in the same order, with the column named by ``color_by``.
        size : float, array-like of shape (n_samples,) or None
            Marker areas in points².
        labels : sequence of n_samples texts, dict of row number to text, or None
            Text annotations of points; None in a sequence means no text.
        title : str or None
        ax : matplotlib Axes, or None for a new figure
        """
        from sgpmic import plots

        return plots.EmbeddingDisplay.from_estimator(
            self, color_by=color_by, X=X, size=size, labels=labels, title=title, ax=ax
        )

    def plot_interactive(
        self: Any,
        X: ArrayLike | None = None,
        *,
        labels: Sequence[Any] | None = None,
        names: Sequence[str] = (),
        title: str = "Latent space",
        height: int = 880,
    ) -> InteractivePicture:
        """Return the report's interactive plot for notebooks: hover, zoom, select, compare, save.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows to show; None for the training rows (a sample of 20 000 if there are more).
        labels : sequence of n_samples labels or None
            Known labels to color by.
        names : sequence of str
            Cluster names, in the order of the clusters.
        title : str
        height : int, default=880
            Height of the cell in pixels; the plot fills what the controls leave of it.

        Returns
        -------
        picture : InteractivePicture
            Its method ``save`` writes a file.
        """
        from sgpmic.report.content import content_of_rows
        from sgpmic.report.page import InteractivePicture, render_report

        content = content_of_rows(self, X, labels=labels, title=title, cluster_names=list(names))
        return InteractivePicture(render_report(content, only_picture=True), height)

    def plot_memberships(
        self: Any, X: ArrayLike | None = None, *, ax: Axes | None = None
    ) -> plots.MembershipsDisplay:
        """Plot the probability of each cluster for each row, as stacked bars.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows to plot; None for the training rows.
        ax : matplotlib Axes, or None for a new figure
        """
        from sgpmic import plots

        return plots.MembershipsDisplay.from_estimator(self, X, ax=ax)

    def plot_profiles(
        self: Any, X: ArrayLike | None = None, *, n_features: int = 10, ax: Axes | None = None
    ) -> plots.ProfilesDisplay:
        """Plot the features (or columns and levels) that distinguish the clusters, by effect size.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows to describe; None for the training rows (a sample of 20 000 if there are more).
        n_features : int, default=10
            Maximum number of features to show, the most distinctive ones.
        ax : matplotlib Axes, or None for a new figure
        """
        from sgpmic import plots

        return plots.ProfilesDisplay.from_estimator(self, X, n_features=n_features, ax=ax)
