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

from sgpmic._runtime import default_device

#: Rows a block on a CPU: a block's kernel matrix then stays in the second-level cache. Not 1024,
#: which puts the entries of a column into the same few places of the first-level cache.
DEFAULT_BLOCK = 1000
#: Unless asked otherwise, the rows of a block are a multiple of this: eight numbers fill a vector
#: register and a cache line. Blocks of 1021 rows made a pass a tenth slower than blocks of 1000.
ALIGNMENT = 8
#: Rows a block on a GPU, where blocks are what a long sum is cut into to be made in parallel: at
#: most, at least, and how many there should be.
GPU_BLOCKS = (8192, 1024, 32)
#: On a GPU a block has a multiple of this many rows, so that all begin where memory likes it, and
#: many blocks are a multiple of it, so that they can be cut into parts.
GPU_MULTIPLE = 16
#: The share of a GPU's memory that the pass over the rows may take.
GPU_SHARE = 3


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("Y", "weight", "norm2"),
    meta_fields=("mesh", "gpu_memory"),
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
    #: How many bytes the pass may take where it goes over many rows at once, as on a GPU
    #: (:mod:`sgpmic.model.row_pass.gpu`); 0 for block by block, as on a CPU.
    gpu_memory: int = 0

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


def gpu_memory_on(device: Any = None) -> int:
    """Return :attr:`Rows.gpu_memory` for rows on a device, by default JAX's default."""
    device = default_device() if device is None else device
    if device.platform != "gpu":
        return 0
    giga = 2**30
    limit = (device.memory_stats() or {}).get("bytes_limit", 16 * giga)
    return max(limit // GPU_SHARE // giga, 1) * giga


def block_shape(n_rows: int, block: int | None = None, *, gpu: bool = False) -> tuple[int, int]:
    """Return the number of blocks and their size: the fewest blocks, as little padding as can be.

    Parameters
    ----------
    n_rows : int
    block : int or None
        The largest size of a block; None for the default, where several blocks are also aligned
        (:data:`ALIGNMENT`).
    wide : bool
        Whether they are for a pass over many rows at once (:attr:`Rows.gpu_memory`).
    """
    if block is None and gpu:
        most, least, wanted = GPU_BLOCKS
        n_blocks = -(-n_rows // min(max(n_rows // wanted, least), most))
        if n_blocks > GPU_MULTIPLE:
            n_blocks = _rounded_up(n_blocks, GPU_MULTIPLE)
        return n_blocks, _rounded_up(-(-n_rows // n_blocks), GPU_MULTIPLE)
    largest = DEFAULT_BLOCK if block is None else block
    n_blocks = -(-n_rows // largest)
    size = -(-n_rows // n_blocks)
    if block is None and n_blocks > 1:
        size = _rounded_up(size, ALIGNMENT)
    return n_blocks, size


def _rounded_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def fill_blocks(
    Y: np.ndarray,
    n_blocks: int,
    size: int,
    reduce: Callable[[Any], Any] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arrays of :class:`Rows` for a table (N, P), padded with rows of weight 0.

    ``reduce``, where there is one, is applied to the rows of a block at a time.
    """
    N, P = Y.shape
    # Straight into place: with ten million rows every copy of the table on the way would count.
    blocked = _aligned_zeros((n_blocks, P, size), np.float64)
    for number in range(-(-N // size)):
        part = Y[number * size : (number + 1) * size]
        blocked[number, :, : len(part)] = (part if reduce is None else reduce(part)).T
    weight = np.zeros(n_blocks * size)
    weight[:N] = 1.0
    norm2 = np.einsum("bpn,bpn->bn", blocked, blocked)
    return blocked, weight.reshape(n_blocks, size), norm2


def make_rows(Y: Any, block: int | None = None, gpu_memory: int | None = None) -> Rows:
    """Put a table ``Y`` (N, P) into blocks; ``gpu_memory`` as the device has it, or as given."""
    Y = np.asarray(Y, dtype=np.float64)
    gpu_memory = gpu_memory_on() if gpu_memory is None else gpu_memory
    shape = block_shape(Y.shape[0], block, gpu=gpu_memory > 0)
    # Not jnp.asarray, which copies.
    values, weight, norm2 = map(jax.device_put, fill_blocks(Y, *shape))
    return Rows(values, weight, norm2, gpu_memory=gpu_memory)


def _aligned_zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return zeros that begin at a cache line: JAX takes such an array as it is, without a copy."""
    line, size = 64, np.dtype(dtype).itemsize * math.prod(shape)
    memory = np.zeros(size + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + size].view(dtype).reshape(shape)


def pad_rows(values: np.ndarray, n_padded: int) -> np.ndarray:
    """Append rows of zeros up to ``n_padded`` rows."""
    missing = n_padded - values.shape[0]
    if missing == 0:
        return values
    return np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])
