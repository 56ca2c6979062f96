"""An order of rows and features that does not depend on the one they came in.

A sum rounds differently in another order, and a seed draws other rows. Where clusters overlap that
is enough for another partition. So a fit that a committee votes on takes the table in a canonical
order, and gives its results back in the user's:

- features by their mean after min-max scaling; of equal means, by their products with the rows'
  keys;
- rows by a key, the sum of their scaled features weighted with the roots of these means.

Features stay in their order where the indicators of a category stand side by side, which says that
they are one. Neither order depends on the units, and noise in the last digits changes it in few
places. It is for tables that one process has whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sgpmic._types import Floats
from sgpmic.learning.categories import find_categories
from sgpmic.learning.em import CheckpointWriter, Snapshot, State, by_row, with_rows
from sgpmic.process_group import ProcessGroup

#: Larger tables are taken as they come: a second one in memory would be too much.
_MOST_CELLS = 2**24


class Order(NamedTuple):
    """The order that a fit takes rows and features in."""

    rows: Any = slice(None)  # the row of the table that comes at each place
    features: Any = slice(None)
    row_places: Any = slice(None)  # the place of every row: the inverse
    feature_places: Any = slice(None)

    def apply(self, Y: Floats) -> Floats:
        """Return a table in this order."""
        return Y if self is AS_GIVEN else np.ascontiguousarray(Y[self.rows][:, self.features])

    def undo(self, Y: Floats) -> Floats:
        """Return a table in the order that it came in."""
        return Y[self.row_places][:, self.feature_places]


#: The order of the table itself.
AS_GIVEN = Order()


def canonical_order(Y: Floats, group: ProcessGroup) -> Order:
    """Return the canonical order of a table.

    A table that is shared by processes, or very large, is taken as it is.
    """
    if group.n_processes > 1 or Y.size > _MOST_CELLS:
        return AS_GIVEN
    lowest, highest = np.fmin.reduce(Y, axis=0), np.fmax.reduce(Y, axis=0)
    ranges = highest - lowest
    scaled = (Y - lowest) / np.where(ranges > 0, ranges, 1.0)
    totals = _sums(scaled, axis=0)
    # Roots, because sums of whole numbers are often equal; sums of roots are not.
    keys = _sums(scaled * np.sqrt(totals), axis=1)
    features = np.arange(Y.shape[1])
    if not any(category.n_features > 1 for category in find_categories(Y)):
        features = np.lexsort((_sums(scaled * keys[:, None], axis=0), totals))
    # Rows of equal keys by their features.
    rows = np.lexsort((*Y.T[features[::-1]], keys))
    return Order(rows, features, np.argsort(rows), np.argsort(features))


def _sums(values: Floats, axis: int) -> Floats:
    """Return sums, without gaps, that round the same whatever the order."""
    # NumPy adds up in the order of the memory.
    in_order = np.sort(np.ascontiguousarray(values), axis=axis)
    return np.nansum(in_order, axis=axis)


@dataclass(frozen=True)
class ReorderedCheckpoint:
    """A checkpoint that keeps rows and features in the order that they came in.

    It can then be resumed by any number of processes.
    """

    checkpoint: CheckpointWriter
    order: Order
    group: ProcessGroup
    n_features: int

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before."""

        def as_given(name: str, array: Any) -> Any:
            padded = np.array(self.group.own_part(array))
            own = padded[: self.group.n_own]
            own[:] = self._move(name, own, self.order.row_places, self.order.feature_places)
            return self.group.put(padded)

        self.checkpoint.save(_moved(snapshot, as_given))

    def load(self, template: State) -> Snapshot | None:
        """Return the snapshot that was kept, None if there is none."""
        snapshot = self.checkpoint.load(template)

        def in_order(name: str, array: Any) -> Any:
            return self._move(name, array, self.order.rows, self.order.features)

        return snapshot and _moved(snapshot, in_order)

    def _move(self, name: str, own: Any, rows: Any, features: Any) -> Any:
        moved = own[rows]
        if name == "cells":  # beyond the features there is padding
            moved[:, : self.n_features] = moved[:, : self.n_features][:, features]
        return moved


def _moved(snapshot: Snapshot, move: Callable[[str, Any], Any]) -> Snapshot:
    """Return a snapshot with whatever has an entry for each row moved."""
    fits = []
    for fit in snapshot.fits:
        arrays = {name: move(name, array) for name, array in by_row(fit.state).items()}
        fits.append(replace(fit, state=with_rows(fit.state, arrays)))
    return snapshot._replace(fits=fits)
