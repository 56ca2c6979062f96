"""Tables in memory, of whatever library, as names and Arrow columns.

pandas and polars are not imported: their tables are recognized by what they can do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sgpmic.tables.base import numbered_names
from sgpmic.tables.errors import TableError, list_names, quote


class Frame(NamedTuple):
    """The columns of a table; ``named`` is False where the names were made up."""

    names: tuple[str, ...]
    columns: tuple[pa.Array, ...]
    n_rows: int
    named: bool


def as_frame(X: Any) -> Frame:
    """Return the columns of a pandas or polars frame, Arrow table, dict of sequences, or array."""
    if hasattr(X, "tocsr"):
        raise TypeError(
            "A sparse matrix holds one kind of numbers and needs no TableEncoder: reduce it with "
            "sklearn.decomposition.TruncatedSVD, or pass X.toarray()."
        )
    if isinstance(X, Mapping):
        frame = _of_mapping(X)
    elif hasattr(X, "iloc") and hasattr(X, "columns"):  # pandas
        # One column at a time: a column of mixed objects then spoils no other.
        columns = [_of_values(X.iloc[:, j], name) for j, name in enumerate(X.columns)]
        named = all(isinstance(name, str) for name in X.columns)
        frame = Frame(tuple(map(str, X.columns)), tuple(columns), len(X), named)
    elif isinstance(X, pa.RecordBatch | pa.Table) or hasattr(X, "__arrow_c_stream__"):
        frame = _of_arrow(pa.table(X) if not isinstance(X, pa.RecordBatch) else X)
    elif hasattr(X, "__dataframe__"):
        from pyarrow.interchange import from_dataframe

        frame = _of_arrow(from_dataframe(X))
    else:
        frame = _of_array(X)
    shared = [name for name, count in Counter(frame.names).items() if count > 1]
    if shared:
        raise TableError(
            f"several columns are named {list_names(shared)}; give every column its own name"
        )
    _check_characters(frame.names, "the name of column {}")
    return frame


def _of_arrow(table: pa.Table | pa.RecordBatch) -> Frame:
    columns = tuple(map(_in_one_piece, table.columns))
    return Frame(tuple(table.schema.names), columns, table.num_rows, True)


def _in_one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _of_mapping(table: Mapping[Any, Any]) -> Frame:
    columns = [_of_values(values, name) for name, values in table.items()]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise TableError(
            f"the columns have from {min(lengths)} to {max(lengths)} cells; make them equally long"
        )
    n_rows = lengths.pop() if lengths else 0
    return Frame(tuple(map(str, table)), tuple(columns), n_rows, True)


def _of_array(X: Any) -> Frame:
    values = np.asarray(X)
    if np.iscomplexobj(values):
        raise ValueError("Complex data not supported: split it into two columns of real numbers.")
    if values.ndim != 2:
        raise ValueError(
            f"Expected a table of rows and columns, got {values.ndim} dimensions. Reshape your "
            "data: X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row."
        )
    names = numbered_names(values.shape[1])
    columns = [_of_values(values[:, j], name) for j, name in enumerate(names)]
    return Frame(names, tuple(columns), len(values), False)


def _of_values(values: Any, name: Any) -> pa.Array:
    """Return any sequence as an Arrow array: as text where its values are of several types."""
    try:
        column = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        missing = [
            value is None or (isinstance(value, float) and value != value) for value in values
        ]
        texts = [None if gone else str(value) for value, gone in zip(values, missing, strict=True)]
        _check_characters([text or "" for text in texts], f"column {quote(str(name))}, row {{}}")
        column = pa.array(texts, pa.string())
    return _in_one_piece(column)


def _check_characters(texts: Sequence[str], place: str) -> None:
    """Raise for half a character (a lone surrogate), which JSON may have and Arrow has not."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise TableError(
                f"{place.format(number)}: {quote(text)} has half a character, which is not UTF-8; "
                "correct it"
            ) from None
