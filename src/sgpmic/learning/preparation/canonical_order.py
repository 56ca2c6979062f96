"""An order of rows and features that does not depend on the one they came in.

A sum rounds differently in another order, and a seed draws other rows. Where clusters overlap that
is enough for another partition. So a fit that a committee votes on takes the table in an order of
its own, and gives its results back in the user's:

- features by their mean share of the way from their lowest to their highest value, and those that
  are equal in this by how they go with the others;
- rows by the same shares, summed over the features with the roots of these means for weights.

Features stay in their order where the indicators of a category stand side by side, which says that
they are one. Neither order depends on the units, and noise in the last digits changes it in few
places. It is for tables that one process has whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sgpmic._types import Floats
from sgpmic.learning.em import State
from sgpmic.learning.preparation.categories import find_categories
from sgpmic.learning.preparation.scaling import Scaler
from sgpmic.learning.snapshots import CheckpointWriter, Snapshot, by_row, with_rows
from sgpmic.model.prediction import Posterior
from sgpmic.process_group import ProcessGroup

#: Larger tables are taken as they come: a second one in memory would be too much.
_MOST_CELLS = 2**24


class Arrangement(NamedTuple):
    """The order that a fit takes rows and features in."""

    rows: Any = slice(None)  # the row of the table that comes at each place
    features: Any = slice(None)
    row_places: Any = slice(None)  # the place of every row: what undoes it
    feature_places: Any = slice(None)

    def apply(self, Y: Floats) -> Floats:
        """Return a table in this order."""
        return np.ascontiguousarray(Y[self.rows][:, self.features])

    def units(self, units: Scaler) -> Scaler:
        """Return units in the order of the table's features."""
        places = self.feature_places
        return units._replace(offset=units.offset[places], scale=units.scale[places])

    def posterior(self, posterior: Posterior) -> Posterior:
        """Return a posterior in the order of the table's features."""
        places, groups = self.feature_places, posterior.groups
        return posterior._replace(
            mean_weights=posterior.mean_weights[:, :, places],
            groups=None if groups is None else groups[:, places],
        )


#: The order of the table itself.
AS_GIVEN = Arrangement()


def arrange(Y: Floats, group: ProcessGroup) -> Arrangement:
    """Return the order to take a table in: as it is if it is shared by processes, or very large."""
    if group.n_processes > 1 or Y.size > _MOST_CELLS:
        return AS_GIVEN
    lowest, highest = np.fmin.reduce(Y, axis=0), np.fmax.reduce(Y, axis=0)
    spread = highest - lowest
    shares = (Y - lowest) / np.where(spread > 0, spread, 1.0)
    bulk = _sums(shares, axis=0)
    # Roots, because sums of whole numbers' shares are often equal; sums of roots are not.
    profile = _sums(shares * np.sqrt(bulk), axis=1)
    features = np.arange(Y.shape[1])
    if not any(category.n_features > 1 for category in find_categories(Y)):
        features = np.lexsort((_sums(shares * profile[:, None], axis=0), bulk))
    # Rows that are equal in this, but not the same, by their features.
    rows = np.lexsort((*Y.T[features[::-1]], profile))
    return Arrangement(rows, features, np.argsort(rows), np.argsort(features))


def _sums(values: Floats, axis: int) -> Floats:
    """Return sums, without gaps, that round the same whatever the order."""
    # NumPy adds up in the order of the memory.
    in_order = np.sort(np.ascontiguousarray(values), axis=axis)
    return np.nansum(in_order, axis=axis)


@dataclass(frozen=True)
class ArrangedCheckpoint:
    """A checkpoint that keeps rows and features in the user's order.

    It can then be resumed by any number of processes.
    """

    checkpoint: CheckpointWriter
    arrangement: Arrangement
    group: ProcessGroup
    n_features: int

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before."""
        order, group = self.arrangement, self.group

        def as_given(array: Any, features: Any = slice(None)) -> Any:
            padded = np.array(group.own_part(array))
            padded[: group.n_own] = self._move(padded[: group.n_own], order.row_places, features)
            return group.put(padded)

        self.checkpoint.save(_with_moved_rows(snapshot, as_given, order.feature_places))

    def load(self, template: State) -> Snapshot | None:
        """Return the snapshot that was kept, None if there is none."""
        order = self.arrangement

        def arranged(array: Any, features: Any = slice(None)) -> Any:
            return self._move(array, order.rows, features)

        snapshot = self.checkpoint.load(template)
        return snapshot and _with_moved_rows(snapshot, arranged, order.features)

    def _move(self, own: Any, rows: Any, features: Any) -> Any:
        moved = own[rows]
        # Beyond the features there is padding.
        moved[:, : self.n_features] = moved[:, : self.n_features][:, features]
        return moved


def _with_moved_rows(snapshot: Snapshot, move: Any, features: Any) -> Snapshot:
    """Return a snapshot with whatever has an entry for each row moved."""
    outcomes = []
    for outcome in snapshot.outcomes:
        arrays = by_row(outcome.state)
        moved = {name: move(array) for name, array in arrays.items() if name != "cells"}
        if "cells" in arrays:
            moved["cells"] = move(arrays["cells"], features)
        outcomes.append(replace(outcome, state=with_rows(outcome.state, moved)))
    return snapshot._replace(outcomes=outcomes)
