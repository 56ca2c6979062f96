"""The table of columns: what each was taken for, and what becomes of it."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table as ScreenTable

from sgpmic.cli.console import console
from sgpmic.cli.reading import EncodedTable
from sgpmic.tables.description import kind_words
from sgpmic.tables.errors import shortened

_MOST_SHOWN = 30
_MOST_WARNINGS = 20
_LONGEST = 44


def show_columns(data: EncodedTable) -> None:
    """Print what becomes of every column, and what their owner should look at."""
    screen = ScreenTable(title="Columns", title_justify="left")
    for name in ("column", "kind", "range or levels", "missing", "what becomes of it"):
        screen.add_column(name, overflow="fold")
    for column in data.columns[:_MOST_SHOWN]:
        screen.add_row(*map(escape, _row(column)))
    console.print(screen)
    more = len(data.columns) - _MOST_SHOWN
    if more > 0:
        console.print(f"… and {more} more, all in run.json.")
    if data.judged_by is not None:
        console.print(f"Columns were judged by {data.judged_by} rows from all over the table.")
    warned = [column for column in data.columns if column["warning"]]
    for column in warned[:_MOST_WARNINGS]:
        console.print(
            f"[yellow]Note:[/] column {escape(_short(column['name']))}: "
            f"{escape(column['warning'])}."
        )
    if len(warned) > _MOST_WARNINGS:
        console.print(f"… and {len(warned) - _MOST_WARNINGS} more such notes, all in run.json.")


def _row(column: dict[str, Any]) -> tuple[str, ...]:
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
