"""Encoded rows in the user's terms: numbers in their own units, categories by their levels.

Both follow from the encoded table, which a model file, a process with some of the rows and a report
all have; the table itself they do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sgpmic._types import Floats
from sgpmic.tables.conversions import Codes
from sgpmic.tables.encodings import DateEncoding, WordEncoding

if TYPE_CHECKING:
    from sgpmic.tables.encoder import TableEncoder


class Levels(NamedTuple):
    """A column of words."""

    name: str
    levels: tuple[str, ...]
    codes: Codes  # (n_rows,): the place of every row's level, -1 where it is missing


class Description(NamedTuple):
    """Rows as their user knows them."""

    names: tuple[str, ...]  # the columns of numbers
    numbers: Floats  # (n_rows, n_numbers): NaN where missing; of dates, days since 1970, or hours
    dates: tuple[str, ...]  # those of the columns of numbers that are dates
    categories: tuple[Levels, ...]  # the columns of words


def kind_words(kind: str) -> str:
    """Return a kind of column as it is written: yes/no, whole number."""
    return {"yes_no": "yes/no", "whole": "whole number"}.get(kind, kind)


def describe(encoder: TableEncoder, values: Floats) -> Description:
    """Return rows that a fitted encoder's ``transform`` returned in the user's words.

    Rare levels that were joined stay so, and levels that were not seen in fit are missing.
    """
    numbers: dict[str, Floats] = {}
    dates: list[str] = []
    categories: list[Levels] = []
    for j, encoding, features in encoder.features_by_column(values):
        name = encoder.columns_[j].name
        if isinstance(encoding, WordEncoding):
            categories.append(Levels(name, encoding.words, encoding.codes(features)))
        elif not isinstance(encoding, DateEncoding):
            numbers[name] = encoding.decode(features)
        elif encoding.time_only:
            numbers[name] = 24.0 * encoding.days(features)
        else:
            numbers[name] = encoding.days(features)
            dates.append(name)
    table = np.column_stack(list(numbers.values())) if numbers else np.empty((len(values), 0))
    return Description(tuple(numbers), table, tuple(dates), tuple(categories))
