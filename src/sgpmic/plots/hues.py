"""What points are colored by: a number for each, or one of several groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic._types import Floats, Ints

#: Whole numbers with at most this many different values are taken for labels.
MOST_CODES = 12

#: Of more levels, the most frequent are told apart.
MOST_LEVELS = 40


class Numbers(NamedTuple):
    """A number for every point, NaN where it is missing, and the ends of its scale if given."""

    name: str
    values: Floats
    ends: tuple[float, float] | None = None


class Groups(NamedTuple):
    """A group for every point, -1 where it is missing, -2 where it is one of the rare others."""

    name: str
    levels: tuple[str, ...]
    codes: Ints
    n_others: int = 0


def read_hue(values: Any, name: str, n_rows: int) -> Numbers | Groups:
    """Return what a column or an array, which must have ``n_rows`` entries, is.

    Groups are words, yes and no, categories, and whole numbers with at most twelve different
    values; other numbers are numbers.
    """
    categories = getattr(getattr(values, "cat", None), "categories", None)
    array: NDArray[Any] = np.ma.filled(values, np.nan) if np.ma.isMA(values) else np.asarray(values)
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if kind in ("i", "u") and array.dtype.kind == "f":  # a nullable column of whole numbers
        array = np.array([None if np.isnan(one) else int(one) for one in array], dtype=object)
    if array.shape != (n_rows,):
        raise ValueError(
            f"color_by has shape {array.shape}, but there are {n_rows} rows: give one entry for "
            "each."
        )
    if categories is not None:
        return _group(array, name, list(categories))
    numbers = _as_numbers(array)
    return _group(array, name, None) if numbers is None else Numbers(name, numbers)


def _as_numbers(array: NDArray[Any]) -> Floats | None:
    """Return entries as numbers where all that is there are fractions or many whole numbers."""
    kind = array.dtype.kind
    if kind == "f" or (kind in "iu" and len(np.unique(array)) > MOST_CODES):
        return np.asarray(array, dtype=np.float64)
    if kind != "O":
        return None
    there = [one for one in array if not is_missing(one)]
    numeric = all(isinstance(one, (int, float, np.number)) for one in there)
    if not there or not numeric or any(isinstance(one, (bool, np.bool_)) for one in there):
        return None
    if all(float(one).is_integer() for one in there) and len(set(there)) <= MOST_CODES:
        return None
    return np.array([np.nan if is_missing(one) else float(one) for one in array])


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty: None, NaN, pandas's NA and NaT, or no text."""
    if value is None or (isinstance(value, str) and value == ""):
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas's NA is neither true nor false
        return True


def _group(array: NDArray[Any], name: str, order: Sequence[Any] | None) -> Groups:
    """Return groups: in the order of the categories, of numbers, or the most frequent first."""
    missing = np.array([is_missing(one) for one in array], dtype=bool)
    there = array[~missing]
    counts = Counter(there.tolist())
    if order is None:
        # Numbers and booleans have an order of their own; of words the most frequent come first.
        plain = all(isinstance(one, (bool, int, float)) for one in counts)
        order = sorted(counts) if plain else sorted(counts, key=lambda one: -counts[one])
    present = [one for one in order if counts[one]]
    shown = present
    if len(present) > MOST_LEVELS:
        frequent = set(sorted(present, key=lambda one: -counts[one])[: MOST_LEVELS - 1])
        shown = [one for one in present if one in frequent]
    places = {one: place for place, one in enumerate(shown)}
    codes = np.full(len(array), -1, dtype=np.int64)
    codes[~missing] = [places.get(one, -2) for one in there.tolist()]
    return Groups(name, tuple(_word(one) for one in shown), codes, len(present) - len(shown))


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def find_column(X: Any, name: str, feature_names: Sequence[str] | None) -> Any:
    """Return a column of a table: a data frame, a dict of columns, or an array with names."""
    if isinstance(X, Mapping) or hasattr(X, "columns"):
        known = list(X.keys() if isinstance(X, Mapping) else X.columns)
        if name in known:
            return X[name]
    else:
        known = list(feature_names or ())
        if name in known:
            return np.asarray(X)[:, known.index(name)]
    names = ", ".join(map(str, known[:8])) + (", …" if len(known) > 8 else "")
    raise ValueError(
        f"color_by={name!r} is not a column of X"
        + (f", which has {names}." if known else ": an array has no names; use a data frame.")
    )
