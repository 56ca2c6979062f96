"""An order of rows and features that does not depend on the one they came in.

A sum rounds differently in another order, and a seed draws other rows. Where clusters overlap that
is enough for another partition. So a fit that a committee votes on takes the table in a canonical
order, and gives its results back in the user's:

- features by their mean share of the way from their lowest to their highest value, and those that
  are equal in this by how they go with the others;
- rows by the same shares, summed over the features with the roots of these means for weights.

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
from sgpmic.learning.preprocessing import Scaler
from sgpmic.learning.state import CheckpointWriter, Snapshot, State, by_row, with_rows
from sgpmic.model.prediction import Posterior
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

    def undo_scaler(self, scaler: Scaler) -> Scaler:
        """Return a scaler for features in the order that they came in."""
        places = self.feature_places
        return scaler._replace(offset=scaler.offset[places], scale=scaler.scale[places])

    def undo_posterior(self, posterior: Posterior) -> Posterior:
        """Return a posterior of features in the order that they came in."""
        places, groups = self.feature_places, posterior.groups
        return posterior._replace(
            mean_weights=posterior.mean_weights[:, :, places],
            groups=None if groups is None else groups[:, places],
        )


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
    shares = (Y - lowest) / np.where(ranges > 0, ranges, 1.0)
    bulk = _sums(shares, axis=0)
    # Roots, because sums of whole numbers' shares are often equal; sums of roots are not.
    profile = _sums(shares * np.sqrt(bulk), axis=1)
    features = np.arange(Y.shape[1])
    if not any(category.n_features > 1 for category in find_categories(Y)):
        features = np.lexsort((_sums(shares * profile[:, None], axis=0), bulk))
    # Rows that are equal in this, but not the same, by their features.
    rows = np.lexsort((*Y.T[features[::-1]], profile))
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
        order, group = self.order, self.group

        def as_given(array: Any, features: Any) -> Any:
            padded = np.array(group.own_part(array))
            own = padded[: group.n_own]
            padded[: group.n_own] = self._move(own, order.row_places, features)
            return group.put(padded)

        self.checkpoint.save(_moved(snapshot, as_given, order.feature_places))

    def load(self, template: State) -> Snapshot | None:
        """Return the snapshot that was kept, None if there is none."""
        order, snapshot = self.order, self.checkpoint.load(template)

        def in_order(array: Any, features: Any) -> Any:
            return self._move(array, order.rows, features)

        return snapshot and _moved(snapshot, in_order, order.features)

    def _move(self, own: Any, rows: Any, features: Any) -> Any:
        moved = own[rows]
        # Beyond the features there is padding.
        moved[:, : self.n_features] = moved[:, : self.n_features][:, features]
        return moved


def _moved(snapshot: Snapshot, move: Callable[[Any, Any], Any], features: Any) -> Snapshot:
    """Return a snapshot with whatever has an entry for each row moved; cells have features too."""
    return snapshot._replace(
        fits=[
            replace(
                fit,
                state=with_rows(
                    fit.state,
                    {
                        name: move(array, features if name == "cells" else slice(None))
                        for name, array in by_row(fit.state).items()
                    },
                ),
            )
            for fit in snapshot.fits
        ]
    )
