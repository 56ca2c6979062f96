"""The comparison as a terminal table, as CSV and as a web page that needs no network."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from rich.table import Table
from rich.text import Text

from sgpmic.paper.comparison import Comparison, Entry, Paired
from sgpmic.paper.published import OTHER_METRIC, Row

#: A difference from the paper that the two sets of repeats do not explain.
SIGNIFICANT = 0.01

_CSV_COLUMNS = (
    *("metric", "dataset", "variance_percent", "n_components", "method", "setting"),
    *("repeats", "failures", "mean", "std", "paper_mean", "paper_std", "difference"),
    *("p_value", "winner", "note"),
)

_LABEL_WIDTH, _NARROW, _WIDE = 16, 9, 14


def as_terminal(comparison: Comparison, metric: str, width: int) -> list[Table]:
    """Return one table, or several side by side columns of it, that fit a terminal.

    Every cell has our mean above the printed one; deviations are shown where there is room.
    """
    wide = _LABEL_WIDTH + _WIDE * len(comparison.methods) <= width
    fit = max(1, (width - _LABEL_WIDTH) // (_WIDE if wide else _NARROW))
    parts = range(0, len(comparison.methods), fit)
    return [
        _terminal_part(comparison, metric, comparison.methods[first : first + fit], wide)
        for first in parts
    ]


def _terminal_part(
    comparison: Comparison, metric: str, methods: Sequence[str], wide: bool
) -> Table:
    table = Table(title=f"{metric}: ours, and the paper's below", title_justify="left")
    table.add_column("data (Q)", no_wrap=True)
    for method in methods:
        table.add_column(method, justify="right", no_wrap=True)
    ranks = comparison.mean_ranks(metric)
    for row in comparison.rows:
        winners = comparison.winners(metric, row)
        cells = []
        for method in methods:
            entry = comparison.entries.get((metric, row, method))
            cells.append(_terminal_cell(entry, method in winners, wide))
        table.add_row(_row_name(row) + _row_mark(comparison, row), *cells)
    table.add_section()
    means = comparison.column_means(metric)
    pairs = [means[method] for method in methods]
    table.add_row("mean", *(Text(f"{_number(o)}\n") + _dim(_number(p)) for o, p, _ in pairs))
    table.add_row("mean rank", *(_number(ranks[method]) for method in methods))
    return table


def _terminal_cell(entry: Entry | None, winner: bool, wide: bool) -> Text:
    if entry is None:
        return Text("–")
    ours = Text(_spread(entry.mean, entry.std, wide), style="bold green" if winner else "")
    if entry.failures:
        ours += Text("!", style="red")
    paper = _spread(entry.paper.mean, entry.paper.std, wide) if entry.paper else "–"
    return ours + Text("\n") + _dim(paper)


def _dim(words: str) -> Text:
    return Text(words, style="dim")


def _spread(mean: float, std: float, wide: bool) -> str:
    return f"{_number(mean)}±{_number(std)}" if wide and np.isfinite(std) else _number(mean)


def _number(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "–"


def _row_name(row: Row) -> str:
    return f"{row.dataset} {row.variance_percent}% ({row.n_components})"


def _row_mark(comparison: Comparison, row: Row) -> str:
    return " *" if row.dataset in comparison.missing else ""


def as_csv(comparison: Comparison) -> bytes:
    """Return every cell of every metric as a line of CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for metric in comparison.metrics:
        for row in comparison.rows:
            winners = comparison.winners(metric, row)
            for method in comparison.methods:
                entry = comparison.entries.get((metric, row, method))
                start = [metric, *row, method]
                if entry is None:
                    note = comparison.missing.get(row.dataset, "not defined or not run")
                    writer.writerow([*start, "", 0, 0, *[""] * 7, note])
                    continue
                paper = (entry.paper.mean, entry.paper.std) if entry.paper else (np.nan, np.nan)
                numbers = (entry.mean, entry.std, *paper, entry.difference)
                writer.writerow(
                    [
                        *start,
                        setting_words(entry.setting),
                        entry.repeats,
                        entry.failures,
                        *(f"{v:.4f}" if np.isfinite(v) else "" for v in numbers),
                        f"{entry.p_value:.3g}" if np.isfinite(entry.p_value) else "",
                        int(method in winners),
                        "",
                    ]
                )
    return buffer.getvalue().encode()


