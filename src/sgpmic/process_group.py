"""The processes of a job, and which rows each of them has.

Learning is one program, whether one process has all rows or many have some each. What it asks of
the others is little: sums, rows drawn from all of them, and to agree. A process by itself is a
group of one: every method then answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sgpmic._runtime import default_device, double_precision
from sgpmic._types import Ints
from sgpmic.model.row_pass.sums import ROWS
from sgpmic.model.rows import (
    Rows,
    block_shape,
    fill_blocks,
    gpu_memory_on,
    pad_rows,
    padded_features,
)

_T = TypeVar("_T")


class ProcessGroup:
    """The processes that have the rows of one table, in the order of the rows.

    Every process makes its own object and calls the same methods in the same order: most of them
    wait for the others. Every device has as many places for rows as any other; those left over
    have weight 0.

    Parameters
    ----------
    n_own : int
        How many rows this process has.
    devices : sequence of jax.Device or None
        The devices of all processes. By default all that JAX has where there are several
        processes, and otherwise the one that JAX computes on.
    alone : bool
        This process by itself, for what all of a job compute for themselves.
    """

    def __init__(
        self, n_own: int, devices: Sequence[Any] | None = None, *, alone: bool = False
    ) -> None:
        self.n_processes, self.process = jax.process_count(), jax.process_index()
        if alone:
            self.n_processes, self.process = 1, 0
        if devices is None:
            devices = jax.devices() if self.n_processes > 1 else [default_device()]
        # Rows follow the order of the processes, and so must devices.
        self._devices = sorted(devices, key=lambda d: (d.process_index, d.id))
        self._owners = [0 if alone else device.process_index for device in self._devices]
        self.n_own = n_own
        counts = np.array([n_own], dtype=np.int64)
        self.counts = counts if alone else gathered(counts)[:, 0]
        self.n_rows = int(self.counts.sum())
        self.first = int(self.counts[: self.process].sum())
        if (self.counts == 0).any():
            idle = int(np.flatnonzero(self.counts == 0)[0])
            raise ValueError(
                f"Process {idle} of {self.n_processes} has no rows: start fewer processes."
            )

    @cached_property
    def mesh(self) -> Mesh | None:
        """The devices, None where there is only one."""
        if len(self._devices) == 1:
            return None
        return Mesh(np.array(self._devices), (ROWS,), axis_types=(AxisType.Auto,))

    @cached_property
    def _own_devices(self) -> list[Any]:
        return [
            d for d, owner in zip(self._devices, self._owners, strict=True) if owner == self.process
        ]

    @cached_property
    def gpu_memory(self) -> int:
        """What every device has for the pass over the rows (:class:`sgpmic.model.rows.Rows`)."""
        return gpu_memory_on(self._own_devices[0])

    def layout(self, block: int | None) -> tuple[int, int]:
        """Return this process's number of blocks and the size of a block."""
        n_devices = np.bincount(self._owners, minlength=self.n_processes)
        most = int(np.max(-(-self.counts // n_devices)))
        n_blocks, size = block_shape(most, block, gpu=self.gpu_memory > 0)
        return n_blocks * len(self._own_devices), size

    def put(self, own: np.ndarray) -> jax.Array:
        """Return the array of all processes of which ``own`` is this one's part.

        ``own`` has an entry for every row, or for every block, that :meth:`layout` makes.
        """
        if self.mesh is None:
            return jax.device_put(own)
        n_all = len(own) // len(self._own_devices) * len(self._devices)
        beside_rows = NamedSharding(self.mesh, PartitionSpec(ROWS))
        return jax.make_array_from_process_local_data(beside_rows, own, (n_all, *own.shape[1:]))

    def own_part(self, array: Any) -> np.ndarray:
        """Return this process's part of what :meth:`put` made, padding included."""
        if self.mesh is None:
            return np.asarray(array)
        shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])

    def own_rows(self, array: Any) -> np.ndarray:
        """Return the entries for this process's rows, without padding."""
        return self.own_part(array)[: self.n_own]

    def lay_out_rows(
        self, own: np.ndarray, block: int | None, reduce: Callable[[Any], Any]
    ) -> Rows:
        """Return the rows of all processes as the model reads them, ``block`` at most in a block.

        ``reduce`` is applied to some rows at a time on their way: no second table is made.
        """
        P = own.shape[1]
        n_features = padded_features(P, self.n_rows)
        arrays = fill_blocks(own, *self.layout(block), n_features, reduce)
        values, weight, norm2 = map(self.put, arrays)
        return Rows(values, weight, norm2, np.float64(P), self.mesh, self.gpu_memory)

    def lay_out(self, own: np.ndarray, rows: Rows) -> jax.Array:
        """Return values that have an entry for each own row, in the places of ``rows``."""
        n_padded = rows.n_padded // len(self._devices) * len(self._own_devices)
        return self.put(pad_rows(own, n_padded))

    def total(self, values: _T) -> _T:
        """Return the sum over the processes of an array."""
        if self.n_processes == 1:
            return values
        return gathered(np.asarray(values)).sum(axis=0)

    def largest(self, values: _T) -> _T:
        """Return the largest of the processes' numbers, entry by entry of an array."""
        if self.n_processes == 1:
            return values
        return gathered(np.asarray(values)).max(axis=0)

    def agree(self, values: _T) -> _T:
        """Return the first process's version of a tree of arrays that all of them have."""
        if self.n_processes == 1:
            return values
        with double_precision():
            result: Any = multihost_utils.broadcast_one_to_all(values)
        return result

    def rows_at(self, own: np.ndarray, numbers: Ints) -> np.ndarray:
        """Return rows by their numbers in the whole table, to every process."""
        if self.n_processes == 1:
            # All of them, in order: no need for a copy.
            return own if len(numbers) == len(own) else own[numbers]
        places = np.asarray(numbers) - self.first
        mine = (places >= 0) & (places < self.n_own)
        found = np.zeros((len(places), *own.shape[1:]))
        found[mine] = own[places[mine]]
        return self.total(found)

    def wait(self, what: str) -> None:
        """Wait until all processes have come to this point."""
        if self.n_processes > 1:
            multihost_utils.sync_global_devices(what)


def gathered(own: np.ndarray) -> np.ndarray:
    """Return every process's array, (n_processes, ...)."""
    if jax.process_count() == 1:
        return own[None]
    with double_precision():
        return np.asarray(multihost_utils.process_allgather(own))


class SharedTable(NamedTuple):
    """A table of which every process has some rows; what ``fit`` takes in place of an array.

    Attributes
    ----------
    values : ndarray of shape (n_own, n_features)
        The rows this process has, also memory-mapped.
    group : ProcessGroup
    """

    values: np.ndarray
    group: ProcessGroup
