"""Plots of fitted models, in the style of scikit-learn's displays.

Every display is made ``from_estimator``, or from arrays of one's own, has a method ``plot`` that
draws it (again), and keeps what was drawn: ``ax_``, ``figure_`` and the marks. The estimator's
methods (:meth:`sgpmic.SGPMIC.plot_embedding` and the others) call ``from_estimator``.
"""

from sgpmic.plots.clusters import (
    BoundDisplay,
    CommitteeDisplay,
    MembershipsDisplay,
    NumberOfClustersDisplay,
    ProfilesDisplay,
)
from sgpmic.plots.embedding import EmbeddingDisplay

__all__ = [
    "BoundDisplay",
    "CommitteeDisplay",
    "EmbeddingDisplay",
    "MembershipsDisplay",
    "NumberOfClustersDisplay",
    "ProfilesDisplay",
]
