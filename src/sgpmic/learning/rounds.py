"""The loop over rounds of EM from one start.

Everything between two rounds happens here, on the host: recording, stopping, telling callbacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np

from sgpmic._runtime import with_numerics
from sgpmic._types import Ints
from sgpmic.learning.em import IterationInfo, State, em_iteration
from sgpmic.learning.minibatch import draw_batches, epoch
from sgpmic.learning.options import Limits, Options
from sgpmic.learning.progress import Callback, Progress, announce
from sgpmic.learning.snapshots import Outcome
from sgpmic.model.rows import Rows
from sgpmic.process_group import ProcessGroup


@dataclass(frozen=True)
class Loop:
    """What is the same for the rounds of all starts."""

    rows: Rows
    group: ProcessGroup
    limits: Limits
    options: Options
    n_clusters: int  # without padding
    batch_size: int | None  # None makes rounds of full EM
    max_iter: int
    tol: float
    constant: float  # added to every bound that is reported (the units of the data)
    callbacks: Sequence[Callback]

    def make_round(self, state: State, number: int, seed: int) -> tuple[State, IterationInfo]:
        """Make round ``number`` (from 1) of a start with this seed."""
        if self.batch_size is None:
            return em_iteration(state, self.rows, self.limits, self.options)
        numbers = draw_batches(self.group.n_rows, self.batch_size, self.rows.n_padded, seed, number)
        first = jnp.asarray(number == 1)
        return epoch(state, self.rows, jnp.asarray(numbers), first, self.limits, self.options)


@with_numerics
def run_rounds(
    outcome: Outcome,
    loop: Loop,
    *,
    start: int,
    n_starts: int,
    seed: int,
    keep: Callable[[], None] = lambda: None,
) -> None:
    """Make rounds of EM, or epochs over batches, until the objective settles.

    ``outcome`` is where the start is, at its beginning or after some rounds; it is brought up to
    date in place, and ``keep`` called, after every round. The seed is that of the batches' order.
    """
    group = loop.group
    made = len(outcome.history)
    began = time.perf_counter() - (outcome.history[-1]["seconds"] if made else 0.0)
    for number in range(made + 1, loop.max_iter + 1):
        if outcome.ended:
            break
        if number == 1 and start == 0:
            announce("first round (compiling may take a while)")
        new_state, info = loop.make_round(outcome.state, number, seed)
        record = _record(info, number, start, loop.constant)
        record["seconds"] = time.perf_counter() - began
        if not (np.isfinite(record["bound"]) and bool(info.finite)):
            outcome.broke_off = outcome.ended = True
            break
        # Held against the bound of the scaled data, so that units do not decide when to stop; and
        # against the number of rows where that bound is close to 0.
        magnitude = max(group.n_rows, abs(record["bound"] - loop.constant))
        change = abs(record["bound"] - outcome.bound) / magnitude
        outcome.state, outcome.bound = new_state, record["bound"]
        outcome.history.append(record)
        progress = Progress(
            start=start,
            n_starts=n_starts,
            round=number,
            max_rounds=loop.max_iter,
            bound=record["bound"],
            change=float("inf") if np.isnan(change) else change,
            cluster_sizes=np.asarray(info.cluster_sizes)[: loop.n_clusters],
            seconds=record["seconds"],
            _labels=partial(_labels_in, new_state, group),
        )
        # All callbacks are told, also when an earlier one asks to stop.
        answers = [callback(progress) for callback in loop.callbacks]
        stop = [isinstance(a, (bool, np.bool_)) and bool(a) for a in answers]
        outcome.converged = bool(loop.tol > 0 and change <= loop.tol)
        # What one process is asked to do all have to, or the others would wait for ever.
        asked_to_stop = bool(group.largest(np.array(any(stop))))
        outcome.ended = outcome.converged or asked_to_stop or number == loop.max_iter
        keep()


def _record(info: IterationInfo, number: int, start: int, constant: float) -> dict[str, float]:
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


def _labels_in(state: State, group: ProcessGroup) -> Ints:
    return group.own_rows(state.S).argmax(axis=1)
