r"""The data as the pass over the rows reads them: in blocks, features first, padding marked.

Every shape that the compiler sees costs seconds, so tables are padded to a few sizes: rows with
weight 0, features that are 0 in every row, clusters that no row can belong to. Padding changes no
sum; how many features and clusters there really are travels with the data as a number.

**Gaps.** Given the latent points a missing cell depends on nothing that was observed but through
the functions, so leaving it out of every sum integrates it out exactly. Each feature then has sums
of its own over the rows that have it,

.. math:: \Phi_{md} = \sum_n s_{nm} o_{nd}\, k_n k_n^\top, \qquad
          \Psi_{md} = \sum_n s_{nm} o_{nd}\, k_n y_{nd},

with :math:`o_{nd} = 1` where row n has feature d. Features that are observed in the same rows
share their :math:`\Phi`: what counts is the number C of different columns of o, the *groups*. The
sums of a group are those of a mapping whose rows are weighted by :math:`s_{nm} o_{nc}`, so that
they come from the one pass over the rows; mapping m and group c stand at place m C + c wherever an
axis has an entry for both. With a group's own :math:`P_c`, :math:`A_{mc}` and :math:`W_{mc}` every
other formula of :mod:`sgpmic.model.bound` and :mod:`sgpmic.model.e_step` stands as it is.

**Many groups.** That takes C times as long as a complete table. Beyond a few groups, missing cells
have a posterior instead, :math:`q(y_{nd}) = N(\mu_{nd}, 1/\beta)`, with q(F) held fixed best at
:math:`\mu_{nd} = \sum_m s_{nm} \bar f_{md}(x_n)`. With it a cell adds to the bound what an observed
one of the value :math:`\mu_{nd}` would add, but for its normalizer: its variance and its entropy
cancel :math:`\tfrac12 \log(\beta / 2\pi)`. Every update raises the bound, which lies below the
exact one by half of what is unknown about the functions, in units of the noise, at the missing
cells.
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

#: Rows in a block on a CPU: a block's kernel matrix then stays in the second-level cache. Not
#: 1024, which puts the entries of a column into the same few places of the first-level cache.
DEFAULT_BLOCK = 1000
#: Tables of fewer rows are one block of one of these sizes. All are multiples of eight, which fill
#: a vector register: blocks of 1021 rows made a pass a tenth slower than blocks of 1000.
SMALL_BLOCKS = (256, 504, DEFAULT_BLOCK)
#: Rows in a block on a GPU, where blocks are what a long sum is cut into to be made in parallel: at
#: most, at least, and how many there should be.
GPU_BLOCKS = (8192, 1024, 32)
#: On a GPU a block has a multiple of this many rows, so that all begin where memory likes it, and
#: many blocks are a multiple of it, so that they can be cut into parts.
GPU_MULTIPLE = 16
#: The share of a GPU's memory that the pass over the rows may take: one part in this many.
GPU_SHARE = 3
#: Features and clusters are padded where there are at most this many rows: beyond, computing takes
#: longer than compiling.
MOST_PADDED_ROWS = 10_000
#: With padding there are at least this many features and clusters.
LEAST_FEATURES, LEAST_CLUSTERS = 4, 16


class Groups(NamedTuple):
    """Features that are observed in the same rows."""

    features: Array  # (C, P): 1 for the features of a group
    observed: Array  # (N, C): 1 where a row has them, 0 for padding

    @property
    def sizes(self) -> Array:
        """The number of features of every group."""
        return jnp.sum(self.features, axis=1)


#: Of a field that programs are compiled for.
_STATIC = {"static": True}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """Data rows in blocks of equal size.

    Everything that has one entry for each row is kept either flat, ``(n_blocks * block, ...)``,
    or blocked, ``(n_blocks, block, ...)``; the two are views of each other. Rows that only fill up
    the last block have weight 0 and add nothing to any sum.
    """

    Y: Array  # (n_blocks, P, block): features first, which matrix products read fastest
    weight: Array  # (n_blocks, block): 1 for a row, 0 for padding
    norm2: Array  # (n_blocks, block): |y_n|²
    n_features: Any  # the number of features without padding
    #: The devices that the blocks are spread over; None for one.
    mesh: Mesh | None = field(default=None, metadata=_STATIC)
    #: How many bytes the GPU's pass may take (:mod:`sgpmic.model.row_pass.gpu`); 0 for the pass
    #: of a processor, block by block.
    gpu_memory: int = field(default=0, metadata=_STATIC)
    #: (N, M), 0 for padding: the prior of every row's assignment, if there is one, and its weight
    #: (:mod:`sgpmic.model.e_step`).
    assignment_prior: Array | None = None
    prior_weight: Any = None
    #: Of a table with gaps (see above), whose missing cells are 0 in Y: features
    #: that are observed together, or, of very many such groups, (N, P) 1 for missing cells; and
    #: (N,) how many cells a row has.
    groups: Groups | None = None
    missing: Array | None = None
    n_observed: Array | None = None

    @property
    def n_padded(self) -> int:
        """The number of rows with padding."""
        return int(self.weight.shape[0] * self.weight.shape[1])

    @property
    def flat_weight(self) -> Array:
        """The weights as one vector."""
        return self.weight.reshape(-1)

    @property
    def n_groups(self) -> int:
        """The number of groups of features; 1 for a table without any."""
        return 1 if self.groups is None else self.groups.features.shape[0]


def gpu_memory_on(device: Any = None) -> int:
    """Return :attr:`Rows.gpu_memory` for rows on a device, by default the one JAX computes on."""
    device = default_device() if device is None else device
    if device.platform != "gpu":
        return 0
    giga = 2**30
    limit = (device.memory_stats() or {}).get("bytes_limit", 16 * giga)
    return max(limit // GPU_SHARE // giga, 1) * giga


def round_up(number: int, per_octave: int) -> int:
    """Return the next size on a grid with this many sizes between a power of two and its double."""
    step = max(2 ** (number - 1).bit_length() // (2 * per_octave), 1)
    return -(-number // step) * step


def padded_features(n_features: int, n_rows: int) -> int:
    """Return the number of features with padding."""
    if n_rows > MOST_PADDED_ROWS:
        return n_features
    return max(round_up(n_features, 2), LEAST_FEATURES)


def padded_clusters(n_clusters: int, n_rows: int) -> int:
    """Return the number of clusters with padding."""
    if n_rows > MOST_PADDED_ROWS:
        return n_clusters
    return max(round_up(n_clusters, 2), LEAST_CLUSTERS)


def block_shape(n_rows: int, block: int | None = None, *, gpu: bool = False) -> tuple[int, int]:
    """Return the number of blocks and their size.

    With a largest ``block`` there are as few blocks and as little padding as can be. Otherwise
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
    # Up to eight blocks two sizes in an octave, then sixteen: padding is a sixteenth at most.
    return round_up(n_blocks, 2 if n_blocks <= 8 else 16), DEFAULT_BLOCK


