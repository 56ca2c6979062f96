"""Scatter plot of the latent points, colored by cluster or any other variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sgpmic._types import Floats, Ints
from sgpmic._words import plural
from sgpmic.colors import GREY, GREY_ON_DARK, style_of
from sgpmic.learning.preprocessing import view_axes
from sgpmic.plots import base
from sgpmic.plots.base import Display, ink, is_dark, plain
from sgpmic.report.picture import outline, widen
from sgpmic.tables.conversions import as_table, cells_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colorbar import Colorbar
    from matplotlib.lines import Line2D

# Marker areas, in points²: for up to a thousand rows; and minimum.
_AREA, _LEAST_AREA = 32.0, 3.0

# Beyond this many points, vector graphics and the search for an empty corner become slow.
_MANY_POINTS = 5_000

#: Whole numbers with at most this many distinct values are treated as categorical.
MOST_CODES = 12

#: If there are more levels, only the most frequent are distinguished.
MOST_LEVELS = 40


class Hue(NamedTuple):
    """Variable that points are colored by: numeric or, if it has levels, categorical."""

    name: str
    values: Any  # (n_rows,): numbers, NaN where missing; or level indices, -1 where missing
    levels: tuple[str, ...] | None = None
    n_others: int = 0  # number of rare levels, which have index -2
    ends: tuple[float | None, float | None] = (None, None)  # limits of the color scale, if given
    are_dates: bool = False  # days since 1970


class EmbeddingDisplay(Display):
    """Scatter plot of the latent points, with outlines of the clusters.

    Call :meth:`plot` to draw it again, for instance in other colors.

    Parameters
    ----------
    points : array-like of shape (n_rows, n_components)
        Such as ``model.transform(X)``. If there are more than two dimensions, the first two
        principal axes are drawn. Rows without any value, which are NaN, are not drawn.
    memberships : array-like of shape (n_rows, n_clusters) or (n_rows,)
        ``model.predict_proba(X)``; or labels, integers from 0, −1 for rows without any value.
    means, covariances : ndarrays or None
        ``model.means_`` and ``model.covariances_``, for outlines.

    Attributes
    ----------
    points : ndarray of shape (n_rows, 2)
        The points as drawn; a single dimension has random heights.
    scatters_ : list of PathCollection
        One collection of markers per cluster or group, missing values last.
    outlines_ : list of Line2D
        An ellipse around 90 % of every cluster's rows, of the shape of its Gaussian.
    numbers_ : list of Text
        The cluster numbers, if they are written at the centers.
    texts_ : list of Text
        The labels that were drawn.
    colorbar_ : Colorbar or None
    legend_ : Legend or None
    """

    def __init__(
        self,
        points: ArrayLike,
        memberships: ArrayLike,
        *,
        means: Floats | None = None,
        covariances: Floats | None = None,
    ) -> None:
        points = np.asarray(points, dtype=np.float64)
        unknown = np.isnan(points).all(axis=-1)  # rows without any value
        nothing = points.size > 0 and unknown.all()
        if points.ndim != 2 or nothing or not np.isfinite(points[~unknown]).all():
            raise ValueError("embedding must be finite numbers of shape (n_rows, n_components).")
        axes, Q = view_axes(points[~unknown])[:, :2], points.shape[1]
        kind = "principal latent axis" if Q > 2 else "latent dimension"
        self._axis_names = f"{kind} 1", f"{kind} 2" if Q > 1 else "random height"
        if means is None or covariances is None:
            means, covariances = np.empty((0, Q)), np.empty((0, Q, Q))
        turned = points @ axes, means @ axes, axes.T @ covariances @ axes
        self.points, self.means, self.covariances = widen(*turned)
        self.memberships = _as_memberships(memberships, len(points))
        self.memberships[unknown] = np.nan
        #: The most probable cluster of every row, −1 for rows without any value.
        self.labels: Ints = self.memberships.argmax(axis=1)
        self.labels[np.isnan(self.memberships).any(axis=1)] = -1

    @classmethod
    def from_estimator(cls, estimator: Any, **plotting: Any) -> Self:
        """Draw the latent points of a fitted model (:meth:`sgpmic.SGPMIC.plot_embedding`)."""
        check_is_fitted(estimator)
        mixture: Any = {"means": estimator.means_, "covariances": estimator.covariances_}
        return cls(estimator.embedding_, estimator.memberships_, **mixture).plot(**plotting)

    @classmethod
    def from_predictions(
        cls,
        embedding: ArrayLike,
        memberships: ArrayLike,
        *,
        means: Floats | None = None,
        covariances: Floats | None = None,
        **plotting: Any,
    ) -> Self:
        """Draw latent points; the parameters are those of the class and of :meth:`plot`."""
        display = cls(embedding, memberships, means=means, covariances=covariances)
        return display.plot(**plotting)

    def plot(
        self,
        *,
        color_by: Any = None,
        X: Any = None,
        size: float | ArrayLike | None = None,
        labels: Any = None,
        title: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the plot; the parameters are those of :meth:`sgpmic.SGPMIC.plot_embedding`."""
        hue, n_clusters = self._hue(color_by, X), self.memberships.shape[1]
        n_rows = len(self.points)
        usual = np.clip(_AREA * (1_000 / max(n_rows, 1)) ** 0.6, _LEAST_AREA, _AREA)
        areas = np.asarray(usual if size is None else size, dtype=np.float64)
        if areas.shape not in ((), (n_rows,)) or not (areas > 0).all():
            raise ValueError(f"size must be above 0: one number, or one for each of {n_rows} rows.")
        self._areas = np.broadcast_to(areas, n_rows)
        # A height that equal-aspect axes 6.5 inches wide fill well
        known = self.points[np.isfinite(self.points[:, 0])]
        width, height = np.maximum(np.ptp(known, axis=0), 1e-9)
        height = float(np.clip(6.5 * height / width + 0.9, 3.5, 7.4))
        ax = self._draw_on(ax, 7.5 + base.legend_width(len(hue.levels or ())), height)
        by_cluster = hue.levels is not None and hue.name == "cluster"
        self.scatters_: list[PathCollection] = []
        self.colorbar_ = self._draw_numbers(hue) if hue.levels is None else None
        if hue.levels is not None:
            self._draw_groups(hue, hue.levels, fade=by_cluster)
        self.outlines_ = self._draw_outlines(by_cluster)
        base.finish(ax, *self._axis_names)
        ax.set_aspect("equal", adjustable="datalim")
        if title:
            ax.set_title(title, loc="left")
        many = len(self.scatters_) > base.MOST_INSIDE or n_rows > _MANY_POINTS
        beside = many and hue.levels is not None  # else the color bar is there
        self.legend_ = base.add_legend(ax, beside=beside)
        if self.legend_ is not None and not by_cluster and hue.levels is not None:
            self.legend_.set_title(hue.name)
        # Legends and color bars reshape the axes, and equal aspect widens the limits for every
        # intermediate shape: rescale for the final one.
        self.figure_.draw_without_rendering()
        ax.autoscale()
        ax.apply_aspect()
        centers = n_clusters > base.MOST_INSIDE or (n_clusters > 1 and not by_cluster)
        self.numbers_ = [
            base.write_number(ax, np.median(self.points[self.labels == m], axis=0), str(m))
            for m in np.unique(self.labels)
            if centers and m >= 0
        ]
        self.texts_ = [] if labels is None else base.write_texts(ax, self.points, labels)
        return self

    def _hue(self, color_by: Any, X: Any) -> Hue:
        n_clusters = self.memberships.shape[1]
        if color_by is not None and not isinstance(color_by, str):
            name = getattr(color_by, "name", None)
            return read_hue(color_by, name if isinstance(name, str) else "", len(self.points))
        if color_by is not None and X is not None:
            table, _ = as_table(X)
            if color_by not in table.column_names:
                names = ", ".join(table.column_names[:8])
                raise ValueError(f"color_by={color_by!r} is not a column of X, which has {names}.")
            return read_hue(table.column(color_by), color_by, len(self.points))
        if color_by == "certainty":
            certainty = self.memberships.max(axis=1)
            # If all rows are certain, an automatic scale would show rounding errors.
            return Hue("certainty", certainty, ends=(min(0.5, float(np.nanmin(certainty))), 1.0))
        if color_by not in (None, "cluster"):
            raise ValueError(
                f"color_by={color_by!r} names a column: pass the table as X; without it, only "
                "'cluster' and 'certainty' are known."
            )
        return Hue("cluster", self.labels, tuple(f"cluster {m}" for m in range(n_clusters)))

    def _scatter(self, mine: Any, shrink: float = 1.0, **style: Any) -> PathCollection:
        usual = {
            "edgecolors": self.ax_.get_facecolor(),
            "linewidths": 0.5 if len(self.points) <= 1_000 else 0.2,
            "rasterized": len(self.points) > _MANY_POINTS,
        }
        (x, y), areas = self.points[mine].T, shrink * self._areas[mine]
        found = self.ax_.scatter(x, y, s=areas, **(usual | style))
        self.scatters_.append(found)
        return found

    def _draw_groups(self, hue: Hue, levels: tuple[str, ...], *, fade: bool) -> None:
        from matplotlib.colors import to_rgba_array

        alpha = 0.25 + 0.75 * self.memberships.max(axis=1) if fade else np.ones(len(hue.values))
        for code, level in enumerate(levels):
            mine = hue.values == code
            color, marker = style_of(code, dark=is_dark(self.ax_))
            # An empty cluster has no markers, and no legend entry.
            name = plain(f"{level} ({plural(mine.sum(), 'row')})") if mine.any() else None
            colors = to_rgba_array([color] * int(mine.sum()), alpha[mine])
            self._scatter(mine, facecolors=colors, marker=marker, label=name)
        self._draw_grey(hue.values == -2, f"{hue.n_others} others", ".")
        self._draw_grey(hue.values == -1, "missing", "x")

    def _draw_numbers(self, hue: Hue) -> Colorbar | None:
        import matplotlib
        from matplotlib.colors import ListedColormap
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        seen = np.isfinite(hue.values)
        self._draw_grey(~seen, "missing", "x")
        if not seen.any():
            return None
        # Viridis without the end that blends into the background
        ends = (0.2, 1.0) if is_dark(self.ax_) else (0.0, 0.92)
        scale = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(*ends, 256)))
        low, high = hue.ends
        marks = self._scatter(seen, c=hue.values[seen], cmap=scale, vmin=low, vmax=high)
        ticks = AutoDateLocator() if hue.are_dates else None
        style: Any = {"ticks": ticks, "format": ticks and ConciseDateFormatter(ticks)}
        return self.figure_.colorbar(marks, ax=self.ax_, label=plain(hue.name), **style)

    def _draw_grey(self, mine: Any, name: str, marker: str) -> None:
        if mine.any():
            name = f"{name} ({plural(mine.sum(), 'row')})"
            color = GREY_ON_DARK if is_dark(self.ax_) else GREY
            style = {"edgecolors": None, "linewidths": 1.0, "marker": marker, "label": name}
            self._scatter(mine, shrink=0.7, color=color, **style)

    def _draw_outlines(self, by_cluster: bool) -> list[Line2D]:
        lines, dark = [], is_dark(self.ax_)
        for m, normal in enumerate(zip(self.means, self.covariances, strict=True)):
            line = outline(self.points[self.labels == m], *normal)
            color, alpha = (style_of(m, dark=dark)[0], 0.9) if by_cluster else (ink(self.ax_), 0.45)
            lines += self.ax_.plot(*line.T, color=color, linewidth=1.4, alpha=alpha)
        return lines


