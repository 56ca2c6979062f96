"""The comparison for a terminal, as CSV, as Markdown, and as a web page that needs no network."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files

import numpy as np
from jinja2 import Environment, StrictUndefined
from rich.table import Table
from rich.text import Text

from paper.comparison import Comparison, Entry
from paper.published import OTHER_METRIC, Cell, Row
from sgpmic.report.words import signed

_CSV_COLUMNS = (
    *("metric", "dataset", "variance_percent", "n_components", "method", "setting"),
    *("repeats", "failures", "mean", "std", "paper_mean", "paper_std", "difference"),
    *("p_value", "winner", "note"),
)

#: Characters of a terminal for the names of rows, and for a cell without and with deviations.
_NAME, _MEAN, _MEAN_AND_STD = 16, 9, 14


# ------------------------------------------------------------------------------- terminal


def as_terminal(comparison: Comparison, metric: str, width: int) -> list[Table]:
    """Return the table, in as many parts as needed for a terminal of that width.

    Every cell has our mean above the published one; deviations are shown if all methods then fit.
    """
    methods = comparison.methods
    with_std = _NAME + _MEAN_AND_STD * len(methods) <= width
    fit = max(1, (width - _NAME) // (_MEAN_AND_STD if with_std else _MEAN))
    return [
        _terminal_part(comparison, metric, methods[first : first + fit], with_std)
        for first in range(0, len(methods), fit)
    ]


def _terminal_part(
    comparison: Comparison, metric: str, methods: Sequence[str], with_std: bool
) -> Table:
    table = Table(title=f"{metric}: ours, and the paper's below", title_justify="left")
    table.add_column("data (Q)", no_wrap=True)
    for method in methods:
        table.add_column(method, justify="right", no_wrap=True)
    for row in comparison.rows:
        winners = comparison.winners(metric, row)
        cells = [
            _terminal_cell(comparison.entries.get((metric, row, m)), m in winners, with_std)
            for m in methods
        ]
        table.add_row(_row_name(comparison, row), *cells)
    table.add_section()
    means, ranks = comparison.column_means(metric), comparison.mean_ranks(metric)
    table.add_row("mean", *(_two_lines(*map(number, means[m])) for m in methods))
    table.add_row("mean rank", *(number(ranks[m]) for m in methods))
    return table


def _terminal_cell(entry: Entry | None, winner: bool, with_std: bool) -> Text:
    if entry is None:
        return Text("–")
    ours = Text(_mean_and_std(entry, with_std), style="bold green" if winner else "")
    if entry.failures:
        ours += Text("!", style="red")
    return _two_lines(ours, _mean_and_std(entry.paper, with_std) if entry.paper else "–")


def _two_lines(upper: str | Text, lower: str) -> Text:
    return Text.assemble(upper, "\n", (lower, "dim"))


def _mean_and_std(cell: Entry | Cell, with_std: bool) -> str:
    std = f"±{number(cell.std)}" if with_std and np.isfinite(cell.std) else ""
    return number(cell.mean) + std


# ------------------------------------------------------------------------------- CSV


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
                if entry is None:
                    note = comparison.missing.get(row.dataset, "not defined or not run")
                    cells = ["", 0, 0, *[""] * 7, note]
                else:
                    cells = [*_csv_cells(entry), int(method in winners), ""]
                writer.writerow([metric, *row, method, *cells])
    return buffer.getvalue().encode()


def _csv_cells(entry: Entry) -> list[str | int]:
    paper = (entry.paper.mean, entry.paper.std) if entry.paper else (np.nan, np.nan)
    numbers = (entry.mean, entry.std, *paper, entry.difference)
    return [
        entry.case.setting_words,
        entry.repeats,
        entry.failures,
        *(f"{value:.4f}" if np.isfinite(value) else "" for value in numbers),
        f"{entry.p_value:.3g}" if np.isfinite(entry.p_value) else "",
    ]


# ------------------------------------------------------------------------------- Markdown


def as_markdown(comparison: Comparison, metric: str) -> str:
    """Return a metric as a Markdown table: ours, the paper's in parentheses, the winner bold."""
    methods = comparison.methods
    means, ranks = comparison.column_means(metric), comparison.mean_ranks(metric)
    lines = [["data (Q)", *methods], ["---", *["---:"] * len(methods)]]
    for row in comparison.rows:
        winners = comparison.winners(metric, row)
        cells = [
            _markdown_cell(comparison.entries.get((metric, row, m)), m in winners) for m in methods
        ]
        lines.append([_row_name(comparison, row), *cells])
    pairs = [tuple(map(number, means[m])) for m in methods]
    lines.append(["mean", *(o if p == "–" else f"{o} ({p})" for o, p in pairs)])
    lines.append(["mean rank", *(number(ranks[m]) for m in methods)])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _markdown_cell(entry: Entry | None, winner: bool) -> str:
    if entry is None:
        return "–"
    ours = f"{entry.mean:.1f}" if np.isfinite(entry.mean) else "failed"
    ours = f"**{ours}**" if winner else ours
    return f"{ours} ({entry.paper.mean:.1f})" if entry.paper else ours


# ------------------------------------------------------------------------------- HTML


def as_html(comparison: Comparison, provenance: Mapping[str, str]) -> bytes:
    """Return the page; ``provenance`` says where the numbers come from: versions, repeats."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"number": number, "signed": signed, "p_value": p_words}
    source = files("paper").joinpath("templates/table.html").read_text(encoding="utf-8")
    page = environment.from_string(source).render(
        comparison=comparison, provenance=provenance, other_metric=OTHER_METRIC
    )
    return page.encode()


# ------------------------------------------------------------------------------- words


def number(value: float) -> str:
    """Return a number as it is printed, a dash for NaN."""
    return f"{value:.2f}" if np.isfinite(value) else "–"


def p_words(p: float) -> str:
    """Return a p-value as it is printed."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _row_name(comparison: Comparison, row: Row) -> str:
    mark = " *" if row.dataset in comparison.missing else ""
    return f"{row.dataset} {row.variance_percent}% ({row.n_components}){mark}"
