"""Cluster explanations: effect sizes, a name, a sentence and a rule each; and the summary.

All of them can be verified by counting in the table, and use its column names and levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.tree import DecisionTreeClassifier

from sgpmic._types import Bools, Floats, Ints
from sgpmic._words import percent, plural
from sgpmic.committee.voting import explain_vote
from sgpmic.learning.starts import explain_choice
from sgpmic.report import statistics
from sgpmic.report.content import RunContent, content_of_rows
from sgpmic.report.statistics import Profiles, Sizes, cluster_sizes, strongest_first
from sgpmic.report.words import abbreviate, day, day_parts, listing, number, shorten

#: An effect smaller than this does not set a cluster apart (Cohen's "small", for d and for h).
SMALL_EFFECT = 0.2

#: A number is medium in a cluster if distances from the cluster's mean are smaller there, by at
#: least this effect (Cohen's "large"), and at least this share of the other rows is on each side.
_MEDIUM_EFFECT, _EACH_SIDE = 0.8, 0.2

#: A cluster consists of a single level of a category if this share of its rows have the level, and
#: this share of the rows with the level are in the cluster.
ALONE = 0.95

# Maximum number of conditions of a rule, and the F1 gain that an additional one must bring.
_MOST_CONDITIONS, _WORTH = 3, 0.01

# Sample of rows and columns that rules and medium numbers are learned from. Counts are of all rows.
_SOME_ROWS, _SOME_COLUMNS = 5000, 40

# Maximum characters of a column and level in a name, and in a condition.
_LONGEST, _LONGEST_IN_CONDITION = 28, 40

# Maximum number of clusters explained in the summary.
_MOST_EXPLAINED = 10

_SCALED = {
    "each": "Every feature was divided by its own standard deviation",
    "one": "All features were divided by one number",
    "none": "Features were not scaled",
}


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
        name, column = self.name, self.column
        if len(name) <= longest:
            return shorten(name, longest)
        rest = shorten(name[len(column) :], max(longest // 2, 1))
        gap = " " if self.kind == "gap" else ""
        return shorten(column, max(longest - len(rest), 2)) + gap + rest

    def words(self, value: float) -> str:
        """Format a mean, or a share of rows."""
        if self.kind == "date":
            return day(value, day_parts(self.cells))
        if self.kind == "time":
            return day(value, 1440, time_only=True)
        if self.kind != "number":
            return percent(value)
        # Rounded to an integer, to avoid scientific notation.
        return number(round(value)) if 1e3 <= abs(value) < 1e7 else number(value, 3)

    def condition(self, more: bool, below: float = 0.0, above: float = 0.0) -> Condition:
        """Return the condition that a cell is missing, has the level, or is at or above a cut.

        The cut is the roundest number between ``below`` and ``above``. Without ``more``, the
        condition is negated, among cells that are known.
        """
        if self.kind == "gap":
            said, holds = ("is known", "is missing"), ~self.known
        elif self.kind == "level":
            names = [shorten(level, _LONGEST_IN_CONDITION) for level in self.levels]
            said = f"is not {names[self.level]}", f"is {names[self.level]}"
            if len(names) == 2:  # the other one
                said = f"is {names[1 - self.level]}", said[1]
            holds = self.cells == self.level
        elif self.kind in ("date", "time"):
            # The coarsest unit that has a time between: days, hours, minutes or seconds.
            for parts in (1, 24, 1440, 86400)[self.kind == "time" :]:
                cut = np.floor(above * parts + 1e-4) / parts
                if cut > below:
                    break
            words = day(cut, parts, time_only=self.kind == "time")
            said, holds = (f"before {words}", f"from {words} on"), self.cells >= cut - 1e-9
            begin, end = float(np.nanmin(self.cells)), float(np.nanmax(self.cells))
            if self.kind == "time" and end >= 1.0:  # 01:00 is later than 23:00
                said = (
                    f"from {self.words(begin)} to before {words}",
                    f"from {words} to {self.words(end)}",
                )
        else:
            cut, digits = _round_cut(below, above)
            words = number(cut, digits)
            said, holds = (f"under {words}", f"at least {words}"), self.cells >= cut
        known = np.ones_like(holds) if self.kind == "gap" else self.known
        words = f"{shorten(self.column, _LONGEST_IN_CONDITION)} {said[more]}"
        return Condition(words, holds if more else known & ~holds, known)


class Condition(NamedTuple):
    """A condition on one column, and its truth value for every row."""

    words: str
    holds: Bools  # (n_rows,), false where the value is missing
    known: Bools  # (n_rows,), where the value is not missing


class Difference(NamedTuple):
    """A difference between a cluster and all other rows."""

    subject: Subject
    effect: float  # confidence limit of Cohen's d (means) or h (shares), see `find_differences`
    inside: float  # mean, or share, in the cluster
    outside: float  # ... and elsewhere
    known: int  # number of rows of the cluster that have a value
    medium: bool = False  # whether the cluster's numbers lie between those of other rows


def compare_columns(content: RunContent) -> tuple[list[Subject], Profiles]:
    """Compare clusters with other rows: numbers, then levels, then missingness."""
    labels, M = content.labels, content.n_clusters
    columns = [*content.feature_names, *(column.name for column in content.categories)]
    names = abbreviate(columns, _LONGEST)
    kinds = dict.fromkeys(content.dates, "date") | dict.fromkeys(content.times_of_day, "time")
    subjects = [
        Subject(kinds.get(name, "number"), j, names[j], content.values[:, j])
        for j, name in enumerate(content.feature_names)
    ]
    gaps = [one._replace(kind="gap") for one in subjects]
    compared = [statistics.cluster_profiles(content.values, labels, M)]
    for source, (_, levels, codes, _) in enumerate(content.categories, len(subjects)):
        levels = tuple(abbreviate(levels, _LONGEST))
        gaps.append(Subject("gap", source, names[source], codes, levels))
        subjects += [gaps[-1]._replace(kind="level", level=k) for k in range(len(levels))]
        compared.append(statistics.level_shares(codes, len(levels), labels, M))
    missing = np.column_stack([~gap.known for gap in gaps])
    compared.append(statistics.missing_shares(missing, labels, M))
    return [*subjects, *gaps], Profiles(*np.concatenate(compared, axis=2))


def find_differences(
    subjects: Sequence[Subject], compared: Profiles, sizes: Ints
) -> list[list[Difference]]:
    """Return the differences of every cluster from other rows, the largest effects first.

    An effect is the confidence limit nearer to 0, times the share of the cluster's rows that have a
    value: rows without one count as no different.
    """
    effects = compared.certain * compared.known / np.maximum(sizes, 1)[:, None]
    # With two levels, the underrepresented one is redundant.
    halves = [one.kind == "level" and len(one.levels) == 2 for one in subjects]
    effects[:, halves] = np.maximum(effects[:, halves], 0.0)
    found: list[list[Difference]] = [[] for _ in sizes]
    for m, k in np.argwhere(abs(effects) >= SMALL_EFFECT):
        means = float(compared.inside[m, k]), float(compared.outside[m, k])
        one = Difference(subjects[k], float(effects[m, k]), *means, int(compared.known[m, k]))
        found[m].append(one)
    return [sorted(mine, key=lambda one: -abs(one.effect)) for mine in found]


def _find_medium(
    content: RunContent,
    subjects: Sequence[Subject],
    compared: Profiles,
    numbers: Ints,
    rows: Ints,
) -> list[list[Difference]]:
    """Return, for every cluster, which of these ``numbers`` lie between those of other rows.

    They are looked for in the sample ``rows``.
    """
    values, labels = content.values[np.ix_(rows, numbers)], content.labels[rows]
    found: list[list[Difference]] = [[] for _ in range(content.n_clusters)]
    for m in np.unique(labels):
        mine, center = labels == m, compared.inside[m, numbers]
        apart = statistics.cluster_profiles(abs(values - center), mine.astype(int), 2)
        effects = -apart.certain[1] * apart.known[1] / mine.sum()
        others = values[~mine]
        sides = np.minimum((others < center).sum(axis=0), (others > center).sum(axis=0))
        for place in np.flatnonzero(effects >= _MEDIUM_EFFECT):
            j, effect = int(numbers[place]), float(effects[place])
            means = float(center[place]), float(compared.outside[m, j])
            one = Difference(subjects[j], effect, *means, int(compared.known[m, j]), medium=True)
            if one.subject.kind == "number" and sides[place] >= _EACH_SIDE * len(others):
                found[m].append(one)
    return found


class Rule(NamedTuple):
    """A conjunction of a few conditions that approximates a cluster."""

    conditions: tuple[str, ...]
    precision: float  # share of the matching rows that are in the cluster
    coverage: float  # share of the cluster's rows that match (recall)
    f1: float  # harmonic mean of both
    sentence: str  # all of this as text


class Explanation(NamedTuple):
    """Explanation of a cluster."""

    name: str  # unique
    facts: str  # its two largest differences, as row counts
    alone: str  # sentence about the level it consists of, or empty
    rule: Rule | None
    differences: list[Difference]

    @property
    def sentence(self) -> str:
        """The name and the facts."""
        if not self.facts and self.rule:  # starts with a column name, so keep its case
            return f"{self.name}."
        return f"{self.name[:1].upper()}{self.name[1:]}{f': {self.facts}' if self.facts else ''}."

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
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
        Rows in any form the model accepts; by default those it was fitted on, if it kept them.

    Returns
    -------
    list of dict
        With ``name``, ``sentence`` and ``rule``: None, or a dict with up to three ``conditions``,
        their ``precision`` (share of the matching rows that are in the cluster) and ``coverage``
        (share of the cluster's rows that match).
    """
    return [found.as_dict() for found in explain(content_of_rows(model, X))]


