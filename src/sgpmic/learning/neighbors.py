"""Nearest-neighbor search in a sample and interpolation from it, in blocks on JAX's device."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from sgpmic._runtime import default_device, double_precision
from sgpmic._types import Floats
from sgpmic.compile_cache import compiled
from sgpmic.model.rows import pad_rows, round_up

#: Number of search groups; the rows of a group are this far apart in the sample.
_SEARCH_WIDTH = 1024
#: Number of parts that a row of values is divided into to find the smallest.
_PARTS = 32
#: Squares in single precision must not overflow.
_FARTHEST = 1e15
#: By kind of device: cells per block of rows, and the minimum and maximum number of rows.
_BLOCKS = {"cpu": (2**15, 16, 512), "gpu": (2**21, 256, 16384)}
#: Blocks in flight on a GPU, so that transfers overlap with computation.
_ON_GPU = 4
#: Rows per query of scikit-learn's search, to limit the memory for differences.
_PART = 65_536


def padded_count(n_rows: int) -> int:
    """Return the padded number of rows of a sample for :func:`nearest`."""
    return _SEARCH_WIDTH * round_up(-(-n_rows // _SEARCH_WIDTH), 8)


def nearest(
    sample: Array, count: Array, rows: Array, own: Array, n_neighbors: int
) -> tuple[Array, Array]:
    """Return the indices (B, k) of the nearest rows in a sample and their squared distances.

    Single precision finds the groups of rows that contain the nearest, double precision decides
    among them. The sample (R, P) is padded (:func:`padded_count`) and has ``count`` rows. ``own``
    (B,) are the indices of rows in the sample, -1 for others: no row is its own neighbor.
    """
    R, P = sample.shape
    single = jnp.clip(sample, -_FARTHEST, _FARTHEST).astype(jnp.float32)
    single_rows = jnp.clip(rows, -_FARTHEST, _FARTHEST).astype(jnp.float32)
    norms = jnp.where(jnp.arange(R) < count, jnp.sum(single * single, axis=1), jnp.inf)
    # |y − r|² − |y|² = (y, 1)ᵀ(−2r, |r|²) as one product.
    left = jnp.concatenate([single_rows, jnp.ones_like(single_rows[:, :1])], axis=1)
    right = jnp.concatenate([-2.0 * single, norms[:, None]], axis=1)

    def nearer(least: Array, part: Array) -> tuple[Array, None]:
        squares = jnp.matmul(left, part.T, precision=lax.Precision.HIGHEST)
        # Not jnp.minimum, whose handling of NaN is slower: there are none here.
        return jnp.where(squares < least, squares, least), None

    depth = R // _SEARCH_WIDTH
    farthest = jnp.full((len(rows), _SEARCH_WIDTH), jnp.inf, jnp.float32)
    parts = right.reshape(depth, _SEARCH_WIDTH, P + 1)
    least, _ = lax.scan(nearer, farthest, parts, unroll=4)
    groups = smallest(least, n_neighbors + 1)  # one may be the row itself
    numbers = groups[:, :, None] + _SEARCH_WIDTH * jnp.arange(depth)
    numbers = numbers.reshape(len(rows), -1)
    squares = jnp.sum((rows[:, None] - sample[numbers]) ** 2, axis=2)
    itself = (numbers == own[:, None]) & (count > 1)
    squares = jnp.where(itself | (numbers >= count), jnp.inf, squares)
    scale = jnp.min(squares, axis=1, keepdims=True)  # to fit the range of single precision
    relative = jnp.where(squares > scale, squares / jnp.where(scale > 0, scale, 1.0), 0.0)
    places = lax.top_k(-relative.astype(jnp.float32), n_neighbors)[1]
    return (
        jnp.take_along_axis(numbers, places, axis=1),
        jnp.take_along_axis(squares, places, axis=1),
    )


def smallest(values: Array, k: int) -> Array:
    """Return the indices of the k smallest values in each row, by a top-k in two stages."""
    n_rows = len(values)
    parts = values.reshape(n_rows, -1, _PARTS)
    chosen = lax.top_k(-jnp.min(parts, axis=1), k)[1]
    some = jnp.take_along_axis(parts, chosen[:, None, :], axis=2).reshape(n_rows, -1)
    places = lax.top_k(-some, k)[1]
    return places // k * _PARTS + jnp.take_along_axis(chosen, places % k, axis=1)


def inverse_weights(distances: Any) -> Any:
    """Return inverse distance weights, shared equally by any neighbors at distance zero."""
    xp: Any = np if isinstance(distances, np.ndarray) else jnp
    # Ratios to the nearest are in [0, 1], with 0/0 taken as one.
    least = distances.min(axis=1, keepdims=True)
    apart = distances > 0.0
    closeness = xp.where(apart, least / xp.where(apart, distances, 1.0), 1.0)
    return closeness / closeness.sum(axis=1, keepdims=True)


def interpolate(
    sample: Floats, known: Floats, rows: Floats, k: int, offset: Any = 0.0, scale: Any = 1.0
) -> Floats:
    """Interpolate ``known`` values (n_sample, n_values) from the k nearest rows of a sample.

    By inverse squared distance weighting. The sample is scaled, ``rows`` are not yet.
    """
    k = min(k, len(sample))
    if default_device().platform != "cpu":
        return _on_device(sample, known, rows, k, offset, scale)
    from sklearn.neighbors import NearestNeighbors  # slow import, for fits only

    # It needs no compilation. With tens of dimensions a search tree would visit nearly every point.
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(sample)
    found = np.empty((len(rows), known.shape[1]))
    for first in range(0, len(rows), _PART):
        here = slice(first, first + _PART)
        part = (rows[here] - offset) / scale
        places = search.kneighbors(part, return_distance=False).T
        # From differences: the search's inner products lose digits for close neighbors.
        squares = [np.sum((part - sample[place]) ** 2, axis=1) for place in places]
        weights = inverse_weights(np.stack(squares, axis=1)).T
        found[here] = sum(w[:, None] * known[p] for w, p in zip(weights, places, strict=True))
    return found


def _on_device(
    sample: Floats, known: Floats, rows: Floats, k: int, offset: Any, scale: Any
) -> Floats:
    R = padded_count(len(sample))
    padded = jax.device_put((pad_rows(sample, R), len(sample), pad_rows(known, R)))
    program = partial(_interpolate_block, padded, (np.float64(offset), np.float64(scale)), k)
    return in_blocks(program, block_rows(rows.shape[1]), rows)


@compiled
def _interpolate_block(sample: Any, scaling: Any, n_neighbors: int, rows: Array) -> Array:
    values, count, known = sample
    rows = (rows - scaling[0]) / scaling[1]
    numbers, squares = nearest(values, count, rows, jnp.full(len(rows), -1), n_neighbors)
    return jnp.sum(inverse_weights(squares)[:, :, None] * known[numbers], axis=1)


def block_rows(n_features: int) -> int:
    """Return the block size in rows for JAX's default device."""
    cells, least, most = _BLOCKS["cpu" if default_device().platform == "cpu" else "gpu"]
    return min(max(2 ** (cells // n_features).bit_length() // 2, least), most)


def in_blocks(function: Callable[..., Any], block: int, *by_row: Any) -> Any:
    """Apply a function to arrays by blocks of rows, the last one padded; join the results."""
    n_rows = len(jax.tree.leaves(by_row)[0])
    device = default_device()

    def compute(first: int) -> Any:
        part = jax.tree.map(lambda a: pad_rows(a[first : first + block], block), by_row)
        # These JAX settings are thread-local.
        with double_precision(), jax.default_device(device):
            return jax.tree.map(np.asarray, function(*part))

    found = [compute(0)]  # alone, because it may compile
    if n_rows > block:
        from joblib import cpu_count  # only the CPUs available to this process

        # XLA computes a block on one core.
        with ThreadPoolExecutor(cpu_count() if device.platform == "cpu" else _ON_GPU) as threads:
            found += threads.map(compute, range(block, n_rows, block))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:n_rows], *found)
