"""What a setting may be, declared; a value that it may not be gets one clear sentence."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np


class Constraint(Protocol):
    """What a value has to fulfil."""

    def check(self, name: str, value: Any) -> None:
        """Raise a TypeError or ValueError where it does not."""


@dataclass(frozen=True)
class OneOf:
    """One of some words, or an array where that is allowed."""

    choices: tuple[str, ...]
    or_array: bool = False

    def check(self, name: str, value: Any) -> None:
        known = ", ".join(map(repr, self.choices))
        if isinstance(value, str):
            if value not in self.choices:
                raise ValueError(f"{name}={value!r} is not known; use one of {known}.")
        elif not self.or_array or value is None:
            raise TypeError(f"{name} must be one of {known}, got {value!r}.")


@dataclass(frozen=True)
class WholeNumber:
    """A whole number from ``least`` to ``most``, or None or a word where that is allowed."""

    least: int
    or_none: bool = False
    word: str | None = None
    most: float = math.inf

    def check(self, name: str, value: Any) -> None:
        if (value is None and self.or_none) or (self.word is not None and value == self.word):
            return
        choice = "" if self.word is None else f" or {self.word!r}"
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be a whole number{choice}, got {value!r}.")
        if value < self.least:
            raise ValueError(f"{name} must be at least {self.least}, got {value}.")
        if int(value) > self.most:
            raise ValueError(f"{name} must be at most {self.most}, got {value}.")


@dataclass(frozen=True)
class Number:
    """A finite number of at least ``least``, or above it; or a word that stands for one."""

    least: float
    above: bool = False
    word: str | None = None

    def check(self, name: str, value: Any) -> None:
        if isinstance(value, str) and self.word is not None:
            if value != self.word:
                raise ValueError(f"{name} must be a number or {self.word!r}, got {value!r}.")
            return
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
            raise TypeError(f"{name} must be a number, got {value!r}.")
        number = float(value)
        too_small = number <= self.least if self.above else number < self.least
        if too_small or not np.isfinite(number):
            relation = "greater than" if self.above else "at least"
            raise ValueError(f"{name} must be {relation} {self.least:g} and finite, got {value}.")


class CountOrShare:
    """A whole number of at least 1, a share of variance between 0 and 1, or 'auto'."""

    def check(self, name: str, value: Any) -> None:
        message = (
            f"{name} must be a whole number of at least 1, a share of variance between 0 and 1 "
            f"(such as 0.95), or 'auto', got {value!r}."
        )
        if isinstance(value, str) and value == "auto":
            return
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
            raise TypeError(message)
        if value < 1 if isinstance(value, Integral) else not 0.0 < float(value) < 1.0:
            raise ValueError(message)


class Flag:
    """True or False."""

    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{name} must be True or False, got {value!r}.")


class PathOrNone:
    """The path of a folder, or None."""

    def check(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, (str, os.PathLike)):
            raise TypeError(f"{name} must be the path of a folder, got {value!r}.")


class Functions:
    """A list or tuple of functions."""

    def check(self, name: str, value: Any) -> None:
        if not (isinstance(value, (list, tuple)) and all(callable(item) for item in value)):
            raise TypeError(f"{name} must be a list of functions that take a Progress object.")


#: The default of a parameter that has no effect any more, as in scikit-learn.
DEPRECATED = "deprecated"


@dataclass(frozen=True)
class Deprecated:
    """Anything, without effect, but with a warning that says why."""

    reason: str

    def check(self, name: str, value: Any) -> None:
        if value != DEPRECATED:
            warnings.warn(
                f"{name} has no effect any more and will be removed: {self.reason}.",
                FutureWarning,
                stacklevel=4,  # past the settings' __post_init__ and __init__
            )


@dataclass(frozen=True)
class InstanceOf:
    """An object of a class, or None where that is allowed."""

    kind: type
    or_none: bool = False

    def check(self, name: str, value: Any) -> None:
        if not (isinstance(value, self.kind) or (self.or_none and value is None)):
            kind = self.kind.__name__
            choice = " or None" if self.or_none else ""
            raise TypeError(
                f"{name} must be a sgpmic.{kind}, such as {kind}(){choice}, got {value!r}."
            )
