"""Plots of memberships, cluster profiles, committee, number of clusters, and bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sgpmic._types import Floats, Ints
from sgpmic._words import plural
from sgpmic.colors import N_COLORS, distinct_colors, style_of
from sgpmic.plots import base
from sgpmic.plots.base import Display, add_legend, finish, ink, is_dark
from sgpmic.report.content import content_of_rows
from sgpmic.report.explanations import compare_columns
from sgpmic.report.statistics import cluster_profiles, strongest_first
from sgpmic.report.words import shorten, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

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


@dataclass(eq=False, repr=False)
class CommitteeDisplay(Display):
    """Bar chart of the committee members' weights, with markers for their agreement.

    Parameters
    ----------
    members : sequence of dict
        As ``SGPMIC.committee_``: 'name', 'weight' and 'agreement' of every member.

    Attributes
    ----------
    bars_ : BarContainer
    marks_ : Line2D
    """

    members: Sequence[dict[str, Any]]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the committee of a fitted model (:meth:`sgpmic.SGPMIC.plot_committee`)."""
        check_is_fitted(estimator)
        if not estimator._committee:
            raise ValueError(
                "No committee has voted on this model, so there is nothing to plot: fit with "
                "committee=Committee()."
            )
        voted = [member for member in estimator._committee if "reason" not in member]
        return cls(voted).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on the given axes, or on a new figure."""
        ax = self._draw_on(ax, 7.5, 1.7 + 0.3 * len(self.members))
        weights, agreement = (
            [float(member[k]) for member in self.members] for k in ("weight", "agreement")
        )
        places = range(len(self.members))
        blue, orange = distinct_colors(2, dark=is_dark(ax))
        weight = "weight of its vote (weights sum to 1)"
        self.bars_ = ax.barh(places, weights, 0.62, color=blue, label=weight)
        agrees = "agreement with the committee’s clusters (adjusted Rand index)"
        self.marks_ = ax.plot(agreement, places, "D", color=orange, label=agrees)[0]
        self.marks_.set(markeredgecolor=ink(ax), markeredgewidth=0.6, clip_on=False)
        ax.set_yticks(places, [str(member["name"]) for member in self.members])
        ax.set_ylim(len(places) - 0.5, -0.5)  # the largest weight on top
        ax.set_xlim(min(0.0, min(agreement) - 0.02), 1.0)
        finish(ax, "", "")
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
        above: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "fontsize": "small"}
        ax.legend(handles=[self.bars_, self.marks_], frameon=False, **above)
        return self


@dataclass(eq=False, repr=False)
class NumberOfClustersDisplay(Display):
    """Bar chart of the probability of every number of clusters, with the chosen number.

    Parameters
    ----------
    found : dict
        As ``SGPMIC.number_of_clusters_``: 'chosen', 'candidates', 'probability', 'expected'.

    Attributes
    ----------
    expected_ : Line2D or None
        The expected adjusted Rand index with the true clusters for every number; None for models
        of an earlier version.
    probability_ : BarContainer
    chosen_ : Line2D
        The marker of the chosen number.
    """

    found: dict[str, Any]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the choice of the number (:meth:`sgpmic.SGPMIC.plot_number_of_clusters`)."""
        check_is_fitted(estimator)
        if estimator._number_of_clusters is None:
            raise ValueError(
                "The number of clusters of this model was given, not found: fit with "
                "n_clusters='auto' to compare numbers."
            )
        return cls(estimator._number_of_clusters).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on the given axes, or on a new figure."""
        ax = self._draw_on(ax, 6.5, 3.8)
        numbers, chosen = self.found["candidates"], self.found["chosen"]
        blue, orange, green = distinct_colors(3, dark=is_dark(ax))
        probability = self.found["probability"]
        bars: dict[str, Any] = {"width": 0.6, "color": orange, "alpha": 0.75}
        self.probability_ = ax.bar(numbers, probability, label="probability", **bars)
        self.expected_: Line2D | None = None
        if "expected" in self.found:
            style: Any = {"color": blue, "label": "expected adjusted Rand index"}
            self.expected_ = ax.plot(numbers, self.found["expected"], "o-", **style)[0]
        decisive = self.found.get("expected", probability)  # its largest value is chosen
        # In models of earlier versions, one cluster is not among the candidates.
        height = dict(zip(numbers, decisive, strict=True)).get(chosen, 0.0)
        self.chosen_ = ax.plot([chosen], [height], "o", markersize=14, label=f"chosen: {chosen}")[0]
        self.chosen_.set(markerfacecolor="none", markeredgecolor=green, markeredgewidth=2.2)
        finish(ax, "number of clusters", "")
        ax.set_ylim(0.0, 1.05)
        if numbers and max(numbers) <= 20:
            ax.set_xticks(range(min(chosen, *numbers), max(numbers) + 1))
        add_legend(ax, beside=False)
        return self


@dataclass(eq=False, repr=False)
class BoundDisplay(Display):
    """Line plot of the bound after every E-step and M-step of every start.

    Parameters
    ----------
    history : mapping of str to list
        As ``SGPMIC.history_``.
    starts : sequence of dict
        As ``SGPMIC.starts_``.

    Attributes
    ----------
    lines_ : list of Line2D
        One per start.
    """

    history: Mapping[str, Any]
    starts: Sequence[dict[str, Any]]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the bound of a fitted model (:meth:`sgpmic.SGPMIC.plot_bound`)."""
        check_is_fitted(estimator)
        return cls(estimator.history_, estimator.starts_).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw on the given axes, or on a new figure."""
        ax = self._draw_on(ax, 6.5, 3.6)
        from matplotlib.ticker import MaxNLocator

        fields = ("start", "iteration", "bound_after_e", "bound")
        numbers, iterations, after_e, bound = (np.asarray(self.history[k]) for k in fields)
        self.lines_: list[Line2D] = []
        for place, (number, start) in enumerate(zip(np.unique(numbers), self.starts, strict=True)):
            mine, kept = numbers == number, bool(start["kept"])
            name = f"{start['embedding']} + {start['memberships']}"
            if len(self.starts) > 1:
                name += f" (agreement {start['agreement']:.2f}{', kept' if kept else ''})"
            self.lines_ += ax.plot(
                np.stack([iterations - 0.5, iterations], axis=1)[mine].ravel(),
                np.stack([after_e, bound], axis=1)[mine].ravel(),
                color=style_of(place, dark=is_dark(ax))[0],
                linewidth=2.2 if kept else 1.0,
                linestyle="-" if kept else "--",
                marker="o" if kept else None,
                markersize=3,
                label=name,
            )
        finish(ax, "EM iteration (half iterations: after the E-steps)", "bound")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False, loc="lower right")
        return self
