"""Tables and a plot of the results of ``arena.py``.

The ranks are those of the mean ARI over seeds, problem by problem, 1 for the best, ties sharing
their mean rank; only methods that ran on every problem of a group are ranked. The critical
difference is Nemenyi's at 5 %: two methods whose mean ranks differ by less cannot be told apart by
these problems (Demšar, 2006).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MEASURES = ("ari", "ece")
HEADINGS = ("method", "ARI", "ECE", "rank", "spread", "seconds")
#: Scores that differ by less count as equal.
_TIE = 5e-4


@dataclass(frozen=True)
class Column:
    """Results of one method on the problems of one group.

    ``values`` has a mean over seeds for every problem and measure; ``spread`` is the standard
    deviation of ARI over seeds, its median over problems; ``seconds`` is a median as well.
    """

    method: str
    values: dict[tuple[str, str], dict[str, float]]
    spread: float
    seconds: float
    n_failed: int

    def mean(self, measure: str) -> float:
        found = [v[measure] for v in self.values.values() if not np.isnan(v[measure])]
        return float(np.mean(found)) if found else float("nan")


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of the methods that ran on all problems, and their critical difference."""

    methods: list[str]
    ranks: Floats
    n_problems: int
    p_value: float
    critical_difference: float


def columns(lines: Iterable[dict[str, Any]], order: list[str], fixed: set[str]) -> list[Column]:
    """Return the results of each method, in the given order.

    Methods in ``fixed`` are deterministic and have no spread.
    """
    by_method: dict[str, dict[tuple[str, str], list[dict[str, Any]]]] = {m: {} for m in order}
    for line in lines:
        problem = (line["set"], line["k"])
        by_method[line["method"]].setdefault(problem, []).append(line)
    return [_column(m, fits, m in fixed) for m, fits in by_method.items() if fits]


def _column(method: str, fits: dict[tuple[str, str], list[dict[str, Any]]], fixed: bool) -> Column:
    def mean(lines: list[dict[str, Any]], measure: str) -> float:
        found = [float(line[measure]) for line in lines if line[measure]]
        return float(np.mean(found)) if found else float("nan")

    n_seeds = min(len(lines) for lines in fits.values())
    spreads = [np.std([float(line["ari"]) for line in lines]) for lines in fits.values()]
    every = [line for lines in fits.values() for line in lines]
    return Column(
        method,
        {problem: {m: mean(lines, m) for m in MEASURES} for problem, lines in fits.items()},
        0.0 if fixed else float(np.median(spreads)) if n_seeds > 1 else float("nan"),
        float(np.median([float(line["seconds"]) for line in every])),
        sum(bool(line["error"]) for line in every),
    )


def ranking(found: list[Column]) -> Ranking | None:
    """Rank the methods that ran on every problem; None if fewer than three did."""
    from scipy.stats import friedmanchisquare, rankdata

    all_problems = sorted({problem for column in found for problem in column.values})
    complete = [column for column in found if len(column.values) == len(all_problems)]
    if len(complete) < 3 or len(all_problems) < 2:
        return None
    ari = np.array([[c.values[problem]["ari"] for c in complete] for problem in all_problems])
    ari = np.round(ari, 3)
    return Ranking(
        [column.method for column in complete],
        rankdata(-ari, axis=1).mean(axis=0),
        len(all_problems),
        float(friedmanchisquare(*ari.T).pvalue),
        critical_difference(len(complete), len(all_problems)),
    )


