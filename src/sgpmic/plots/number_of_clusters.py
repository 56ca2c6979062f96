"""How the number of clusters was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.validation import check_is_fitted

from sgpmic.colours import distinct_colours
from sgpmic.plots.base import Display, add_legend, finish, is_dark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.lines import Line2D


class NumberOfClustersDisplay(Display):
    """The probability of every number of clusters, and the number that was chosen.

    Parameters
    ----------
    found : dict
        As ``SGPMIC.number_of_clusters_``: 'chosen', 'candidates', 'certainty', 'probability'.

    Attributes
    ----------
    certainty_ : Line2D
        How sure a committee of clusterings is of every number.
    probability_ : BarContainer or None
        None for a model of an earlier version, which has no probabilities.
    chosen_ : Line2D
        The mark of the chosen number; a vertical line where it is 1, which has no probability.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw how a model's number of clusters was found.

        One that was fitted with ``n_clusters='auto'``
        (:meth:`sgpmic.SGPMIC.plot_number_of_clusters`).
        """
        check_is_fitted(estimator)
        if estimator.number_of_clusters_ is None:
            raise ValueError(
                "The number of clusters of this model was given, not found: fit with "
                "n_clusters='auto' to compare numbers."
            )
        return cls(estimator.number_of_clusters_).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw it on the axes given, or on those of a new figure."""
        ax = self._draw_on(ax, 6.5, 3.8)
        numbers, chosen = self.found["candidates"], self.found["chosen"]
        blue, orange, green = distinct_colours(3, dark=is_dark(ax))
        probability = self.found.get("probability")
        self.probability_: BarContainer | None = None
        if probability is not None:
            self.probability_ = ax.bar(
                numbers, probability, width=0.6, color=orange, alpha=0.75, label="probability"
            )
        (self.certainty_,) = ax.plot(
            numbers, self.found["certainty"], "o-", color=blue, label="certainty of the committee"
        )
        self.chosen_: Line2D
        if chosen in numbers:
            (self.chosen_,) = ax.plot(
                [chosen],
                [self.found["certainty"][numbers.index(chosen)]],
                "o",
                markersize=14,
                markerfacecolor="none",
                markeredgecolor=green,
                markeredgewidth=2.2,
                label=f"chosen: {chosen}",
            )
        else:
            self.chosen_ = ax.axvline(
                chosen,
                color=green,
                linewidth=2.2,
                label=f"chosen: {chosen}, as the rows do not stand out from noise",
            )
        finish(ax, "number of clusters", "")
        ax.set_ylim(0.0, 1.05)
        if numbers and max(numbers) <= 20:
            ax.set_xticks(range(min(chosen, *numbers), max(numbers) + 1))
        add_legend(ax, beside=False)
        return self
