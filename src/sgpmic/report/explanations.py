"""What sets every cluster apart: in numbers, a name, a sentence and a rule.

All of it can be counted in the table, and is in its words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_curve
from sklearn.tree import DecisionTreeClassifier

from sgpmic._types import Bools, Floats, Ints
from sgpmic.report.content import RunContent, content_of_rows
from sgpmic.report.statistics import (
    Profiles,
    cluster_profiles,
    level_shares,
    missing_shares,
    strongest_first,
)
from sgpmic.report.words import day, listing, number, percent, shorten

#: An effect smaller than this does not set a cluster apart (Cohen's "small", for d and for h).
SMALL_EFFECT = 0.2

#: A category alone makes up a cluster where this share of the cluster's rows has the level, and
#: this share of the rows that have it is in the cluster.
ALONE = 0.95

# The most conditions of a rule, and what one more of them must add to its F1 score.
_MOST_CONDITIONS, _WORTH = 3, 0.01

# Conditions are looked for in so many rows and columns, and counted in all rows.
_SOME_ROWS, _SOME_COLUMNS = 5000, 40

# Letters of a column and level in a name.
_LONGEST = 28


class Subject(NamedTuple):
    """What a difference or a condition is about."""

    kind: str  # "number", "level" or "gap"
    source: int  # the place of the column: numbers come first, then categories
    level: int = 0  # the place of the level, if it is one


class Difference(NamedTuple):
    """One thing in which a cluster differs from all other rows."""

    name: str  # a column, a level ("color: red"), or a gap ("color is missing")
    column: str
    subject: Subject
    effect: float  # as much of Cohen's d of a number, or h of a share, as is certain
    share: float  # of the cluster's rows, if it is a level; else the mean or the share
    inside: str  # the mean, or the share, in the cluster and elsewhere, in words
    outside: str
    known: int  # rows of the cluster that have a value


def find_differences(content: RunContent, profiles: Profiles) -> list[list[Difference]]:
    """Return what sets every cluster apart, the largest effects first.

    An effect is the end of its confidence interval that is nearer to 0, times the share of the
    cluster's rows in which the value is known: rows without one count as no different.
    """
    M, numbers, categories = content.n_clusters, content.feature_names, content.categories
    found: list[list[Difference]] = [[] for _ in range(M)]
    sizes = np.maximum(np.bincount(content.labels, minlength=M), 1)[:, None]

    def add(named: Sequence[tuple[str, str, Subject]], compared: Profiles, effects: Floats) -> None:
        for m, k in np.argwhere(abs(effects) >= SMALL_EFFECT):
            name, column, subject = named[k]
            share, elsewhere = float(compared.inside[m, k]), float(compared.outside[m, k])
            say = partial(_mean, content, name) if subject.kind == "number" else percent
            effect, known = float(effects[m, k]), int(compared.known[m, k])
            means = share, say(share), say(elsewhere)
            found[m].append(Difference(name, column, subject, effect, *means, known))

    named = [(name, name, Subject("number", j)) for j, name in enumerate(numbers)]
    add(named, profiles, profiles.certain * profiles.known / sizes)
    for source, column in enumerate(categories, start=len(numbers)):
        shares = level_shares(column.codes, len(column.levels), content.labels, M)
        effects = shares.certain * shares.known / sizes
        if len(column.levels) == 2:  # the one that is under-represented says the same
            effects = np.maximum(effects, 0.0)
        named = [
            (f"{column.name}: {level}", column.name, Subject("level", source, k))
            for k, level in enumerate(column.levels)
        ]
        add(named, shares, effects)
    missing = [np.isnan(content.values), *(c.codes[:, None] < 0 for c in categories)]
    shares = missing_shares(np.concatenate(missing, axis=1), content.labels, M)
    names = [*numbers, *(column.name for column in categories)]
    named = [(f"{name} is missing", name, Subject("gap", j)) for j, name in enumerate(names)]
    add(named, shares, shares.certain)
    for differences in found:
        differences.sort(key=lambda one: -abs(one.effect))
    return found


def _mean(content: RunContent, name: str, value: float) -> str:
    if name in content.dates:
        return day(value)
    # Whole thousands rather than powers of ten.
    return number(round(value)) if 1e3 <= abs(value) < 1e7 else number(value, 3)


def shortened(difference: Difference, longest: int) -> str:
    """Return a difference's name, the level kept readable where the column's name is long."""
    name, column = difference.name, difference.column
    if len(name) <= longest or not name.startswith(column):
        return shorten(name, longest)
    rest = shorten(name[len(column) :], max(longest // 2, 1))
    gap = " " if name[len(column) :].startswith(" ") else ""
    return shorten(column, max(longest - len(rest), 2)) + gap + rest


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
        return self.n_correct / self.n_rows

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return 2.0 * self.n_correct / (self.n_matched + self.n_rows)

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
    compared = compared or cluster_profiles(content.values, labels, M)
    differences = find_differences(content, compared)
    rows = np.arange(len(labels))
    if len(rows) > _SOME_ROWS:  # as many of each cluster, so that none is left out
        drawn = np.random.default_rng(0).permutation(len(labels))
        most = max(_SOME_ROWS // M, 50)
        rows = np.concatenate([drawn[labels[drawn] == m][:most] for m in range(M)])
    rules = _best_rules(content, compared, rows)
    names = _unique_names(content, differences, rules)
    found = []
    for m in range(M):
        mine = labels == m
        clearest = _clearest(differences[m])
        facts = listing([_fact(_condition_of(content, one, mine, rows), mine) for one in clearest])
        alone = _makes_up_alone(content, mine) if rules[m] else ""
        found.append(Explanation(names[m], facts, alone, rules[m], differences[m]))
    return found


def _clearest(differences: Sequence[Difference], count: int = 2) -> list[Difference]:
    """Return the clearest differences, one for each column."""
    by_column: dict[int, Difference] = {}
    for one in differences:
        by_column.setdefault(one.subject.source, one)
    return list(by_column.values())[:count]


def _unique_names(
    content: RunContent, differences: list[list[Difference]], rules: list[Rule | None]
) -> list[str]:
    """Return names of two differences, and of more where two clusters would be called the same.

    A cluster in the middle differs from the others taken together in nothing: its rule names it.
    """
    parts = [[_trait(content, one) for one in _clearest(mine, 4)] for mine in differences]
    sizes = np.bincount(content.labels, minlength=content.n_clusters)
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
    kind, more, share = difference.subject.kind, difference.effect > 0, difference.share
    if kind == "gap":
        return f"{'without' if more else 'with'} {shorten(difference.column, _LONGEST)}"
    if kind == "level":
        word = ("mostly" if share >= 0.5 else "more") if more else "less" if share else "no"
    elif difference.column in content.dates:
        word = "late" if more else "early"
    else:
        word = "high" if more else "low"
    return f"{word} {shortened(difference, _LONGEST)}"


def _fact(condition: Condition, mine: Bools) -> str:
    """Return in how many rows of the cluster, and elsewhere, a condition holds."""
    inside, outside = (int((condition.holds & side).sum()) for side in (mine, ~mine))
    known, known_outside = (int((condition.known & side).sum()) for side in (mine, ~mine))
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


def _condition_of(
    content: RunContent, difference: Difference, mine: Bools, rows: Ints
) -> Condition:
    """Return a difference as a condition, of a number with the cut that divides rows best."""
    subject, more = difference.subject, difference.effect > 0
    if subject.kind != "number":
        return _condition(content, subject, more)
    seen = rows[np.isfinite(content.values[rows, subject.source])]
    values = content.values[seen, subject.source]
    # Youden's index: the cut with the most rows of the cluster, and the fewest others, beyond it.
    others, own, cuts = roc_curve(mine[seen], values if more else -values)
    best = cuts[1:][np.argmax((own - others)[1:])]
    if more:
        below, above = values[values < best].max(initial=-np.inf), best
    else:
        below, above = -best, values[values > -best].min(initial=np.inf)
    return _condition(content, subject, more, float(below), float(above))


def _condition(
    content: RunContent, subject: Subject, more: bool, below: float = 0.0, above: float = 0.0
) -> Condition:
    """Return that a cell is missing, has a level, or has a number on one side of a cut.

    The cut is a number between two values, as round as there is. Without ``more`` the condition is
    the opposite, of cells that are known.
    """
    p = len(content.feature_names)
    values: Floats | Ints
    levels: tuple[str, ...] = ()
    if subject.source < p:
        name, values = content.feature_names[subject.source], content.values[:, subject.source]
        known = ~np.isnan(values)
    else:
        name, levels, values = content.categories[subject.source - p]
        known = values >= 0
    short = shorten(name, 40)
    if subject.kind == "gap":
        words = f"{short} is {'missing' if more else 'known'}"
        return Condition(words, ~known if more else known, np.ones(len(known), dtype=bool))
    if subject.kind == "level":
        words = f"{short} is {'' if more else 'not '}{shorten(levels[subject.level], 40)}"
        holds = values == subject.level
    elif name in content.dates:
        cut = float(np.floor(above))
        words = f"{short} from {day(cut)} on" if more else f"{short} before {day(cut)}"
        holds = values >= cut
    else:
        cut, digits = _round_cut(below, above)
        words = f"{short} {'at least' if more else 'under'} {number(cut, digits)}"
        holds = values >= cut
    return Condition(words, holds if more else known & ~holds, known)


def _round_cut(below: float, above: float) -> tuple[float, int]:
    """Return the shortest number above one value and not above another, and its digits."""
    for digits in range(1, 17):
        for value in (0.5 * below + 0.5 * above, above):
            cut = float(f"{value:.{digits}g}")
            if below < cut <= above:
                return cut, digits
    return above, 17


def _best_rules(content: RunContent, compared: Profiles, rows: Ints) -> list[Rule | None]:
    """Return the rule of the highest F1 score, less a little for every condition, of all clusters.

    A cluster without rows, or with all of them, has none. Conditions are looked for in some rows.
    """
    features, condition = _features(content, compared, rows)
    rules: list[Rule | None] = []
    for m in range(content.n_clusters):
        mine, paths = content.labels == m, []
        if features.size and mine.any() and not mine.all():
            tree = DecisionTreeClassifier(max_depth=_MOST_CONDITIONS, random_state=0)
            paths = list(_paths(tree.fit(features, mine[rows]).tree_, condition))
        if not paths:
            rules.append(None)
            continue
        best = max(paths, key=lambda path: _judge(path, mine).f1 - _WORTH * len(path))
        for one in best:
            fewer = tuple(other for other in best if other is not one)
            if fewer and _judge(fewer, mine).f1 >= _judge(best, mine).f1:
                best = fewer
        rules.append(_judge(best, mine))
    return rules


#: From a feature, a threshold, and whether it is exceeded.
_OnFeature = Callable[[int, float, bool], Condition]


def _features(content: RunContent, compared: Profiles, rows: Ints) -> tuple[Floats, _OnFeature]:
    """Return features of some rows, and the condition on one of them beyond a threshold."""
    features: list[Floats | Bools] = []
    subjects: list[Subject] = []  # what every feature is about
    known: dict[int, Floats] = {}  # the different values of the columns of numbers
    gaps = []
    for j in map(int, strongest_first(compared.effects)[:_SOME_COLUMNS]):
        values = content.values[rows, j]
        missing = np.isnan(values)
        gaps.append((j, missing))
        # Trees compute in single precision; places among the values are exact.
        known[j], places = np.unique(values[~missing], return_inverse=True)
        ranks = np.full(len(values), np.median(places) if len(places) else 0.0)
        ranks[~missing] = places
        features.append(ranks)
        subjects.append(Subject("number", j))
    for j, column in enumerate(content.categories[:_SOME_COLUMNS], len(content.feature_names)):
        codes = column.codes[rows]
        gaps.append((j, codes < 0))
        levels = range(min(len(column.levels), _SOME_COLUMNS))
        features += [codes == level for level in levels]
        subjects += [Subject("level", j, level) for level in levels]
    for j, missing in gaps:
        if missing.any() and not missing.all():
            features.append(missing)
            subjects.append(Subject("gap", j))

    def condition(feature: int, threshold: float, more: bool) -> Condition:
        subject = subjects[feature]
        if subject.kind != "number":
            return _condition(content, subject, more)
        below, above = known[subject.source][int(threshold) : int(threshold) + 2]
        return _condition(content, subject, more, float(below), float(above))

    table = np.column_stack(features) if features else np.empty((len(rows), 0))
    return table.astype(np.float32), condition


def _paths(
    tree: Any, condition: _OnFeature, node: int = 0, before: tuple[Condition, ...] = ()
) -> Iterator[tuple[Condition, ...]]:
    """Yield the conditions on the way to every node."""
    for more, children in ((False, tree.children_left), (True, tree.children_right)):
        if children[node] >= 0:
            path = (*before, condition(int(tree.feature[node]), tree.threshold[node], more))
            yield path
            yield from _paths(tree, condition, children[node], path)


def _judge(conditions: Sequence[Condition], mine: Bools) -> Rule:
    matched = np.logical_and.reduce([condition.holds for condition in conditions])
    words = tuple(condition.words for condition in conditions)
    return Rule(words, int(matched.sum()), int((matched & mine).sum()), int(mine.sum()))
