"""Clustering and non-linear dimensionality reduction, learned together.

>>> from sgpmic import SGPMIC
>>> model = SGPMIC(n_clusters=3, n_components=2, random_state=0)
"""

from sgpmic.estimator import SGPMIC
from sgpmic.learning.fit import Progress

__all__ = ["SGPMIC", "Progress", "__version__"]

__version__ = "0.1.0"