def _as_memberships(given: ArrayLike, n_rows: int) -> Floats:
    """Validate memberships; labels are one-hot encoded, −1 as NaN."""
    found = np.asarray(given)
    if found.shape[:1] != (n_rows,) or found.ndim > 2:
        raise ValueError(f"memberships has shape {found.shape}, but there are {n_rows} rows.")
    if found.ndim == 2:
        return np.array(found, dtype=np.float64)
    if found.dtype.kind not in "iu" or found.min(initial=0) < -1:
        raise ValueError("Labels must be whole numbers from 0, or -1 for rows without any value.")
    return np.where(found[:, None] < 0, np.nan, np.eye(int(found.max(initial=0)) + 1)[found])


def read_hue(values: Any, name: str, n_rows: int) -> Hue:
    """Classify a column or array as numeric or categorical (:meth:`SGPMIC.plot_embedding`)."""
    if np.shape(values) != (n_rows,):
        raise ValueError(f"color_by has shape {np.shape(values)}, but there are {n_rows} rows.")
    cells = cells_of(as_table({name: values})[0].column(0))
    if cells.holds == "date":
        return Hue(name, cells.values, are_dates=True)
    numbers = np.unique(cells.values[np.isfinite(cells.values)])
    are_codes = len(numbers) <= MOST_CODES and (numbers == np.round(numbers)).all()
    if cells.holds not in ("text", "bool") and not (cells.holds == "number" and are_codes):
        return Hue(name, cells.values)
    levels, codes = cells.read_levels()  # the most frequent first
    present, order = len(levels), cells.order
    most = present if present <= MOST_LEVELS else MOST_LEVELS - 1
    kept = list(range(most))
    if cells.holds == "number":
        kept.sort(key=lambda k: float(levels[k]))
    elif cells.holds == "bool":
        kept.sort(key=levels.__getitem__)
    elif order is not None:
        kept.sort(key=lambda k: order.index(levels[k]))
    places = np.full(len(levels) + 1, -2)
    places[kept], places[-1] = np.arange(most), -1
    return Hue(name, places[codes], tuple(levels[k] for k in kept), present - most)
