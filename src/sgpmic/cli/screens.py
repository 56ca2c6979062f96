"""What ``sgpmic fit`` shows: what becomes of columns, how learning goes, and the clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.table import Table as ScreenTable

from sgpmic.cli.console import console, note
from sgpmic.tables.errors import shortened

if TYPE_CHECKING:
    import sgpmic
    from sgpmic.cli.results import Fit
    from sgpmic.tables.dataset import EncodedTable

MOST_SHOWN = 30
_MOST_WARNINGS = 20
_LONGEST = 44
_MOST_SIZES = 8

# Columns of the bar, where there is room for one, and of the elapsed time with its space.
_BAR, _TIME = 16, 8
_ROOM_FOR_BAR = 70


def show_columns(data: EncodedTable, most: int = MOST_SHOWN) -> None:
    """Print what becomes of every column, or of so many, and what the user should check."""
    from sgpmic.tables.columns import kind_words

    screen = ScreenTable(title="Columns", title_justify="left")
    for name in ("column", "kind", "range or levels", "missing", "what becomes of it"):
        screen.add_column(name, overflow="fold")
    for column in data.columns[:most]:
        n_missing = column["n_missing"] or 0
        share = f"{n_missing} ({100 * n_missing / max(column['n_rows'], 1):.0f} %)"
        name, kind, summary = column["name"], kind_words(column["kind"]), column["summary"]
        cells = (_short(name), kind, _short(summary), share if n_missing else "", column["becomes"])
        screen.add_row(*map(escape, cells))
    console.print(screen)
    more = len(data.columns) - most
    if more > 0:
        console.print(f"… and {more} more, all in run.json.")
    if data.judged_by is not None:
        console.print(f"Columns were judged by a sample of {data.judged_by} rows.")
    warned = [column for column in data.columns if column["warning"]]
    for column in warned[:_MOST_WARNINGS]:
        note(f"column {_short(column['name'])}: {column['warning']}.")
    if len(warned) > _MOST_WARNINGS:
        console.print(f"… and {len(warned) - _MOST_WARNINGS} more such notes, all in run.json.")


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), _LONGEST)


def show_summary(fit: Fit) -> None:
    """Print the clusters, how they were found, and where the results are."""
    from sgpmic.report.explanations import print_summary

    print_summary(fit.model, fit.explanations, console, sizes=fit.sizes, notes=fit.notes)
    if fit.comparison is not None and fit.job.is_alone:
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


class FitDisplay(Progress):
    """Progress bar of a fit, fed by callbacks (:class:`sgpmic.Progress`) and announcements."""

    def __init__(self, max_rounds: int, n_starts: int) -> None:
        line = Column(no_wrap=True, overflow="ellipsis")
        words = TextColumn("{task.description}", markup=False, table_column=line)
        columns: list[ProgressColumn] = [words, TimeElapsedColumn()]
        self._room = console.width - _TIME
        if console.width >= _ROOM_FOR_BAR:
            columns.insert(0, BarColumn(bar_width=_BAR))
            self._room -= _BAR + 1
        super().__init__(*columns, console=console)
        self._task, self._bound = self.add_task("", total=max_rounds * n_starts), ""
        self._say(["starting"])

    def _say(self, parts: Sequence[str], **more: Any) -> None:
        self.update(self._task, description=fitting(parts, self._room), **more)

    def announce(self, words: str) -> None:
        """Say what is done between rounds."""
        self._say([words, self._bound])

    def show(self, progress: sgpmic.Progress) -> None:
        """Bring the display up to date after a round."""
        total = progress.max_rounds * progress.n_starts
        done = progress.start * progress.max_rounds + progress.round
        # At most: a start may settle before its last round.
        left = (total - done) * progress.seconds / progress.round
        sizes = [f"{size:.0f}" for size in progress.cluster_sizes[:_MOST_SIZES]]
        more = " …" if len(progress.cluster_sizes) > _MOST_SIZES else ""
        several = progress.n_starts > 1
        start = f"start {progress.start + 1}/{progress.n_starts}, " if several else ""
        self._bound = f"bound {progress.bound:.6g}"
        parts = [
            f"{start}round {progress.round}/{progress.max_rounds}",
            self._bound,
            f"at most {_duration(left)} left" if left > 0 else "",
            "" if progress.change == float("inf") else f"change {progress.change:.0e}",
            f"sizes {' · '.join(sizes)}{more}",
        ]
        self._say(parts, total=total, completed=done)

    def finish(self, words: str) -> None:
        """Fill the bar."""
        self._say([f"done: {words}"], completed=self.tasks[0].total)


def fitting(parts: Sequence[str], width: int) -> str:
    """Return the first parts that fit into a line together, and the first one in any case."""
    words = parts[0]
    for part in parts[1:]:
        longer = f"{words}, {part}" if part else words
        if len(longer) > width:
            break
        words = longer
    return shortened(words, width)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
