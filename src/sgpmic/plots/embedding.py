"""Scatter plot of the latent points, colored by cluster or any other variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from sgpmic._types import Floats, Ints
from sgpmic._words import plural
from sgpmic.colors import GREY, GREY_ON_DARK, style_of
from sgpmic.learning.preprocessing import view_axes
from sgpmic.plots import base
from sgpmic.plots.base import Display, ink, is_dark, is_missing, plain
from sgpmic.report.picture import outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colorbar import Colorbar
    from matplotlib.lines import Line2D

# Marker areas, in points²: for up to a thousand rows; minimum; and range for sizes given as data.
_AREA, _LEAST_AREA = 32.0, 3.0
_SIZES = (10.0, 130.0)

# Beyond this many points, vector graphics and the search for an empty corner become slow.
_MANY_POINTS = 5_000

#: Integers with at most this many distinct values are treated as categorical.
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
    feature_names : sequence of str or None
        Column names of an array X.
    n_components : int or None
        Number of latent dimensions, if ``points`` has only two of them.

    Attributes
    ----------
    points : ndarray of shape (n_rows, 1 or 2)
        The points as drawn.
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
        feature_names: Sequence[str] | None = None,
        n_components: int | None = None,
    ) -> None:
        points = np.asarray(points, dtype=np.float64)
        unknown = np.isnan(points).all(axis=-1)  # rows without any value
        nothing = points.size > 0 and unknown.all()
        if points.ndim != 2 or nothing or not np.isfinite(points[~unknown]).all():
            raise ValueError("embedding must be finite numbers of shape (n_rows, n_components).")
        axes = view_axes(points[~unknown])[:, :2]
        self.points, self.n_components = points @ axes, n_components or points.shape[1]
        self.memberships = _as_memberships(memberships, len(points))
        self.memberships[unknown] = np.nan
        #: The most probable cluster of every row, −1 for rows without any value.
        self.labels: Ints = self.memberships.argmax(axis=1)
        self.labels[np.isnan(self.memberships).any(axis=1)] = -1
        self.feature_names, self.means, self.covariances = feature_names, means, covariances
        if means is not None and covariances is not None:
            self.means, self.covariances = means @ axes, axes.T @ covariances @ axes

    @classmethod
    def from_estimator(cls, estimator: Any, **plotting: Any) -> Self:
        """Draw the latent points of a fitted model (:meth:`sgpmic.SGPMIC.plot_embedding`)."""
        check_is_fitted(estimator)
        # The names of columns before encoding are not those of an array's features.
        names = None if estimator.encoder_ else getattr(estimator, "feature_names_in_", None)
        mixture: Any = {"means": estimator.means_, "covariances": estimator.covariances_}
        rows = estimator.embedding_, estimator.memberships_
        return cls(*rows, feature_names=names, **mixture).plot(**plotting)

    @classmethod
    def from_predictions(
        cls,
        embedding: ArrayLike,
        memberships: ArrayLike,
        *,
        means: Floats | None = None,
        covariances: Floats | None = None,
        feature_names: Sequence[str] | None = None,
        **plotting: Any,
    ) -> Self:
        """Draw latent points; the parameters are those of the class and of :meth:`plot`."""
        about: Any = {"means": means, "covariances": covariances, "feature_names": feature_names}
        return cls(embedding, memberships, **about).plot(**plotting)

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
        self._areas, size_range = _areas(size, len(self.points))
        # A height that equal-aspect axes 6.5 inches wide fill well
        known = self.points[np.isfinite(self.points[:, 0])]
        width, height = np.maximum(np.ptp(known, axis=0), 1e-9)[[0, -1]]
        height = np.clip(6.5 * height / width + 0.9, 3.5, 7.4)
        self._places = places = self.points
        flat = places.shape[1] == 1
        if flat:  # one strip per cluster, with vertical jitter
            height = np.clip(1.6 + 0.5 * n_clusters, 3.0, 9.0)
            heights = np.random.default_rng(0).uniform(-0.3, 0.3, len(places))
            self._places = places = np.column_stack([places[:, 0], self.labels + heights])
        ax = self._draw_on(ax, 7.5 + base.legend_width(len(hue.levels or ())), float(height))
        from matplotlib.lines import Line2D

        by_cluster = hue.levels is not None and hue.name == "cluster"
        self.scatters_: list[PathCollection] = []
        self.colorbar_ = self._draw_numbers(hue) if hue.levels is None else None
        if hue.levels is not None:
            self._draw_groups(hue, hue.levels, fade=by_cluster)
        self.outlines_ = self._draw_outlines(by_cluster)
        self._name_axes(title)
        handles = ax.get_legend_handles_labels()[0]
        for area, value in zip(_SIZES, size_range, strict=False):  # the smallest and the largest
            style = {"linestyle": "", "marker": "o", "color": "gray", "markersize": area**0.5}
            handles.append(Line2D([], [], label=f"size: {value:.4g}", **style))
        many = len(handles) > base.MOST_INSIDE or len(places) > _MANY_POINTS
        beside = many and hue.levels is not None  # else the color bar is there
        self.legend_ = base.add_legend(ax, beside=beside, handles=handles)
        if self.legend_ is not None and not by_cluster and hue.levels is not None:
            self.legend_.set_title(hue.name)
        # Legends and color bars reshape the axes, and equal aspect widens the limits for every
        # intermediate shape: rescale for the final one.
        self.figure_.draw_without_rendering()
        if not flat:
            ax.autoscale()
            ax.apply_aspect()
        centers = n_clusters > base.MOST_INSIDE or (n_clusters > 1 and not by_cluster)
        self.numbers_ = [
            base.write_number(ax, np.median(places[self.labels == m], axis=0), str(m))
            for m in np.unique(self.labels)
            if centers and not flat and m >= 0
        ]
        self.texts_ = [] if labels is None else base.write_texts(ax, places, labels)
        return self

    def _hue(self, color_by: Any, X: Any) -> Hue:
        n_rows, n_clusters = self.memberships.shape
        if color_by is not None and not isinstance(color_by, str):
            name = getattr(color_by, "name", None)
            return read_hue(color_by, name if isinstance(name, str) else "", n_rows)
        if color_by is not None and X is not None:
            return read_hue(find_column(X, color_by, self.feature_names), color_by, n_rows)
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
        (x, y), areas = self._places[mine].T, shrink * self._areas[mine]
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
        if self.means is None or self.covariances is None:
            return []
        lines, dark = [], is_dark(self.ax_)
        for m, normal in enumerate(zip(self.means, self.covariances, strict=True)):
            rows, flat = self.points[self.labels == m], self.points.shape[1] == 1
            if flat and not len(rows):
                continue
            line = outline(rows, *normal)
            if flat:
                line = np.column_stack([line, np.full(2, m - 0.4)])
            color, alpha = (style_of(m, dark=dark)[0], 0.9) if by_cluster else (ink(self.ax_), 0.45)
            lines += self.ax_.plot(*line.T, color=color, linewidth=1.4, alpha=alpha)
        return lines

    def _name_axes(self, title: str | None) -> None:
        ax, flat = self.ax_, self.points.shape[1] == 1
        name = "principal latent axis" if self.n_components > 2 else "latent dimension"
        base.finish(ax, f"{name} 1", "cluster" if flat else f"{name} 2")
        if flat:
            n_clusters = self.memberships.shape[1]
            ax.set_yticks(range(n_clusters))
            ax.set_ylim(n_clusters - 0.4, -0.6)  # the first on top
            ax.grid(visible=False, axis="y")
        else:
            ax.set_aspect("equal", adjustable="datalim")
        if title:
            ax.set_title(title, loc="left")


def _as_memberships(given: ArrayLike, n_rows: int) -> Floats:
    """Validate memberships; labels are one-hot encoded, −1 as NaN."""
    found = np.asarray(given)
    if found.shape[:1] != (n_rows,) or found.ndim > 2:
        raise ValueError(
            f"memberships has shape {found.shape}, but there are {n_rows} rows: give labels, or "
            "one row of memberships for each."
        )
    if found.ndim == 2:
        return np.array(found, dtype=np.float64)
    if found.dtype.kind not in "iu" or found.min(initial=0) < -1:
        raise ValueError("Labels must be whole numbers from 0, or -1 for rows without any value.")
    return np.where(found[:, None] < 0, np.nan, np.eye(int(found.max(initial=0)) + 1)[found])


def _areas(size: Any, n_rows: int) -> tuple[Floats, tuple[float, ...]]:
    """Return marker areas, and the values that the smallest and largest represent."""
    if size is None:
        usual = float(np.clip(_AREA * (1_000 / max(n_rows, 1)) ** 0.6, _LEAST_AREA, _AREA))
        return np.full(n_rows, usual), ()
    numbers = np.asarray(size, dtype=np.float64)
    if numbers.ndim == 0:
        if not numbers > 0:
            raise ValueError(f"size={size} must be above 0.")
        return np.full(n_rows, float(numbers)), ()
    if numbers.shape != (n_rows,):
        raise ValueError(f"size has shape {numbers.shape}, but there are {n_rows} rows.")
    if not np.isfinite(numbers).any():
        raise ValueError("size has no finite number.")
    numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    share = (numbers - low) / ((high - low) or 1.0)
    # A row without a size is drawn small, so as not to look important.
    return _SIZES[0] + (_SIZES[1] - _SIZES[0]) * np.nan_to_num(share), (low, high)


def read_hue(values: Any, name: str, n_rows: int) -> Hue:
    """Classify a column or array as numeric or categorical (:meth:`SGPMIC.plot_embedding`)."""
    order = getattr(getattr(values, "cat", None), "categories", None)
    if np.shape(values) != (n_rows,):
        raise ValueError(
            f"color_by has shape {np.shape(values)}, but there are {n_rows} rows: give one entry "
            "for each."
        )
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    # Dates with a time zone would become objects.
    array: NDArray[Any] = np.asarray(values, "M8[s]" if kind == "M" else None)
    if np.ma.isMA(values):  # integers, booleans and strings have no NaN
        array = np.ma.filled(values.astype(float if kind in "iuf" else object), np.nan)
    if kind in ("i", "u") and array.dtype.kind == "f":  # a nullable integer column
        array = np.array([None if np.isnan(one) else int(one) for one in array], dtype=object)
    if array.dtype.kind == "M":  # NaT becomes NaN
        days = (array - np.datetime64(0, "D")) / np.timedelta64(1, "D")
        return Hue(name, days, are_dates=True)
    if order is None and array.dtype.kind == "f":
        return Hue(name, np.asarray(array, dtype=np.float64))
    seen = np.array([not is_missing(one) for one in array], dtype=bool)
    there = array[seen].tolist()
    counts = Counter(there)
    if order is None:
        numeric = all(
            isinstance(one, int | float | np.number) and not isinstance(one, bool) for one in there
        )
        whole = numeric and all(float(one).is_integer() for one in counts)
        if numeric and counts and not (whole and len(counts) <= MOST_CODES):
            numbers = np.full(n_rows, np.nan)
            numbers[seen] = there
            return Hue(name, numbers)
        # Numbers and booleans are sorted; strings are in order of decreasing frequency.
        ordered = all(isinstance(one, int | float) for one in counts)
        order = sorted(counts) if ordered else [one for one, _ in counts.most_common()]
    present = shown = [one for one in order if counts[one]]
    if len(present) > MOST_LEVELS:
        frequent = set(sorted(present, key=lambda one: -counts[one])[: MOST_LEVELS - 1])
        shown = [one for one in present if one in frequent]
    places = {one: place for place, one in enumerate(shown)}
    codes = np.full(n_rows, -1, dtype=np.int64)
    codes[seen] = [places.get(one, -2) for one in there]
    said = [("yes" if one else "no") if isinstance(one, bool) else str(one) for one in shown]
    return Hue(name, codes, tuple(said), len(present) - len(shown))


def find_column(X: Any, name: str, feature_names: Sequence[str] | None) -> Any:
    """Return a column of a data frame, a dict of columns, or an array with names."""
    is_table = isinstance(X, Mapping) or hasattr(X, "columns")
    named = getattr(X, "columns", X) if is_table else feature_names
    known = [] if named is None else list(named)
    if name in known:
        return X[name] if is_table else np.asanyarray(X)[:, known.index(name)]
    names = ", ".join(map(str, known[:8])) + (", …" if len(known) > 8 else "")
    raise ValueError(
        f"color_by={name!r} is not a column of X"
        + (f", which has {names}." if known else ": an array has no names; use a data frame.")
    )
