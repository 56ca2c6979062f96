"""Every cluster in a name, a sentence and a rule; all of it can be counted in the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_curve
from sklearn.tree import DecisionTreeClassifier

from sgpmic._types import Bools, Floats, Ints
from sgpmic.report.content import RunContent, content_of_rows
from sgpmic.report.differences import Difference, find_differences, shortened
from sgpmic.report.statistics import Profiles, cluster_profiles, strongest_first
from sgpmic.report.words import day, listing, number, percent, shorten

#: A category alone makes up a cluster where this share of the cluster's rows has the level, and
#: this share of the rows that have it is in the cluster.
ALONE = 0.95

# The most conditions of a rule, and what one more of them must add to its F1 score.
_MOST_CONDITIONS, _WORTH = 3, 0.01

# Conditions are looked for in so many rows and columns, and counted in all rows.
_SOME_ROWS, _SOME_COLUMNS = 5000, 40

# Letters of a column and level in a name.
_LONGEST = 28


class Condition(NamedTuple):
    """Something that holds for some rows."""

    words: str
    holds: Bools  # (n_rows,), false where the value is missing
    known: Bools  # where it is not


class Rule(NamedTuple):
    """Conditions that together pick out a cluster, as well as so few can."""

    conditions: tuple[str, ...]
    n_matched: int  # rows for which all of them hold
    n_correct: int  # and that are in the cluster
    n_rows: int  # of the cluster

    @property
    def precision(self) -> float:
        """The share of the rows it holds for that are in the cluster."""
        return self.n_correct / self.n_matched if self.n_matched else 0.0

    @property
    def coverage(self) -> float:
        """The share of the cluster's rows that it holds for."""
        return self.n_correct / self.n_rows if self.n_rows else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return 2.0 * self.n_correct / max(self.n_matched + self.n_rows, 1)

    def sentence(self) -> str:
        """Return the rule and how good it is, in words."""
        return (
            f"{listing(self.conditions)}: precision {percent(self.precision)} "
            f"({self.n_correct:,} of {self.n_matched:,} rows), coverage {percent(self.coverage)} "
            f"({self.n_correct:,} of {self.n_rows:,})."
        )


class Explanation(NamedTuple):
    """What a cluster is."""

    name: str  # different from those of the others
    facts: str  # its two clearest differences, in numbers of rows
    alone: str  # the category that alone makes it up, in a sentence; or nothing
    rule: Rule | None
    differences: list[Difference]

    @property
    def sentence(self) -> str:
        """The name and the facts."""
        if not self.facts and self.rule:  # the name begins with that of a column
            return f"{self.name}."
        return f"{self.name[:1].upper()}{self.name[1:]}{f': {self.facts}' if self.facts else ''}."

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        rule = self.rule and {
            "conditions": list(self.rule.conditions),
            "precision": self.rule.precision,
            "coverage": self.rule.coverage,
        }
        return {"name": self.name, "sentence": self.sentence, "rule": rule}


def profiles(model: Any, X: Any = None) -> list[dict[str, Any]]:
    """Return the name, the sentence and the rule of every cluster of a fitted model.

    Parameters
    ----------
    model : SGPMIC
    X : array-like or table, optional
        Rows as the model takes them; by default those that it was fitted on, where it has them.

    Returns
    -------
    list of dict
        With ``name``, ``sentence`` and ``rule``: None, or a dict with up to three ``conditions``,
        their ``precision`` (share of the rows they hold for that are in the cluster) and
        ``coverage`` (share of the cluster's rows they hold for).
    """
    return [found.as_dict() for found in explain(content_of_rows(model, X, title=""))]


def explain(content: RunContent, compared: Profiles | None = None) -> list[Explanation]:
    """Return what every cluster is; ``compared`` is what `cluster_profiles` says of the content."""
    M, labels = content.n_clusters, content.labels
    if compared is None:
        compared = cluster_profiles(content.values, labels, M)
    differences = find_differences(content, compared)
    rows = _some_rows(labels, M)
    sizes = np.bincount(labels, minlength=M)
    candidates = _Candidates(content, compared, rows)
    rules = [
        candidates.best_rule(labels == m) if 0 < sizes[m] < len(labels) else None for m in range(M)
    ]
    names = _unique_names(content, differences, rules, sizes)
    found = []
    for m in range(M):
        mine = labels == m
        clearest = _clearest(differences[m])
        conditions = [_condition_of(content, one, mine, rows) for one in clearest]
        facts = listing([_fact(condition, mine) for condition in conditions])
        alone = _makes_up_alone(content, mine) if rules[m] else ""
        found.append(Explanation(names[m], facts, alone, rules[m], differences[m]))
    return found