def fill_blocks(
    Y: np.ndarray,
    n_blocks: int,
    size: int,
    n_features: int,
    reduce: Callable[[Any], Any] = lambda part: part,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arrays Y, weight and norm2 of :class:`Rows` for a table (N, P), padded.

    ``reduce`` is applied to the rows of a block at a time. Missing cells (NaN) become 0.
    """
    N, P = Y.shape
    # Straight into place: with ten million rows every copy of the table on the way would count.
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
    """Put a table ``Y`` (N, P) into blocks; ``gpu_memory`` as the device has it, or as given."""
    Y = np.asarray(Y, dtype=np.float64)
    N, P = Y.shape
    gpu_memory = gpu_memory_on() if gpu_memory is None else gpu_memory
    shape = block_shape(N, block, gpu=gpu_memory > 0)
    # Not jnp.asarray, which copies.
    arrays = fill_blocks(Y, *shape, padded_features(P, N))
    values, weight, norm2 = map(jax.device_put, arrays)
    rows = Rows(values, weight, norm2, np.float64(P), gpu_memory=gpu_memory)
    missing = np.isnan(Y)
    if not missing.any():
        return rows
    patterns = column_patterns(missing)
    return with_groups(rows, patterns, missing, lambda own: pad_rows(own, rows.n_padded))


def column_patterns(missing: np.ndarray) -> np.ndarray:
    """Return a number for every feature (P,), the same for features missing in the same rows."""
    packed = np.packbits(missing, axis=0)
    return np.unique(packed, axis=1, return_inverse=True)[1].reshape(-1)


def with_groups(rows: Rows, patterns: Any, missing: Any, lay_out: Callable[[Any], Any]) -> Rows:
    """Return rows with groups of features; ``missing`` (N, P) are cells of some of them.

    ``patterns`` (P,) are equal for features of one group. The number of groups is padded: those
    without features add nothing. ``lay_out`` puts what has an entry for each row into its place.
    """
    _, first, number = np.unique(patterns, return_index=True, return_inverse=True)
    C = round_up(len(first), 2)
    features: Any = np.zeros((C, rows.Y.shape[1]))
    features[number.reshape(-1), np.arange(len(patterns))] = 1.0
    observed = lay_out(pad(1.0 - missing[:, first], (len(missing), C)))
    n_observed = lay_out(np.sum(~missing, axis=1).astype(np.float64))
    return replace(rows, groups=Groups(features, observed), n_observed=n_observed)


def _aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Return zeros that begin at a cache line: JAX takes such an array as it is, without a copy."""
    line, size = 64, 8 * math.prod(shape)
    memory = np.zeros(size + line, np.uint8)
    start = -memory.ctypes.data % line
    return memory[start : start + size].view(np.float64).reshape(shape)


def pad_rows(values: np.ndarray, n_padded: int) -> Any:
    """Append rows of zeros up to ``n_padded`` rows."""
    return pad(values, (n_padded, *values.shape[1:]))


def pad(values: Any, shape: tuple[int, ...]) -> Any:
    """Return a NumPy array with zeros after its entries along every axis, up to ``shape``."""
    values = np.asarray(values)
    if values.shape == shape:
        return values
    padded = np.zeros(shape, values.dtype)
    padded[tuple(slice(n) for n in values.shape)] = values
    return padded


def by_group(tree: Any, n_groups: int) -> Any:
    """Return a tree with an entry for every mapping as one for every mapping and group."""
    if n_groups == 1:
        return tree
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, n_groups, axis=0), tree)


def over_groups(values: Array, rows: Rows) -> Array:
    """Return the sum over the groups that a row has of (N, G C) values, (N, G)."""
    if rows.groups is None:
        return values
    N, C = rows.groups.observed.shape
    return jnp.einsum("ngc,nc->ng", values.reshape(N, -1, C), rows.groups.observed)


def features_by_group(n_mappings: int, rows: Rows) -> Array:
    """Return the number of features of every mapping and group, (G C,)."""
    if rows.groups is None:
        return jnp.full(n_mappings, rows.n_features)
    return jnp.tile(rows.groups.sizes, n_mappings)


def with_cells(rows: Rows, cells: Array | None) -> Rows:
    """Return rows whose missing cells have the values ``cells`` (N, P), 0 for all others."""
    if cells is None:
        return rows
    n_blocks, P, size = rows.Y.shape
    Y = rows.Y + cells.reshape(n_blocks, size, P).swapaxes(1, 2)
    return replace(rows, Y=Y, norm2=jnp.sum(Y * Y, axis=1))
