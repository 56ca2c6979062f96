"""Conversion of input rows to numbers, with one-sentence error messages."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from sgpmic._types import Floats
from sgpmic._words import plural
from sgpmic.exceptions import ColumnsWarning, warn
from sgpmic.learning.preprocessing import LARGEST_DATA
from sgpmic.tables.errors import shortened

if TYPE_CHECKING:
    from sgpmic.tables.encoder import TableEncoder

_REMEDY = "sgpmic.TableEncoder encodes text, categories and dates as numbers."

# Prefixes of non-numeric column types, some of which NumPy would convert to numbers.
_OTHER_TYPES = ("cat", "enum", "dict", "date", "time", "duration", "period", "interval")


def _has_other_columns(X: Any) -> bool:
    """Return whether X is a data frame with columns of text, categories or dates."""
    names = _column_names(X) or []
    if len(set(map(str, names))) < len(names):
        return False  # rejected later
    for column in (X[name] for name in names):
        dtype = getattr(column, "dtype", getattr(column, "type", None))
        is_plain = getattr(dtype, "kind", "O") in "biuf"
        has_other_type = str(dtype).lower().startswith(_OTHER_TYPES)
        if not is_plain and (has_other_type or _no_numbers(column) is not None):
            return True
    return False


def encode(X: Any) -> tuple[TableEncoder | None, Any, list[tuple[type[Warning], str]]]:
    """Encode a data frame that is not all numbers; return the encoder, rows and warnings."""
    if not _has_other_columns(X):
        return None, X, []
    from sgpmic import TableEncoder
    from sgpmic.tables.columns import kind_words

    encoder = TableEncoder().fit(X)
    used = Counter(kind_words(column.kind) for column in encoder.columns_ if column.features)
    said = ", ".join(plural(count, f"{kind} column") for kind, count in used.items())
    unused = (column for column in encoder.columns_ if not column.features)
    left_out = [f"{one.name} ({one.becomes.removeprefix('left out: ')})" for one in unused]
    if left_out:
        more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
        said += f"; left out: {', '.join(left_out[:5])}{more}"
    note = f"TableEncoder encoded {said}; see encoder_.columns_ for details."
    return encoder, encoder.transform(X), [(ColumnsWarning, note)]


def warn_of_columns(Y: Floats, names: Sequence[str]) -> None:
    """Warn of plain numbers that `TableEncoder` would leave out as ids or read as missing."""
    from sgpmic.tables.conversions import Cells
    from sgpmic.tables.kinds import decide

    # A sample, to be fast; in random order, integers that number the rows are ids by name only.
    rows = np.random.default_rng(0).permutation(len(Y))[:1000]
    found = []
    for name, values in zip(names[:200], np.ascontiguousarray(Y[rows, :200].T), strict=True):
        plan = decide(name, Cells("number", values), min_frequency=0.0)
        found += [f"{name} (an id?)"] if plan.kind == "id" else []
        found += [f"{name} ({x:.0f} for missing?)" for x in getattr(plan.encoding, "sentinels", ())]
    if found:
        warn(
            f"Used as plain numbers: {', '.join(found[:5])}{', …' if len(found) > 5 else ''}. To "
            "have such columns left out or read, fit make_pipeline(TableEncoder(), SGPMIC()).",
            ColumnsWarning,
        )


def words_of_rows(X: Any, encoder: TableEncoder | None) -> dict[str, list[str]]:
    """Return the string index, ids and texts, which describe rows but are not features."""
    found = {}
    if hasattr(X, "iloc") and X.index.dtype.kind == "O":  # pandas
        found[str(X.index.name or "index")] = [str(name) for name in X.index]
    if encoder is not None:
        from sgpmic.tables.conversions import as_table, column_words

        table, _ = as_table(X)
        for column in encoder.columns_:
            if column.kind in ("id", "text") and column.name in table.column_names:
                found[column.name] = column_words(table.column(column.name))
    return found


def read_rows(estimator: Any, X: Any, **options: Any) -> Any:
    """Validate rows; return a C-contiguous float64 array or a sparse matrix.

    ``options`` are those of scikit-learn's ``validate_data``. Error messages are scikit-learn's, or
    ours where it would pass on NumPy's.
    """
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind not in "cmMV":
        # scikit-learn would ignore the mask. Other types are not numeric tables in any case.
        X = np.ma.filled(X.astype(np.float64 if X.dtype.kind in "biuf" else object), np.nan)
    _refuse_misread(X)
    # C order, because the memory order affects the rounding of sums.
    options |= {"dtype": np.float64, "order": "C", "accept_sparse": "csr"}
    try:
        return validate_data(estimator, X, ensure_all_finite="allow-nan", **options)
    except MemoryError:
        raise
    except Exception as error:
        reason = _why_not(X)
        if reason is None:
            raise
        # Other exceptions, such as OverflowError for a very long integer, become ValueError.
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(reason) from error


def refuse_huge_cells(Y: Floats, names: Sequence[str] | None) -> None:
    """Raise for a cell whose square overflows float64, naming its location."""
    largest = max(np.fmax.reduce(Y, axis=None), -np.fmin.reduce(Y, axis=None))
    if not largest > LARGEST_DATA:
        return
    row, column = np.argwhere(np.abs(Y) > LARGEST_DATA)[0]
    name = column if names is None else repr(str(names[column]))
    raise ValueError(
        f"Row {row} (from 0), column {name}: {Y[row, column]:.3g} is too large to be squared in "
        "float64. Correct it; if all values are so large, bring them near 1 by a factor."
    )


def _refuse_misread(X: Any) -> None:
    """Raise for input that scikit-learn or SciPy would misinterpret."""
    if issparse(X):
        if X.ndim != 2:
            raise ValueError(f"X must have rows and columns, not {plural(X.ndim, 'dimension')}.")
        try:  # with invalid indices, SciPy would write out of bounds
            getattr(X, "check_format", lambda full_check: None)(full_check=True)
        except ValueError as error:
            raise ValueError(f"X is an invalid sparse matrix: {error}.") from None
    # Dates and times, including missing ones, would become numbers of arbitrary unit.
    dtypes = getattr(X, "dtypes", [getattr(X, "dtype", None)])
    for dtype in dtypes if isinstance(dtypes, Iterable) else ():
        is_temporal = getattr(dtype, "is_temporal", None)  # polars
        if getattr(dtype, "kind", None) in ("m", "M") or (is_temporal and is_temporal()):
            raise TypeError(f"X has dates or times ({dtype}), which are not numbers. {_REMEDY}")


def _why_not(X: Any) -> str | None:
    """Return why X is not a numeric table; None if that is not the reason."""
    names = _column_names(X)
    if names is not None:
        twice = [name for name, count in Counter(map(str, names)).items() if count > 1]
        if twice:
            return f"Two columns of X are named {twice[0]!r}; give every column its own name."
        if not names:
            return "X is a table without columns: there is nothing to compute with."
    error = _no_numbers(X)
    if error is None:
        return None
    where = "X is not a table of numbers"
    for name in names or ():
        if (cells := _no_numbers(X[name])) is not None:
            where, error = f"Column {name!r} holds something other than numbers", cells
            break
    said = shortened(" ".join(str(error).split()).rstrip(".") or type(error).__name__, 120)
    return f"{where} ({said}); use NaN for missing values. {_REMEDY}"


def _column_names(X: Any) -> list[Any] | None:
    """Return the column names of a data frame; None if X is not one."""
    if not (hasattr(X, "columns") and hasattr(X, "shape")):
        return None
    return [*getattr(X, "column_names", X.columns)]  # pyarrow's .columns are the columns themselves


def _no_numbers(X: Any) -> Exception | None:
    """Return the error on converting X to numbers; None if there is none."""
    if issparse(X):
        return None
    with warnings.catch_warnings(action="ignore"):
        try:
            np.asarray(X, dtype=np.float64)
        except Exception as error:
            return error
    return None
