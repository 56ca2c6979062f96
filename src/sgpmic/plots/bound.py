"""The bound over the rounds of every start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sgpmic.colours import style_of
from sgpmic.plots.base import Display, finish, is_dark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


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

    def __init__(self, history: Mapping[str, Any], starts: Sequence[dict[str, Any]]) -> None:
        self.history = history
        self.starts = list(starts)

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
            rounds = np.asarray(self.history["round"])[mine]
            both = np.stack(
                [np.asarray(self.history[k])[mine] for k in ("bound_after_e", "bound")], axis=1
            )
            kept = bool(start["kept"])
            name = f"{start['embedding']} + {start['memberships']}"
            if several:
                name += f" (agreement {start['agreement']:.2f}{', kept' if kept else ''})"
            self.lines_ += ax.plot(
                np.stack([rounds - 0.5, rounds], axis=1).ravel(),
                both.ravel(),
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