def as_markdown(comparison: Comparison, metric: str) -> str:
    """Return a metric as a Markdown table: ours, the paper's in brackets, the winner bold."""
    lines = [
        "| data (Q) | " + " | ".join(comparison.methods) + " |",
        "| --- |" + " ---: |" * len(comparison.methods),
    ]
    for row in comparison.rows:
        winners = comparison.winners(metric, row)
        cells = []
        for method in comparison.methods:
            entry = comparison.entries.get((metric, row, method))
            if entry is None:
                cells.append("–")
                continue
            ours = f"**{entry.mean:.1f}**" if method in winners else _short(entry.mean)
            cells.append(f"{ours} ({entry.paper.mean:.1f})" if entry.paper else ours)
        lines.append(
            f"| {_row_name(row)}{_row_mark(comparison, row)} | " + " | ".join(cells) + " |"
        )
    means = comparison.column_means(metric)
    pairs = [means[method][:2] for method in comparison.methods]
    lines.append(
        "| mean | "
        + " | ".join(f"{_number(o)} ({_number(p)})" if p == p else _number(o) for o, p in pairs)
        + " |"
    )
    ranks = comparison.mean_ranks(metric)
    lines.append(
        "| mean rank | " + " | ".join(_number(ranks[m]) for m in comparison.methods) + " |"
    )
    return "\n".join(lines) + "\n"


def _short(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "failed"


def setting_words(setting: Sequence[tuple[str, float]]) -> str:
    """Return a place in a tuning grid as words: ``penalty=0.1``."""
    return " ".join(f"{name}={value:g}" for name, value in setting)


def as_html(comparison: Comparison, provenance: Mapping[str, str]) -> bytes:
    """Return the page.

    Parameters
    ----------
    comparison : Comparison
    provenance : mapping of str to str
        What to say about where the numbers come from: versions, repeats, commit.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(
        files("sgpmic.paper").joinpath("templates/table.html").read_text(encoding="utf-8")
    )
    page = template.render(
        metrics=[_html_metric(comparison, metric) for metric in comparison.metrics],
        methods=comparison.methods,
        missing=comparison.missing,
        failures=comparison.failures,
        provenance=provenance,
        other_metric=OTHER_METRIC,
    )
    return page.encode()


def _html_metric(comparison: Comparison, metric: str) -> dict[str, Any]:
    lines = []
    previous = None
    for row in comparison.rows:
        winners = comparison.winners(metric, row)
        cells = [
            _html_cell(comparison.entries.get((metric, row, method)), method in winners)
            for method in comparison.methods
        ]
        lines.append(
            {
                "dataset": row.dataset,
                "first": row.dataset != previous,
                "percent": row.variance_percent,
                "components": row.n_components,
                "missing": row.dataset in comparison.missing,
                "cells": cells,
            }
        )
        previous = row.dataset
    means = comparison.column_means(metric)
    ranks = comparison.mean_ranks(metric)
    return {
        "name": metric,
        "anchor": metric.lower().replace(" ", "-"),
        "lines": lines,
        "means": [tuple(map(_number, means[m][:2])) for m in comparison.methods],
        "ranks": [_number(ranks[m]) for m in comparison.methods],
        "tests": [_html_test(test) for test in comparison.paired_tests(metric)],
    }


def _html_cell(entry: Entry | None, winner: bool) -> dict[str, Any] | None:
    if entry is None:
        return None
    differs = entry.p_value < SIGNIFICANT and abs(entry.difference) >= 1.0
    direction = ("over" if entry.difference > 0 else "under") if differs else ""
    return {
        "mean": _number(entry.mean),
        "std": _number(entry.std),
        "paper": f"{entry.paper.mean:.2f}±{entry.paper.std:.2f}" if entry.paper else "",
        "winner": winner,
        "paper_winner": bool(entry.paper and entry.paper.bold),
        "difference": f"{entry.difference:+.1f}".replace("-", "−") if differs else "",
        "direction": direction,
        "setting": setting_words(entry.setting),
        "failures": entry.failures,
    }


def _html_test(test: Paired) -> dict[str, str]:
    return {
        "ours": test.ours,
        "other": test.other,
        "rows": str(test.rows),
        "difference": f"{test.mean_difference:+.2f}".replace("-", "−"),
        "p": p_words(test.p_value),
        "holm": p_words(test.p_holm),
    }


def p_words(p: float) -> str:
    """Return a p-value as it is printed."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
