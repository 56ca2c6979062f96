"""Columns of text that hold plain numbers only, read at once instead of cell by cell."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sgpmic.tables.conversions import MISSING_WORDS

# A leading zero that no number needs makes a code of it: of a region, a telephone, an article.
_CODE = r"^[+-]?0[0-9]+$"


def with_plain_numbers(table: pa.Table, text: Collection[str] = ()) -> pa.Table:
    """Return a table in which columns of plain numbers, as text, are columns of numbers.

    Those in ``text`` stay as they are, because they are known to be something else.
    """
    columns = {name: table.column(place) for place, name in enumerate(table.column_names)}
    for name, column in columns.items():
        if name not in text and pa.types.is_string(column.type):
            numbers = _plain_numbers(column)
            columns[name] = column if numbers is None else numbers
    return pa.table(columns)


def _plain_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return numbers, null where missing; None if a cell is anything else, or none is there."""
    texts = pc.utf8_trim_whitespace(column)
    # Few cells decide about most columns of words.
    if _cast(texts.slice(0, 100)) is None:
        return None
    numbers = _cast(texts)
    if numbers is None or pc.any(pc.match_substring_regex(texts, _CODE)).as_py():
        return None
    return numbers if numbers.null_count < len(numbers) else None


def _cast(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    missing = pc.is_in(pc.utf8_lower(texts), pa.array(sorted(MISSING_WORDS), pa.string()))
    try:
        numbers = pc.cast(pc.if_else(missing, None, texts), pa.float64())
    except pa.ArrowInvalid:
        return None
    # Infinite values and others that only look like numbers are for those to judge who see text.
    finite = np.isfinite(numbers.drop_null().to_numpy())
    return numbers if finite.all() else None