def critical_difference(n_methods: int, n_problems: int, level: float = 0.05) -> float:
    """Return Nemenyi's critical difference of mean ranks, q/√2 √(k (k + 1) / 6N)."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1.0 - level, n_methods, np.inf))
    return q / np.sqrt(2.0) * float(np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_problems)))


# ------------------------------------------------------------------------------------- as a table


def by_group(lines: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["group"]].append(line)
    return dict(sorted(groups.items(), reverse=True))  # tables, shapes


def summarize(
    lines: list[dict[str, Any]], order: list[str], fixed: set[str], markdown: bool, n_extremes: int
) -> str:
    """Return a table for every group, the best mean ARI first.

    Under it stand the problems where the first method of the order is furthest behind and ahead.
    """
    parts = []
    for group, members in by_group(lines).items():
        found = columns(members, order, fixed)
        ranked = ranking(found)
        n_problems = max(len(column.values) for column in found)
        rows = [_cells(column, ranked, n_problems) for column in sorted(found, key=_by_ari)]
        title = f"{group.capitalize()}: {n_problems} problems"
        table = _markdown(rows) if markdown else _plain(rows)
        absent = [name for name in order if name not in {column.method for column in found}]
        remarks = _remarks(ranked) + (f" Not run yet: {'; '.join(absent)}." if absent else "")
        extremes = _extremes(found, order[0], n_extremes)
        texts = [f"**{title}**" if markdown else title, table, remarks, *extremes]
        parts.append("\n\n".join(texts))
    return "\n\n".join(parts)


def _by_ari(column: Column) -> float:
    return -column.mean("ari")


def _cells(column: Column, ranked: Ranking | None, n_problems: int) -> list[str]:
    name = column.method
    if len(column.values) < n_problems:
        name += f" ({len(column.values)} of {n_problems} problems)"
    if column.n_failed:
        name += f" ({column.n_failed} fits failed)"
    rank = "–"
    if ranked and column.method in ranked.methods:
        rank = f"{ranked.ranks[ranked.methods.index(column.method)]:.1f}"
    values = [share(column.mean(measure)) for measure in MEASURES]
    seconds = f"{column.seconds:.2g}" if column.seconds < 10 else f"{column.seconds:.0f}"
    return [name, *values, rank, share(column.spread), seconds]


def share(value: float) -> str:
    """Format a score as in the tables: .341."""
    return "–" if np.isnan(value) else f"{value:.3f}".replace("0.", ".", 1)


def _remarks(ranked: Ranking | None) -> str:
    if ranked is None:
        return "Too few methods ran on every problem to rank them."
    p = "below .001" if ranked.p_value < 0.001 else share(ranked.p_value)
    return (
        f"{len(ranked.methods)} methods are ranked. Friedman's test that all are alike: p {p}. "
        f"Nemenyi's critical difference of mean ranks at 5 %: {ranked.critical_difference:.2f}."
    )


def _extremes(found: list[Column], method: str, number: int) -> list[str]:
    """Report where a method is furthest behind and furthest ahead of the best of the others."""
    mine = next((column for column in found if column.method == method), None)
    others = [column for column in found if not column.method.startswith(method)]
    if mine is None or not others or number == 0:
        return []
    gaps = []
    for problem, values in mine.values.items():
        rivals = [(c.values[problem]["ari"], c.method) for c in others if problem in c.values]
        best, name = max(rivals)
        text = f"{problem[0]} {share(values['ari'])} ({name} {share(best)})"
        gaps.append((values["ari"] - best, text))
    gaps.sort()
    behind = [text for gap, text in gaps[:number] if gap < -_TIE]
    ahead = [text for gap, text in gaps[::-1][:number] if gap > _TIE]
    return [
        f"{method} against the best other method of each problem, ARI. "
        f"Furthest behind: {', '.join(behind) or 'nowhere'}. "
        f"Furthest ahead: {', '.join(ahead) or 'nowhere'}."
    ]


def _markdown(rows: list[list[str]]) -> str:
    rule = ["---", *("---:" for _ in HEADINGS[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [list(HEADINGS), rule, *rows])


def _plain(rows: list[list[str]]) -> str:
    table = [list(HEADINGS), *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))])
        for row in table
    )


# ----------------------------------------------------------------------------------- as a picture

_OURS, _OTHERS, _BAR = "#1f5fa8", "0.25", "0.45"


def draw_ranks(lines: list[dict[str, Any]], order: list[str], path: Path) -> None:
    """Draw the mean ranks of every group; bars join methods that do not differ."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "sgpmic"  # the same file for the same results
    import matplotlib.pyplot as plt

    groups = {g: ranking(columns(members, order, set())) for g, members in by_group(lines).items()}
    ranked = {group: found for group, found in groups.items() if found is not None}
    if not ranked:
        raise SystemExit("Too few methods ran on every problem to rank them.")
    heights = [_height(found) for found in ranked.values()]
    figure, axes = plt.subplots(
        len(ranked), 1, figsize=(8.0, 0.3 * sum(heights)), height_ratios=heights, squeeze=False
    )
    for axis, (group, found) in zip(axes[:, 0], ranked.items(), strict=True):
        _draw_group(axis, f"{group.capitalize()}, {found.n_problems} problems: mean rank", found)
    figure.subplots_adjust(left=0.02, right=0.98, top=0.98, bottom=0.02, hspace=0.05)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=130)
    plt.close(figure)


