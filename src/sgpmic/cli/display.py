"""A live view of learning in one line: what is done, bound, change, sizes, time left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from sgpmic.cli.console import console
from sgpmic.tables.errors import shortened

if TYPE_CHECKING:
    import sgpmic

_MOST_SIZES = 8

# Columns of the bar, where there is room for one, and of the elapsed time with its space.
_BAR, _TIME = 16, 8
_ROOM_FOR_BAR = 70


class FitDisplay(Progress):
    """Progress bar of a fit, fed by callbacks (:class:`sgpmic.Progress`) and announcements."""

    def __init__(self, max_rounds: int, n_starts: int) -> None:
        columns: list[ProgressColumn] = [_Words(), TimeElapsedColumn()]
        room = console.width - _TIME
        if console.width >= _ROOM_FOR_BAR:
            columns.insert(0, BarColumn(bar_width=_BAR))
            room -= _BAR + 1
        super().__init__(*columns, console=console)
        self._task = self.add_task("", total=max_rounds * n_starts, parts=["beginning"], room=room)

    def announce(self, words: str) -> None:
        """Say what is done between rounds."""
        n_done = self.tasks[0].completed
        parts = [words] if not n_done else [words, *self.tasks[0].fields["parts"][1:2]]
        self.update(self._task, parts=parts)

    def show(self, progress: sgpmic.Progress) -> None:
        """Bring the display up to date after a round."""
        total = progress.max_rounds * progress.n_starts
        done = progress.start * progress.max_rounds + progress.round
        # At most: a start may settle before its last round.
        left = (total - done) * progress.seconds / progress.round
        sizes = [f"{size:.0f}" for size in progress.cluster_sizes[:_MOST_SIZES]]
        more = " …" if len(progress.cluster_sizes) > _MOST_SIZES else ""
        n_starts = progress.n_starts
        start = f"start {progress.start + 1}/{n_starts}, " if n_starts > 1 else ""
        is_first = progress.change == float("inf")
        parts = [
            f"{start}round {progress.round}/{progress.max_rounds}",
            f"bound {progress.bound:.6g}",
            f"at most {_duration(left)} left" if left > 0 else "",
            "" if is_first else f"change {progress.change:.0e}",
            f"sizes {' · '.join(sizes)}{more}",
        ]
        self.update(self._task, total=total, completed=done, parts=parts)

    def finish(self, words: str) -> None:
        """Fill the bar."""
        self.update(self._task, completed=self.tasks[0].total, parts=[f"done: {words}"])


class _Words(ProgressColumn):
    """What is going on, as much of it as fits into a line."""

    def render(self, task: Task) -> RenderableType:
        words = fitting(task.fields["parts"], task.fields["room"])
        return Text(words, no_wrap=True, overflow="ellipsis")


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
