"""Conditions on the columns of a table, and the rule that approximates a cluster.

A rule is a conjunction of up to three conditions, and can be verified by counting in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from sgpmic._types import Bools, Floats, Ints
from sgpmic._words import percent
from sgpmic.report.words import day, day_parts, listing, number, shorten

# Maximum number of conditions of a rule, and the F1 gain that an additional one must bring.
_MOST_CONDITIONS, _WORTH = 3, 0.01

#: Maximum number of columns, and of levels of each, that rules are learned from.
SOME_COLUMNS = 40

# Maximum characters of a column and of a level in a condition.
_LONGEST = 40


class Subject(NamedTuple):
    """Subject of a difference or a condition: a column, a level, or missingness."""

    kind: str  # "number", "date", "time", "level" or "gap"
    source: int  # index of the column: numbers come first, then categories
    column: str
    cells: Floats | Ints  # of the column: numbers, or level indices
    levels: tuple[str, ...] = ()  # of a category
    level: int = 0  # index of the level, if it is one

    @property
    def name(self) -> str:
        """A column, a level ("color: red"), or missingness ("color is missing")."""
        if self.kind == "gap":
            return f"{self.column} is missing"
        return f"{self.column}: {self.levels[self.level]}" if self.kind == "level" else self.column

    @property
    def measured(self) -> bool:
        """Whether it is a number, a date or a time of day."""
        return self.kind in ("number", "date", "time")

    @property
    def known(self) -> Bools:
        """Mask of the rows that have a value."""
        return self.cells >= 0 if self.levels else ~np.isnan(self.cells)

    def shortened(self, longest: int) -> str:
        """Return its name, truncated such that the level stays readable."""
        rest = self.name[len(self.column) :]
        if self.kind == "level":
            rest = shorten(rest, 3 * longest // 4)
        return shorten(self.column, max(longest - len(rest), 2)) + rest

    def words(self, value: float) -> str:
        """Format a mean, or a share of rows."""
        if self.kind == "date":
            return day(value, day_parts(self.cells))
        if self.kind == "time":
            return day(value, 1440, time_only=True)
        return number(value, 3) if self.kind == "number" else percent(value)

    def condition(self, more: bool, below: float = 0.0, above: float = 0.0) -> Condition:
        """Return the condition that a cell is missing, has the level, or is at or above a cut.

        The cut is between ``below`` and ``above``. Without ``more``, the condition is negated.
        """
        if self.kind == "gap":
            said, holds = ("is known", "is missing"), ~self.known
        elif self.kind == "level":
            names = [shorten(level, _LONGEST) for level in self.levels]
            others = (
                f"is {names[1 - self.level]}" if len(names) == 2 else f"is not {names[self.level]}"
            )
            said = others, f"is {names[self.level]}"
            holds = self.cells == self.level
        elif self.kind in ("date", "time"):
            # The coarsest unit that has a time between: days, hours, minutes or seconds.
            for parts in (1, 24, 1440, 86400)[self.kind == "time" :]:
                cut = np.floor(above * parts + 1e-4) / parts
                if cut > below:
                    break
            words = day(cut, parts, time_only=self.kind == "time")
            said, holds = (f"before {words}", f"from {words} on"), self.cells >= cut - 1e-9
            if self.kind == "time":  # on a clock, none is first
                begin, end = (self.words(float(of(self.cells))) for of in (np.nanmin, np.nanmax))
                said = f"from {begin} to before {words}", f"from {words} to {end}"
        else:
            cut, digits = _round_cut(below, above)
            words = number(cut, digits)
            said, holds = (f"under {words}", f"at least {words}"), self.cells >= cut
        known = np.ones_like(holds) if self.kind == "gap" else self.known
        words = f"{shorten(self.column, _LONGEST)} {said[more]}"
        return Condition(words, holds if more else known & ~holds, known)


class Condition(NamedTuple):
    """A condition on one column, and its truth value for every row."""

    words: str
    holds: Bools  # (n_rows,), false where the value is missing
    known: Bools  # (n_rows,), where the value is not missing


def _round_cut(below: float, above: float) -> tuple[float, int]:
    """Return the number in (below, above], whole if both are, with the fewest digits; and these."""
    whole = float(below).is_integer() and float(above).is_integer()
    for digits in range(1, 17):
        for value in (0.5 * below + 0.5 * above, above):
            cut = float(f"{value:.{digits}g}")
            if below < cut <= above and (cut.is_integer() or not whole):
                return cut, digits
    return above, 17


class Rule(NamedTuple):
    """A conjunction of a few conditions that approximates a cluster."""

    conditions: tuple[str, ...]
    precision: float  # share of the matching rows that are in the cluster
    coverage: float  # share of the cluster's rows that match (recall)
    f1: float  # harmonic mean of both
    sentence: str  # all of this as text


def best_rules(
    subjects: Sequence[Subject], numbers: Ints, rows: Ints, labels: Ints, M: int
) -> list[Rule | None]:
    """Return, for every cluster, the rule with the highest F1, learned from sampled ``rows``."""
    features, about = _features(subjects, numbers, rows)
    rules: list[Rule | None] = [None] * M
    for m in range(M if features.size else 0):
        mine = labels == m
        tree = DecisionTreeClassifier(max_depth=_MOST_CONDITIONS, random_state=0)
        paths = list(_paths(tree.fit(features, mine[rows]).tree_, about, rows))
        if not paths:  # of a cluster without rows, or with all of them
            continue
        best = max(paths, key=lambda path: _judge(path, mine).f1 - _WORTH * len(path))
        for one in best:
            fewer = tuple(other for other in best if other is not one)
            if fewer and _judge(fewer, mine).f1 >= _judge(best, mine).f1:
                best = fewer
        rules[m] = _judge(best, mine)
    return rules


def _features(
    subjects: Sequence[Subject], numbers: Ints, rows: Ints
) -> tuple[NDArray[np.float32], list[Subject]]:
    """Return the features of sampled rows for a decision tree, and the subject of each."""
    p = sum(one.measured for one in subjects)
    columns = {*numbers.tolist(), *range(p, p + SOME_COLUMNS)}
    about = [one for one in subjects if one.source in columns and one.level < SOME_COLUMNS]
    features = np.zeros((len(rows), len(about)), dtype=np.float32)
    for feature, one in zip(features.T, about, strict=True):
        cells, known = one.cells[rows], one.known[rows]
        if one.measured:
            # Trees use single precision, in which ranks are exact.
            places = np.unique(cells[known], return_inverse=True)[1]
            feature[:] = np.median(places) if len(places) else 0.0
            feature[known] = places
        else:
            feature[:] = cells == one.level if one.kind == "level" else ~known
    return features, about


def _paths(
    tree: Any, about: list[Subject], rows: Ints, node: int = 0, before: tuple[Condition, ...] = ()
) -> Iterator[tuple[Condition, ...]]:
    """Yield the conditions on the path to every node."""
    for more, children in ((False, tree.children_left), (True, tree.children_right)):
        if children[node] >= 0:
            subject, ends = about[tree.feature[node]], np.empty(0)
            if subject.measured:
                first = int(tree.threshold[node])
                ends = np.unique(subject.cells[rows[subject.known[rows]]])[first : first + 2]
            path = (*before, subject.condition(more, *ends.tolist()))
            yield path
            yield from _paths(tree, about, rows, children[node], path)


def _judge(conditions: Sequence[Condition], mine: Bools) -> Rule:
    holds = np.logical_and.reduce([condition.holds for condition in conditions])
    matched, correct, size = int(holds.sum()), int((holds & mine).sum()), int(mine.sum())
    precision, coverage = correct / matched if matched else 0.0, correct / size
    words = tuple(condition.words for condition in conditions)
    sentence = (
        f"{listing(words)}: precision {percent(precision)} ({correct:,} of {matched:,} rows), "
        f"coverage {percent(coverage)} ({correct:,} of {size:,})."
    )
    return Rule(words, precision, coverage, 2.0 * correct / (matched + size), sentence)
