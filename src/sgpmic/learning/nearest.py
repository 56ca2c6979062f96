"""The nearest rows of a sample, and what they count."""

from __future__ import annotations

import numpy as np
from sklearn.neighbors import NearestNeighbors

from sgpmic._types import Floats, Ints
from sgpmic.learning.points import falling_weights

#: Rows at a time, to bound what differences take.
_PART = 65_536


def weights_of_nearest(sample: Floats, rows: Floats, k: int) -> tuple[Ints, Floats]:
    """Return each row's ``k`` nearest rows in the sample, and weights that fall with distance.

    The weights go with the inverse square of the distance and add up to one; a row that is in the
    sample has all of its weight on itself (equal rows share it).
    """
    center = sample.mean(axis=0)  # keeps squares from losing digits to a large offset
    # In the tens of dimensions a search tree looks at nearly every point as well, one by one.
    k = min(k, len(sample))
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(sample - center)
    places, weights = np.empty((len(rows), k), np.int64), np.empty((len(rows), k))
    for first in range(0, len(rows), _PART):
        here = slice(first, first + _PART)
        part = rows[here]
        places[here] = search.kneighbors(part - center, return_distance=False)
        # From the differences: the search's own products have lost the digits of close neighbors.
        squares = [np.sum((part - sample[place]) ** 2, axis=1) for place in places[here].T]
        weights[here] = falling_weights(np.stack(squares, axis=1), 1.0)
    return places, weights
