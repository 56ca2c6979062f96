"""The nearest rows of a sample, for very many rows: all distances of a block at a time.

In the tens of dimensions a search tree looks at nearly every point as well, one by one; a matrix
product does the same at a hundred times the speed, and on a GPU at many times that.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from sgpmic._programs import compiled
from sgpmic._runtime import with_numerics
from sgpmic._types import Floats, Ints
from sgpmic.learning.points import falling_weights
from sgpmic.model.rows import pad_rows

#: Rows at a time.
BLOCK = 4096


@compiled(static_argnames="k")
def _nearest(sample: Array, rows: Array, k: int) -> tuple[Array, Array]:
    # |r − s|² but for |r|², which is the same for every s.
    ranks = jnp.sum(sample * sample, axis=1) - 2.0 * (rows @ sample.T)
    nearest = []
    # One by one: for a handful it takes less time than any sorting.
    for _ in range(k):
        best = jnp.argmin(ranks, axis=1)
        nearest.append(best)
        ranks = jnp.where(jnp.arange(len(sample)) == best[:, None], jnp.inf, ranks)
    places = jnp.stack(nearest, axis=1)
    # From the differences: the products above have lost the digits of close neighbours.
    squares = jnp.stack([jnp.sum((rows - sample[p]) ** 2, axis=1) for p in nearest], axis=1)
    return places, squares


@with_numerics
def weights_of_nearest(sample: Floats, rows: Floats, k: int) -> tuple[Ints, Floats]:
    """Return each row's ``k`` nearest rows in the sample, and weights that fall with distance.

    The weights go with the inverse square of the distance and add up to one; a row that is in the
    sample has all of its weight on itself (equal rows share it).
    """
    k = min(k, len(sample))
    centre = sample.mean(axis=0)  # keeps squares from losing digits to a large offset
    places = np.empty((len(rows), k), np.int64)
    weights = np.empty((len(rows), k))
    for first in range(0, len(rows), BLOCK):
        part = np.asarray(rows[first : first + BLOCK], np.float64) - centre
        found, squares = _nearest(sample - centre, pad_rows(part, BLOCK), k)
        places[first : first + BLOCK] = np.asarray(found)[: len(part)]
        weights[first : first + BLOCK] = falling_weights(np.asarray(squares)[: len(part)], 1.0)
    return places, weights
