"""The processes of a job, and the rows of each.

A fit is the same program with one process or many (SPMD). Communication is limited to sums, maxima,
gathers of sampled rows, and broadcasts. A single process is a group of one, for which every method
returns at once.
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
    """The processes that share the rows of a table, in the order of the rows.

    Every process creates its own object and calls the same methods in the same order, as most are
    collective operations. All devices hold the same number of rows, including padding, which has
    weight 0.

    ``n_own`` is the number of rows of this process. ``devices`` are those of all processes, by
    default JAX's default device if there is only one process. ``alone`` leaves out all other
    processes, for local computations within a job.
    """

    def __init__(
        self, n_own: int, devices: Sequence[Any] | None = None, *, alone: bool = False
    ) -> None:
        self.n_processes, self.process = jax.process_count(), jax.process_index()
        if alone:
            self.n_processes, self.process = 1, 0
        if devices is None:
            devices = jax.devices() if self.n_processes > 1 else [default_device()]
        # Rows are in the order of the processes, and devices must be too.
        self._devices = sorted(devices, key=lambda d: (d.process_index, d.id))
        self._owners = [0 if alone else device.process_index for device in self._devices]
        self._n_own_devices = self._owners.count(self.process)
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
        """The device mesh, None for a single device."""
        if len(self._devices) == 1:
            return None
        return Mesh(np.array(self._devices), (ROWS,), axis_types=(AxisType.Auto,))

    def put(self, own: np.ndarray) -> jax.Array:
        """Return the global array of which ``own``, padded rows or blocks, is our part."""
        if self.mesh is None:
            return jax.device_put(own)
        n_all = len(own) // self._n_own_devices * len(self._devices)
        beside_rows = NamedSharding(self.mesh, PartitionSpec(ROWS))
        return jax.make_array_from_process_local_data(beside_rows, own, (n_all, *own.shape[1:]))

    def own_part(self, array: Any) -> np.ndarray:
        """Return this process's part of a global array, including padding."""
        if self.mesh is None:
            return np.asarray(array)
        shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])

    def own_rows(self, array: Any) -> np.ndarray:
        """Return this process's part of a global array, without padding."""
        return self.own_part(array)[: self.n_own]

    def lay_out_rows(
        self, own: np.ndarray, block: int | None, reduce: Callable[[Any], Any]
    ) -> Rows:
        """Return all rows, to which ``reduce`` is applied, in blocks of at most ``block``."""
        n_devices = np.bincount(self._owners, minlength=self.n_processes)
        most = int(np.max(-(-self.counts // n_devices)))
        gpu_memory = gpu_memory_on(self._devices[self._owners.index(self.process)])
        n_blocks, size = block_shape(most, block, gpu=gpu_memory > 0)
        P, n_blocks = own.shape[1], n_blocks * self._n_own_devices  # of this process
        arrays = fill_blocks(own, n_blocks, size, padded_features(P, self.n_rows), reduce)
        values, weight, norm2 = map(self.put, arrays)
        return Rows(values, weight, norm2, np.float64(P), self.mesh, gpu_memory)

    def lay_out(self, own: np.ndarray, rows: Rows) -> jax.Array:
        """Pad a per-row array of this process and shard it like ``rows``."""
        n_padded = rows.n_padded // len(self._devices) * self._n_own_devices
        return self.put(pad_rows(own, n_padded))

    def total(self, values: _T) -> _T:
        """Sum an array over the processes."""
        if self.n_processes == 1:
            return values
        return gathered(np.asarray(values)).sum(axis=0)

    def largest(self, values: _T) -> _T:
        """Return the elementwise maximum of an array over the processes."""
        if self.n_processes == 1:
            return values
        return gathered(np.asarray(values)).max(axis=0)

    def agree(self, values: _T) -> _T:
        """Broadcast a pytree of arrays from process 0."""
        if self.n_processes == 1:
            return values
        with double_precision():
            result: Any = multihost_utils.broadcast_one_to_all(values)
        return result

    def rows_at(self, own: np.ndarray, numbers: Ints) -> np.ndarray:
        """Return rows by their indices in the whole table, to every process."""
        if self.n_processes == 1:
            # All rows, in order: no need for a copy.
            return own if len(numbers) == len(own) else own[numbers]
        places = np.asarray(numbers) - self.first
        mine = (places >= 0) & (places < self.n_own)
        found = np.zeros((len(places), *own.shape[1:]))
        found[mine] = own[places[mine]]
        return self.total(found)

    def wait(self, what: str) -> None:
        """Wait until all processes have reached this point."""
        if self.n_processes > 1:
            multihost_utils.sync_global_devices(what)


def gathered(own: np.ndarray) -> np.ndarray:
    """Gather an array from all processes, (n_processes, ...)."""
    if jax.process_count() == 1:
        return own[None]
    with double_precision():
        return np.asarray(multihost_utils.process_allgather(own))


class SharedTable(NamedTuple):
    """A table distributed over processes, as input of ``fit``."""

    values: np.ndarray  # (n_own, n_features) the rows of this process; may be memory-mapped
    group: ProcessGroup