def _some_rows(labels: Ints, n_clusters: int) -> Ints:
    """Return all rows if they are few, or as many of each cluster, so that none is left out."""
    if len(labels) <= _SOME_ROWS:
        return np.arange(len(labels))
    drawn = np.random.default_rng(0).permutation(len(labels))
    most = max(_SOME_ROWS // n_clusters, 50)
    return np.concatenate([drawn[labels[drawn] == m][:most] for m in range(n_clusters)])


# ------------------------------------------------------------------------------ names


def _clearest(differences: Sequence[Difference], count: int = 2) -> list[Difference]:
    """Return the clearest differences, one for each column."""
    by_column = {one.subject.source: one for one in reversed(differences)}
    return [one for one in differences if by_column[one.subject.source] is one][:count]


def _unique_names(
    content: RunContent,
    differences: list[list[Difference]],
    rules: list[Rule | None],
    sizes: Ints,
) -> list[str]:
    """Return names of two differences, and of more where two clusters would be called the same.

    A cluster in the middle differs from the others taken together in nothing: its rule names it.
    """
    parts = [[_trait(content, one) for one in _clearest(mine, 4)] for mine in differences]
    for mine, rule, size in zip(parts, rules, sizes, strict=True):
        if not mine:
            whole = "all rows" if size == content.n_rows else "like the others"
            mine += rule.conditions if rule else [whole if size else "no rows"]
    names = [", ".join(mine[:2]) for mine in parts]
    for count in (3, 4):
        again = Counter(names)
        names = [
            ", ".join(mine[:count]) if again[name] > 1 else name
            for name, mine in zip(names, parts, strict=True)
        ]
    again = Counter(names)
    return [f"{name} ({m})" if again[name] > 1 else name for m, name in enumerate(names)]


def _trait(content: RunContent, difference: Difference) -> str:
    """Return a difference in a few words: low income, mostly color: red."""
    subject, more = difference.subject, difference.effect > 0
    if subject.kind == "gap":
        return f"{'without' if more else 'with'} {shorten(subject.column, _LONGEST)}"
    if subject.kind == "level":
        share = difference.means[0]
        word = ("mostly" if share >= 0.5 else "more") if more else "less" if share else "no"
    elif subject.column in content.dates:
        word = "late" if more else "early"
    else:
        word = "high" if more else "low"
    return f"{word} {shortened(difference, _LONGEST)}"


def _fact(condition: Condition, mine: Bools) -> str:
    """Return in how many rows of the cluster, and elsewhere, a condition holds."""
    counts = [
        (int((condition.holds & side).sum()), int((condition.known & side).sum()))
        for side in (mine, ~mine)
    ]
    (inside, known), (outside, known_outside) = counts
    of = "rows" if known == mine.sum() else "rows in which it is known"
    return (
        f"{condition.words} in {inside:,} of {known:,} {of} "
        f"(elsewhere {outside:,} of {known_outside:,})"
    )


def _makes_up_alone(content: RunContent, mine: Bools) -> str:
    """Return the level that alone makes up a cluster in a sentence, or nothing."""
    for column in content.categories:
        counts = np.bincount(column.codes[mine & (column.codes >= 0)], minlength=1)
        has = column.codes == int(counts.argmax())
        both, size, total = int((has & mine).sum()), int(mine.sum()), int(has.sum())
        if total and both >= ALONE * size and both >= ALONE * total:
            level = f"{shorten(column.name, 40)}: {shorten(column.levels[counts.argmax()], 40)}"
            return (
                f"One category makes up this cluster: {both:,} of its {size:,} rows have "
                f"{level}, and {total - both:,} rows elsewhere."
            )
    return ""


# ------------------------------------------------------------------------- conditions


def _condition_of(
    content: RunContent, difference: Difference, mine: Bools, rows: Ints
) -> Condition:
    """Return a difference as a condition, of a number with the cut that divides rows best."""
    subject, more = difference.subject, difference.effect > 0
    if subject.kind == "gap":
        return _gap_condition(content, subject.source, more)
    if subject.kind == "level":
        return _level_condition(content, subject.source, subject.level, more)
    seen = rows[np.isfinite(content.values[rows, subject.source])]
    values = content.values[seen, subject.source]
    # Youden's index: the cut with the most rows of the cluster, and the fewest others, beyond it.
    others, own, cuts = roc_curve(mine[seen], values if more else -values)
    best = cuts[1:][np.argmax((own - others)[1:])]
    if more:
        below, above = values[values < best].max(initial=-np.inf), best
    else:
        below, above = -best, values[values > -best].min(initial=np.inf)
    return _number_condition(content, subject.source, float(below), float(above), more)


def _number_condition(
    content: RunContent, j: int, below: float, above: float, more: bool
) -> Condition:
    """Return that a number is on one side of a cut between two values, as round as there is."""
    name, values = shorten(content.feature_names[j], 40), content.values[:, j]
    if content.feature_names[j] in content.dates:
        cut = float(np.floor(above))
        words = f"{name} from {day(cut)} on" if more else f"{name} before {day(cut)}"
    else:
        cut, digits = _round_cut(below, above)
        words = f"{name} {'at least' if more else 'under'} {number(cut, digits)}"
    with np.errstate(invalid="ignore"):
        return Condition(words, values >= cut if more else values < cut, np.isfinite(values))


def _round_cut(below: float, above: float) -> tuple[float, int]:
    """Return the shortest number above one value and not above another, and its digits."""
    for digits in range(1, 17):
        for value in (0.5 * below + 0.5 * above, above):
            cut = float(f"{value:.{digits}g}")
            if below < cut <= above:
                return cut, digits
    return above, 17


def _level_condition(content: RunContent, source: int, level: int, more: bool) -> Condition:
    column = content.categories[source - len(content.feature_names)]
    known, has = column.codes >= 0, column.codes == level
    words = f"{shorten(column.name, 40)} is {'' if more else 'not '}"
    words += shorten(column.levels[level], 40)
    return Condition(words, has if more else known & ~has, known)


def _gap_condition(content: RunContent, source: int, more: bool) -> Condition:
    p = len(content.feature_names)
    if source < p:
        name, missing = content.feature_names[source], np.isnan(content.values[:, source])
    else:
        column = content.categories[source - p]
        name, missing = column.name, column.codes < 0
    words = f"{shorten(name, 40)} is {'missing' if more else 'known'}"
    return Condition(words, missing if more else ~missing, np.ones(len(missing), dtype=bool))


# ------------------------------------------------------------------------------ rules


class _Candidates:
    """The conditions that rules are made of, as features of a decision tree."""

    def __init__(self, content: RunContent, compared: Profiles, rows: Ints) -> None:
        self._content, self._rows = content, rows
        p = len(content.feature_names)
        features: list[Floats | Bools] = []
        self._kinds: list[tuple[str, int, int]] = []  # kind, source and level of every feature
        self._values: dict[int, Floats] = {}  # the different values of the columns of numbers
        gaps = []
        for j in map(int, strongest_first(compared.effects)[:_SOME_COLUMNS]):
            values = content.values[rows, j]
            missing = np.isnan(values)
            gaps.append((j, missing))
            # Trees compute in single precision; places among the values are exact.
            self._values[j], places = np.unique(values[~missing], return_inverse=True)
            ranks = np.zeros(len(values))
            ranks[~missing] = places
            ranks[missing] = np.median(places) if len(places) else 0.0
            features.append(ranks)
            self._kinds.append(("number", j, 0))
        for source, column in enumerate(content.categories[:_SOME_COLUMNS], start=p):
            codes = column.codes[rows]
            gaps.append((source, codes < 0))
            for level in range(min(len(column.levels), _SOME_COLUMNS)):
                features.append(codes == level)
                self._kinds.append(("level", source, level))
        for source, missing in gaps:
            if missing.any() and not missing.all():
                features.append(missing)
                self._kinds.append(("gap", source, 0))
        self._features = np.column_stack(features).astype(np.float32) if features else None

    def best_rule(self, mine: Bools) -> Rule | None:
        """Return the rule of the highest F1 score, less a little for every condition."""
        if self._features is None:
            return None
        tree = DecisionTreeClassifier(max_depth=_MOST_CONDITIONS, random_state=0)
        tree.fit(self._features, mine[self._rows])
        paths = list(self._paths(tree.tree_, 0, ()))
        if not paths:
            return None
        worth = [_judge(path, mine).f1 - _WORTH * len(path) for path in paths]
        best = paths[int(np.argmax(worth))]
        for condition in best:
            fewer = tuple(one for one in best if one is not condition)
            if fewer and _judge(fewer, mine).f1 >= _judge(best, mine).f1:
                best = fewer
        return _judge(best, mine)

    def _paths(
        self, tree: Any, node: int, before: tuple[Condition, ...]
    ) -> Iterator[tuple[Condition, ...]]:
        """Yield the conditions on the way to every node."""
        children = tree.children_left[node], tree.children_right[node]
        if children[0] < 0:
            return
        for child, more in zip(children, (False, True), strict=True):
            condition = self._condition(int(tree.feature[node]), tree.threshold[node], more)
            path = (*before, condition)
            yield path
            yield from self._paths(tree, child, path)

    def _condition(self, feature: int, threshold: float, more: bool) -> Condition:
        kind, source, level = self._kinds[feature]
        if kind == "number":
            place = int(np.floor(threshold))
            below, above = self._values[source][place : place + 2]
            return _number_condition(self._content, source, float(below), float(above), more)
        if kind == "level":
            return _level_condition(self._content, source, level, more)
        return _gap_condition(self._content, source, more)


def _judge(conditions: Sequence[Condition], mine: Bools) -> Rule:
    """Return conditions as a rule, counted in all rows."""
    matched = np.logical_and.reduce([condition.holds for condition in conditions])
    words = tuple(condition.words for condition in conditions)
    return Rule(words, int(matched.sum()), int((matched & mine).sum()), int(mine.sum()))
