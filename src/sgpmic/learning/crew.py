"""Who has which rows.

Learning is one program, whether one process has all rows or many have some each. What it asks of
the others is little: sums, some rows drawn from all of them, and to agree. :class:`Alone` answers
for one process; :mod:`sgpmic.scale` answers for many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from sgpmic.learning.checkpoint import Keeper
from sgpmic.model.rows import Rows, block_shape, fill_blocks, pad_rows, room_on, usual_block

Floats = NDArray[np.float64]
_T = TypeVar("_T")


class Crew(Protocol):
    """The processes that have the rows of one table, in the order of the rows.

    Every process calls the same methods in the same order: most of them wait for the others.
    """

    @property
    def n_rows(self) -> int:
        """Rows of all processes together."""

    @property
    def first(self) -> int:
        """The number of the first row that this process has."""

    @property
    def n_own(self) -> int:
        """How many rows this process has."""

    @property
    def n_processes(self) -> int:
        """How many there are."""

    @property
    def mesh(self) -> Mesh | None:
        """The devices, None for a single one."""

    @property
    def room(self) -> int:
        """What the devices have for the pass over the rows (:class:`sgpmic.model.rows.Rows`)."""

    def layout(self, block: int | None) -> tuple[int, int]:
        """Return this process's number of blocks and the size of a block."""

    def put(self, own: np.ndarray) -> jax.Array:
        """Return the array of all processes of which ``own`` is this one's part.

        ``own`` has an entry for every row, or for every block, that :meth:`layout` makes room for.
        """

    def own_part(self, array: Any) -> np.ndarray:
        """Return this process's part of what :meth:`put` made, padding included."""

    def total(self, values: _T) -> _T:
        """Return the sum over the processes of an array."""

    def largest(self, value: float) -> float:
        """Return the largest of the processes' numbers."""

    def agree(self, values: _T) -> _T:
        """Return the first process's version of a tree of arrays that all of them have."""

    def rows_at(self, own: np.ndarray, numbers: NDArray[np.int64]) -> np.ndarray:
        """Return rows by their numbers in the whole table, to every process."""

    def keeper(
        self, path: Any, own: np.ndarray, parameters: Mapping[str, Any], every: int
    ) -> Keeper | None:
        """Return what keeps checkpoints of this crew's learning; None for a file as usual."""


@dataclass(frozen=True)
class Alone:
    """One process that has all rows on one device."""

    n_rows: int

    @property
    def first(self) -> int:
        """The number of the first row."""
        return 0

    @property
    def n_own(self) -> int:
        """All rows."""
        return self.n_rows

    @property
    def n_processes(self) -> int:
        """One."""
        return 1

    @property
    def mesh(self) -> Mesh | None:
        """None: there is one device."""
        return None

    @property
    def room(self) -> int:
        """What the device has for the pass over the rows."""
        return room_on()

    def layout(self, block: int | None) -> tuple[int, int]:
        """Return the number of blocks and their size."""
        return block_shape(self.n_rows, block, wide=self.room > 0)

    def put(self, own: np.ndarray) -> jax.Array:
        """Return the array on the device, without a copy where that can be."""
        return jax.device_put(own)

    def own_part(self, array: Any) -> np.ndarray:
        """Return the array."""
        return np.asarray(array)

    def total(self, values: _T) -> _T:
        """Return the values."""
        return values

    def largest(self, value: float) -> float:
        """Return the value."""
        return value

    def agree(self, values: _T) -> _T:
        """Return the values."""
        return values

    def rows_at(self, own: np.ndarray, numbers: NDArray[np.int64]) -> np.ndarray:
        """Return rows by their numbers."""
        # All of them, in order: no need for a copy.
        return own if len(numbers) == len(own) else own[numbers]

    def keeper(
        self, path: Any, own: np.ndarray, parameters: Mapping[str, Any], every: int
    ) -> Keeper | None:
        """Return None: a file as usual."""
        return None


class SharedTable(NamedTuple):
    """A table of which every process has some rows; what ``fit`` takes in place of an array.

    Attributes
    ----------
    values : ndarray of shape (n_own, n_features)
        The rows this process has, also memory-mapped.
    crew : Crew
    """

    values: np.ndarray
    crew: Crew


def lay_out_rows(
    own: np.ndarray, crew: Crew, block: int | None, reduce: Any, *, single: bool = False
) -> Rows:
    """Return a crew's rows as the model reads them.

    Parameters
    ----------
    own : ndarray of shape (n_own, n_features)
    crew : Crew
    block : int or None
        Rows in a block, at most.
    reduce : callable
        Applied to some rows at a time on their way: no second table is made.
    single : bool
        Whether to keep them, and to make passes over them, in float32.
    """
    shape = crew.layout(usual_block(block, single=single, wide=crew.room > 0))
    arrays = fill_blocks(own, *shape, reduce, single=single)
    values, weight, norm2 = map(crew.put, arrays)
    return Rows(values, weight, norm2, crew.mesh, crew.room, single)


def lay_out(own: np.ndarray, crew: Crew, rows: Rows) -> jax.Array:
    """Return values with an entry for each of the crew's rows, in the places of ``rows``."""
    n_padded = rows.n_padded
    if crew.mesh is not None:
        n_padded = n_padded // crew.mesh.size * len(crew.mesh.local_devices)
    return crew.put(pad_rows(own, n_padded))


def own_rows(array: Any, crew: Crew) -> np.ndarray:
    """Return the entries for this process's rows, without padding."""
    return crew.own_part(array)[: crew.n_own]
