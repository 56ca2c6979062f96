"""What a user should know about a fit, as warnings: what happened and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from sgpmic.exceptions import ConvergenceWarning, DeadClusterWarning, JitterWarning, StartWarning
from sgpmic.learning.snapshots import Outcome


def advice(
    outcome: Outcome,
    empty: int,
    raised_jitter: float,
    *,
    n_clusters: int,
    jitter: float,
    tol: float,
    max_iter: int,
) -> Iterator[tuple[type[Warning], str]]:
    """Yield the warnings that a fit deserves.

    Parameters
    ----------
    outcome : Outcome
        The fit that is kept.
    empty : int
        Clusters that no row belongs to.
    raised_jitter : float
        The largest relative jitter that was needed.
    n_clusters, jitter, tol, max_iter
        What the user asked for.
    """
    for note in outcome.notes:
        yield StartWarning, note
    if empty:
        yield (
            DeadClusterWarning,
            f"{empty} of {n_clusters} clusters ended without rows; fewer clusters, other starts "
            "(n_init) or a stronger prior (prior_strength) may suit the data.",
        )
    if raised_jitter > jitter:
        yield (
            JitterWarning,
            f"A kernel matrix was close to singular: its jitter was raised from {jitter:g} to "
            f"{raised_jitter:g}. Fewer inducing points may help.",
        )
    rounds = len(outcome.history)
    if outcome.broke_off:
        yield (
            ConvergenceWarning,
            f"Round {rounds + 1} gave numbers that are not finite; the model is that of round "
            f"{rounds}.",
        )
    elif tol > 0 and not outcome.converged and rounds == max_iter:
        yield (
            ConvergenceWarning,
            f"The bound was still rising after {rounds} rounds; raise max_iter, or tol if that "
            "is good enough.",
        )
