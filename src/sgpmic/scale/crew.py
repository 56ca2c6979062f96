"""Rows spread over devices and processes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from sgpmic._runtime import double_precision
from sgpmic.learning.checkpoint import Keeper
from sgpmic.model.rows import block_shape, room_on, usual_block
from sgpmic.model.statistics import ROWS

_T = TypeVar("_T")


class SpreadRows:
    """All processes of the job, each with some rows in the order of the processes.

    A :class:`sgpmic.learning.crew.Crew`. Every device has as many places for rows as any other;
    those that are left over have weight 0.

    Parameters
    ----------
    n_own : int
        How many rows this process has; every process makes its own object, and they tell each
        other.
    devices : sequence of jax.Device or None
        The devices of all processes; by default all that JAX has.
    """

    def __init__(self, n_own: int, devices: Any = None) -> None:
        devices = jax.devices() if devices is None else list(devices)
        # Rows follow the order of the processes, and so must devices.
        devices = sorted(devices, key=lambda d: (d.process_index, d.id))
        self.mesh = Mesh(np.array(devices), (ROWS,), axis_types=(AxisType.Auto,))
        self.n_own = n_own
        self.n_processes = jax.process_count()
        self.counts = gathered(np.array([n_own], dtype=np.int64))[:, 0]
        self.n_rows = int(self.counts.sum())
        self.first = int(self.counts[: jax.process_index()].sum())
        if (self.counts == 0).any():
            idle = int(np.flatnonzero(self.counts == 0)[0])
            raise ValueError(
                f"Process {idle} of {self.n_processes} has no rows: start fewer processes."
            )

    @cached_property
    def _n_local(self) -> int:
        return len(self.mesh.local_devices)

    @cached_property
    def _beside_rows(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(ROWS))

    @cached_property
    def room(self) -> int:
        """What every device has for the pass over the rows."""
        return room_on(self.mesh.local_devices[0])

    def layout(self, block: int | None) -> tuple[int, int]:
        """Return this process's number of blocks and the size of a block."""
        per_process: dict[int, int] = {}
        for device in self.mesh.devices.flat:
            per_process[device.process_index] = per_process.get(device.process_index, 0) + 1
        most = max(
            -(-int(self.counts[process]) // n_devices) for process, n_devices in per_process.items()
        )
        n_blocks, size = block_shape(most, block, wide=self.room > 0)
        return n_blocks * self._n_local, size

    def put(self, own: np.ndarray) -> jax.Array:
        """Return the array of all processes of which ``own`` is this one's part."""
        n_all = len(own) // self._n_local * self.mesh.size
        return jax.make_array_from_process_local_data(
            self._beside_rows, own, (n_all, *own.shape[1:])
        )

    def own_part(self, array: Any) -> np.ndarray:
        """Return this process's part of what :meth:`put` made, padding included."""
        shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])

    def total(self, values: _T) -> _T:
        """Return the sum over the processes of an array."""
        if self.n_processes == 1:
            return values
        result: Any = gathered(np.asarray(values)).sum(axis=0)
        return result

    def largest(self, value: float) -> float:
        """Return the largest of the processes' numbers."""
        if self.n_processes == 1:
            return value
        return float(gathered(np.array([value])).max())

    def agree(self, values: _T) -> _T:
        """Return the first process's version of a tree of arrays that all of them have."""
        if self.n_processes == 1:
            return values
        with double_precision():
            result: Any = multihost_utils.broadcast_one_to_all(values)
        return result

    def rows_at(self, own: np.ndarray, numbers: NDArray[np.int64]) -> np.ndarray:
        """Return rows by their numbers in the whole table, to every process."""
        places = np.asarray(numbers) - self.first
        mine = (places >= 0) & (places < self.n_own)
        found = np.zeros((len(places), *own.shape[1:]))
        found[mine] = own[places[mine]]
        return self.total(found)

    def keeper(
        self, path: Any, own: np.ndarray, parameters: Mapping[str, Any], every: int
    ) -> Keeper | None:
        """Return what keeps checkpoints of all processes in one folder."""
        from sgpmic.scale.checkpoints import ShardedCheckpoint, spread_marks

        marks = spread_marks(own, self, parameters)
        single = parameters["precision"] == "float32"
        block = usual_block(parameters["block_size"], single=single, wide=self.room > 0)
        return ShardedCheckpoint(path, self, marks, every, block)

    @property
    def process(self) -> int:
        """Which process this is, from 0."""
        return jax.process_index()

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
