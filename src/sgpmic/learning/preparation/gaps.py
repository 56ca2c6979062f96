"""Gaps in a table: features that are missing together, and imputed rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sgpmic._types import Bools, Floats
from sgpmic.learning.preparation.completion import MOST_ROWS, fill_from_nearest, fit_factors
from sgpmic.learning.preparation.scaling import Scaler, has_gaps
from sgpmic.model.gaps import Groups
from sgpmic.model.rows import Rows, column_patterns, group_features, pad
from sgpmic.process_group import ProcessGroup, gathered

#: Groups of features that are observed in the same rows, up to which gaps are integrated out
#: exactly; an evaluation of the bound takes about as many times as long as of a complete table.
MOST_GROUPS = 24


def refuse_empty_rows(Y: Floats, first: int = 0, n_empty: int | None = None) -> None:
    """Raise where a row has no value at all; rows are counted from ``first``.

    ``n_empty`` is how many there are in the table of all processes; None for those of ``Y``.
    """
    empty = np.flatnonzero(np.isnan(Y).all(axis=1)) + first
    count = len(empty) if n_empty is None else n_empty
    if count == 0:
        return
    shown = ", ".join(map(str, empty[:5]))
    names = f" (counted from 0: {shown}{', …' if len(empty) > 5 else ''})" if shown else ""
    what = "1 row has" if count == 1 else f"{count} rows have"
    raise ValueError(
        f"{what} no value at all{names}: nothing can be said about such a row; leave it out."
    )


def features_seen(Y: Floats, group: ProcessGroup) -> Bools:
    """Return which features any row of the table of all processes has."""
    return group.total(np.sum(~np.isnan(Y), axis=0)) > 0


def impute_rows(Y: Floats, group: ProcessGroup, scaler: Scaler) -> Floats:
    """Return this process's rows with what their nearest rows have in the missing cells.

    All processes learn it from the same rows of the whole table.
    """
    if not has_gaps(Y, group):
        return Y
    numbers = np.linspace(0, group.n_rows - 1, min(MOST_ROWS, group.n_rows)).astype(np.int64)
    sample = group.agree(scaler.transform(group.rows_at(Y, numbers)))
    factors = group.agree(fit_factors(sample))
    scaled = scaler.transform(Y)
    imputed = fill_from_nearest(scaled, factors.complete(scaled), sample, factors.complete(sample))
    return np.where(np.isnan(Y), scaler.inverse_transform(imputed), Y)


def with_gaps(rows: Rows, Y: Floats, group: ProcessGroup) -> Rows:
    """Return the laid-out rows of ``Y``, this process's table, as the model reads gaps.

    In groups of features that are observed together, where there are at most
    :data:`MOST_GROUPS`; otherwise with a mark at every missing cell.
    """
    missing = np.isnan(Y)
    n_padded = rows.Y.shape[1]
    n_observed = group.lay_out(np.sum(~missing, axis=1).astype(np.float64), rows)
    own = column_patterns(missing)
    everybodys = own[None] if group.n_processes == 1 else gathered(own)
    patterns = np.unique(everybodys, axis=1, return_inverse=True)[1].reshape(-1)
    if len(np.unique(patterns)) <= MOST_GROUPS:
        groups = group_features(patterns, missing, n_padded)
        laid_out = group.lay_out(np.asarray(groups.observed), rows)
        return replace(rows, groups=Groups(groups.features, laid_out), n_observed=n_observed)
    never = group.total(np.sum(~missing, axis=0)) == 0
    cells = pad((missing & ~never).astype(np.float64), (len(Y), n_padded))
    return replace(
        rows,
        missing=group.lay_out(cells, rows),
        n_observed=n_observed,
        n_features=np.float64(len(never) - never.sum()),
    )


def first_cells(Y_imputed: Floats, scaler: Scaler, rows: Rows, group: ProcessGroup) -> Any:
    """Return the first values of missing cells, laid out, where these have a posterior."""
    if rows.missing is None:
        return None
    values = pad(scaler.transform(Y_imputed), (len(Y_imputed), rows.Y.shape[1]))
    return group.lay_out(values, rows) * rows.missing
