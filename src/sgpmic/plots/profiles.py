"""Which features set the clusters apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from sgpmic._types import Floats, Ints
from sgpmic.plots.base import Display
from sgpmic.plots.texts import plain
from sgpmic.report.content import describe_rows
from sgpmic.report.statistics import cluster_profiles, level_shares, strongest_first
from sgpmic.report.words import signed
from sgpmic.tables.columns import Description

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

# More clusters than this have their number alone below their column.
_MOST_NAMED = 8


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
        drawn = estimator._rows_to_draw(X)
        described, labels = describe_rows(estimator, drawn.values), drawn.memberships.argmax(axis=1)
        effects, names = _effects(described, labels, estimator.n_clusters_)
        return cls(effects, names).plot(n_features=n_features, ax=ax)

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
            seen = getattr(X, "columns", [f"feature {j}" for j in range(values.shape[1])])
            feature_names = [str(name) for name in seen]
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
        self.image_: AxesImage = ax.imshow(
            table, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto"
        )
        for (row, column), value in np.ndenumerate(table):
            color = "white" if abs(value) > 0.7 * limit else "black"
            size = 8 if named else 7
            words = signed(value, 1)
            ax.text(column, row, words, ha="center", va="center", color=color, fontsize=size)
        names = [f"cluster {m}" if named else str(m) for m in range(n_clusters)]
        ax.set_xticks(range(n_clusters), names)
        ax.set_xlabel("" if named else "cluster")
        ax.set_yticks(range(len(shown)), [plain(self.feature_names[i]) for i in shown])
        ax.tick_params(length=0)
        self.figure_.colorbar(self.image_, ax=ax, label="effect size against all other rows")
        return self


def _effects(described: Description, labels: Ints, n_clusters: int) -> tuple[Floats, list[str]]:
    """Return effect sizes of numbers and levels, (n_clusters, number of them), and their names."""
    tables = [cluster_profiles(described.numbers, labels, n_clusters).effects]
    names = list(described.names)
    for column in described.categories:
        shares = level_shares(column.codes, len(column.levels), labels, n_clusters)
        # Of two levels one says it all.
        first = 1 if len(column.levels) == 2 else 0
        tables.append(shares.effects[:, first:])
        names += [f"{column.name}: {level}" for level in column.levels[first:]]
    return np.concatenate(tables, axis=1), names
