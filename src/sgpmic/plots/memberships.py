"""The memberships of all rows as stacked bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sgpmic._types import Floats, Ints
from sgpmic.colors import N_COLORS, distinct_colors
from sgpmic.plots.base import MOST_INSIDE, Display, add_legend, finish, is_dark, legend_width
from sgpmic.plots.texts import write_number
from sgpmic.report.words import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection

#: More rows than this are drawn as every second, third, … of them.
MOST_BARS = 2_000

# A bar lower than this cannot be seen.
_LEAST = 1e-3


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
            corners = np.stack(
                [np.stack(c, axis=1) for c in ((x0, y0), (x0, y1), (x1, y1), (x1, y0))], axis=1
            )
            # Without smoothing: it would leave pale lines between the bars.
            bars = PolyCollection(
                list(corners),
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
    n_clusters = memberships.shape[1]
    first = memberships.argmax(axis=1)
    order = np.argsort(
        np.where(np.arange(n_clusters) == first[:, None], -1, np.arange(n_clusters)), axis=1
    )
    heights = np.take_along_axis(memberships, order, axis=1)
    bottoms = np.cumsum(heights, axis=1) - heights
    return np.take_along_axis(bottoms, np.argsort(order, axis=1), axis=1)
