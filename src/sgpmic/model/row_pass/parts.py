"""Parts of the rows, which go through the pass one after the other."""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax import Array


class Part(NamedTuple):
    """Some rows: n blocks of b rows each; or, with an axis in front, all rows in parts."""

    x: Array  # (n · b, Q) latent points
    T: Array  # (n · b, G) weights in the mappings
    Y: Array  # (n, P, b) data


def in_parts(X: Array, T: Array, Y: Array, n_parts: int) -> Part:
    """Return all rows in parts; their number divides that of the blocks."""
    n, P, b = Y.shape
    return Part(
        X.reshape(n_parts, -1, X.shape[1]),
        T.reshape(n_parts, -1, T.shape[1]),
        Y.reshape(n_parts, n // n_parts, P, b),
    )


def first_part(parts: Part) -> Part:
    """Return the first of some parts."""
    return jax.tree.map(lambda leaf: leaf[0], parts)
