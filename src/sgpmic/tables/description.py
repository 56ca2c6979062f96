"""A table in its user's words: numbers in their own units, categories by their levels.

Both follow from the encoded table, which a model file, a process with some of the rows and a report
all have; the table itself they do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic.tables.encodings import (
    CategoryEncoding,
    DateEncoding,
    Encoding,
    NumberEncoding,
    OrderEncoding,
    YesNoEncoding,
)

if TYPE_CHECKING:
    from sgpmic.tables.encoder import TableEncoder

Floats = NDArray[np.float64]


class Levels(NamedTuple):
    """A column of words.

    Attributes
    ----------
    name : str
    levels : tuple of str
    codes : ndarray of int, shape (n_rows,)
        The place of every row's level among them, -1 where it is missing.
    """

    name: str
    levels: tuple[str, ...]
    codes: NDArray[np.int64]


class Description(NamedTuple):
    """Rows as their user knows them.

    Attributes
    ----------
    names : tuple of str
        The columns of numbers.
    numbers : ndarray of shape (n_rows, n_numbers)
        NaN where missing; of dates, days since 1970; of times, hours.
    dates : tuple of str
        Those of the columns of numbers that are dates.
    categories : tuple of Levels
        The columns of words.
    """

    names: tuple[str, ...]
    numbers: Floats
    dates: tuple[str, ...]
    categories: tuple[Levels, ...]


def kind_words(kind: str) -> str:
    """Return a kind of column as it is written: yes/no, whole number."""
    return {"yes_no": "yes/no", "whole": "whole number"}.get(kind, kind)


def describe(encoder: TableEncoder, values: Floats) -> Description:
    """Return encoded rows in the user's words.

    Rare levels that were joined stay so, and levels that were not seen in fit are missing.

    Parameters
    ----------
    encoder : TableEncoder
        Fitted.
    values : ndarray of shape (n_rows, n_features_out)
        What its ``transform`` returned.
    """
    names: list[str] = []
    numbers: list[Floats] = []
    dates: list[str] = []
    categories: list[Levels] = []
    for place, (column, encoding) in enumerate(
        zip(encoder.columns_, encoder.encodings_, strict=True)
    ):
        if encoding is None:
            continue
        own = values[:, encoder.source_ == place]
        levels = _levels(encoding)
        if levels:
            categories.append(Levels(column.name, levels, _codes(encoding, own)))
            continue
        names.append(column.name)
        numbers.append(_numbers(encoding, own))
        if isinstance(encoding, DateEncoding) and not encoding.time_only:
            dates.append(column.name)
    table = np.column_stack(numbers) if numbers else np.empty((len(values), 0))
    return Description(tuple(names), table, tuple(dates), tuple(categories))


def _levels(encoding: Encoding) -> tuple[str, ...]:
    """Return the levels of a column of words, none for numbers."""
    if isinstance(encoding, CategoryEncoding):
        return encoding.names
    if isinstance(encoding, OrderEncoding):
        return encoding.levels
    return () if isinstance(encoding, NumberEncoding | DateEncoding) else ("no", "yes")


def _codes(encoding: Encoding, own: Floats) -> NDArray[np.int64]:
    """Return the level of every row, -1 where it is missing."""
    missing = np.isnan(own[:, 0])
    if isinstance(encoding, CategoryEncoding):
        # An indicator is above 0 where its level is there, and below elsewhere.
        found = own.argmax(axis=1) if own.shape[1] > 1 else (own[:, 0] > 0).astype(np.int64)
    else:
        assert isinstance(encoding, OrderEncoding | YesNoEncoding)  # numbers have no levels
        places = np.where(missing, 0.0, own[:, 0]) * encoding.divisor
        found = np.round(places).astype(np.int64)
    return np.where(missing, -1, found)


def _numbers(encoding: Encoding, own: Floats) -> Floats:
    """Return a column of numbers in its own units."""
    if isinstance(encoding, DateEncoding):
        return 24.0 * encoding.days(own) if encoding.time_only else encoding.days(own)
    return encoding.decode(own)
