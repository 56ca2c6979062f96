"""Sparse matrices of many features, such as counts of words, as some dense ones.

A truncated singular value decomposition, X ≈ U D Vᵀ, replaces every row x by Vᵀ x. Of all linear
maps to so few features it is the one that keeps distances between rows best; the matrix itself is
never made dense, nor centered. Why not the pass over the rows itself: its cost is that of a dense
product with the features, and the mappings' weights would be of inducing points times words; a
hundred features say what there is to say about groups of rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.utils.extmath import randomized_svd

from sgpmic._types import Floats

#: Features that rows of a sparse matrix are reduced to; of no more than these it is made dense.
N_KEPT = 100


class Reduction(NamedTuple):
    """The map from sparse rows to dense ones, and back."""

    components: Floats  # (n_kept, n_features), orthonormal: Vᵀ

    def transform(self, X: Any) -> Floats:
        """Return rows, sparse or dense, as the model takes them.

        A row's answer is the same to the last bit whatever it comes in, so that rows which were
        fitted are known again.
        """
        rows = _checked(X)
        if not rows.has_canonical_format:
            rows = rows.copy()  # it is the user's
            rows.sum_duplicates()
        return np.ascontiguousarray(rows @ self.components.T)

    def inverse_transform(self, Y: Floats) -> Floats:
        """Return the rows that reduced ones stand for."""
        return Y @ self.components


def fit_reduction(X: Any, rng: np.random.RandomState) -> Reduction | None:
    """Return the reduction of a sparse matrix, None where it has few enough features as it is."""
    if X.shape[1] <= N_KEPT:
        return None
    n_kept = min(N_KEPT, X.shape[0])
    _, _, components = randomized_svd(_checked(X), n_kept, n_iter=7, random_state=rng)
    return Reduction(np.ascontiguousarray(components))


def dense_rows(X: Any, reduction: Reduction | None) -> Floats:
    """Return rows as the model takes them: reduced, or of a sparse matrix made dense."""
    if reduction is not None:
        return reduction.transform(X)
    return X.toarray() if issparse(X) else X


def restored_rows(Y: Floats, reduction: Reduction | None) -> Floats:
    """Return the model's rows with the features of the user's."""
    return Y if reduction is None else reduction.inverse_transform(Y)


def _checked(X: Any) -> csr_array:
    """Return rows as a sparse array, or raise where one has a gap."""
    rows = csr_array(X)
    if np.isnan(rows.data).any():
        raise ValueError(
            f"Missing values (NaN) in a sparse matrix of more than {N_KEPT} features cannot be "
            "integrated out: fill them, or leave these rows out."
        )
    return rows
