"""Fuzzy c-means as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sgpmic._types import Floats, Ints
from sgpmic.exceptions import ConvergenceWarning
from sgpmic.learning.constraints import Number, WholeNumber
from sgpmic.learning.points import origin_and_unit
from sgpmic.learning.start.memberships import fuzzy_c_means, fuzzy_memberships


class FuzzyCMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Fuzzy c-means clustering: k-means in which a row belongs to every cluster to a degree.

    It minimises Σᵢⱼ uᵢⱼᵐ ‖xᵢ − vⱼ‖² over memberships u, whose rows sum to one, and centres v.

    Parameters
    ----------
    n_clusters : int, default=3
        Number of clusters; at most the number of rows.
    fuzzifier : float, default=2.0
        The exponent m, above 1: near 1 memberships are those of k-means, large values make them
        all alike.
    n_init : int, default=5
        Number of starts; the one with the lowest objective is kept.
    max_iter : int, default=300
        Most iterations of a start.
    tol : float, default=1e-6
        A start ends when no membership changes by more than this.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The cluster every row belongs to most.
    memberships_ : ndarray of shape (n_samples, n_clusters)
        The degree to which every row belongs to every cluster.
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
    objective_ : float
        What is minimised, at the end.
    n_iter_ : int
        Iterations of the start that was kept.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, when all are strings.

    References
    ----------
    J. C. Bezdek, *Pattern Recognition with Fuzzy Objective Function Algorithms*, 1981.

    Examples
    --------
    >>> from sgpmic.fuzzy import FuzzyCMeans
    >>> X = [[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]]
    >>> model = FuzzyCMeans(n_clusters=2, random_state=0).fit(X)
    >>> bool(model.labels_[0] == model.labels_[2] != model.labels_[3])
    True
    >>> model.predict_proba([[6.0]]).round(2)
    array([[0.5, 0.5]])
    """

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        fuzzifier: float = 2.0,
        n_init: int = 5,
        max_iter: int = 300,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.fuzzifier = fuzzifier
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Find the clusters of the rows of ``X``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : Ignored
            Present for scikit-learn's conventions.

        Returns
        -------
        self : FuzzyCMeans
        """
        for name in ("n_clusters", "n_init", "max_iter"):
            WholeNumber(1).check(name, getattr(self, name))
        Number(1.0, above=True).check("fuzzifier", self.fuzzifier)
        Number(0.0).check("tol", self.tol)
        # Row by row in memory: sums in another order would round differently.
        points = validate_data(self, X, dtype=np.float64, order="C")
        if len(points) < self.n_clusters:
            raise ValueError(
                f"n_samples={len(points)} is less than n_clusters={self.n_clusters}: ask for at "
                "most as many clusters as there are rows."
            )
        found = fuzzy_c_means(
            points,
            int(self.n_clusters),
            fuzzifier=float(self.fuzzifier),
            n_init=int(self.n_init),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            random_state=check_random_state(self.random_state),
        )
        self.cluster_centers_ = found.centers
        self.objective_ = found.objective
        self.n_iter_ = found.n_iter
        # Computed as for any other rows, so that prediction agrees to the last digit.
        self.memberships_ = self._memberships(points)
        self.labels_ = self.memberships_.argmax(axis=1)
        if self.n_iter_ >= self.max_iter:
            warnings.warn(
                f"Fuzzy c-means made all max_iter={self.max_iter} iterations and memberships may "
                "still be moving: raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _distances(self, points: Floats) -> tuple[Floats, float]:
        """Return distances to the centres, and the unit they are in.

        Relative to the spread of the centres, their squares neither overflow nor vanish.
        """
        origin, unit = origin_and_unit(self.cluster_centers_)
        return cdist((points - origin) / unit, (self.cluster_centers_ - origin) / unit), unit

    def _memberships(self, points: Floats) -> Floats:
        return fuzzy_memberships(self._distances(points)[0] ** 2, float(self.fuzzifier))

    def _check_rows(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, order="C", reset=False)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the degree to which every row belongs to every cluster.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        memberships : ndarray of shape (n_samples, n_clusters)
            Rows sum to one.
        """
        return self._memberships(self._check_rows(X))

    def predict(self, X: ArrayLike) -> Ints:
        """Return the cluster every row belongs to most.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        return self.predict_proba(X).argmax(axis=1)

    def transform(self, X: ArrayLike) -> Floats:
        """Return the distances to the centres.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
        """
        distances, unit = self._distances(self._check_rows(X))
        return distances * unit

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)
