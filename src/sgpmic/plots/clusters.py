"""The clusters: the memberships of all rows as stacked bars, and what sets clusters apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sgpmic._types import Floats, Ints
from sgpmic.colors import N_COLORS, distinct_colors
from sgpmic.plots.base import (
    MOST_INSIDE,
    Display,
    add_legend,
    finish,
    is_dark,
    legend_width,
    plain,
    write_number,
)
from sgpmic.report.content import describe_rows
from sgpmic.report.statistics import cluster_profiles, level_shares, strongest_first
from sgpmic.report.words import plural, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.image import AxesImage

#: More rows than this are drawn as every second, third, … of them.
MOST_BARS = 2_000

# A bar lower than this cannot be seen.
_LEAST = 1e-3

# More clusters than this have their number alone below their column.
_MOST_NAMED = 8


class MembershipsDisplay(Display):
    """A bar for every row, as high in each color as the probability of that cluster.

    Rows are ordered by cluster, and within a cluster by certainty. The row's own cluster is at the
    bottom, so that the edge above it is the certainty.

    Parameters
    ----------
    memberships : ndarray of shape (n_rows, n_clusters)

    Attributes
    ----------
    order : ndarray of shape (n_rows,)
        The rows as they stand from left to right.
    bars_ : list of PolyCollection
        The parts of bars of every cluster.
    rows_ : ndarray of int
        The rows that have a bar.
    legend_ : Legend or None
    """

    def __init__(self, memberships: Floats) -> None:
        self.memberships = memberships
        labels, certainty = memberships.argmax(axis=1), memberships.max(axis=1)
        self.order: Ints = np.lexsort([-certainty, labels])

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike | None = None, *, ax: Axes | None = None
    ) -> Self:
        """Draw the memberships of a fitted model (:meth:`sgpmic.SGPMIC.plot_memberships`)."""
        check_is_fitted(estimator)
        memberships = estimator.memberships_ if X is None else estimator.predict_proba(X)
        return cls.from_predictions(memberships, ax=ax)

    @classmethod
    def from_predictions(cls, memberships: ArrayLike, *, ax: Axes | None = None) -> Self:
        """Draw memberships, such as ``model.predict_proba(X)``.

        Parameters
        ----------
        memberships : array-like of shape (n_rows, n_clusters)
        ax : matplotlib Axes or None

        Returns
        -------
        display : MembershipsDisplay
        """
        shares = np.asarray(memberships, dtype=np.float64)
        if shares.ndim != 2 or not shares.size:
            raise ValueError("memberships must have the shape (n_rows, n_clusters).")
        return cls(shares).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw it on the axes given, or on those of a new figure."""
        n_rows, n_clusters = self.memberships.shape
        ax = self._draw_on(ax, 8.0 + legend_width(n_clusters), 3.4)
        from matplotlib.collections import PolyCollection

        step = -(-n_rows // MOST_BARS)
        left = np.arange(0, n_rows, step)
        self.rows_: Ints = self.order[left]
        heights = self.memberships[self.rows_]
        bottoms = _bottoms(heights)
        right = np.minimum(left + step, n_rows)
        colors = distinct_colors(min(n_clusters, N_COLORS), dark=is_dark(ax))
        sizes = np.bincount(self.memberships.argmax(axis=1), minlength=n_clusters)
        self.bars_: list[PolyCollection] = []
        for m in range(n_clusters):
            shown = heights[:, m] > _LEAST
            x0, x1, y0 = left[shown], right[shown], bottoms[shown, m]
            y1 = y0 + heights[shown, m]
            corners = np.array([(x0, y0), (x0, y1), (x1, y1), (x1, y0)])
            # Without smoothing: it would leave pale lines between the bars.
            bars = PolyCollection(
                list(np.moveaxis(corners, 2, 0)),
                facecolors=colors[m % len(colors)],
                edgecolors="none",
                antialiased=False,
                label=f"cluster {m} ({plural(sizes[m], 'row')})",
            )
            ax.add_collection(bars)
            self.bars_.append(bars)
        every = "" if step == 1 else f"; one of {step} is drawn"
        finish(ax, f"rows, by cluster and certainty{every}", "probability")
        ax.grid(visible=False)
        ax.set(xlim=(0, n_rows), ylim=(0, 1))
        ends = np.cumsum(sizes)
        for end in ends[:-1]:
            ax.axvline(end, color=ax.get_facecolor(), linewidth=0.8)
        if n_clusters > MOST_INSIDE:
            for number in np.flatnonzero(sizes):
                middle = ends[number] - sizes[number] / 2
                write_number(ax, np.array([middle, 0.5]), str(number))
        self.legend_ = add_legend(ax, beside=True)
        return self


def _bottoms(memberships: Floats) -> Floats:
    """Return where the parts of bars begin: the largest is lowest, then they go by cluster."""
    place = np.tile(np.arange(memberships.shape[1]), (len(memberships), 1))
    np.put_along_axis(place, memberships.argmax(axis=1)[:, None], -1, axis=1)
    order = np.argsort(place, axis=1)
    heights = np.take_along_axis(memberships, order, axis=1)
    bottoms = np.cumsum(heights, axis=1) - heights
    return np.take_along_axis(bottoms, np.argsort(order, axis=1), axis=1)


class ProfilesDisplay(Display):
    """Effect sizes: how far every cluster is from all other rows, feature by feature.

    Cohen's d of numbers; of the levels of categories Cohen's h.

    Parameters
    ----------
    effects : ndarray of shape (n_clusters, n_features)
    feature_names : sequence of str

    Attributes
    ----------
    image_ : AxesImage
        Rows are features, those that set clusters apart most first; columns are clusters.
    """

    def __init__(self, effects: Floats, feature_names: Sequence[str]) -> None:
        self.effects = effects
        self.feature_names = [str(name) for name in feature_names]

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
        drawn, M = estimator._rows_to_draw(X), estimator.n_clusters_
        described, labels = describe_rows(estimator, drawn.values), drawn.memberships.argmax(axis=1)
        effects = [cluster_profiles(described.numbers, labels, M).effects]
        names = list(described.names)
        for column in described.categories:
            shares = level_shares(column.codes, len(column.levels), labels, M)
            first = 1 if len(column.levels) == 2 else 0  # of two levels one says it all
            effects.append(shares.effects[:, first:])
            names += [f"{column.name}: {level}" for level in column.levels[first:]]
        return cls(np.concatenate(effects, axis=1), names).plot(n_features=n_features, ax=ax)

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
            Whole numbers from 0.
        feature_names : sequence of str or None
            None for those of a data frame, or "feature 0", ….
        n_features : int, default=10
            How many features to show at most.
        ax : matplotlib Axes or None

        Returns
        -------
        display : ProfilesDisplay
        """
        values, mine = np.asarray(X, dtype=np.float64), np.asarray(labels)
        if mine.dtype.kind not in "iu" or mine.min(initial=0) < 0 or mine.shape != values.shape[:1]:
            raise ValueError("labels must be a whole number from 0 for every row of X.")
        if feature_names is None:
            numbered = [f"feature {j}" for j in range(values.shape[1])]
            feature_names = getattr(X, "columns", numbered)
        effects = cluster_profiles(values, mine, int(mine.max(initial=0)) + 1).effects
        return cls(effects, feature_names).plot(n_features=n_features, ax=ax)

    def plot(self, *, n_features: int = 10, ax: Axes | None = None) -> Self:
        """Draw the ``n_features`` that set clusters apart most, on the axes given or new ones."""
        n_clusters = len(self.effects)
        shown = strongest_first(self.effects)[:n_features]
        table = self.effects[:, shown].T
        named = n_clusters <= _MOST_NAMED
        width = 2.6 + (0.75 if named else 0.42) * n_clusters
        ax = self._draw_on(ax, width, 1.3 + 0.32 * len(shown))
        limit = max(1.0, float(np.quantile(np.abs(table), 0.95))) if table.size else 1.0
        colors: dict[str, Any] = {"cmap": "PuOr", "vmin": -limit, "vmax": limit}
        self.image_: AxesImage = ax.imshow(table, aspect="auto", **colors)
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8 if named else 7}
        for (row, column), value in np.ndenumerate(table):
            color = "white" if abs(value) > 0.7 * limit else "black"
            ax.text(column, row, signed(value, 1), color=color, **style)
        names = [f"cluster {m}" if named else str(m) for m in range(n_clusters)]
        ax.set_xticks(range(n_clusters), names)
        ax.set_xlabel("" if named else "cluster")
        ax.set_yticks(range(len(shown)), [plain(self.feature_names[i]) for i in shown])
        ax.tick_params(length=0)
        self.figure_.colorbar(self.image_, ax=ax, label="effect size against all other rows")
        return self
