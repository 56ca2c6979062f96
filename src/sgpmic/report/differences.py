"""What sets a cluster apart, in the words of the table: numbers, levels and missing cells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sgpmic.report.content import RunContent
from sgpmic.report.statistics import Profiles, Shares, level_shares, missing_shares
from sgpmic.report.words import day, number, percent, shorten

#: An effect smaller than this does not set a cluster apart (Cohen's "small", for d and for h).
SMALL_EFFECT = 0.2


class Difference(NamedTuple):
    """One thing in which a cluster differs from all other rows."""

    name: str  # a column, a level ("colour: red"), or a gap ("colour is missing")
    effect: float  # Cohen's d of a number, Cohen's h of a share
    inside: str  # the mean, or the share, in the cluster
    outside: str  # and elsewhere
    column: str  # that it is about


def find_differences(content: RunContent, profiles: Profiles) -> list[list[Difference]]:
    """Return what sets every cluster apart, the largest effects first."""
    M = content.n_clusters
    found: list[list[Difference]] = [[] for _ in range(M)]
    for j, name in enumerate(content.feature_names):
        for m in range(M):
            means = profiles.means[m, j], profiles.outside[m, j]
            inside, outside = (_value(content, name, float(mean)) for mean in means)
            effect = float(profiles.effects[m, j])
            found[m].append(Difference(name, effect, inside, outside, name))
    for column in content.categories:
        shares = level_shares(column.codes, len(column.levels), content.labels, M)
        names = [f"{column.name}: {level}" for level in column.levels]
        _add_shares(found, names, [column.name] * len(names), shares, only_more=len(names) == 2)
    missing = [np.isnan(content.values), *(c.codes[:, None] < 0 for c in content.categories)]
    names = [*content.feature_names, *(column.name for column in content.categories)]
    shares = missing_shares(np.concatenate(missing, axis=1), content.labels, M)
    _add_shares(found, [f"{name} is missing" for name in names], names, shares)
    for differences in found:
        differences[:] = [one for one in differences if abs(one.effect) >= SMALL_EFFECT]
        differences.sort(key=lambda one: -abs(one.effect))
    return found


def _value(content: RunContent, name: str, value: float) -> str:
    if name in content.dates:
        return day(value)
    # Whole thousands rather than powers of ten.
    return number(round(value)) if 1e3 <= abs(value) < 1e7 else number(value, 3)


def _add_shares(
    found: list[list[Difference]],
    names: list[str],
    columns: list[str],
    shares: Shares,
    only_more: bool = False,
) -> None:
    """Add shares; of two levels only the one that is over-represented: the other says the same."""
    for m, differences in enumerate(found):
        for k, name in enumerate(names):
            effect = float(shares.effects[m, k])
            if effect < 0 and only_more:
                continue
            inside, outside = (percent(float(s[m, k])) for s in (shares.inside, shares.outside))
            differences.append(Difference(name, effect, inside, outside, columns[k]))


def shortened(difference: Difference, longest: int) -> str:
    """Return a difference's name, the level kept readable where the column's name is long."""
    name, column = difference.name, difference.column
    if len(name) <= longest or not name.startswith(column):
        return shorten(name, longest)
    rest = shorten(name[len(column) :], max(longest // 2, 1))
    gap = " " if name[len(column) :].startswith(" ") else ""
    return shorten(column, max(longest - len(rest), 2)) + gap + rest
