r"""The data layout for the pass over the rows: blocks, features first, with padding.

Every new array shape costs seconds of compilation, so tables are padded to a few sizes, which
changes no sum; the true numbers of features and clusters are values, not shapes.

**Missing values.** Given the latent points and the functions, a missing cell is independent of the
observed ones, so leaving it out of every sum integrates it out exactly. Each feature then has sums
of its own over the rows in which it is observed,

.. math:: \Phi_{md} = \sum_n s_{nm} o_{nd}\, k_n k_n^\top, \qquad
          \Psi_{md} = \sum_n s_{nm} o_{nd}\, k_n y_{nd},

with :math:`o_{nd} = 1` where row n has feature d. Features that are observed in the same rows
share their :math:`\Phi`: only the C distinct columns of o, the *groups*, matter. The sums of a
group are those of a mapping with row weights :math:`s_{nm} o_{nc}`, so they come from the same
pass over the rows; on axes that combine the two, mapping m and group c have index m C + c. With a
group's own :math:`P_c`, :math:`A_{mc}` and :math:`W_{mc}`, all other formulas of
:mod:`sgpmic.model.bound` and :mod:`sgpmic.model.e_step` hold unchanged.

**Many groups.** That takes C times as long as a complete table. Beyond a few groups, missing cells
have a variational posterior instead, :math:`q(y_{nd}) = N(\mu_{nd}, 1/\beta)`, whose optimum given
q(F) is :math:`\mu_{nd} = \sum_m s_{nm} \bar f_{md}(x_n)`. A missing cell then contributes to the
bound like an observed one with value :math:`\mu_{nd}`, except for the normalizer: its variance and
entropy cancel :math:`\tfrac12 \log(\beta / 2\pi)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from sgpmic._runtime import default_device

#: Block size on a CPU: a block's kernel matrix then fits into the L2 cache. Not 1024, which maps
#: the entries of a column to the same few sets of the L1 cache.
DEFAULT_BLOCK = 1000
#: Smaller tables are one block of one of these sizes. All are multiples of eight, which fill a
#: vector register: blocks of 1021 rows made a pass 10 % slower than blocks of 1000.
SMALL_BLOCKS = (256, 504, DEFAULT_BLOCK)
#: Maximum and minimum block size on a GPU, where blocks split long sums into parallel ones, and
#: the target number of blocks.
GPU_BLOCKS = (8192, 1024, 32)
#: On a GPU, block sizes are multiples of this, for memory alignment; so are large numbers of
#: blocks, so that they can be divided into parts.
GPU_MULTIPLE = 16
#: The pass over the rows may take 1 / GPU_SHARE of a GPU's memory.
GPU_SHARE = 3
#: Features and clusters are padded up to this many rows; then computing takes longest anyway.
MOST_PADDED_ROWS = 10_000
#: Minimum numbers of features and clusters with padding.
LEAST_FEATURES, LEAST_CLUSTERS = 4, 16


class Groups(NamedTuple):
    """Features that are observed in the same rows."""

    features: Array  # (C, P): 1 for the features of a group
    observed: Array  # (N, C): 1 where observed, 0 for padding


#: Metadata of a static pytree field.
_STATIC = {"static": True}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """Data rows in blocks of equal size.

    Arrays with one entry per row are either flat, ``(n_blocks * block, ...)``, or blocked,
    ``(n_blocks, block, ...)``; the two are views of each other. Padding rows have weight 0 and add
    nothing to any sum.
    """

    Y: Array  # (n_blocks, P, block): features first, the fastest layout for matrix products
    weight: Array  # (n_blocks, block): 1 for a row, 0 for padding
    norm2: Array  # (n_blocks, block): |y_n|²
    n_features: Any  # the number of features without padding
    #: The devices that the blocks are sharded over; None for a single device.
    mesh: Mesh | None = field(default=None, metadata=_STATIC)
    #: Bytes that the GPU pass may use (:mod:`sgpmic.model.row_pass.gpu`); 0 selects the CPU pass.
    gpu_memory: int = field(default=0, metadata=_STATIC)
    #: Assignment prior (N, M), 0 for padding, and its weight (:mod:`sgpmic.model.e_step`).
    assignment_prior: Array | None = None
    prior_weight: Any = None
    #: For a table with missing values (see above), which are 0 in Y: the groups of features or, if
    #: there are too many, the indicators (N, P) of missing cells; and the number (N,) of observed
    #: cells per row.
    groups: Groups | None = None
    missing: Array | None = None
    n_observed: Array | None = None

    @property
    def n_padded(self) -> int:
        """The number of rows including padding."""
        return int(self.weight.shape[0] * self.weight.shape[1])

    @property
    def flat_weight(self) -> Array:
        """The weights as one vector."""
        return self.weight.reshape(-1)

    @property
    def n_groups(self) -> int:
        """The number of groups of features; 1 for a table without missing values."""
        return 1 if self.groups is None else self.groups.features.shape[0]


def gpu_memory_on(device: Any = None) -> int:
    """Return :attr:`Rows.gpu_memory` for rows on a device, by default JAX's default device."""
    device = default_device() if device is None else device
    if device.platform != "gpu":
        return 0
    giga = 2**30
    limit = (device.memory_stats() or {}).get("bytes_limit", 16 * giga)
    return max(limit // GPU_SHARE // giga, 1) * giga


def round_up(number: int, per_octave: int) -> int:
    """Round up to a grid with ``per_octave`` sizes between consecutive powers of two."""
    step = max(2 ** (number - 1).bit_length() // (2 * per_octave), 1)
    return -(-number // step) * step


def padded_features(n_features: int, n_rows: int) -> int:
    """Return the number of features including padding."""
    if n_rows > MOST_PADDED_ROWS:
        return n_features
    return max(round_up(n_features, 2), LEAST_FEATURES)


def padded_clusters(n_clusters: int, n_rows: int) -> int:
    """Return the number of clusters including padding."""
    if n_rows > MOST_PADDED_ROWS:
        return n_clusters
    return max(round_up(n_clusters, 2), LEAST_CLUSTERS)


def block_shape(n_rows: int, block: int | None = None, *, gpu: bool = False) -> tuple[int, int]:
    """Return the number of blocks and their size.

    With a maximum size ``block``, the number of blocks and the padding are minimal. Otherwise
    sizes are taken from a grid, so that tables of similar sizes have the same shape.
    """
    if block is not None:
        n_blocks = -(-n_rows // block)
        return n_blocks, -(-n_rows // n_blocks)
    if gpu and n_rows > SMALL_BLOCKS[-1]:
        most, least, wanted = GPU_BLOCKS
        n_blocks = -(-n_rows // min(max(n_rows // wanted, least), most))
        if n_blocks > GPU_MULTIPLE:
            n_blocks = -(-n_blocks // GPU_MULTIPLE) * GPU_MULTIPLE
        return n_blocks, max(round_up(-(-n_rows // n_blocks), 32), GPU_MULTIPLE)
    for size in SMALL_BLOCKS:
        if n_rows <= size:
            return 1, -(-size // GPU_MULTIPLE) * GPU_MULTIPLE if gpu else size
    n_blocks = -(-n_rows // DEFAULT_BLOCK)
    # Up to eight blocks two sizes per octave, then sixteen, so that padding is at most 1/16.
    return round_up(n_blocks, 2 if n_blocks <= 8 else 16), DEFAULT_BLOCK


def fill_blocks(
    Y: np.ndarray,
    n_blocks: int,
    size: int,
    n_features: int,
    reduce: Callable[[Any], Any] = lambda part: part,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arrays Y, weight and norm2 of :class:`Rows` for a table (N, P), padded.

    ``reduce`` is applied to one block of rows at a time. Missing cells (NaN) become 0.
    """
    N, P = Y.shape
    # Filled in place: with ten million rows, every intermediate copy of the table would matter.
    blocked = _aligned_zeros((n_blocks, n_features, size))
    for number in range(-(-N // size)):
        part = Y[number * size : (number + 1) * size]
        values = reduce(part).T
        blocked[number, :P, : len(part)] = np.where(np.isnan(values), 0.0, values)
    weight = np.zeros(n_blocks * size)
    weight[:N] = 1.0
    norm2 = np.einsum("bpn,bpn->bn", blocked, blocked)
    return blocked, weight.reshape(n_blocks, size), norm2


def make_rows(Y: Any, block: int | None = None, gpu_memory: int | None = None) -> Rows:
    """Divide a table ``Y`` (N, P) into blocks; ``gpu_memory`` is that of the device by default."""
    Y = np.asarray(Y, dtype=np.float64)
    N, P = Y.shape
    gpu_memory = gpu_memory_on() if gpu_memory is None else gpu_memory
    shape = block_shape(N, block, gpu=gpu_memory > 0)
    # jnp.asarray would copy.
    arrays = fill_blocks(Y, *shape, padded_features(P, N))
    values, weight, norm2 = map(jax.device_put, arrays)
    rows = Rows(values, weight, norm2, np.float64(P), gpu_memory=gpu_memory)
    missing = np.isnan(Y)
    if not missing.any():
        return rows
    patterns = column_patterns(missing)
    return with_groups(rows, patterns, missing, lambda own: pad_rows(own, rows.n_padded))


def column_patterns(missing: np.ndarray) -> np.ndarray:
    """Return an integer for every feature (P,), equal for features missing in the same rows."""
    packed = np.packbits(missing, axis=0)
    return np.unique(packed, axis=1, return_inverse=True)[1].reshape(-1)


def with_groups(rows: Rows, patterns: Any, missing: Any, lay_out: Callable[[Any], Any]) -> Rows:
    """Return rows with groups of features; ``missing`` marks missing cells of this process's rows.

    ``patterns`` (P,) are equal for features of the same group. The number of groups is padded;
    empty groups add nothing. ``lay_out`` pads and places arrays with one entry per row.
    """
    _, first, number = np.unique(patterns, return_index=True, return_inverse=True)
    C = round_up(len(first), 2)
    features: Any = np.zeros((C, rows.Y.shape[1]))
    features[number.reshape(-1), np.arange(len(patterns))] = 1.0
    observed = lay_out(pad(1.0 - missing[:, first], (len(missing), C)))
    n_observed = lay_out(np.sum(~missing, axis=1).astype(np.float64))
    return replace(rows, groups=Groups(features, observed), n_observed=n_observed)


def _aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Return zeros aligned to a cache line, which JAX uses without a copy."""
    line, size = 64, 8 * math.prod(shape)
    memory = np.zeros(size + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + size].view(np.float64).reshape(shape)


def pad_rows(values: np.ndarray, n_padded: int) -> Any:
    """Append rows of zeros up to ``n_padded`` rows."""
    return pad(values, (n_padded, *values.shape[1:]))


def pad(values: Any, shape: tuple[int, ...]) -> Any:
    """Pad an array with trailing zeros along every axis, up to ``shape``."""
    values = np.asarray(values)
    if values.shape == shape:
        return values
    padded = np.zeros(shape, values.dtype)
    padded[tuple(slice(n) for n in values.shape)] = values
    return padded


def by_group(tree: Any, n_groups: int) -> Any:
    """Repeat the leaves of a pytree from one entry per mapping to one per mapping and group."""
    if n_groups == 1:
        return tree
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, n_groups, axis=0), tree)


def over_groups(values: Array, rows: Rows) -> Array:
    """Sum values (N, G C) over the groups that are observed in each row, (N, G)."""
    if rows.groups is None:
        return values
    N, C = rows.groups.observed.shape
    return jnp.einsum("ngc,nc->ng", values.reshape(N, -1, C), rows.groups.observed)


def features_by_group(n_mappings: int, rows: Rows) -> Array:
    """Return the number of features for every mapping and group, (G C,)."""
    if rows.groups is None:
        return jnp.full(n_mappings, rows.n_features)
    return jnp.tile(jnp.sum(rows.groups.features, axis=1), n_mappings)


def with_cells(rows: Rows, cells: Array | None) -> Rows:
    """Return rows with missing cells imputed by ``cells`` (N, P), which is 0 for observed ones."""
    if cells is None:
        return rows
    n_blocks, P, size = rows.Y.shape
    Y = rows.Y + cells.reshape(n_blocks, size, P).swapaxes(1, 2)
    return replace(rows, Y=Y, norm2=jnp.sum(Y * Y, axis=1))
