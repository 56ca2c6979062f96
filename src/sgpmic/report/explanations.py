"""Cluster explanations: effect sizes, a name, a sentence and a rule each; and the summary.

All of them can be verified by counting in the table, and use its column names and levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpmic._types import Bools, Ints
from sgpmic._words import percent, plural
from sgpmic.committee.voting import explain_vote
from sgpmic.learning.starts import explain_choice
from sgpmic.report import statistics
from sgpmic.report.content import RunContent, content_of_rows
from sgpmic.report.rules import SOME_COLUMNS, Rule, Subject, best_rules
from sgpmic.report.statistics import Profiles, Sizes, cluster_sizes, strongest_first
from sgpmic.report.words import listing, shorten

#: An effect smaller than this does not set a cluster apart (Cohen's "small", for d and for h).
SMALL_EFFECT = 0.2

#: A number is medium in a cluster if distances from the cluster's median are smaller there, by at
#: least this effect (Cohen's "large"), and at least this share of the other rows is on each side.
_MEDIUM_EFFECT, _EACH_SIDE = 0.8, 0.2

# Sample of rows that rules and medium numbers are learned from. Counts are of all rows.
_SOME_ROWS = 5000

# Maximum characters of a column and level in a name.
_LONGEST = 28

# Maximum number of clusters explained in the summary.
_MOST_EXPLAINED = 10

# How features were scaled, why, and the other way.
_SCALED = {
    "each": (
        "Every feature was divided by its own standard deviation",
        "no strong evidence that they share a unit",
        "one",
    ),
    "one": ("All features were divided by one number", "they seem to share a unit", "each"),
    "none": ("Features were not scaled", "", ""),
}


class Difference(NamedTuple):
    """A difference between a cluster and all other rows."""

    subject: Subject
    effect: float  # confidence limit, nearer to 0, of Cohen's d (means) or h (shares)
    inside: float = np.nan  # mean, or share, in the cluster
    outside: float = np.nan  # ... and elsewhere
    known: int = 0  # number of rows of the cluster that have a value
    medium: bool = False  # whether the cluster's numbers lie between those of other rows


def compare_columns(content: RunContent) -> tuple[list[Subject], Profiles]:
    """Compare clusters with other rows: numbers, then levels, then missingness."""
    labels, M = content.labels, content.n_clusters
    kinds = dict.fromkeys(content.dates, "date") | dict.fromkeys(content.times_of_day, "time")
    subjects = [
        Subject(kinds.get(name, "number"), j, name, content.values[:, j])
        for j, name in enumerate(content.feature_names)
    ]
    gaps = [one._replace(kind="gap") for one in subjects]
    compared = [statistics.cluster_profiles(content.values, labels, M)]
    for source, (name, levels, codes) in enumerate(content.categories, len(subjects)):
        gaps.append(Subject("gap", source, name, codes, levels))
        subjects += [gaps[-1]._replace(kind="level", level=k) for k in range(len(levels))]
        compared.append(statistics.level_shares(codes, len(levels), labels, M))
    missing = np.column_stack([~gap.known for gap in gaps])
    compared.append(statistics.missing_shares(missing, labels, M))
    return [*subjects, *gaps], Profiles(*np.concatenate(compared, axis=2))


def find_differences(
    subjects: Sequence[Subject], compared: Profiles, sizes: Ints
) -> list[list[Difference]]:
    """Return the differences of every cluster from other rows, the largest effects first."""
    # Rows without a value count as no different.
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
    content: RunContent, subjects: Sequence[Subject], numbers: Ints, rows: Ints
) -> list[list[Difference]]:
    """Return which ``numbers`` of a cluster lie between those of other rows, in the sample."""
    values, labels = content.values[np.ix_(rows, numbers)], content.labels[rows]
    found: list[list[Difference]] = [[] for _ in range(content.n_clusters)]
    for m in np.unique(labels):
        mine = labels == m
        center = np.ma.median(np.ma.masked_invalid(values[mine]), axis=0).filled(np.nan)
        apart = statistics.cluster_profiles(abs(values - center), mine.astype(int), 2)
        effects = -apart.certain[1] * apart.known[1] / mine.sum()
        others = values[~mine]
        sides = np.minimum((others < center).sum(axis=0), (others > center).sum(axis=0))
        between = (effects >= _MEDIUM_EFFECT) & (sides >= _EACH_SIDE * len(others))
        found[m] = [
            Difference(subjects[j], float(effect), medium=True)
            for j, effect in zip(numbers[between], effects[between], strict=True)
            if subjects[j].kind == "number"
        ]
    return found


class Explanation(NamedTuple):
    """Explanation of a cluster."""

    name: str  # unique
    facts: str  # its two largest differences, as row counts
    rule: Rule | None
    differences: list[Difference]
    size: int  # number of its rows

    @property
    def sentence(self) -> str:
        """The name and the facts."""
        if not self.facts and self.rule:  # starts with a column name, so keep its case
            return f"Roughly: {self.name}."
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
    """Explain every cluster; only names and facts say that a number is medium."""
    M, labels, rows = content.n_clusters, content.labels, np.arange(content.n_rows)
    sizes = np.bincount(labels, minlength=M)
    subjects, compared = compare_columns(content)
    differences = find_differences(subjects, compared, sizes)
    if len(rows) > _SOME_ROWS:  # a stratified sample, so that no cluster is left out
        drawn = np.random.default_rng(0).permutation(len(labels))
        most = max(_SOME_ROWS // M, 50)
        rows = np.concatenate([drawn[labels[drawn] == m][:most] for m in range(M)])
    numbers = strongest_first(compared.effects[:, : len(content.feature_names)])[:SOME_COLUMNS]
    rules = best_rules(subjects, numbers, rows, labels, M)
    medium = _find_medium(content, subjects, numbers, rows)
    telling = [
        sorted(some + more, key=lambda one: -abs(one.effect))
        for some, more in zip(differences, medium, strict=True)
    ]
    found = []
    for m, name in enumerate(_unique_names(telling, rules, sizes)):
        mine = labels == m
        facts = listing([_fact(one, mine, rows) for one in _clearest(telling[m])])
        found.append(Explanation(name, facts, rules[m], differences[m], int(sizes[m])))
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
    """Name clusters by two differences, more if names would clash, or by their rule."""
    parts = [[_trait(one) for one in _clearest(mine, 4)] for mine in differences]
    for mine, rule, size in zip(parts, rules, sizes, strict=True):
        if not mine:
            whole = "all rows" if size == sizes.sum() else "like the others"
            mine += rule.conditions if rule else [whole if size else "no rows"]
    names = [""] * len(parts)
    for count in (2, 3, 4):
        again = Counter(names)
        names = [
            ", ".join(mine[:count]) if again[name] > 1 or not name else name
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
        return f"{shorten(subject.column, _LONGEST // 2)} not {level}"
    if subject.kind == "time":  # on a clock, none is first
        return f"{subject.shortened(_LONGEST)} around {subject.words(share)}"
    words = {
        "level": ("less", "mostly" if share >= 0.5 else "more"),
        "date": ("early", "late"),
        "number": ("low", "high"),
    }
    word = "medium" if difference.medium else words[subject.kind][more]
    return f"{word} {subject.shortened(_LONGEST)}"


def _fact(difference: Difference, mine: Bools, rows: Ints) -> str:
    """Count the rows in the cluster, and elsewhere, for which a difference holds as a condition.

    For a number, the cuts are those that best separate a sample of the rows.
    """
    subject, cuts, ends = difference.subject, [(difference.effect > 0, 0)], [0.0, 0.0]
    if subject.measured:
        seen = rows[subject.known[rows]]
        values, places = np.unique(subject.cells[seen], return_inverse=True)
        own = mine[seen]
        # Youden's index: the true minus the false positive rate, here of all numbers below a cut.
        rates = np.where(own, 1.0 / max(own.sum(), 1), -1.0 / max((~own).sum(), 1))
        below = np.append(0.0, np.cumsum(np.bincount(places, rates)))
        if difference.medium:
            last = int(np.argmax(below - np.minimum.accumulate(below)))
            first = int(below[: last + 1].argmin())
            # An end that excludes nothing is not mentioned.
            cuts = [(True, first)] * (first > 0) + [(False, last)] * (last < len(values))
        else:
            more = difference.effect > 0
            cuts = [(more, int(below[:-1].argmin() if more else below[:-1].argmax()))]
        ends = [-np.inf, *values.tolist(), np.inf]
    parts = [subject.condition(more, *ends[cut : cut + 2]) for more, cut in cuts]
    words, known = parts[0].words, parts[0].known
    if len(parts) == 2:
        words += f" and under{parts[1].words.rpartition(' under')[2]}"
    holds = np.logical_and.reduce([part.holds for part in parts])
    n_in, n_out, known_in, known_out = (
        int((rows & side).sum()) for rows in (holds, known) for side in (mine, ~mine)
    )
    of = "rows" if known.all() else "rows in which it is known"
    return f"{words} in {n_in:,} of {known_in:,} {of} (elsewhere {n_out:,} of {known_out:,})"


def print_summary(
    model: Any,
    explanations: Sequence[Explanation],
    console: Console | None = None,
    *,
    sizes: Sizes | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print the clusters, and how they were found, except what the ``notes`` say.

    ``sizes`` are those over all rows if the model holds only some.
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
        console.print(escape(f"{m}: {found.sentence}{rule}"))
    if len(explanations) > _MOST_EXPLAINED:
        console.print(f"… and {len(explanations) - _MOST_EXPLAINED} more, all in the report.")
    support = "" if model.cluster_tendency_ is None else model.cluster_tendency_.sentence()
    if support and not any(known.startswith(support) for known in notes):  # once is enough
        console.print(escape(support))
    if (sought := model._number_of_clusters) is not None and model.n_clusters_ > 1:
        candidates = zip(sought["probability"], sought["candidates"], strict=True)
        likeliest = sorted(candidates, reverse=True)[:2]
        words = ", ".join(f"{percent(p, 0)} for {k}" for p, k in likeliest)
        if (chosen := sought["chosen"]) != likeliest[0][1]:
            words += f". {chosen} clusters should agree best with the true ones on average"
        console.print(f"Probability of the number of clusters: {words}.")
    if why := explain_vote(model._committee):
        console.print(why)
    if model.encoder_ is not None and model.encoder_.has_categories_:
        console.print("Columns were put on one scale, so that none outweighs another.")
    else:
        words, looks, other = _SCALED[model.scaler_.kind]
        was_chosen = model.scale == "auto" and model._reduction is None
        because = f": {looks}; use scale='{other}' (--scale) to change it" if was_chosen else ""
        console.print(f"{words}{because}.")
    if len(model.starts_) > 1:
        console.print(explain_choice(model.starts_))
