"""How the cells of a column become numbers, once fitted: small, immutable, and storable as JSON.

Weights are those of factor analysis of mixed data (Pagès 2004). A number is divided by its standard
deviation. A category of K levels becomes K indicators; that of a level with the share p of the
cells is (indicator - p) / sqrt(p). Their K - 1 principal axes then have variance 1 each, as a
number has, so that no axis of a category outweighs a number. Where K = 2 there is one such axis,
and one column says it all: (indicator - p) / sqrt(p (1 - p)), which leaves all distances between
rows as two columns would have them. Cosine and sine of a season have variance 1 together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sgpmic.tables.column_cells import (
    Bad,
    Cells,
    read_dates,
    read_levels,
    read_numbers,
    read_times,
    read_yes_no,
)
from sgpmic.tables.levels import key, truth_of

Floats = NDArray[np.float64]

#: Days of a year, on average.
YEAR = 365.2425
#: What joined levels are called.
OTHER = "other"


class Encoded(NamedTuple):
    """The features of a column, NaN where missing, and what was strange about its cells."""

    values: Floats
    unseen: tuple[str, ...] = ()  # levels that were not there in fit
    outside: int = 0  # cells that have no logarithm


@dataclass(frozen=True)
class Encoding:
    """What all encodings share: their state is checked on the way in."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the state, for JSON."""
        return {"encoding": self.kind, **asdict(self)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the encoding of a state; a ValueError where it is damaged."""
        arguments = {}
        for item in fields(cls):
            if item.name not in state:
                raise ValueError(f"the state of a {cls.kind} has no {item.name!r}")
            arguments[item.name] = item.metadata["check"](item.name, state[item.name])
        if len(state) != len(arguments) + 1:
            raise ValueError(f"the state of a {cls.kind} has entries that it should not have")
        encoding = cls(**arguments)
        encoding.check()
        return encoding

    def check(self) -> None:
        """Raise a ValueError where fields do not go together."""

    @property
    def n_features(self) -> int:
        """The number of features that the column becomes."""
        return 1

    def encode(self, cells: Cells) -> Encoded | Bad:
        """Return the features of cells, or those cells that cannot be read."""
        raise NotImplementedError

    def decode(self, features: Floats) -> NDArray[Any]:
        """Return the cells that features stand for, or come closest to; NaN or None for NaN."""
        raise NotImplementedError


# ------------------------------------------------------------------------------- checks


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name!r} must be true or false, got {value!r:.60}")
    return value


def _finite(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name!r} must be a finite number, got {value!r:.60}")
    return float(value)


def _positive(name: str, value: Any) -> float:
    if not _finite(name, value) > 0:
        raise ValueError(f"{name!r} must be above 0, got {value!r:.60}")
    return float(value)


def _finites(name: str, value: Any) -> tuple[float, ...]:
    return tuple(_finite(name, entry) for entry in _sequence(name, value))


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not all(isinstance(entry, str) for entry in _sequence(name, value)):
        raise ValueError(f"{name!r} must be a list of strings, got {value!r:.60}")
    return tuple(value)


def _sequence(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name!r} must be a list, got {value!r:.60}")
    return value


def _sign(name: str, value: Any) -> str:
    if value not in (".", ","):
        raise ValueError(f"{name!r} must be '.' or ',', got {value!r:.60}")
    return str(value)


def _shift(name: str, value: Any) -> float | None:
    if value is not None and _finite(name, value) < 0:
        raise ValueError(f"{name!r} must not be below 0, got {value!r:.60}")
    return None if value is None else float(value)


def _checked(check: Callable[[str, Any], Any]) -> Any:
    return field(metadata={"check": check})


# ------------------------------------------------------------------------------- encodings


@dataclass(frozen=True)
class NumberEncoding(Encoding):
    """A number, perhaps its logarithm, divided by a number.

    Attributes
    ----------
    decimal : {'.', ','}
    sentinels : tuple of float
        Numbers that stand for a missing cell.
    shift : float or None
        What is added before the logarithm is taken; None for no logarithm.
    divisor : float
    """

    kind: ClassVar[str] = "number"
    decimal: str = _checked(_sign)
    sentinels: tuple[float, ...] = _checked(_finites)
    shift: float | None = _checked(_shift)
    divisor: float = _checked(_positive)

    def encode(self, cells: Cells) -> Encoded | Bad:
        """Return the features of cells, or those cells that cannot be read."""
        values = read_numbers(cells, self.decimal)
        if isinstance(values, Bad):
            return values
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            return Bad(int(infinite[0]), str(values[infinite[0]]), len(infinite))
        if self.sentinels:
            values = np.where(np.isin(values, self.sentinels), np.nan, values)
        n_outside = 0
        if self.shift is not None:
            outside = values + self.shift <= 0
            n_outside = int(outside.sum())
            values = np.log(np.where(outside, np.nan, values + self.shift))
        return Encoded((values / self.divisor)[:, None], outside=n_outside)

    def decode(self, features: Floats) -> NDArray[Any]:
        """Return numbers."""
        values: Floats = features[:, 0] * self.divisor
        return values if self.shift is None else np.exp(values) - self.shift


@dataclass(frozen=True)
class YesNoEncoding(Encoding):
    """1 for yes and 0 for no, divided by a number."""

    kind: ClassVar[str] = "yes_no"
    divisor: float = _checked(_positive)

    def encode(self, cells: Cells) -> Encoded | Bad:
        """Return the features of cells, or those cells that cannot be read."""
        if cells.sort != "text":
            values = read_yes_no(cells)
            return values if isinstance(values, Bad) else Encoded((values / self.divisor)[:, None])
        levels, codes = read_levels(cells)
        # None becomes NaN; the last is of empty cells.
        table = np.asarray([*map(truth_of, levels), None], np.float64)
        unseen = _unseen(levels, codes, np.isnan(table))
        return Encoded((table[codes] / self.divisor)[:, None], unseen)

    def decode(self, features: Floats) -> NDArray[Any]:
        """Return True and False, whichever is nearer."""
        return _nearest(features[:, 0] * self.divisor, (False, True))


@dataclass(frozen=True)
class OrderEncoding(Encoding):
    """Levels from low to high as 0, 1, 2, ..., divided by a number."""

    kind: ClassVar[str] = "order"
    levels: tuple[str, ...] = _checked(_texts)
    divisor: float = _checked(_positive)

    def check(self) -> None:
        """Raise a ValueError where fields do not go together."""
        if len({key(level) for level in self.levels}) != len(self.levels) or not self.levels:
            raise ValueError("an order must have levels, all different")

    def encode(self, cells: Cells) -> Encoded | Bad:
        """Return the features of cells, or those cells that cannot be read."""
        keys = tuple(key(level) for level in self.levels)
        levels, codes = read_levels(cells, keys)
        places = {level: float(i) for i, level in enumerate(keys)}
        table = np.asarray([*(places.get(key(level), np.nan) for level in levels), np.nan])
        unseen = _unseen(levels, codes, np.isnan(table))
        return Encoded((table[codes] / self.divisor)[:, None], unseen)

    def decode(self, features: Floats) -> NDArray[Any]:
        """Return the nearest levels."""
        return _nearest(features[:, 0] * self.divisor, self.levels)


@dataclass(frozen=True)
class CategoryEncoding(Encoding):
    """Indicators of levels, with the weights of factor analysis of mixed data.

    Attributes
    ----------
    levels : tuple of str
        The levels that have an indicator, but for 'other'.
    joined : tuple of str
        Rare levels, whose one indicator comes last and is called 'other'.
    shares : tuple of float
        The share of the cells of every indicator.
    """

    kind: ClassVar[str] = "category"
    levels: tuple[str, ...] = _checked(_texts)
    joined: tuple[str, ...] = _checked(_texts)
    shares: tuple[float, ...] = _checked(_finites)

    def check(self) -> None:
        """Raise a ValueError where fields do not go together."""
        names = [key(level) for level in (*self.levels, *self.joined)]
        if len(set(names)) != len(names):
            raise ValueError("the levels of a category must be different")
        if len(self.shares) != len(self.names) or len(self.shares) < 2:
            raise ValueError("a category must have as many shares as indicators, two or more")
        if not all(0 < share < 1 for share in self.shares) or abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError("the shares of a category must be above 0 and add up to 1")

    @property
    def names(self) -> tuple[str, ...]:
        """What the indicators are called, of two as of more."""
        return (*self.levels, OTHER) if self.joined else self.levels

    @property
    def shown(self) -> tuple[str, ...]:
        """The levels of the features: all, but of two the rarer only."""
        return self.names if len(self.names) > 2 else self.names[1:]

    @property
    def n_features(self) -> int:
        """The number of features that the column becomes."""
        return len(self.shown)

    def encode(self, cells: Cells) -> Encoded | Bad:
        """Return the features of cells, or those cells that cannot be read."""
        levels, codes = read_levels(cells)
        places = {key(level): i for i, level in enumerate(self.levels)}
        places |= {key(level): len(self.levels) for level in self.joined}
        table = np.asarray([*(places.get(key(level), -1) for level in levels), -1])
        share = np.asarray(self.shares)
        indicators = np.eye(len(share))
        if len(share) > 2:
            weighted = (indicators - share) / np.sqrt(share)
        else:
            weighted = (indicators - share)[:, 1:] / np.sqrt(share.prod())
        weighted = np.vstack([weighted, np.full(weighted.shape[1], np.nan)])
        return Encoded(weighted[table[codes]], _unseen(levels, codes, table < 0))

    def decode(self, features: Floats) -> NDArray[Any]:
        """Return the levels whose indicators are highest."""
        share = np.asarray(self.shares)
        if len(share) > 2:
            indicators = features * np.sqrt(share) + share
            best = np.where(np.isnan(indicators), -np.inf, indicators).argmax(axis=1).astype(float)
            best[np.isnan(indicators).all(axis=1)] = np.nan
        else:
            best = features[:, 0] * np.sqrt(share.prod()) + share[1]
        return _nearest(best, self.names)


@dataclass(frozen=True)
class DateEncoding(Encoding):
    """Days since 1970 divided by a number, and the place in the year and in the day.

    Attributes
    ----------
    day_first : bool
        31/12/2024, not 12/31/2024.
    time_only : bool
        Times of the day, without a date.
    divisor : float
        Of the days.
    year, day : float or None
        What sine and cosine of the place in the year, and in the day, are divided by; None to
        leave them out.
    """

    kind: ClassVar[str] = "date"
    day_first: bool = _checked(_flag)
    time_only: bool = _checked(_flag)
    divisor: float = _checked(_positive)
    year: float | None = _checked(_shift)
    day: float | None = _checked(_shift)

    def check(self) -> None:
        """Raise a ValueError where fields do not go together."""
        if self.year == 0 or self.day == 0 or (self.time_only and self.day is None):
            raise ValueError("a date must have divisors above 0, and a time of the day one of them")

    @property
    def n_features(self) -> int:
        """The number of features that the column becomes."""
        return (not self.time_only) + 2 * (self.year is not None) + 2 * (self.day is not None)

    def encode(self, cells: Cells) -> Encoded | Bad:
        """Return the features of cells, or those cells that cannot be read."""
        days = read_times(cells) if self.time_only else read_dates(cells, self.day_first)
        if isinstance(days, Bad):
            return days
        parts = [] if self.time_only else [(days / self.divisor)[:, None]]
        for divisor, period in ((self.year, YEAR), (self.day, 1.0)):
            if divisor is not None:
                parts.append(circle(days, period) / divisor)
        return Encoded(np.hstack(parts))

    def days(self, features: Floats) -> Floats:
        """Return days since 1970, or times as shares of the day."""
        if self.time_only:
            return np.arctan2(features[:, 0], features[:, 1]) / (2 * np.pi) % 1.0
        return features[:, 0] * self.divisor

    def decode(self, features: Floats) -> NDArray[Any]:
        """Return dates and times (datetime64), or times of the day (timedelta64)."""
        days = self.days(features)
        seconds = np.where(np.isnan(days), 0.0, np.round(days * 86_400)).astype("timedelta64[s]")
        seconds[np.isnan(days)] = np.timedelta64("NaT")
        return seconds if self.time_only else np.datetime64("1970-01-01T00:00:00") + seconds


def _nearest(places: Floats, levels: Sequence[Any]) -> NDArray[Any]:
    """Return the levels at places from 0 on, None for NaN."""
    table = np.asarray([*levels, None], dtype=object)
    index = np.clip(np.where(np.isnan(places), 0.0, np.round(places)), 0, len(levels) - 1)
    return table[np.where(np.isnan(places), len(levels), index).astype(np.int64)]


def circle(days: Floats, period: float) -> Floats:
    """Return sine and cosine of the place in a period."""
    angle = 2 * np.pi * (days / period % 1.0)
    return np.column_stack([np.sin(angle), np.cos(angle)])


def _unseen(
    levels: Sequence[str], codes: NDArray[np.int64], unknown: NDArray[np.bool_]
) -> tuple[str, ...]:
    """Return the levels that occur and are unknown."""
    return tuple(levels[i] for i in np.unique(codes[codes >= 0]) if unknown[i])


_ENCODINGS: dict[str, type[Encoding]] = {
    cls.kind: cls
    for cls in (NumberEncoding, YesNoEncoding, OrderEncoding, CategoryEncoding, DateEncoding)
}


def encoding_from(state: Any) -> Encoding:
    """Return the encoding of a state; a ValueError where it is damaged."""
    if not isinstance(state, Mapping) or state.get("encoding") not in _ENCODINGS:
        raise ValueError(f"{state!r:.60} is not an encoding of a column")
    return _ENCODINGS[state["encoding"]].from_dict(state)
