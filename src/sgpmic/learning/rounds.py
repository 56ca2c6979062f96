"""From a table and a start to a fitted state: the loop over rounds of EM.

Everything between two rounds happens here, on the host: recording, stopping, telling callbacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import jax
import numpy as np
from numpy.typing import NDArray

from sgpmic._runtime import with_numerics
from sgpmic.kernels import Kernel, stack
from sgpmic.learning.em import Options, RoundInfo, State, em_round, first_state
from sgpmic.learning.minibatch import make_epoch
from sgpmic.learning.snapshots import Outcome
from sgpmic.learning.start_values import StartValues
from sgpmic.model.rows import Rows
from sgpmic.parallel.group import ProcessGroup

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Progress:
    """What a callback is told after every round.

    Attributes
    ----------
    start, n_starts : int
        Which start this is (from 0), and how many there are.
    round, max_rounds : int
        Which round has just ended (from 1), and how many there may be.
    bound : float
        The objective: the KL-corrected bound, in the units of the data, plus the log of the
        conjugate prior.
    change : float
        Its relative change over the round; infinite after the first.
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
    _labels: Callable[[], NDArray[np.int64]] = field(repr=False, compare=False)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The most probable cluster of every row, numbered as ``cluster_sizes`` is.

        Computed when asked for: it takes a copy of all memberships. Of several processes, each
        has the labels of its own rows.
        """
        return self._labels()


#: A callback may return True to end the start it is told about.
Callback = Callable[[Progress], object]


@with_numerics
def initial_state(
    values: StartValues,
    kernels: Sequence[Kernel],
    beta: float,
    rows: Rows,
    group: ProcessGroup,
    options: Options,
    strength: float,
) -> State:
    """Return the EM state of a start."""
    X, S = (group.lay_out(a, rows) for a in (values.X, values.S))
    # As NumPy arrays, small ones may go to any device.
    small = (values.Z, jax.tree.map(np.asarray, stack(kernels)), np.asarray(beta))
    state: State = first_state(X, *small, S, rows, options, strength)
    return state


@with_numerics
def run_rounds(
    outcome: Outcome,
    rows: Rows,
    group: ProcessGroup,
    options: Options,
    *,
    max_rounds: int,
    tolerance: float,
    constant: float,
    callbacks: Sequence[Callback],
    start: int,
    n_starts: int,
    seed: int,
    keep: Callable[[], None] = lambda: None,
) -> None:
    """Make rounds of EM, or epochs over batches, until the objective settles.

    Parameters
    ----------
    outcome : Outcome
        Where the start is, at its beginning or after some rounds; brought up to date in place.
    rows : Rows
    group : ProcessGroup
    options : Options
    max_rounds : int
    tolerance : float
        Stop when a round raises the objective by less than this share of the larger of its
        magnitude, for the scaled data, and the number of rows. 0 never stops early.
    constant : float
        Added to every bound that is reported (the units of the data).
    callbacks : sequence of callables
    start, n_starts : int
        For the progress that callbacks are told.
    seed : int
        Of the order in which batches are drawn.
    keep : callable
        Called after every round, when ``outcome`` is up to date.
    """
    made = len(outcome.history)
    began = time.perf_counter() - (outcome.history[-1]["seconds"] if made else 0.0)
    for number in range(made + 1, max_rounds + 1):
        if outcome.ended:
            break
        if options.batch_size is None:
            new_state, info = em_round(outcome.state, rows, options)
        else:
            new_state, info = make_epoch(
                outcome.state, rows, options, n_rows=group.n_rows, seed=seed, number=number
            )
        record = _record(info, number, start, constant)
        record["seconds"] = time.perf_counter() - began
        if not (np.isfinite(record["bound"]) and bool(info.finite)):
            outcome.broke_off = outcome.ended = True
            break
        # Held against the bound of the scaled data, so that units do not decide when to stop; and
        # against the number of rows where that bound is close to 0.
        magnitude = max(group.n_rows, abs(record["bound"] - constant))
        change = abs(record["bound"] - outcome.bound) / magnitude
        outcome.state, outcome.bound = new_state, record["bound"]
        outcome.history.append(record)
        progress = Progress(
            start=start,
            n_starts=n_starts,
            round=number,
            max_rounds=max_rounds,
            bound=record["bound"],
            change=float("inf") if np.isnan(change) else change,
            cluster_sizes=np.asarray(info.cluster_sizes),
            seconds=record["seconds"],
            _labels=partial(_labels_in, new_state, group),
        )
        # All callbacks are told, also when an earlier one asks to stop.
        answers = [callback(progress) for callback in callbacks]
        stop = [isinstance(a, (bool, np.bool_)) and bool(a) for a in answers]
        outcome.converged = bool(tolerance > 0 and change <= tolerance)
        # What one process is asked to do all have to, or the others would wait for ever.
        asked_to_stop = group.largest(float(any(stop))) > 0
        outcome.ended = outcome.converged or asked_to_stop or number == max_rounds
        keep()


def _record(info: RoundInfo, number: int, start: int, constant: float) -> dict[str, float]:
    return {
        "start": start,
        "round": number,
        "bound_after_e": float(info.bound_after_e) + constant,
        "bound": float(info.bound) + constant,
        "log_prior": float(info.prior),
        "e_steps": int(info.e_steps),
        "m_steps": int(info.m_steps),
        "evaluations": int(info.evaluations),
        "largest_change": float(info.largest_change),
        "jitter": float(info.jitter),
    }


def _labels_in(state: State, group: ProcessGroup) -> NDArray[np.int64]:
    labels: NDArray[np.int64] = group.own_rows(state.S).argmax(axis=1)
    return labels
