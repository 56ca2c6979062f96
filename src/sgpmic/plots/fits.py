"""How a fit went: the committee's members, the number of clusters, the bound over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sgpmic.colors import distinct_colors, style_of
from sgpmic.plots.base import Display, add_legend, finish, ink, is_dark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.lines import Line2D


@dataclass(eq=False, repr=False)
class CommitteeDisplay(Display):
    """A bar for the weight of every member, a mark for its agreement with the committee.

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
                "No committee has voted on this model, so there is none to draw: fit with "
                "committee=Committee()."
            )
        voted = [member for member in estimator._committee if "reason" not in member]
        return cls(voted).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw it on the axes given, or on those of a new figure."""
        ax = self._draw_on(ax, 7.5, 1.7 + 0.3 * len(self.members))
        weights = np.array([float(member["weight"]) for member in self.members])
        agreement = np.array([float(member["agreement"]) for member in self.members])
        places = np.arange(len(self.members))
        blue, orange = distinct_colors(2, dark=is_dark(ax))
        weight = "weight of its vote (all add up to 1)"
        self.bars_: BarContainer = ax.barh(places, weights, 0.62, color=blue, label=weight)
        agrees = "agreement with the committee’s clusters (adjusted Rand index)"
        self.marks_: Line2D = ax.plot(agreement, places, "D", color=orange, label=agrees)[0]
        self.marks_.set(markeredgecolor=ink(ax), markeredgewidth=0.6, clip_on=False)
        ax.set_yticks(places, [str(member["name"]) for member in self.members])
        ax.set_ylim(len(places) - 0.5, -0.5)  # the weightiest on top
        ax.set_xlim(min(0.0, float(agreement.min()) - 0.02), 1.0)
        finish(ax, "", "")
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
        above: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "fontsize": "small"}
        ax.legend(handles=[self.bars_, self.marks_], frameon=False, **above)
        return self


@dataclass(eq=False, repr=False)
class NumberOfClustersDisplay(Display):
    """The probability of every number of clusters, and the number that was chosen.

    Parameters
    ----------
    found : dict
        As ``SGPMIC.number_of_clusters_``: 'chosen', 'candidates', 'probability', 'expected'.

    Attributes
    ----------
    expected_ : Line2D or None
        The adjusted Rand index with the true clusters that is expected of every number; None for
        models of an earlier version.
    probability_ : BarContainer
    chosen_ : Line2D
        The mark of the chosen number; a vertical line where it is 1 and earlier versions, which
        did not give it a probability, found it.
    """

    found: dict[str, Any]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw how a model's number of clusters was found.

        One that was fitted with ``n_clusters='auto'``
        (:meth:`sgpmic.SGPMIC.plot_number_of_clusters`).
        """
        check_is_fitted(estimator)
        if estimator._number_of_clusters is None:
            raise ValueError(
                "The number of clusters of this model was given, not found: fit with "
                "n_clusters='auto' to compare numbers."
            )
        return cls(estimator._number_of_clusters).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw it on the axes given, or on those of a new figure."""
        ax = self._draw_on(ax, 6.5, 3.8)
        numbers, chosen = self.found["candidates"], self.found["chosen"]
        blue, orange, green = distinct_colors(3, dark=is_dark(ax))
        probability = self.found.get("probability") or self.found["certainty"]
        self.probability_ = ax.bar(
            numbers, probability, width=0.6, color=orange, alpha=0.75, label="probability"
        )
        self.expected_: Line2D | None = None
        if "expected" in self.found:
            (self.expected_,) = ax.plot(
                numbers, self.found["expected"], "o-", color=blue, label="expected Rand index"
            )
        self.chosen_: Line2D
        if chosen in numbers:
            height, name = probability[numbers.index(chosen)], f"chosen: {chosen}"
            (self.chosen_,) = ax.plot([chosen], [height], "o", markersize=14, label=name)
            self.chosen_.set(markerfacecolor="none", markeredgecolor=green, markeredgewidth=2.2)
        else:
            name = f"chosen: {chosen}, as the rows do not stand out from noise"
            self.chosen_ = ax.axvline(chosen, color=green, linewidth=2.2, label=name)
        finish(ax, "number of clusters", "")
        ax.set_ylim(0.0, 1.05)
        if numbers and max(numbers) <= 20:
            ax.set_xticks(range(min(chosen, *numbers), max(numbers) + 1))
        add_legend(ax, beside=False)
        return self


@dataclass(eq=False, repr=False)
class BoundDisplay(Display):
    """The bound after every E-step and M-step of every start.

    Starts are kept by their agreement with the others unless ``start__selection='bound'``, so the
    kept one may not have the highest bound.

    Parameters
    ----------
    history : mapping of str to list
        As ``SGPMIC.history_``.
    starts : sequence of dict
        As ``SGPMIC.starts_``.

    Attributes
    ----------
    lines_ : list of Line2D
        One for every start.
    """

    history: Mapping[str, Any]
    starts: Sequence[dict[str, Any]]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the bound of a fitted model (:meth:`sgpmic.SGPMIC.plot_bound`)."""
        check_is_fitted(estimator)
        return cls(estimator.history_, estimator.starts_).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw it on the axes given, or on those of a new figure."""
        ax = self._draw_on(ax, 6.5, 3.6)
        from matplotlib.ticker import MaxNLocator

        numbers = np.asarray(self.history["start"])
        several = len(self.starts) > 1
        self.lines_: list[Line2D] = []
        for place, (number, start) in enumerate(zip(np.unique(numbers), self.starts, strict=True)):
            mine = numbers == number
            rounds, after_e, bound = (
                np.asarray(self.history[k])[mine] for k in ("round", "bound_after_e", "bound")
            )
            kept = bool(start["kept"])
            name = f"{start['embedding']} + {start['memberships']}"
            if several:
                name += f" (agreement {start['agreement']:.2f}{', kept' if kept else ''})"
            self.lines_ += ax.plot(
                np.stack([rounds - 0.5, rounds], axis=1).ravel(),
                np.stack([after_e, bound], axis=1).ravel(),
                color=style_of(place, dark=is_dark(ax))[0],
                linewidth=2.2 if kept else 1.0,
                linestyle="-" if kept else "--",
                marker="o" if kept else None,
                markersize=3,
                label=name,
            )
        finish(ax, "round of EM (half rounds: after the E-steps)", "bound")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False, loc="lower right")
        return self
