"""Fitted columns: their kinds, their encodings as numbers, and rows in the user's own terms.

Encodings are small, immutable, and JSON-serializable. Their weights are those of factor analysis of
mixed data (FAMD, Pagès 2004). A number is divided by its standard deviation. A category with K
levels becomes K indicators, scaled as (indicator - p) / sqrt(p) for a level with share p of the
cells. Their K - 1 principal axes then have variance 1 each, like a number, so that no axis of a
category outweighs a number. For K = 2 there is a single axis, and one column suffices:
(indicator - p) / sqrt(p (1 - p)), which preserves all distances between rows. The sine and cosine
of a season have total variance 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgpmic._types import Floats, Ints
from sgpmic.storage.model_file import check_kinds
from sgpmic.tables.cell_text import (
    MISSING_IN_NUMBERS,
    TRUTH,
    key,
    numeric_date,
    parse_date,
    parse_duration,
    parse_number,
    parse_time,
    unit_of,
)
from sgpmic.tables.conversions import Cells
from sgpmic.tables.errors import BadCells

#: Kinds that a user may declare.
KINDS = ("number", "whole", "log", "yes_no", "ordered", "category", "date", "text", "id")
#: ... and all kinds, including those that are only inferred.
FOUND_KINDS = (*KINDS, "constant", "copy", "empty")
YEAR = 365.2425
#: Units of durations, in a day.
UNITS = {"days": 1, "hours": 24, "minutes": 1440, "seconds": 86_400}
#: Name of the level that rare levels are merged into.
OTHER = "other"

# Larger numbers overflow when a model squares them.
_LARGEST = 1e100
# Row names need this share of distinct cells, and at most this mean length.
_DIFFERENT, _LONGEST_NAME = 0.9, 60
# Types of stored fields of columns and encodings, by annotation.
_STORED = {
    **{"bool": bool, "int": int, "str": str, "float": float},
    **{"str | None": (None, str), "float | None": (None, float)},
    **{"tuple[str, ...]": [str], "tuple[float, ...]": [float]},
}


@dataclass(frozen=True)
class Column:
    """A column of the user's table, and how it was encoded.

    Attributes
    ----------
    name : str
    kind : str
        'number', 'whole', 'yes_no', 'ordered', 'category', 'date', 'text', 'id', 'constant',
        'copy' or 'empty'.
    summary : str
        Its range or levels, as text.
    n_missing, n_rows : int
        Number of missing cells, and of all cells.
    becomes : str
        How it is encoded, or why it is left out.
    warning : str or None
        What the user should check.
    features : tuple of str
        The names of its encoded features; empty if it is left out.
    """

    name: str
    kind: str
    summary: str
    n_missing: int
    n_rows: int
    becomes: str
    warning: str | None
    features: tuple[str, ...]


def used_names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns that become features."""
    return [column.name for column in columns if column.features]


def naming_column(columns: Mapping[str, Sequence[str]]) -> str | None:
    """Return the first column that is short and nearly unique, words before numbers."""
    found = []
    for name, words in columns.items():
        differ, text = len(set(words)) >= _DIFFERENT * len(words), "".join(words)
        is_value = text.startswith(("{", "[", "b'"))  # a record, a list or bytes
        if differ and not is_value and len(text) <= _LONGEST_NAME * len(words):
            found.append((not any(map(str.isalpha, text)), name))
    return min(found, key=lambda one: one[0])[1] if found else None


class Encoded(NamedTuple):
    """The features of a column, NaN where missing, and cells that could not be encoded."""

    values: Floats
    unseen: tuple[str, ...] = ()  # levels not seen in fit
    outside: int = 0  # cells that have no logarithm


