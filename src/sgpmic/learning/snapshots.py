"""What has to be kept to resume learning after an interruption, to the very same result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from sgpmic.kernels import Kernel, stack
from sgpmic.learning.em import Parameters, State
from sgpmic.model.mixture import Conjugate, Mixture


@dataclass
class Outcome:
    """One start's fit, finished or not."""

    state: State
    bound: float
    converged: bool
    history: list[dict[str, float]] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    broke_off: bool = False  # a round gave numbers that are not finite; the one before is kept
    ended: bool = False  # no more rounds are to be made


class Snapshot(NamedTuple):
    """Learning at the end of a round."""

    seeds: list[int]  # of all planned starts: a fit without a fixed seed can resume too
    outcomes: list[Outcome]  # of the starts so far; the last may not have ended


class CheckpointWriter(Protocol):
    """Where snapshots go and come from."""

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before."""

    def load(self, template: State) -> Snapshot | None:
        """Return the snapshot that was kept, None if there is none."""


def state_template(
    kernel: Kernel, n_mappings: int, *, variational: bool = False, cells: bool = False
) -> State:
    """Return a state without arrays, for its structure: what leaves are put back into.

    With ``variational`` latent points are uncertain; with ``cells`` missing cells have posteriors.
    """
    nothing: Any = np.zeros(0)
    log_x_std = nothing if variational else None
    parameters = Parameters(nothing, nothing, stack([kernel] * n_mappings), nothing, log_x_std)
    mixture, conjugate = Mixture(nothing, nothing, nothing), Conjugate(nothing, nothing)
    present = parameters.log_kernels
    means = nothing if cells else None
    return State(parameters, nothing, mixture, conjugate, nothing, present, means)


def by_row(state: State) -> dict[str, Any]:
    """Return what of a state has an entry for each row."""
    parameters = state.parameters
    arrays = {"X": parameters.X, "S": state.S}
    if parameters.log_x_std is not None:
        arrays["log_x_std"] = parameters.log_x_std
    if state.cells is not None:
        arrays["cells"] = state.cells
    return arrays


def with_rows(state: State, arrays: Mapping[str, Any]) -> State:
    """Return a state with other arrays for what :func:`by_row` names."""
    parameters = state.parameters._replace(
        X=arrays["X"], log_x_std=arrays.get("log_x_std", state.parameters.log_x_std)
    )
    return state._replace(
        parameters=parameters, S=arrays["S"], cells=arrays.get("cells", state.cells)
    )
