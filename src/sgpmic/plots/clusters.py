"""Plots of memberships, cluster profiles, committee, number of clusters, and bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sgpmic._types import Floats, Ints
from sgpmic._words import plural
from sgpmic.colors import N_COLORS, distinct_colors
from sgpmic.plots import base
from sgpmic.plots.base import Display, add_legend, finish, is_dark
from sgpmic.report.content import content_of_rows
from sgpmic.report.explanations import compare_columns
from sgpmic.report.statistics import cluster_profiles, strongest_first
from sgpmic.report.words import shorten, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: If there are more rows, every second, third, … is drawn.
MOST_BARS = 2_000


class MembershipsDisplay(Display):
    """Stacked bars of the cluster probabilities of every row.

    Rows are sorted by cluster, and within a cluster by certainty. The row's own cluster is at the
    bottom, so that its upper edge is the certainty.

    Parameters
    ----------
    memberships : array-like of shape (n_rows, n_clusters)
        Such as ``model.predict_proba(X)``.

    Attributes
    ----------
    order : ndarray of int
        The rows from left to right, without those that have no value.
    bars_ : list of PolyCollection
        The bars of every cluster.
    rows_ : ndarray of int
        The rows that are drawn.
    legend_ : Legend or None
    """

    def __init__(self, memberships: ArrayLike) -> None:
        self.memberships: Floats = np.asarray(memberships, dtype=np.float64)
        if self.memberships.ndim != 2 or np.isnan(self.memberships).all():
            raise ValueError("memberships must have the shape (n_rows, n_clusters).")
        labels, certainty = self.memberships.argmax(axis=1), self.memberships.max(axis=1)
        order: Ints = np.lexsort([-certainty, labels])
        self.order = order[np.isfinite(certainty[order])]

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike | None = None, *, ax: Axes | None = None
    ) -> Self:
        """Draw the memberships of a fitted model (:meth:`sgpmic.SGPMIC.plot_memberships`)."""
        check_is_fitted(estimator)
        memberships = estimator.memberships_ if X is None else estimator.predict_proba(X)
        return cls(memberships).plot(ax=ax)

    @classmethod
    def from_predictions(cls, memberships: ArrayLike, *, ax: Axes | None = None) -> Self:
        """Draw memberships; the parameters are those of the class and of :meth:`plot`."""
        return cls(memberships).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on the given axes, or on a new figure."""
        n_rows, n_clusters = len(self.order), self.memberships.shape[1]
        ax = self._draw_on(ax, 8.0 + base.legend_width(n_clusters), 3.4)
        step = -(-n_rows // MOST_BARS)
        left = np.arange(0, n_rows, step)
        self.rows_: Ints = self.order[left]
        heights = self.memberships[self.rows_]
        # Lower edges of the segments: the largest is at the bottom, the others go by cluster.
        largest = heights.argmax(axis=1)[:, None]
        below_others = np.where(np.arange(n_clusters) < largest, heights.max(axis=1)[:, None], 0.0)
        bottoms = np.cumsum(heights, axis=1) - heights + below_others
        np.put_along_axis(bottoms, largest, 0.0, axis=1)
        colors = distinct_colors(min(n_clusters, N_COLORS), dark=is_dark(ax))
        sizes = np.bincount(self.memberships[self.order].argmax(axis=1), minlength=n_clusters)
        edges, last = np.append(left, n_rows), np.append(np.arange(len(left)), len(left) - 1)
        self.bars_ = []
        for m, (low, height) in enumerate(zip(bottoms[last].T, heights[last].T, strict=True)):
            # Antialiasing would leave pale lines between the bars.
            style: Any = {"step": "post", "linewidth": 0, "antialiased": False}
            style |= {"color": colors[m % len(colors)]}
            style |= {"label": f"cluster {m} ({plural(sizes[m], 'row')})"}
            self.bars_.append(ax.fill_between(edges, low, low + height, **style))
        every = "" if step == 1 else f"; one of {step} is drawn"
        finish(ax, f"rows, by cluster and certainty{every}", "probability")
        ax.grid(visible=False)
        ax.set(xlim=(0, n_rows), ylim=(0, 1))
        ends = np.cumsum(sizes)
        for end in ends[:-1]:
            ax.axvline(end, color=ax.get_facecolor(), linewidth=0.8)
        if n_clusters > N_COLORS / 2:  # similar colors
            for number in np.flatnonzero(sizes):
                middle = ends[number] - sizes[number] / 2
                base.write_number(ax, (middle, 0.5), str(number))
        self.legend_ = add_legend(ax, beside=True)
        return self


class ProfilesDisplay(Display):
    """Heatmap of the effect sizes of every feature: each cluster against all other rows.

    Cohen's d for numbers; Cohen's h of the shares for the levels of categories.

    Parameters
    ----------
    effects : ndarray of shape (n_clusters, n_features)
    feature_names : sequence of str

    Attributes
    ----------
    image_ : AxesImage
        Rows are features, by decreasing largest effect; columns are clusters.
    """

    def __init__(self, effects: Floats, feature_names: Sequence[str]) -> None:
        self.effects = effects
        self.feature_names = [str(name) for name in feature_names]
        if len(self.feature_names) != effects.shape[1]:
            names = f"feature_names has {len(self.feature_names)} entries"
            raise ValueError(f"{names}, but there are {effects.shape[1]} features.")

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike | None = None,
        *,
        n_features: int = 10,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the profiles of a fitted model's clusters (:meth:`sgpmic.SGPMIC.plot_profiles`)."""
        subjects, compared = compare_columns(content_of_rows(estimator, X))
        said = [one.kind != "gap" and (one.level > 0 or len(one.levels) != 2) for one in subjects]
        names = [one.name for one, shown in zip(subjects, said, strict=True) if shown]
        return cls(compared.effects[:, said], names).plot(n_features=n_features, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        X: ArrayLike,
        labels: ArrayLike,
        *,
        feature_names: Sequence[str] | None = None,
        n_features: int = 10,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the profiles of any clusters.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Numbers; NaN where missing.
        labels : array-like of shape (n_rows,)
            Integers from 0.
        feature_names : sequence of str or None
            None for those of a data frame, or "feature 0", ….
        n_features : int, default=10
            Maximum number of features to show.
        ax : matplotlib Axes or None

        Returns
        -------
        display : ProfilesDisplay
        """
        values, mine = np.asarray(X, dtype=np.float64), np.asarray(labels)
        if values.ndim != 2:
            raise ValueError(f"X has shape {values.shape}: give a table (n_rows, n_features).")
        if mine.dtype.kind not in "iu" or mine.min(initial=0) < 0 or mine.shape != values.shape[:1]:
            raise ValueError("labels must be a whole number from 0 for every row of X.")
        if feature_names is None:
            numbered = [f"feature {j}" for j in range(values.shape[1])]
            feature_names = getattr(X, "columns", numbered)
        effects = cluster_profiles(values, mine, int(mine.max(initial=0)) + 1).effects
        return cls(effects, feature_names).plot(n_features=n_features, ax=ax)

    def plot(self, *, n_features: int = 10, ax: Axes | None = None) -> Self:
        """Draw the ``n_features`` with the largest effects, on the given axes or new ones."""
        n_clusters = len(self.effects)
        shown = strongest_first(self.effects)[:n_features]
        table = self.effects[:, shown].T
        features = [shorten(self.feature_names[i], 60) for i in shown]
        width = 1.9 + 0.085 * max(map(len, features), default=0) + 0.5 * n_clusters
        ax = self._draw_on(ax, width, 1.3 + 0.32 * len(shown))
        limit = max(1.0, float(np.quantile(np.abs(table), 0.95))) if table.size else 1.0
        self.image_ = ax.imshow(table, aspect="auto", cmap="PuOr", vmin=-limit, vmax=limit)
        for (row, column), value in np.ndenumerate(table):
            color = "white" if abs(value) > 0.7 * limit else "black"
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
            ax.text(column, row, signed(value, 1), color=color, **style)
        ax.set_xticks(range(n_clusters))
        ax.set_xlabel("cluster")
        ax.set_yticks(range(len(shown)), [*map(base.plain, features)])
        ax.tick_params(length=0)
        self.figure_.colorbar(self.image_, ax=ax, label="effect size against all other rows")
        return self
