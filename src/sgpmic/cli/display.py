"""A live view of learning: start, round, bound, change, cluster sizes, time left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sgpmic.cli.console import console

if TYPE_CHECKING:
    import sgpmic

_MOST_SIZES = 8


class FitDisplay(Progress):
    """Shows what callbacks are told (:class:`sgpmic.Progress`).

    Parameters
    ----------
    max_rounds, n_starts : int
    """

    def __init__(self, max_rounds: int, n_starts: int) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )
        self._task = self.add_task(
            "compiling", total=max_rounds * n_starts, words=f"round 0/{max_rounds}", left=""
        )

    def show(self, progress: sgpmic.Progress) -> None:
        """Bring the display up to date."""
        total = progress.max_rounds * progress.n_starts
        done = progress.start * progress.max_rounds + progress.round
        # At most: a start may settle before its last round.
        left = (total - done) * progress.seconds / progress.round
        sizes = [f"{size:.0f}" for size in progress.cluster_sizes[:_MOST_SIZES]]
        more = " …" if len(progress.cluster_sizes) > _MOST_SIZES else ""
        change = "" if progress.change == float("inf") else f" (change {progress.change:.1e})"
        n_starts = progress.n_starts
        start = f"start {progress.start + 1}/{n_starts}, " if n_starts > 1 else ""
        self.update(
            self._task,
            description="learning",
            total=total,
            completed=done,
            words=f"{start}round {progress.round}/{progress.max_rounds}, "
            f"bound {progress.bound:.2f}{change}, sizes {' · '.join(sizes)}{more}",
            left=f"at most {_duration(left)} left",
        )

    def finish(self, words: str) -> None:
        """Fill the bar."""
        total = self.tasks[0].total
        self.update(self._task, description="done", completed=total, words=words, left="")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
