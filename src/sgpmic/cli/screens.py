"""The tables that ``sgpmic fit`` prints: what becomes of columns, and at the end the clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape
from rich.table import Table as ScreenTable

from sgpmic.cli.console import console, note
from sgpmic.tables.errors import shortened

if TYPE_CHECKING:
    from sgpmic.cli.results import Fit
    from sgpmic.tables.dataset import EncodedTable

MOST_SHOWN = 30
_MOST_WARNINGS = 20
_LONGEST = 44


def show_columns(data: EncodedTable, most: int = MOST_SHOWN) -> None:
    """Print what becomes of every column, or of so many, and what the user should check."""
    screen = ScreenTable(title="Columns", title_justify="left")
    for name in ("column", "kind", "range or levels", "missing", "what becomes of it"):
        screen.add_column(name, overflow="fold")
    for column in data.columns[:most]:
        screen.add_row(*map(escape, _row(column)))
    console.print(screen)
    more = len(data.columns) - most
    if more > 0:
        console.print(f"… and {more} more, all in run.json.")
    if data.judged_by is not None:
        console.print(f"Columns were judged by {data.judged_by} rows from all over the table.")
    warned = [column for column in data.columns if column["warning"]]
    for column in warned[:_MOST_WARNINGS]:
        note(f"column {_short(column['name'])}: {column['warning']}.")
    if len(warned) > _MOST_WARNINGS:
        console.print(f"… and {len(warned) - _MOST_WARNINGS} more such notes, all in run.json.")


def _row(column: dict[str, Any]) -> tuple[str, ...]:
    from sgpmic.tables.columns import kind_words

    n_missing = column["n_missing"] or 0
    share = f"{n_missing} ({100 * n_missing / max(column['n_rows'], 1):.0f} %)"
    return (
        _short(column["name"]),
        kind_words(column["kind"]),
        _short(column["summary"]),
        share if n_missing else "",
        column["becomes"],
    )


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _LONGEST)


def show_summary(fit: Fit) -> None:
    """Print the clusters, how they were found, and where the results are."""
    from sgpmic.report.statistics import Sizes
    from sgpmic.report.summary import print_summary

    job, model = fit.job, fit.model
    counts = np.array(job.sizes(model))
    sums = np.bincount(model.labels_, weights=model.memberships_.max(axis=1), minlength=len(counts))
    with np.errstate(invalid="ignore"):
        certainty = job.group.total(sums) / counts
    print_summary(
        model,
        fit.explanations,
        console,
        sizes=Sizes(counts, counts / job.group.n_rows, certainty),
        is_mixed=fit.data.is_mixed,
        notes=fit.notes,
    )
    if fit.comparison is not None and job.is_alone:
        _show_comparison(fit.comparison)
    for sentence in fit.notes:
        note(sentence)
    path = escape(str(fit.folder.path))
    console.print(f"Written to {path}: labels.csv, model.sgpmic, report.html, run.json")


def _show_comparison(comparison: dict[str, Any]) -> None:
    """Print the clusters compared with the label, which was not used."""
    label = escape(str(comparison["label"]))
    if comparison["kind"] == "classes":
        console.print(
            f"Agreement with {label}, which was not used: adjusted Rand index "
            f"{comparison['adjusted_rand_index']:.2f}"
        )
        return
    eta = comparison["eta_squared"]
    console.print(
        f"{label} is a continuous number, so it is not compared as classes; the clusters explain "
        f"{'nothing' if eta is None else f'{eta:.2f}'} of its variance (eta²)."
    )
    screen = ScreenTable()
    for name in ("cluster", f"mean {label}", "standard deviation"):
        screen.add_column(name, justify="right")
    for m, summary in enumerate(comparison["clusters"]):
        numbers = (summary["mean"], summary["standard_deviation"])
        screen.add_row(str(m), *("–" if number is None else f"{number:.4g}" for number in numbers))
    console.print(screen)
