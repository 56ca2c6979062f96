"""Plotting methods of the estimator; matplotlib is imported when one is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlotsMixin:
    """Pictures of a fitted model, each on matplotlib axes that are given or made."""

    def plot_embedding(self: Any, *, title: str | None = None, axes: Axes | None = None) -> Axes:
        """Draw the latent points, coloured by cluster and faded by doubt, and the Gaussians.

        Parameters
        ----------
        title : str or None
        axes : matplotlib Axes or None
            Where to draw; None for a new figure.

        Returns
        -------
        axes : matplotlib Axes
        """
        check_is_fitted(self)
        _need_matplotlib()
        from sgpmic.report.picture import draw_embedding

        return draw_embedding(
            self.embedding_,
            self.memberships_,
            self.means_,
            self.covariances_,
            title=title,
            axes=axes,
        )

    def plot_bound(self: Any, *, axes: Axes | None = None) -> Axes:
        """Draw the bound over the rounds of every start.

        Parameters
        ----------
        axes : matplotlib Axes or None
            Where to draw; None for a new figure.

        Returns
        -------
        axes : matplotlib Axes
        """
        check_is_fitted(self)
        _need_matplotlib()
        from sgpmic.report.plots import draw_bound

        return draw_bound(self.history_, self.starts_, axes=axes)

    def plot_profiles(
        self: Any, X: ArrayLike | None = None, *, n_features: int = 10, axes: Axes | None = None
    ) -> Axes:
        """Draw which features set the clusters apart, as effect sizes (Cohen's d).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows to describe; None for the training rows (a sample of 20 000 where there were
            more).
        n_features : int, default=10
            How many features to show at most.
        axes : matplotlib Axes or None
            Where to draw; None for a new figure.

        Returns
        -------
        axes : matplotlib Axes
        """
        check_is_fitted(self)
        _need_matplotlib()
        from sgpmic.report.plots import draw_profiles

        if X is None:
            reference = self._fitted.reference
            values, labels = reference.rows, self.labels_[reference.lookup(reference.rows)]
        else:
            values = np.asarray(X, dtype=np.float64)
            labels = self.predict(X)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"feature {i}" for i in range(self.n_features_in_)]
        return draw_profiles(
            values, labels, names, int(self.n_clusters), n_features=n_features, axes=axes
        )


def _need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("Plots need matplotlib: pip install 'sgpmic[plot]'.") from None
