"""Encoder for tables with mixed column types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sgpmic._types import Floats
from sgpmic.exceptions import SGPMICWarning, warn
from sgpmic.storage.model_file import check_kinds
from sgpmic.tables.columns import (
    KINDS,
    Column,
    DateEncoding,
    Description,
    Encoding,
    Levels,
    WordEncoding,
    column_from_dict,
    feature_names,
    frozen,
    used_names,
)
from sgpmic.tables.conversions import Cells, as_table, cells_of
from sgpmic.tables.errors import MOST_WRONG, BadCells, TableError, list_names, quote, raise_wrong
from sgpmic.tables.kinds import Plan, decide, declare
from sgpmic.tables.plans import choose_encodings, describe_columns, leave_out_columns

_STATE_VERSION = 1


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a table with columns of any kind as numbers.

    The kind of a column is inferred from its cells (:mod:`sgpmic.tables.kinds` has the rules) and
    can be overridden. Numbers stay as they are; categories are one-hot encoded; ordered levels
    become 0, 1, 2, ...; dates become days, plus the phase of the year and of the day if the dates
    span several. Left out are ids, free text, constants, copies of other columns, columns with more
    than 80 % missing cells, and columns that look like a label because they explain much of the
    variance of the others. ``columns_`` describes the encoding of each.

    If a table has categories, ordered levels, yes/no words, or seasons, all features are brought to
    a common unit with the weights of factor analysis of mixed data: numbers are divided by their
    standard deviations, indicators by the square root of their level's share. A subsequent model
    must then scale all features by the same number, as :class:`~sgpmic.SGPMIC` does with
    ``scale='one'``. A purely numeric table keeps its own units.

    Parameters
    ----------
    kinds : dict of str to str, optional
        Kinds of columns that override the inferred ones: 'number' (as is), 'log' (a number whose
        logarithm is taken), 'whole', 'yes_no', 'ordered', 'category', 'date', 'text' or 'id'. The
        order of unknown levels is given as ``{'grade': ('ordered', ('poor', 'fair', 'good'))}``.
    log : {'auto'}, bool or sequence of str, default='auto'
        Numbers to replace by their logarithms: 'auto' for those with a long tail, True for all
        without negative values, False for none, or column names. A tail is long if all values are
        positive and 20 or more are distinct, the maximum is at least ten times the median, and the
        skewness is above 2 and at least twice that of the logarithms. If a column has zeros, half
        its smallest positive value is added first.
    min_frequency : float, default=0.02
        Levels with a smaller share of a category's cells, or with fewer than five cells (a tenth of
        the cells if there are fewer than fifty), are rare and merged into one level 'other'. If
        that is all or too rare, the column is left out, unless it is declared and has two levels.
        0 merges none.
    drop : sequence of str, default=()
        Columns to leave out.

    Attributes
    ----------
    columns_ : list of Column
        Every column of the table: its kind, range or levels, missing cells, and encoding.
    source_ : ndarray of shape (n_features_out,)
        The index of the input column of every feature.
    encodings_ : tuple of Encoding or None
        The encoding of every column; None for columns that are left out.
    has_categories_ : bool
        Whether the features were brought to a common unit.
    n_features_in_ : int
        Number of columns seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns; defined only if they have any.

    Notes
    -----
    Missing cells are NaN in all features of their column; so are levels not seen in fit and columns
    that are absent, with a warning. New columns are ignored.

    Examples
    --------
    >>> from sgpmic import TableEncoder
    >>> encoder = TableEncoder()
    >>> table = {"size": [1.5, 2.5, 9.0, 8.5], "color": ["red", "red", "blue", "blue"]}
    >>> encoder.fit_transform(table).shape
    (4, 2)
    >>> encoder.get_feature_names_out()
    array(['size', 'color=red'], dtype=object)
    """

    def __init__(
        self,
        *,
        kinds: Mapping[str, Any] | None = None,
        log: str | bool | Sequence[str] = "auto",
        min_frequency: float = 0.02,
        drop: Sequence[str] = (),
    ) -> None:
        self.kinds = kinds
        self.log = log
        self.min_frequency = min_frequency
        self.drop = drop

    def fit(self, X: Any, y: Any = None) -> Self:
        """Infer the kind of every column and choose its encoding.

        Parameters
        ----------
        X : pandas or polars DataFrame, pyarrow.Table, dict of sequences, or 2-D array
        y : ignored

        Returns
        -------
        self : TableEncoder

        Raises
        ------
        TableError
            If columns cannot be used; the message names all of them and the remedies.
        """
        table, named = as_table(X)
        names = table.column_names
        n_rows = len(table) if names else (*np.shape(X), 0)[0]
        if n_rows < 1 or not names:
            what = "sample" if names else "feature"
            raise ValueError(
                f"Found array with 0 {what}(s) (shape=({n_rows}, {len(names)})) while a minimum "
                "of 1 is required."
            )
        if n_rows < 2:
            raise TableError("the table has 1 sample; columns need two rows or more to vary")
        kinds = self._check_parameters(names)
        columns = zip(names, table.columns, strict=True)
        plans = [self._plan(name, cells_of(column), kinds) for name, column in columns]
        raise_wrong([(plan.name, plan.wrong) for plan in plans if plan.wrong])
        leave_out_columns(plans)
        has_categories = choose_encodings(plans, self.log, float(self.min_frequency))
        encodings = [plan.encoding if plan.is_kept else None for plan in plans]
        if not any(encodings):
            reasons = ", ".join(f"{quote(p.name)} ({p.because})" for p in plans[:MOST_WRONG])
            remedy = "add columns with more than one value"
            if any(p.because != "constant" and p.kind != "empty" for p in plans):
                remedy = "declare what they are, if their values differ"
            raise TableError(f"no column is left to learn from: {reasons}; {remedy}")
        self.has_categories_ = has_categories
        return self._set_fitted(describe_columns(plans, encodings), encodings, named)

    def _check_parameters(self, names: Sequence[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Validate the parameters; return the kind and the order of all declared columns."""
        share: Any = self.min_frequency
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= float(share) < 0.5:
            raise ValueError(f"min_frequency must be from 0 to below 0.5, got {share!r}.")
        if isinstance(self.log, str) and self.log != "auto":
            raise ValueError(f"log={self.log!r} is not known; use 'auto', a bool, or a list.")
        if isinstance(self.drop, str):
            raise ValueError(f"drop must be a list of columns, such as [{self.drop!r}].")
        kinds: dict[str, tuple[str, tuple[str, ...]]] = {}
        for name, value in (self.kinds or {}).items():
            kind, order = (value, ()) if isinstance(value, str) else (value[0], value[1])
            if kind not in KINDS or (order and kind != "ordered"):
                known = ", ".join(map(repr, KINDS))
                raise ValueError(f"kinds[{name!r}]={value!r} is not known; use one of {known}.")
            kinds[str(name)] = kind, tuple(map(str, order))
        logs = [] if isinstance(self.log, str | bool) else list(self.log)
        present = set(names)
        unknown = [name for name in (*kinds, *logs, *self.drop) if name not in present]
        if unknown:
            absent, there = list_names(unknown), list_names(names)
            raise TableError(f"there is no column {absent}; the columns are {there}")
        return kinds

    def _plan(self, name: str, cells: Cells, kinds: Mapping[str, tuple[str, Any]]) -> Plan:
        if name in kinds:
            plan = declare(name, cells, *kinds[name])
        else:
            plan = decide(name, cells, float(self.min_frequency))
        if name in self.drop:
            # Its errors no longer matter.
            plan.kind, plan.because = "text" if plan.wrong else plan.kind, "dropped"
            plan.wrong, plan.warnings = "", []
        return plan

    def _set_fitted(
        self, columns: list[Column], encodings: Sequence[Encoding | None], named: bool
    ) -> Self:
        self.columns_ = columns
        self.encodings_ = tuple(encodings)
        self.n_features_in_ = len(columns)
        if named:
            self.feature_names_in_ = np.asarray([column.name for column in columns], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        sizes = [len(column.features) for column in columns]
        self.source_ = np.repeat(np.arange(len(columns)), sizes)
        ends = np.cumsum(sizes).tolist()
        self._places = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        return self

    def transform(self, X: Any) -> Floats:
        """Encode rows as numbers.

        Parameters
        ----------
        X : table with the same columns, of any type that `fit` accepts
            Columns are matched by name, or by position if either table has no names.

        Returns
        -------
        encoded : ndarray of shape (n_rows, n_features_out)
            NaN where a cell is missing.

        Warns
        -----
        SGPMICWarning
            About levels not seen in fit, and columns that are absent.
        """
        return self._transform(X)

    def _transform(self, X: Any, *, first_row: int = 0) -> Floats:
        """Transform a table, or a block of it that begins at ``first_row``."""
        check_is_fitted(self)
        table, named = as_table(X)
        columns = self._match(table, named)
        encoded = np.full((len(table), len(self.source_)), np.nan)
        wrong, notes = [], []
        for j, column in enumerate(columns):
            encoding, name = self.encodings_[j], self.columns_[j].name
            if encoding is None or column is None:
                continue
            try:
                result = encoding.encode(cells_of(column))
            except BadCells as bad:
                bad.row += first_row
                word = "yes or no" if encoding.kind == "yes_no" else f"a {encoding.kind}"
                wrong.append(
                    (name, f"was {word} in fit, but now has {bad}, or write them as in fit")
                )
                continue
            encoded[:, self._places[j]] = result.values
            if result.unseen:
                notes += [f"levels of {quote(name)} not seen in fit: {list_names(result.unseen)}"]
            if result.outside:
                notes += [f"{result.outside} cells of {quote(name)} that have no logarithm"]
        raise_wrong(wrong)
        if notes:
            warn(f"Taken as missing: {'; '.join(notes)}.", SGPMICWarning)
        return encoded

    def _match(self, table: pa.Table, named: bool) -> list[Any]:
        """Return the columns in the order of fit, None for those that are absent."""
        names = table.column_names
        if not named or not hasattr(self, "feature_names_in_"):
            if len(names) != self.n_features_in_:
                raise ValueError(
                    f"X has {len(names)} features, but TableEncoder is expecting "
                    f"{self.n_features_in_} features as input."
                )
            return table.columns
        by_name = dict(zip(names, table.columns, strict=True))
        used = used_names(self.columns_)
        absent = [name for name in used if name not in by_name]
        if len(absent) == len(used):
            raise TableError(f"the table has {list_names(names)}, but none of {list_names(used)}")
        if absent:
            said = f"The table has no column {list_names(absent)}: taken as missing in all rows."
            warn(said, SGPMICWarning)
        return [by_name.get(column.name) for column in self.columns_]

    def inverse_transform(self, X: Any) -> dict[str, NDArray[Any]]:
        """Decode features to columns.

        A model's prediction for a cell is rarely an exact level: it is decoded to the nearest.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features_out)
            Encoded rows, such as :meth:`sgpmic.SGPMIC.impute` and its ``inverse_transform`` return.

        Returns
        -------
        columns : dict of str to ndarray of shape (n_rows,)
            The columns that are not left out: numbers, levels, True and False, dates; NaN, None or
            NaT where missing.
        """
        check_is_fitted(self)
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.source_):
            raise ValueError(f"X has shape {rows.shape}, not {len(self.source_)} features.")
        found = self.features_by_column(rows)
        return {self.columns_[j].name: encoding.decode(own) for j, encoding, own in found}

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the feature names: the column's name, or ``column=level``.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns, if they had none in fit.
        """
        check_is_fitted(self)
        names = [column.name for column in self.columns_]
        given = names if input_features is None else list(map(str, input_features))
        if hasattr(self, "feature_names_in_") and given != names:
            raise ValueError("input_features is not equal to feature_names_in_")
        if len(given) != len(names):
            raise ValueError(
                f"input_features should have length equal to number of features ({len(names)}),"
                f" got {len(given)}"
            )
        return np.asarray(feature_names(given, self.encodings_), dtype=object)

    def features_by_column(self, rows: Floats) -> Iterator[tuple[int, Encoding, Floats]]:
        """Yield the index of every encoded column, its encoding, and its features in ``rows``."""
        for j, encoding in enumerate(self.encodings_):
            if encoding is not None:
                yield j, encoding, rows[:, self._places[j]]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters and fitted state as a JSON-serializable dict."""
        check_is_fitted(self)
        kinds = self.kinds and {
            str(name): value if isinstance(value, str) else [value[0], list(value[1])]
            for name, value in self.kinds.items()
        }
        return {
            "version": _STATE_VERSION,
            "kinds": kinds,
            "log": self.log if isinstance(self.log, str | bool) else list(self.log),
            "min_frequency": float(self.min_frequency),
            "drop": list(self.drop),
            "named": hasattr(self, "feature_names_in_"),
            "has_categories": self.has_categories_,
            "columns": [
                {**vars(column), "encoding": one and {"encoding": one.kind, **vars(one)}}
                for column, one in zip(self.columns_, self.encodings_, strict=True)
            ],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Restore a fitted encoder from the result of `to_dict`.

        Parameters
        ----------
        state : dict

        Raises
        ------
        ValueError
            If the state is damaged or of another version.
        """
        try:
            # With lists for tuples; raises for numbers that are not finite.
            state = json.loads(json.dumps(state, allow_nan=False))
            check_kinds(state, {"version": int, "named": bool, "has_categories": bool})
            if state["version"] != _STATE_VERSION:
                raise ValueError(f"version {state['version']!r:.20} is not known")
            encoder = cls(
                kinds=state["kinds"] and {k: frozen(v) for k, v in state["kinds"].items()},
                log=frozen(state["log"]),
                min_frequency=state["min_frequency"],
                drop=tuple(state["drop"]),
            )
            stored = list(map(column_from_dict, state["columns"]))
            columns, encodings = [column for column, _ in stored], [one for _, one in stored]
            if not any(encodings):
                raise ValueError("it has no features")
            names = [column.name for column in columns]
            features = [feature for column in columns for feature in column.features]
            for what, found in (("columns", names), ("features", features)):
                if len(set(found)) != len(found):
                    raise ValueError(f"{what} share a name")
            encoder.has_categories_ = state["has_categories"]
            encoder._check_parameters(names)
            return encoder._set_fitted(columns, encodings, state["named"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ValueError(f"The stored table encoder is damaged: {error!r}.") from error


def describe(encoder: TableEncoder, values: Floats) -> Description:
    """Return encoded rows in the user's original units and levels.

    Rare levels stay merged, and levels not seen in fit are missing.
    """
    numbers: list[tuple[str, Floats]] = []
    dates: list[str] = []
    times: list[str] = []
    categories: list[Levels] = []
    for j, encoding, features in encoder.features_by_column(values):
        name = encoder.columns_[j].name
        if isinstance(encoding, WordEncoding):
            words = encoding.words
            if merged := getattr(encoding, "joined", ()):
                words = (*words[:-1], f"rare ({len(merged)} levels)")
            categories.append(Levels(name, words, encoding.codes(features)))
        elif not isinstance(encoding, DateEncoding):
            numbers.append((encoding.feature_names(name)[0], encoding.decode(features)))
        else:
            days = encoding.days(features)
            numbers.append((name, _from_widest_gap(days) if encoding.time_only else days))
            dates.append(name)
            times += [name] * encoding.time_only
    table = np.column_stack([np.empty((len(values), 0)), *(cells for _, cells in numbers)])
    names = tuple(name for name, _ in numbers)
    return Description(names, table, tuple(dates), tuple(categories), tuple(times))


def _from_widest_gap(times: Floats) -> Floats:
    """Let the day begin after the widest gap of two hours or more, so that no night is cut in two.

    01:00 is then 25/24 of a day if the day begins in the morning.
    """
    known = np.unique(times[~np.isnan(times)])
    gaps = np.diff(known, append=known[:1] + 1.0)
    if not len(known) or gaps.max() < 2 / 24:
        return times
    begin = known[(gaps.argmax() + 1) % len(known)]
    return np.where(times < begin, times + 1.0, times)
