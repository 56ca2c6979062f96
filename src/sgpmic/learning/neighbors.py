"""The nearest rows of a sample, and what they say of other rows: in blocks, on JAX's device."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from sgpmic._runtime import default_device, double_precision
from sgpmic._types import Floats
from sgpmic.compile_cache import compiled
from sgpmic.model.rows import pad_rows, round_up

_R = TypeVar("_R")

#: A sample is searched in groups of rows that are this many apart.
_SEARCH_WIDTH = 1024
#: Into so many parts is a row of numbers divided to find the smallest.
_PARTS = 32
#: Squares of what is compared in single precision must not overflow.
_FARTHEST = 1e15
#: By kind of device: cells in a block of rows, and the least and the most rows.
_BLOCKS = {"cpu": (2**15, 16, 512), "gpu": (2**21, 256, 16384)}
#: Blocks that a GPU has at a time: while it computes one, another is on its way.
_ON_GPU = 4
#: Rows that scikit-learn searches for at a time, to bound what differences take.
_PART = 65_536


def padded_count(n_rows: int) -> int:
    """Return the number of rows of a sample with padding, as :func:`nearest` takes it."""
    return _SEARCH_WIDTH * round_up(-(-n_rows // _SEARCH_WIDTH), 8)


def nearest(
    sample: Array, count: Array, rows: Array, own: Array, n_neighbors: int
) -> tuple[Array, Array]:
    """Return the numbers of the nearest rows of a sample (B, k) and their squared distances.

    Single precision finds groups of rows that have the nearest among them, double precision
    decides. For compiled programs. The sample (R, P) is padded (:func:`padded_count`); ``count`` of
    them are rows, and distances are infinite where that is less than ``n_neighbors``. ``own`` (B,)
    are the numbers of rows that are in the sample themselves, and do not count; -1 for others.
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
        # Not jnp.minimum, which takes longer for the sake of NaN: here there is none.
        return jnp.where(squares < least, squares, least), None

    depth = R // _SEARCH_WIDTH
    farthest = jnp.full((len(rows), _SEARCH_WIDTH), jnp.inf, jnp.float32)
    parts = right.reshape(depth, _SEARCH_WIDTH, P + 1)
    least, _ = lax.scan(nearer, farthest, parts, unroll=4)
    groups = smallest(least, n_neighbors + 1)  # one of the rows may be the row itself
    numbers = groups[:, :, None] + _SEARCH_WIDTH * jnp.arange(depth)
    numbers = numbers.reshape(len(rows), -1)
    squares = jnp.sum((rows[:, None] - sample[numbers]) ** 2, axis=2)
    itself = (numbers == own[:, None]) & (count > 1)
    squares = jnp.where(itself | (numbers >= count), jnp.inf, squares)
    scale = jnp.min(squares, axis=1, keepdims=True)  # within reach of single precision
    relative = jnp.where(squares > scale, squares / jnp.where(scale > 0, scale, 1.0), 0.0)
    places = lax.top_k(-relative.astype(jnp.float32), n_neighbors)[1]
    return (
        jnp.take_along_axis(numbers, places, axis=1),
        jnp.take_along_axis(squares, places, axis=1),
    )


def smallest(values: Array, k: int) -> Array:
    """Return the places of the k smallest of every row's values, found among the best of parts."""
    n_rows = len(values)
    parts = values.reshape(n_rows, -1, _PARTS)
    chosen = lax.top_k(-jnp.min(parts, axis=1), k)[1]
    some = jnp.take_along_axis(parts, chosen[:, None, :], axis=2).reshape(n_rows, -1)
    places = lax.top_k(-some, k)[1]
    return places // k * _PARTS + jnp.take_along_axis(chosen, places % k, axis=1)


def inverse_weights(distances: Any) -> Any:
    """Return weights that go with the inverse distance, every row adding up to one.

    A row at distance zero has all of the weight; several of them share it equally. Of arrays of
    NumPy, and of JAX in compiled programs.
    """
    xp: Any = np if isinstance(distances, np.ndarray) else jnp
    # Ratios to the nearest lie in [0, 1], and 0/0 counts as one.
    least = distances.min(axis=1, keepdims=True)
    apart = distances > 0.0
    closeness = xp.where(apart, least / xp.where(apart, distances, 1.0), 1.0)
    return closeness / closeness.sum(axis=1, keepdims=True)


def interpolate(
    sample: Floats, known: Floats, rows: Floats, k: int, offset: Any = 0.0, scale: Any = 1.0
) -> Floats:
    """Return means over a row's k nearest rows in a sample, weighted by inverse squared distance.

    A row that is in the sample gets what is ``known`` (n_sample, n_values) of it; equal rows, the
    mean of theirs. The sample (n_sample, n_features) is centered and scaled, rows are in their own
    units: ``offset`` and ``scale``, numbers or one for each feature, center and scale them.
    """
    # scikit-learn's search has no program to compile.
    method = _by_search if default_device().platform == "cpu" else _on_device
    return method(sample, known, rows, min(k, len(sample)), offset, scale)


def _by_search(
    sample: Floats, known: Floats, rows: Floats, k: int, offset: Any, scale: Any
) -> Floats:
    from sklearn.neighbors import NearestNeighbors  # which takes its time, and only fits need

    # In the tens of dimensions a search tree looks at nearly every point, one by one.
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(sample)
    found = np.empty((len(rows), known.shape[1]))
    for first in range(0, len(rows), _PART):
        here = slice(first, first + _PART)
        part = (rows[here] - offset) / scale
        places = search.kneighbors(part, return_distance=False).T
        # From the differences: the search's products have lost the digits of close neighbors.
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
    """Return how many rows are computed together on the device that JAX computes on."""
    cells, least, most = _BLOCKS["cpu" if default_device().platform == "cpu" else "gpu"]
    return min(max(2 ** (cells // n_features).bit_length() // 2, least), most)


def in_blocks(function: Callable[..., Any], block: int, *by_row: Any) -> Any:
    """Return a function's results for all rows, which it gets in blocks of one size.

    The arrays in ``by_row`` and those that the function returns have one entry for each row.
    """
    n_rows = len(jax.tree.leaves(by_row)[0])
    device = default_device()

    def compute(first: int) -> Any:
        part = jax.tree.map(lambda a: pad_rows(a[first : first + block], block), by_row)
        # Settings of JAX are those of a thread.
        with double_precision(), jax.default_device(device):
            return jax.tree.map(np.asarray, function(*part))

    found = [compute(0)]  # by itself, as it may have to be compiled
    # XLA has one core compute a block.
    n_threads = None if device.platform == "cpu" else _ON_GPU
    found += in_threads(compute, range(block, n_rows, block), n_threads)
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:n_rows], *found)


def in_threads(
    function: Callable[[int], _R], firsts: range, n_threads: int | None = None
) -> list[_R]:
    """Return what a function finds for parts of the rows, in as many threads as there are cores."""
    if len(firsts) < 2:
        return [function(first) for first in firsts]
    from joblib import cpu_count  # those that this process may use

    with ThreadPoolExecutor(n_threads or cpu_count()) as threads:
        return list(threads.map(function, firsts))
