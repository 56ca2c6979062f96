"""Plots, report and summary of the estimator; what makes them is imported when it is called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgpmic import plots
    from sgpmic._types import Ints
    from sgpmic.report.explanations import Explanation
    from sgpmic.report.page import InteractivePicture


#: What there is of every number of clusters; 'certainty' in models of earlier versions.
_BY_NUMBER = ("candidates", "probability", "certainty", "expected")


def _data_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as a data frame of pandas or polars, or as a dict where neither is there."""
    try:
        from pandas import DataFrame
    except ImportError:
        try:
            from polars import DataFrame
        except ImportError:
            return dict(columns)
    return DataFrame(columns)


class PlotsMixin:
    """What a fitted model shows: plots, the report, the summary, and what is in them as tables.

    Plots go on the matplotlib axes given or on new ones; each returns a display of
    :mod:`sgpmic.plots`, with what was drawn in ``ax_`` and ``figure_``.
    """

    labels_: Ints
    _committee: list[dict[str, Any]]
    _number_of_clusters: dict[str, Any] | None
    _explained: list[Explanation] | None

    @property
    def committee_(self) -> Any:
        """Every member of the committee, the weightiest first."""
        check_is_fitted(self)
        names = ("name", "weight", "expected", "agreement", "cut", "reason")
        return _data_frame({name: [m.get(name) for m in self._committee] for name in names})

    @property
    def number_of_clusters_(self) -> Any:
        """The probability of every number of clusters; None where their number was given."""
        check_is_fitted(self)
        if self._number_of_clusters is None:
            return None
        found = dict(self._number_of_clusters)
        chosen = [k == found["chosen"] for k in found["candidates"]]
        return _data_frame({k: v for k, v in found.items() if k in _BY_NUMBER} | {"chosen": chosen})

    @property
    def profiles_(self) -> Any:
        """The name, the sentence and the rule of every cluster; made when first asked for."""
        explained = self._explain()
        rules, numbers = [found.rule for found in explained], range(len(explained))
        columns: dict[str, list[Any]] = {
            "cluster": [*numbers],
            "rows": [int((self.labels_ == m).sum()) for m in numbers],
            "name": [found.name for found in explained],
            "sentence": [found.sentence for found in explained],
            "rule": [rule and " and ".join(rule.conditions) for rule in rules],
            "precision": [rule and rule.precision for rule in rules],
            "coverage": [rule and rule.coverage for rule in rules],
        }
        return _data_frame(columns)

    def _explain(self) -> list[Explanation]:
        check_is_fitted(self)
        if self._explained is None:
            from sgpmic.report.content import content_of_rows
            from sgpmic.report.explanations import explain

            self._explained = explain(content_of_rows(self, title=""))
        return self._explained

    def summary(self: Any) -> None:
        """Print what ``sgpmic fit`` prints at the end: the clusters, and how they were found."""
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
        """Write the report: one HTML file that opens in any browser, without a network.

        Parameters
        ----------
        path : str or path-like
        X : array-like or data frame of shape (n_samples, n_features), or None
            Rows to show, as ``fit`` takes them: their ids, texts and index name them. None for the
            training rows (a sample of 20 000 where there were more).
        labels : sequence of n_samples labels or None
            A known grouping, to compare the clusters with.
        title : str, default='Clusters'
        """
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
        """Draw the latent points, colored by cluster or by anything else, and the Gaussians.

        Of more than two latent dimensions, the two principal axes are drawn (``view_``); one
        alone is drawn with a lane for each cluster.

        Parameters
        ----------
        color_by : None, 'cluster', 'certainty', array-like of shape (n_samples,), or column name
            Clusters by default, paler where a row's cluster is in doubt. Numbers have a color
            bar. Labels (words, yes and no, categories, whole numbers with at most twelve different
            values) have a legend, with more than forty of them the rarest together. What is
            missing is gray and named.
        X : data frame, dict of columns, or array, or None
            The training rows in the same order, with the column that ``color_by`` names. It may
            have columns that the model was not fitted to.
        size : float, array-like of shape (n_samples,) or None
            Area of the marks in points²; or numbers that are shown by the area.
        labels : sequence of n_samples texts, dict of row number to text, or None
            Texts written at points. Of a sequence, None leaves a row without, and texts that would
            lie over an earlier one are left out; of a dict, all are written.
        title : str or None
        ax : matplotlib Axes, or None for a new figure

        Returns
        -------
        display : EmbeddingDisplay
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
        height: int = 760,
    ) -> InteractivePicture:
        """Return the latent points as a picture for a notebook: point, zoom, select, save.

        It is the report's picture: rows can be colored by any feature, selected with a lasso and
        compared with the rest, found by number, and saved as CSV; nothing is asked of a network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows to show; None for the training rows (a sample of 20 000 where there were more).
        labels : sequence of n_samples labels or None
            A known grouping, to color by.
        names : sequence of str
            What clusters are called, the first one first.
        title : str
        height : int, default=760
            Of the cell, in pixels.

        Returns
        -------
        picture : InteractivePicture
            Shown by notebooks; ``picture.save("picture.html")`` writes it as a file.
        """
        from sgpmic.report.content import content_of_rows
        from sgpmic.report.page import InteractivePicture, render_report

        content = content_of_rows(self, X, labels=labels, title=title, cluster_names=list(names))
        return InteractivePicture(render_report(content, only_picture=True), height)

    def plot_memberships(
        self: Any, X: ArrayLike | None = None, *, ax: Axes | None = None
    ) -> plots.MembershipsDisplay:
        """Draw the probability of every cluster for every row, as stacked bars.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows to draw; None for the training rows.
        ax : matplotlib Axes, or None for a new figure

        Returns
        -------
        display : MembershipsDisplay
        """
        from sgpmic import plots

        return plots.MembershipsDisplay.from_estimator(self, X, ax=ax)

    def plot_committee(self: Any, *, ax: Axes | None = None) -> plots.CommitteeDisplay:
        """Draw what every member of the committee weighs, and how far it agrees with the whole.

        Parameters
        ----------
        ax : matplotlib Axes, or None for a new figure

        Returns
        -------
        display : CommitteeDisplay
        """
        from sgpmic import plots

        return plots.CommitteeDisplay.from_estimator(self, ax=ax)

    def plot_number_of_clusters(
        self: Any, *, ax: Axes | None = None
    ) -> plots.NumberOfClustersDisplay:
        """Draw how the number of clusters was found, with ``n_clusters='auto'``.

        Parameters
        ----------
        ax : matplotlib Axes, or None for a new figure

        Returns
        -------
        display : NumberOfClustersDisplay
        """
        from sgpmic import plots

        return plots.NumberOfClustersDisplay.from_estimator(self, ax=ax)

    def plot_profiles(
        self: Any, X: ArrayLike | None = None, *, n_features: int = 10, ax: Axes | None = None
    ) -> plots.ProfilesDisplay:
        """Draw which features, or columns and levels, set the clusters apart, as effect sizes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows to describe; None for the training rows (of more than 20 000, a sample).
        n_features : int, default=10
            How many features to show at most: those that set clusters apart most.
        ax : matplotlib Axes, or None for a new figure

        Returns
        -------
        display : ProfilesDisplay
        """
        from sgpmic import plots

        return plots.ProfilesDisplay.from_estimator(self, X, n_features=n_features, ax=ax)

    def plot_bound(self: Any, *, ax: Axes | None = None) -> plots.BoundDisplay:
        """Draw the bound over the rounds of every start.

        The start that was kept may not be the one with the highest bound: the fit that agrees
        best with the others is kept, unless ``start__selection='bound'``.

        Parameters
        ----------
        ax : matplotlib Axes, or None for a new figure

        Returns
        -------
        display : BoundDisplay
        """
        from sgpmic import plots

        return plots.BoundDisplay.from_estimator(self, ax=ax)