def cliques(ranks: Floats, difference: float) -> list[tuple[float, float]]:
    """Return first and last rank of the longest runs of methods that do not differ."""
    ordered = np.sort(ranks)
    found: list[tuple[float, float]] = []
    for first in ordered:
        last = float(ordered[ordered <= first + difference].max())
        if last > first and (not found or last > found[-1][1]):
            found.append((float(first), last))
    return found


def _height(found: Ranking) -> float:
    """Return how many lines of text a group takes: names, bars, scale and title."""
    bars = len(cliques(found.ranks, found.critical_difference))
    return (len(found.methods) + 1) // 2 + 0.5 * bars + 5.0


def _draw_group(axis: Any, title: str, found: Ranking) -> None:
    """Draw a scale with the critical difference above, and below it bars and names."""
    n = len(found.methods)
    bars = cliques(found.ranks, found.critical_difference)
    low, high = np.floor(found.ranks.min()), np.ceil(found.ranks.max())
    margin = 0.62 * (high - low)  # for the names on both sides
    axis.set_xlim(low - margin, high + margin)
    axis.set_ylim(-(_height(found) - 4.0), 4.0)
    axis.axis("off")
    axis.text(low - margin, 3.0, title, fontweight="bold", va="center", fontsize=10)
    axis.hlines(0.0, low, high, color="0.2", linewidth=1)
    for tick in np.arange(low, high + 1):
        axis.vlines(tick, 0.0, 0.25, color="0.2", linewidth=1)
        axis.text(tick, 0.4, f"{tick:.0f}", ha="center", va="bottom", fontsize=8)
    end = low + found.critical_difference
    axis.plot([low, low, low, end, end, end], [1.8, 2.2, 2.0, 2.0, 2.2, 1.8], color="0.2", lw=1)
    label = f"critical difference {found.critical_difference:.2f}"
    axis.text(end + 0.01 * (high - low), 2.0, "  " + label, va="center", fontsize=8, color="0.2")
    for i, (first, last) in enumerate(bars):
        axis.hlines(-0.5 * (i + 1), first, last, color=_BAR, linewidth=3)
    first_name = -0.5 * len(bars) - 1.0
    order = np.argsort(found.ranks, kind="stable")
    half = (n + 1) // 2
    for place, at in enumerate(order):
        left = place < half
        y = first_name - (place if left else n - 1 - place)
        x = low - 0.03 * (high - low) if left else high + 0.03 * (high - low)
        ours = found.methods[at].startswith("SGPMIC")
        color = _OURS if ours else _OTHERS
        axis.plot([found.ranks[at]] * 2 + [x], [0.0, y, y], color=color, linewidth=0.9)
        name, rank = found.methods[at], f"{found.ranks[at]:.1f}"
        text = f"{name}  {rank}" if left else f"{rank}  {name}"
        axis.text(x, y, f" {text} ", ha="right" if left else "left", va="center", fontsize=9,
                  color=color, fontweight="bold" if ours else "normal")  # fmt: skip