@dataclass(frozen=True)
class Encoding(ABC):
    """Base class of all encodings; inconsistent fields raise a ValueError."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if getattr(self, "divisor", 1.0) <= 0:
            raise ValueError("a divisor must be above 0")

    @property
    @abstractmethod
    def becomes(self) -> str:
        """Short description of the encoding."""

    @abstractmethod
    def encode(self, cells: Cells) -> Encoded:
        """Encode cells as features; raise `BadCells` for those that cannot be parsed."""

    @abstractmethod
    def decode(self, features: Floats) -> NDArray[Any]:
        """Decode features to the nearest cell values; NaN or None for NaN."""

    def feature_names(self, column: str) -> list[str]:
        """Return the feature names of a column with this name."""
        return [column]

    @property
    def n_features(self) -> int:
        """Number of features that the column is encoded as."""
        return len(self.feature_names(""))


@dataclass(frozen=True)
class NumberEncoding(Encoding):
    """A number or its logarithm, scaled."""

    kind: ClassVar[str] = "number"
    decimal: str = "."  # or ','
    sentinels: tuple[float, ...] = ()  # numbers that mean "missing"
    shift: float | None = None  # added before taking the logarithm; None for no logarithm
    divisor: float = 1.0
    unit: str = ""  # of all cells, if any has one

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decimal not in (".", ",") or (self.shift or 0.0) < 0:
            raise ValueError("a number must have a decimal separator and a nonnegative shift")

    @property
    def becomes(self) -> str:
        return "number, unchanged" if self.shift is None else "number, its logarithm"

    def read(self, cells: Cells) -> Floats:
        """Return numbers, NaN where missing."""
        values = self._numbers(cells)
        rows = np.flatnonzero(np.abs(values) > _LARGEST)
        if len(rows):
            raise BadCells(int(rows[0]), str(values[rows[0]]), len(rows), len(np.unique(values)))
        return np.where(np.isin(values, self.sentinels), np.nan, values)

    def _numbers(self, cells: Cells) -> Floats:
        if cells.holds in ("number", "bool", "duration"):
            return cells.values
        return cells.parse(self._number_of)

    def _number_of(self, text: str) -> float | None:
        has_other_unit = self.unit and unit_of(text) not in ("", self.unit)
        return None if has_other_unit else parse_number(text, self.decimal)

    def encode(self, cells: Cells) -> Encoded:
        values = self.read(cells)
        if self.shift is None:
            return Encoded((values / self.divisor)[:, None])
        outside = values + self.shift <= 0
        logarithms = np.log(np.where(outside, np.nan, values + self.shift))
        return Encoded((logarithms / self.divisor)[:, None], outside=int(outside.sum()))

    def decode(self, features: Floats) -> NDArray[Any]:
        values: Floats = features[:, 0] * self.divisor
        return values if self.shift is None else np.exp(values) - self.shift


@dataclass(frozen=True)
class DurationEncoding(NumberEncoding):
    """A duration, as a number in a unit that its name mentions."""

    kind: ClassVar[str] = "duration"
    unit: str = "hours"  # one of UNITS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit not in UNITS:
            raise ValueError(f"there is no unit {self.unit!r:.20} of durations")

    @classmethod
    def fit(cls, cells: Cells) -> DurationEncoding:
        """Choose the largest unit that is no longer than the mean; at most hours for text."""
        is_text = cells.holds == "text"
        days = np.array([*map(parse_duration, cells.texts)] if is_text else cells.values, float)
        sizes = np.abs(days[~np.isnan(days)])
        mean = min(sizes.mean() if len(sizes) else 0.0, 0.5 if is_text else np.inf)
        return cls(unit=next((u for u, size in UNITS.items() if mean * size >= 1), "seconds"))

    @property
    def becomes(self) -> str:
        return super().becomes.replace("number", f"number of {self.unit}")

    def feature_names(self, column: str) -> list[str]:
        return [f"{column} ({self.unit})"]

    def _numbers(self, cells: Cells) -> Floats:
        if cells.holds == "duration":
            return cells.values * UNITS[self.unit]
        if cells.holds == "text":
            return cells.parse(parse_duration) * UNITS[self.unit]
        return super()._numbers(cells)


@dataclass(frozen=True)
class DateEncoding(Encoding):
    """Scaled days since 1970, and the phases of the year and of the day."""

    kind: ClassVar[str] = "date"
    day_first: bool = False  # 31/12/2024, not 12/31/2024
    time_only: bool = False  # times of day, without a date
    divisor: float = 1.0  # of the days
    #: Divisors of the sine and cosine of the phase in the year, and in the day; None to omit them.
    year: float | None = None
    day: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(size <= 0 for *_, size in self._phases) or (self.time_only and self.day is None):
            raise ValueError("a date must have divisors above 0, and a time of the day one of them")

    @property
    def _phases(self) -> list[tuple[str, float, float]]:
        """The name, period in days, and divisor of every phase that is encoded."""
        phases = (("year", YEAR, self.year), ("day", 1.0, self.day))
        return [(name, period, size) for name, period, size in phases if size is not None]

    def feature_names(self, column: str) -> list[str]:
        names = [] if self.time_only else [column]
        for name, *_ in self._phases:
            names += [f"{column} ({name}, sine)", f"{column} ({name}, cosine)"]
        return names

    @property
    def becomes(self) -> str:
        parts = [] if self.time_only else ["days"]
        parts += [f"time of {name}" for name, *_ in self._phases]
        return f"number, {' and '.join(parts)}"

    def read(self, cells: Cells) -> Floats:
        """Return days since 1970 or times as fractions of a day, NaN where missing."""
        if cells.holds == ("time" if self.time_only else "date"):
            return cells.values
        return cells.parse(self._days_of)

    def _days_of(self, cell: str | float) -> float | None:
        if self.time_only:
            return parse_time(cell) if isinstance(cell, str) else None
        days = parse_date(cell, self.day_first) if isinstance(cell, str) else None
        number = parse_number(cell) if isinstance(cell, str) else cell
        return numeric_date(number) if days is None and number is not None else days

    def encode(self, cells: Cells) -> Encoded:
        days = self.read(cells)
        parts = [] if self.time_only else [(days / self.divisor)[:, None]]
        parts += [circle(days, period) / size for _, period, size in self._phases]
        return Encoded(np.hstack(parts))

    def days(self, features: Floats) -> Floats:
        """Return days since 1970, or times as fractions of a day."""
        if self.time_only:
            return np.arctan2(features[:, 0], features[:, 1]) / (2 * np.pi) % 1.0
        return features[:, 0] * self.divisor

    def decode(self, features: Floats) -> NDArray[Any]:
        # datetime64, or timedelta64 for times of day.
        seconds = np.round(self.days(features) * 86_400).astype("timedelta64[s]")  # NaN as NaT
        return seconds if self.time_only else np.datetime64("1970-01-01T00:00:00") + seconds


def circle(days: Floats, period: float) -> Floats:
    """Return the sine and cosine of the phase in a period."""
    angle = 2 * np.pi * (days / period % 1.0)
    return np.column_stack([np.sin(angle), np.cos(angle)])


@dataclass(frozen=True)
class WordEncoding(Encoding):
    """Encoding of a column whose cells are words from a fixed list."""

    takes_missing: ClassVar[bool] = False  # whether a word for "missing" may be a level

    @property
    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """The words, in index order."""

    @property
    def spellings(self) -> Mapping[str, float]:
        """Map from normalized spelling to word index."""
        return {key(word): i for i, word in enumerate(self.words)}

    def encode(self, cells: Cells) -> Encoded:
        places = self.spellings
        levels, codes = cells.read_levels(places if self.takes_missing else ())
        # None becomes NaN; the last entry is for empty cells.
        table = np.asarray([*(places.get(key(level)) for level in levels), None], np.float64)
        # Scales may lack a word such as "unknown".
        known = MISSING_IN_NUMBERS if self.takes_missing else ()
        new = [level for level in levels if key(level) not in places]
        unseen = tuple(level for level in new if level.lower() not in known)
        return Encoded(self.features(table[codes]), unseen)

    def features(self, places: Floats) -> Floats:
        """Return the features of words with these indices."""
        return (places / getattr(self, "divisor", 1.0))[:, None]

    def places(self, features: Floats) -> Floats:
        """Return the word index of every row, not rounded; NaN where missing."""
        return features[:, 0] * getattr(self, "divisor", 1.0)

    def codes(self, features: Floats) -> Ints:
        """Return the nearest word index of every row; -1 where missing."""
        places = self.places(features)
        nearest = np.clip(np.round(np.nan_to_num(places)), 0, len(self.words) - 1)
        return np.where(np.isnan(places), -1, nearest).astype(np.int64)

    def decode(self, features: Floats) -> NDArray[Any]:
        return np.asarray([*self.words, None], dtype=object)[self.codes(features)]


@dataclass(frozen=True)
class YesNoEncoding(WordEncoding):
    """1 for yes and 0 for no, scaled."""

    kind: ClassVar[str] = "yes_no"
    words = ("no", "yes")
    spellings = TRUTH
    becomes = "number, 1 for yes and 0 for no"
    divisor: float = 1.0

    def read(self, cells: Cells) -> Floats:
        """Return 1 for yes and 0 for no, NaN where missing."""
        if cells.holds == "text":
            return cells.parse(lambda text: TRUTH.get(key(text)))
        if cells.holds != "bool":
            cells.parse(lambda cell: cell if cell in (0.0, 1.0) else None)
        return cells.values  # zeros keep their signs

    def encode(self, cells: Cells) -> Encoded:
        # New words are reported as unseen in fit, not as errors.
        is_text = cells.holds == "text"
        return super().encode(cells) if is_text else Encoded(self.features(self.read(cells)))

    def decode(self, features: Floats) -> NDArray[Any]:
        return np.asarray([False, True, None], dtype=object)[self.codes(features)]


@dataclass(frozen=True)
class OrderEncoding(WordEncoding):
    """Ordinal encoding: levels from low to high as 0, 1, 2, ..., scaled."""

    kind: ClassVar[str] = "order"
    takes_missing = True
    becomes = "number, its rank"
    levels: tuple[str, ...]
    divisor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.spellings) != len(self.levels) or not self.levels:
            raise ValueError("an order must have levels, all different")

    @property
    def words(self) -> tuple[str, ...]:
        return self.levels


@dataclass(frozen=True)
class CategoryEncoding(WordEncoding):
    """One-hot encoding of levels, with the weights of factor analysis of mixed data."""

    kind: ClassVar[str] = "category"
    levels: tuple[str, ...]  # with one indicator each
    joined: tuple[str, ...]  # rare levels, which share the last indicator, 'other'
    shares: tuple[float, ...]  # of the cells, by indicator

    def __post_init__(self) -> None:
        if len(self.spellings) != len(self.levels) + len(self.joined):
            raise ValueError("the levels of a category must be different")
        are_shares = min(self.shares, default=0.0) > 0 and abs(sum(self.shares) - 1) <= 1e-6
        if not are_shares or not 2 <= len(self.shares) == len(self.words):
            raise ValueError("a category must have shares above 0 that add up to 1")

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.levels, OTHER) if self.joined else self.levels

    @property
    def spellings(self) -> Mapping[str, float]:
        last = len(self.levels)
        return {key(level): min(i, last) for i, level in enumerate((*self.levels, *self.joined))}

    def feature_names(self, column: str) -> list[str]:
        # With two levels, one indicator suffices: that of the rarer.
        shown = self.words if len(self.words) > 2 else self.words[1:]
        return [f"{column}={level}" for level in shown]

    @property
    def becomes(self) -> str:
        n = self.n_features
        joined = f", {len(self.joined)} rare levels merged" if self.joined else ""
        return f"{n} indicator column{'s' * (n > 1)}{joined}"

    def features(self, places: Floats) -> Floats:
        share = np.asarray(self.shares)
        indicators = np.eye(len(share))
        if len(share) > 2:
            weighted = (indicators - share) / np.sqrt(share)
        else:
            weighted = (indicators - share)[:, 1:] / np.sqrt(share.prod())
        weighted = np.vstack([weighted, np.full(weighted.shape[1], np.nan)])
        return weighted[np.where(np.isnan(places), -1, places).astype(np.int64)]

    def places(self, features: Floats) -> Floats:
        share = np.asarray(self.shares)
        if len(share) == 2:
            return features[:, 0] * np.sqrt(share.prod()) + share[1]
        indicators = features * np.sqrt(share) + share
        best = np.where(np.isnan(indicators), -np.inf, indicators).argmax(axis=1)
        return np.where(np.isnan(indicators).all(axis=1), np.nan, best)


_ENCODINGS: dict[str, type[Encoding]] = {
    cls.kind: cls
    for cls in (
        *(NumberEncoding, DurationEncoding, YesNoEncoding),
        *(OrderEncoding, CategoryEncoding, DateEncoding),
    )
}


def feature_names(names: Sequence[str], encodings: Sequence[Encoding | None]) -> list[str]:
    """Return unique names of all features; ``names`` are those of the columns."""
    found: dict[str, None] = {}
    for column, encoding in zip(names, encodings, strict=True):
        for name in encoding.feature_names(column) if encoding is not None else ():
            # A column may have the same name as another's level.
            new, number = name, 2
            while new in found:
                new, number = f"{name} ({number})", number + 1
            found[new] = None
    return list(found)


def _restored(cls: type[Any], state: Mapping[str, Any]) -> Any:
    """Build a column or an encoding from its stored fields; ValueError or TypeError if damaged."""
    check_kinds(state, {item.name: _STORED[str(item.type)] for item in fields(cls)})
    return cls(**{name: frozen(value) for name, value in state.items() if name != "encoding"})


def frozen(value: Any) -> Any:
    """Convert lists back to the tuples they were before JSON."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def column_from_dict(entry: Mapping[str, Any]) -> tuple[Column, Encoding | None]:
    """Load a stored column and its encoding; ValueError or TypeError if they are damaged."""
    state, encoding = entry["encoding"], None
    if state is not None:
        if not isinstance(state, Mapping) or state.get("encoding") not in _ENCODINGS:
            raise ValueError(f"{state!r:.60} is not an encoding of a column")
        cls = _ENCODINGS[state["encoding"]]
        # 1.0.0rc1 stored no unit.
        encoding = _restored(cls, {"unit": "", **state} if cls is NumberEncoding else state)
    found: Column = _restored(Column, entry)
    if found.kind not in FOUND_KINDS:
        raise ValueError(f"there is no kind {found.kind!r:.40}")
    if found.n_missing < 0 or found.n_rows < 0:
        raise ValueError("the numbers of cells must not be negative")
    if len(found.features) != (0 if encoding is None else encoding.n_features):
        raise ValueError(f"column {found.name!r:.40} has {len(found.features)} feature names")
    return found, encoding


class Levels(NamedTuple):
    """A categorical column."""

    name: str
    levels: tuple[str, ...]
    codes: Ints  # (n_rows,): the index of every row's level, -1 where missing


class Description(NamedTuple):
    """Rows in the user's original units and levels."""

    feature_names: tuple[str, ...]  # of the numeric columns
    values: Floats  # of these: NaN where missing; dates in days since 1970, times in days
    dates: tuple[str, ...]  # the numeric columns that are dates or times of day
    categories: tuple[Levels, ...]  # the categorical columns
    times_of_day: tuple[str, ...] = ()  # the numeric columns that are times without dates


def kind_words(kind: str) -> str:
    """Return the display name of a kind: yes/no, whole number."""
    return {"yes_no": "yes/no", "whole": "whole number"}.get(kind, kind)
