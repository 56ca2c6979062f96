"""A checkpoint: learning after a round, in one file that is always whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sgpmic
from sgpmic.io.model_file import ModelFileError, read_model, write_model
from sgpmic.kernels import Kernel
from sgpmic.learning.checkpoint import Outcome, Snapshot, state_from_leaves, state_leaves
from sgpmic.learning.em import State

_KIND = "checkpoint"


class CheckpointFile:
    """Keeps snapshots in a file (:class:`sgpmic.learning.checkpoint.Keeper`).

    Parameters
    ----------
    path : path-like
    belongs_to : mapping of str to str
        Marks of the data, the settings and the program. A checkpoint is gone on from only where
        all of them are the same: otherwise the result would be nobody's.
    every : int, default=1
        Rounds between two snapshots. The end of a start is always kept.
    """

    def __init__(
        self, path: str | os.PathLike[str], belongs_to: Mapping[str, str], every: int = 1
    ) -> None:
        self.path = Path(path)
        self._belongs_to = dict(belongs_to)
        self._every = every

    def save(self, snapshot: Snapshot) -> None:
        """Write the snapshot, if it is time for one."""
        last = snapshot.outcomes[-1]
        if len(last.history) % self._every and not last.ended:
            return
        states = [outcome.state for outcome in snapshot.outcomes]
        described, arrays = describe_outcomes(snapshot.outcomes, states)
        header = {
            "kind": _KIND,
            "belongs_to": self._belongs_to,
            "seeds": snapshot.seeds,
            "outcomes": described,
        }
        write_model(self.path, header, arrays)

    def load(self, template: State) -> Snapshot | None:
        """Return the snapshot in the file, None where there is no file.

        Raises
        ------
        ModelFileError
            Where the file is something else, is damaged, or belongs to another fit.
        """
        if not self.path.exists():
            return None
        header, arrays = read_model(self.path)
        if header.get("kind") != _KIND:
            raise ModelFileError(f"{self.path} is not a checkpoint; name another file.")
        check_belongs(self.path, self._belongs_to, header["belongs_to"])
        outcomes = []
        for number, described in enumerate(header["outcomes"]):
            leaves = [arrays[f"{number}.{place}"] for place in range(described["leaves"])]
            outcomes.append(restore_outcome(described, state_from_leaves(template, leaves)))
        return Snapshot(list(header["seeds"]), outcomes)


def check_belongs(path: Path, wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise where a checkpoint is that of another fit."""
    others = [what for what, mark in wanted.items() if found.get(what) != mark]
    if others:
        raise ModelFileError(
            f"{path} is the checkpoint of a fit with other {' and '.join(others)}; "
            "delete it to start anew, or go on with what it belongs to."
        )


def describe_outcomes(
    outcomes: Sequence[Outcome], states: Sequence[State]
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Return what goes into a header about some starts, and the arrays of their ``states``."""
    arrays: dict[str, np.ndarray] = {}
    described = []
    for number, (outcome, state) in enumerate(zip(outcomes, states, strict=True)):
        leaves = state_leaves(state)
        arrays |= {f"{number}.{place}": leaf for place, leaf in enumerate(leaves)}
        described.append(_describe_outcome(outcome, len(leaves)))
    return described, arrays


def _describe_outcome(outcome: Outcome, n_leaves: int) -> dict[str, Any]:
    """Return what a header says of a start."""
    return {
        "leaves": n_leaves,
        # The first change is measured against a bound that is no number, which no header holds.
        "bound": outcome.bound if outcome.history else None,
        "converged": outcome.converged,
        "history": outcome.history,
        "notes": list(outcome.notes),
        "broke_off": outcome.broke_off,
        "ended": outcome.ended,
    }


def restore_outcome(described: dict[str, Any], state: State) -> Outcome:
    """Return the start that a header tells of."""
    return Outcome(
        state=state,
        bound=float("nan") if described["bound"] is None else described["bound"],
        converged=described["converged"],
        history=described["history"],
        notes=tuple(described["notes"]),
        broke_off=described["broke_off"],
        ended=described["ended"],
    )


#: Parameters that do not change what is learned.
_WITHOUT_EFFECT = (
    "checkpoint",
    "checkpoint_every",
    "verbose",
    "callbacks",
    "warm_start",
    "device",
)


def fit_marks(Y: np.ndarray, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return marks of all that decides the result of a fit.

    Parameters
    ----------
    Y : ndarray of shape (n_samples, n_features)
    parameters : mapping
        The estimator's. A seed that is no number has no mark: the checkpoint holds the seeds that
        were drawn.
    """
    data = hashlib.sha256(f"{Y.shape} {Y.dtype}".encode())
    data.update(np.ascontiguousarray(Y).data)
    return {"data": data.hexdigest(), **settings_marks(parameters)}


def settings_marks(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return marks of what decides the result of a fit besides the data."""
    settings = hashlib.sha256()
    for name, value in sorted(parameters.items()):
        if name in _WITHOUT_EFFECT or (name == "random_state" and not isinstance(value, Integral)):
            continue
        settings.update(f"{name}=".encode() + _bytes_of(value) + b";")
    versions = f"sgpmic {sgpmic.__version__}, jax {jax.__version__}"
    return {"settings": settings.hexdigest(), "versions": versions}


def _bytes_of(value: Any) -> bytes:
    """Return a parameter's value as bytes; an array's repr would leave most of it out."""
    if value is None or isinstance(value, (str, bool, Real, Kernel)):
        return repr(value).encode()
    array = np.asarray(value, dtype=np.float64)
    return f"{array.shape}".encode() + array.tobytes()
