"""The data as the statistics want to read it: in blocks, features first, padding marked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh

#: Rows a block on a CPU: a block's kernel matrix then stays in the second-level cache. Not 1024,
#: which puts the entries of a column into the same few places of the first-level cache.
DEFAULT_BLOCK = 1000
#: Unless asked otherwise, the rows of a block are a multiple of this: eight numbers fill a vector
#: register and a cache line. Blocks of 1021 rows made a pass a tenth slower than blocks of 1000.
ALIGNMENT = 8


@partial(
    jax.tree_util.register_dataclass, data_fields=("Y", "weight", "norm2"), meta_fields=("mesh",)
)
@dataclass(frozen=True)
class Rows:
    """Data rows in blocks of equal size.

    Everything that has one entry a row is kept either flat, ``(n_blocks * block, ...)``, or
    blocked, ``(n_blocks, block, ...)``; the two are views of each other. Rows that only fill up
    the last block have weight 0 and add nothing to any sum.
    """

    Y: Array  # (n_blocks, P, block): features first, which matrix products read fastest
    weight: Array  # (n_blocks, block): 1 for a row, 0 for padding
    norm2: Array  # (n_blocks, block): |y_n|²
    mesh: Mesh | None = None  # the devices that the blocks are spread over; None for one

    @property
    def n_features(self) -> int:
        """P, the number of features."""
        return int(self.Y.shape[1])

    @property
    def n_padded(self) -> int:
        """The number of rows with padding."""
        return int(self.weight.shape[0] * self.weight.shape[1])

    @property
    def flat_weight(self) -> Array:
        """The weights as one vector."""
        return self.weight.reshape(-1)


def block_shape(n_rows: int, block: int | None = None) -> tuple[int, int]:
    """Return the number of blocks and their size: the fewest blocks, as little padding as can be.

    Parameters
    ----------
    n_rows : int
    block : int or None
        The largest size of a block; None for the default, where several blocks are also aligned
        (:data:`ALIGNMENT`).
    """
    largest = DEFAULT_BLOCK if block is None else block
    n_blocks = -(-n_rows // largest)
    size = -(-n_rows // n_blocks)
    if block is None and n_blocks > 1:
        size = -(-size // ALIGNMENT) * ALIGNMENT
    return n_blocks, size


def fill_blocks(
    Y: np.ndarray, n_blocks: int, size: int, reduce: Callable[[Any], Any] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arrays of :class:`Rows` for a table (N, P), padded with rows of weight 0.

    ``reduce``, where there is one, is applied to the rows of a block at a time.
    """
    N, P = Y.shape
    # Straight into place: with ten million rows every copy of the table on the way would count.
    blocked = _aligned_zeros((n_blocks, P, size))
    for number in range(-(-N // size)):
        part = Y[number * size : (number + 1) * size]
        blocked[number, :, : len(part)] = (part if reduce is None else reduce(part)).T
    weight = np.zeros(n_blocks * size)
    weight[:N] = 1.0
    norm2 = np.einsum("bpn,bpn->bn", blocked, blocked)
    return blocked, weight.reshape(n_blocks, size), norm2


def make_rows(Y: Any, block: int | None = None) -> Rows:
    """Put a table ``Y`` (N, P) into blocks."""
    Y = np.asarray(Y, dtype=np.float64)
    # Not jnp.asarray, which copies.
    values, weight, norm2 = map(jax.device_put, fill_blocks(Y, *block_shape(Y.shape[0], block)))
    return Rows(values, weight, norm2)


def _aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Return zeros that begin at a cache line: JAX takes such an array as it is, without a copy."""
    line = 64
    memory = np.zeros(8 * math.prod(shape) + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + 8 * math.prod(shape)].view(np.float64).reshape(shape)


def pad_rows(values: np.ndarray, n_padded: int) -> np.ndarray:
    """Append rows of zeros up to ``n_padded`` rows."""
    missing = n_padded - values.shape[0]
    if missing == 0:
        return values
    return np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])
