"""Plotting methods of the estimator; matplotlib is imported when one is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlotsMixin:
    """Pictures of a fitted model, each on the matplotlib axes given, or on new ones."""

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
            The first two latent dimensions; one alone is shown against the certainty. Every
            outline holds 90 % of its cluster's rows and has the shape of its Gaussian.
        """
        picture = _ready(self)
        return picture.draw_embedding(self, title, axes)

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
        picture = _ready(self)
        return picture.draw_bound(self, axes)

    def plot_profiles(
        self: Any, X: ArrayLike | None = None, *, n_features: int = 10, axes: Axes | None = None
    ) -> Axes:
        """Draw which features set the clusters apart, as effect sizes (Cohen's d).

        Of models with an encoder, which columns and levels do: the effect of a level is Cohen's h
        of its share in the cluster and elsewhere.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows to describe; None for the training rows (a sample of 20 000 where there were
            more).
        n_features : int, default=10
            How many features to show at most: those that set clusters apart most.
        axes : matplotlib Axes or None
            Where to draw; None for a new figure.

        Returns
        -------
        axes : matplotlib Axes
            Rows are features, columns clusters.
        """
        picture = _ready(self)
        if X is None:
            reference = self._predictor.reference
            values, labels = reference.rows, self.labels_[reference.lookup(reference.rows)]
        else:
            values, labels = self._check_rows(X), self.predict(X)
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            what = "feature" if self._reduction is None else "component"
            names = [f"{what} {i}" for i in range(values.shape[1])]
        table = picture.profile_table(self.encoder_, values, labels, names, self.n_clusters_)
        return picture.draw_profiles(*table, n_features, axes)


def _ready(model: Any) -> Any:
    """Return what draws, for a fitted model."""
    check_is_fitted(model)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("Plots need matplotlib: pip install 'sgpmic[plot]'.") from None
    from sgpmic.report import picture

    return picture
