"""What callbacks are told after every iteration, and what is announced before the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from sgpmic._types import Floats, Ints


@dataclass(frozen=True)
class Progress:
    """What a callback is told after every iteration.

    Attributes
    ----------
    start, n_starts : int
        Which start this is (from 0), and how many there are.
    round, max_rounds : int
        Which iteration has just ended (from 1), and how many there may be.
    bound : float
        The objective: the KL-corrected bound, in the units of the data, plus the log of the
        conjugate prior.
    change : float
        Its relative change over the iteration; infinite after the first.
    cluster_sizes : ndarray of shape (n_clusters,)
        Expected number of rows in every cluster.
    seconds : float
        Since this start began.
    """

    start: int
    n_starts: int
    round: int
    max_rounds: int
    bound: float
    change: float
    cluster_sizes: Floats
    seconds: float
    _labels: Callable[[], Ints] = field(repr=False, compare=False)

    @property
    def labels(self) -> Ints:
        """The most probable cluster of every row, numbered as ``cluster_sizes`` is.

        Computed when asked for: it takes a copy of all memberships. Of several processes, each
        has the labels of its own rows.
        """
        return self._labels()


#: A callback may return True to end the start it is told about.
Callback = Callable[[Progress], object]


#: Is told what is being done, in a few words.
Listener = Callable[[str], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Let a function hear what learning is doing: what comes before the iterations takes a while.

    None for silence, where a fit is part of another one.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def announce(words: str) -> None:
    """Tell the listener, if there is one, what is done next."""
    listener = _listener.get()
    if listener is not None:
        listener(words)


def print_progress(progress: Progress) -> None:
    """Print a line for an iteration."""
    sizes = " ".join(f"{size:.0f}" for size in progress.cluster_sizes)
    print(
        f"start {progress.start + 1}/{progress.n_starts}  round {progress.round}"
        f"/{progress.max_rounds}  bound {progress.bound:.4f}  change {progress.change:.1e}  "
        f"clusters {sizes}  {progress.seconds:.1f} s",
        flush=True,
    )
