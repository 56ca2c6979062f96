"""The members of the committee: what they weigh and how far they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sgpmic.colours import distinct_colours
from sgpmic.plots.base import Display, finish, ink, is_dark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.lines import Line2D


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

    def __init__(self, members: Sequence[dict[str, Any]]) -> None:
        self.members = list(members)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the committee of a fitted model (:meth:`sgpmic.SGPMIC.plot_committee`)."""
        check_is_fitted(estimator)
        if not estimator.committee_:
            raise ValueError(
                "No committee has voted on this model, so there is none to draw: fit with "
                "committee=Committee()."
            )
        return cls(estimator.committee_).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw it on the axes given, or on those of a new figure."""
        ax = self._draw_on(ax, 7.5, 1.7 + 0.3 * len(self.members))
        weights = np.array([float(member["weight"]) for member in self.members])
        agreement = np.array([float(member["agreement"]) for member in self.members])
        places = np.arange(len(self.members))
        blue, orange = distinct_colours(2, dark=is_dark(ax))
        self.bars_: BarContainer = ax.barh(
            places, weights, height=0.62, color=blue, label="weight of its vote (all add up to 1)"
        )
        (self.marks_,) = ax.plot(
            agreement,
            places,
            "D",
            color=orange,
            markeredgecolor=ink(ax),
            markeredgewidth=0.6,
            clip_on=False,
            label="agreement with the committee’s clusters (adjusted Rand index)",
        )
        marks: Line2D = self.marks_
        ax.set_yticks(places, [str(member["name"]) for member in self.members])
        ax.set_ylim(len(places) - 0.5, -0.5)  # the weightiest on top
        ax.set_xlim(min(0.0, float(agreement.min()) - 0.02), 1.0)
        finish(ax, "", "")
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
        ax.legend(
            handles=[self.bars_, marks],
            frameon=False,
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            fontsize="small",
        )
        return self
