"""What sets a cluster apart, in the words of the table: numbers, levels and missing cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sgpmic.report.content import RunContent
from sgpmic.report.statistics import Profiles, Shares, level_shares, missing_shares
from sgpmic.report.words import day, number, percent, shorten

#: An effect smaller than this does not set a cluster apart (Cohen's "small", for d and for h).
SMALL_EFFECT = 0.2


class Subject(NamedTuple):
    """What a difference is about."""

    name: str  # a column, a level ("color: red"), or a gap ("color is missing")
    column: str
    kind: str  # "number", "level" or "gap"
    source: int  # the place of the column: numbers come first, then categories
    level: int = 0  # the place of the level, if it is one


class Difference(NamedTuple):
    """One thing in which a cluster differs from all other rows."""

    subject: Subject
    effect: float  # as much of Cohen's d of a number, or h of a share, as is certain
    means: tuple[float, float]  # the mean, or the share, in the cluster and elsewhere
    inside: str  # in words
    outside: str
    known: int  # rows of the cluster that have a value

    @property
    def name(self) -> str:
        """What it is called."""
        return self.subject.name


def find_differences(content: RunContent, profiles: Profiles) -> list[list[Difference]]:
    """Return what sets every cluster apart, the largest effects first.

    An effect is the end of its confidence interval that is nearer to 0, times the share of the
    cluster's rows in which the value is known: rows without one count as no different.
    """
    M, p = content.n_clusters, len(content.feature_names)
    found: list[list[Difference]] = [[] for _ in range(M)]
    sizes = np.maximum(np.bincount(content.labels, minlength=M), 1)[:, None]
    effects = profiles.certain * profiles.known / sizes
    for m, j in np.argwhere(abs(effects) >= SMALL_EFFECT):
        name = content.feature_names[j]
        means = float(profiles.means[m, j]), float(profiles.outside[m, j])
        inside, outside = (_value(content, name, mean) for mean in means)
        subject, known = Subject(name, name, "number", int(j)), int(profiles.known[m, j])
        found[m].append(Difference(subject, float(effects[m, j]), means, inside, outside, known))
    for source, column in enumerate(content.categories, start=p):
        shares = level_shares(column.codes, len(column.levels), content.labels, M)
        certain = shares.certain * shares.known / sizes
        if len(column.levels) == 2:  # the one that is under-represented says the same
            certain = np.maximum(certain, 0.0)
        names = [f"{column.name}: {level}" for level in column.levels]
        subjects = [Subject(n, column.name, "level", source, k) for k, n in enumerate(names)]
        _add_shares(found, subjects, shares._replace(certain=certain))
    missing = [np.isnan(content.values), *(c.codes[:, None] < 0 for c in content.categories)]
    names = [*content.feature_names, *(column.name for column in content.categories)]
    shares = missing_shares(np.concatenate(missing, axis=1), content.labels, M)
    subjects = [Subject(f"{n} is missing", n, "gap", source) for source, n in enumerate(names)]
    _add_shares(found, subjects, shares)
    for differences in found:
        differences.sort(key=lambda one: -abs(one.effect))
    return found


def _add_shares(found: list[list[Difference]], subjects: Sequence[Subject], shares: Shares) -> None:
    """Add shares that set a cluster apart."""
    for m, k in np.argwhere(abs(shares.certain) >= SMALL_EFFECT):
        means = float(shares.inside[m, k]), float(shares.outside[m, k])
        inside, outside = map(percent, means)
        effect, known = float(shares.certain[m, k]), int(shares.known[m, k])
        found[m].append(Difference(subjects[k], effect, means, inside, outside, known))


def _value(content: RunContent, name: str, value: float) -> str:
    if name in content.dates:
        return day(value)
    # Whole thousands rather than powers of ten.
    return number(round(value)) if 1e3 <= abs(value) < 1e7 else number(value, 3)


def shortened(difference: Difference, longest: int) -> str:
    """Return a difference's name, the level kept readable where the column's name is long."""
    name, column = difference.subject[:2]
    if len(name) <= longest or not name.startswith(column):
        return shorten(name, longest)
    rest = shorten(name[len(column) :], max(longest // 2, 1))
    gap = " " if name[len(column) :].startswith(" ") else ""
    return shorten(column, max(longest - len(rest), 2)) + gap + rest