def explain(content: RunContent) -> list[Explanation]:
    """Explain every cluster.

    Names and facts can say that a number is medium; ``differences`` are those of means and shares.
    """
    M, labels, rows = content.n_clusters, content.labels, np.arange(content.n_rows)
    sizes = np.bincount(labels, minlength=M)
    subjects, compared = compare_columns(content)
    differences = find_differences(subjects, compared, sizes)
    if len(rows) > _SOME_ROWS:  # a stratified sample, so that no cluster is left out
        drawn = np.random.default_rng(0).permutation(len(labels))
        most = max(_SOME_ROWS // M, 50)
        rows = np.concatenate([drawn[labels[drawn] == m][:most] for m in range(M)])
    numbers = strongest_first(compared.effects[:, : len(content.feature_names)])[:_SOME_COLUMNS]
    rules = _best_rules(subjects, numbers, rows, labels, M)
    medium = _find_medium(content, subjects, compared, numbers, rows)
    telling = [
        sorted(some + more, key=lambda one: -abs(one.effect))
        for some, more in zip(differences, medium, strict=True)
    ]
    found = []
    for m, name in enumerate(_unique_names(telling, rules, sizes)):
        mine = labels == m
        facts = listing([_fact(one, mine, rows) for one in _clearest(telling[m])])
        alone = _makes_up_alone(content, mine) if rules[m] else ""
        found.append(Explanation(name, facts, alone, rules[m], differences[m]))
    return found


def _clearest(differences: Sequence[Difference], count: int = 2) -> list[Difference]:
    """Return the largest differences, one per column."""
    by_column: dict[int, Difference] = {}
    for one in differences:
        by_column.setdefault(one.subject.source, one)
    return list(by_column.values())[:count]


def _unique_names(
    differences: list[list[Difference]], rules: list[Rule | None], sizes: Ints
) -> list[str]:
    """Name clusters by two differences, or more if names would clash.

    A cluster without any is named by its rule.
    """
    parts = [[_trait(one) for one in _clearest(mine, 4)] for mine in differences]
    for mine, rule, size in zip(parts, rules, sizes, strict=True):
        if not mine:
            whole = "all rows" if size == sizes.sum() else "like the others"
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


def _trait(difference: Difference) -> str:
    """Describe a difference in a few words: low income, mostly color: red, color not red."""
    subject, more, share = difference.subject, difference.effect > 0, difference.inside
    if subject.kind == "gap":
        return f"{'without' if more else 'with'} {shorten(subject.column, _LONGEST)}"
    if subject.kind == "level" and not more and not share:
        level = shorten(subject.levels[subject.level], _LONGEST // 2)
        return f"{shorten(subject.column, _LONGEST - len(level))} not {level}"
    if difference.medium:
        return f"medium {subject.shortened(_LONGEST)}"
    words = {
        "level": ("less", "mostly" if share >= 0.5 else "more"),
        "date": ("early", "late"),
        "time": ("early", "late"),
        "number": ("low", "high"),
    }
    return f"{words[subject.kind][more]} {subject.shortened(_LONGEST)}"


def _fact(difference: Difference, mine: Bools, rows: Ints) -> str:
    """Count the rows in the cluster, and elsewhere, that satisfy a difference as a condition.

    For a number, the cuts are those that best separate a sample of the rows.
    """
    subject, more = difference.subject, difference.effect > 0
    if subject.measured:
        seen = rows[subject.known[rows]]
        values, places = np.unique(subject.cells[seen], return_inverse=True)
        own = mine[seen]
        # Youden's index: the true minus the false positive rate, here of all numbers below a cut.
        rates = np.where(own, 1.0 / max(own.sum(), 1), -1.0 / max((~own).sum(), 1))
        below = np.append(0.0, np.cumsum(np.bincount(places, rates)))
        first: int | None = int(below[:-1].argmin()) if more else None
        last: int | None = None if more else int(below[:-1].argmax())
        if difference.medium:
            last = int(np.argmax(below - np.minimum.accumulate(below)))
            first = int(below[: last + 1].argmin())
            # An end that excludes nothing is not mentioned.
            first, last = first or None, last if last < len(values) else None
        ends = np.concatenate([[-np.inf], values, [np.inf]]).tolist()
        parts = [] if first is None else [subject.condition(True, *ends[first : first + 2])]
        parts += [] if last is None else [subject.condition(False, *ends[last : last + 2])]
        words = parts[0].words
        if len(parts) == 2:
            words += f" and under{parts[1].words.rpartition(' under')[2]}"
        holds = np.logical_and.reduce([part.holds for part in parts])
        condition = Condition(words, holds, subject.known)
    else:
        condition = subject.condition(more)
    inside, outside = (int((condition.holds & side).sum()) for side in (mine, ~mine))
    known, known_outside = (int((condition.known & side).sum()) for side in (mine, ~mine))
    of = "rows" if known == mine.sum() else "rows in which it is known"
    return (
        f"{condition.words} in {inside:,} of {known:,} {of} "
        f"(elsewhere {outside:,} of {known_outside:,})"
    )


def _makes_up_alone(content: RunContent, mine: Bools) -> str:
    """Return a sentence about the one level that a cluster consists of, or an empty string."""
    for column in content.categories:
        counts = np.bincount(column.codes[mine & (column.codes >= 0)], minlength=1)
        has = column.codes == int(counts.argmax())
        both, size, total = int((has & mine).sum()), int(mine.sum()), int(has.sum())
        is_merged = column.merged and counts.argmax() == len(column.levels) - 1
        if total and both >= ALONE * size and both >= ALONE * total and not is_merged:
            level = f"{shorten(column.name, 40)}: {shorten(column.levels[counts.argmax()], 40)}"
            return (
                f"One category makes up this cluster: {both:,} of its {size:,} rows have "
                f"{level}, and {plural(total - both, 'row')} elsewhere."
            )
    return ""


def _round_cut(below: float, above: float) -> tuple[float, int]:
    """Return the number in (below, above] with the fewest digits, and their number.

    Between whole numbers, it is one.
    """
    whole = float(below).is_integer() and float(above).is_integer()
    for digits in range(1, 17):
        for value in (0.5 * below + 0.5 * above, above):
            cut = float(f"{value:.{digits}g}")
            if below < cut <= above and (cut.is_integer() or not whole):
                return cut, digits
    return above, 17


def _best_rules(
    subjects: Sequence[Subject], numbers: Ints, rows: Ints, labels: Ints, M: int
) -> list[Rule | None]:
    """Return, for every cluster, the rule with the highest F1, penalized by its length.

    Rules are learned from the sample ``rows``, on these ``numbers`` and the first categories.
    """
    features, about = _features(subjects, numbers, rows)
    rules: list[Rule | None] = [None] * M
    for m in range(M if features.size else 0):
        mine = labels == m
        tree = DecisionTreeClassifier(max_depth=_MOST_CONDITIONS, random_state=0)
        # For a cluster without rows, or with all of them, a tree has one node and no paths.
        paths = list(_paths(tree.fit(features, mine[rows]).tree_, about, rows))
        if not paths:
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
) -> tuple[Floats, list[Subject]]:
    """Return the features of sampled rows for a decision tree, and the subject of each."""
    gaps = [one for one in subjects if one.kind == "gap"]  # by column
    p = sum(one.measured for one in subjects)
    columns = [*numbers.tolist(), *range(p, len(gaps))[:_SOME_COLUMNS]]
    levels = [one for one in subjects if one.kind == "level" and one.level < _SOME_COLUMNS]
    chosen = [subjects[j] for j in numbers] + [one for one in levels if one.source in columns]
    features, about = [], []
    for one in (*chosen, *(gaps[j] for j in columns)):
        cells, known = one.cells[rows], one.known[rows]
        feature = cells == one.level if one.kind == "level" else ~known
        if one.measured:
            # Trees use single precision, in which ranks are exact.
            places = np.unique(cells[known], return_inverse=True)[1]
            feature = np.full(len(cells), np.median(places) if len(places) else 0.0)
            feature[known] = places
        elif one.kind == "gap" and (known.all() or not known.any()):
            continue
        features.append(feature)
        about.append(one)
    table = np.column_stack(features) if features else np.empty((len(rows), 0))
    return table.astype(np.float32), about


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


def print_summary(
    model: Any,
    explanations: Sequence[Explanation],
    console: Console | None = None,
    *,
    sizes: Sizes | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print the clusters of a fitted model, and how they were found.

    ``sizes`` are those over all rows if the model holds only some, and ``notes`` are printed by
    the caller.
    """
    console = console or Console(highlight=False)
    counts, _, certainty = sizes or cluster_sizes(model.memberships_[model.labels_ >= 0])
    screen = Table(title=f"{counts.sum()} rows in {plural(model.n_clusters_, 'cluster')}")
    for name in ("cluster", "rows", "mean certainty"):
        screen.add_column(name, justify="right")
    for m, (count, mean) in enumerate(zip(counts, certainty, strict=True)):
        screen.add_row(str(m), str(count), "–" if np.isnan(mean) else f"{mean:.3f}")
    console.print(screen)
    described = len(model._predictor.reference.rows)
    if sizes is None and described < counts.sum():
        console.print(f"The numbers below are those of a random sample of {described:,} rows.")
    for m, found in enumerate(explanations[:_MOST_EXPLAINED] if len(explanations) > 1 else ()):
        rule = f" Rule: {found.rule.sentence}" if found.rule else ""
        alone = f" {found.alone}" if found.alone else ""
        console.print(escape(f"{m}: {found.sentence}{rule}{alone}"))
    if len(explanations) > _MOST_EXPLAINED:
        console.print(f"… and {len(explanations) - _MOST_EXPLAINED} more, all in the report.")
    support = "" if model.cluster_tendency_ is None else model.cluster_tendency_.sentence()
    if support and not any(known.startswith(support) for known in notes):  # once is enough
        console.print(escape(support))
    if (sought := model._number_of_clusters) is not None and model.n_clusters_ > 1:
        probability = sought.get("probability", sought.get("certainty", ()))  # of earlier versions
        likeliest = sorted(zip(probability, sought["candidates"], strict=True), reverse=True)[:2]
        words = ", ".join(f"{percent(p, 0)} for {k}" for p, k in likeliest)
        if (chosen := sought["chosen"]) != likeliest[0][1]:
            words += f". {chosen} clusters should agree best with the true ones on average"
        console.print(f"Probability of the number of clusters: {words}.")
    if why := explain_vote(model._committee):
        console.print(why)
    if model.encoder_ is not None and model.encoder_.has_categories_:
        console.print("Columns were put on one scale, so that none outweighs another.")
    else:
        kind, why = model.scaler_.kind, model.scaler_.reason
        looks, other = "they seem to share a unit", "each"
        if kind == "each":
            looks, other = "no strong evidence that they share a unit", "one"
        because = f": {looks} ({why}); use scale='{other}' (--scale) to change it" if why else ""
        console.print(f"{_SCALED[kind]}{because}.")
    if len(model.starts_) > 1:
        console.print(explain_choice(model.starts_, model.start.selection))
