"""Plots of fitted models, in the style of scikit-learn's displays.

Every display is created by ``from_estimator`` or from arrays, has a method ``plot`` to draw it
(again), and stores the artists: ``ax_``, ``figure_`` and the marks. The estimator's methods
(:meth:`sgpmic.SGPMIC.plot_embedding` and the others) call ``from_estimator``.
"""

from sgpmic.plots.clusters import MembershipsDisplay, ProfilesDisplay
from sgpmic.plots.embedding import EmbeddingDisplay

__all__ = [
    "EmbeddingDisplay",
    "MembershipsDisplay",
    "ProfilesDisplay",
]
