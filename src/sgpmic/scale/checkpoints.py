"""Checkpoints of a job: every process writes its rows, one writes the rest.

A checkpoint is a folder in the checkpoint's folder,

``round-000007/``
    ``rows-0-500000.sgpmic``, ``rows-500000-1000000.sgpmic``
        X and S of some rows, one file from each process;
    ``rest.sgpmic``
        everything small, and whose checkpoint it is.

It is written under another name and renamed when all of it is there, so it is whole or not there.
The files say which rows they hold, so any number of processes can go on from them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgpmic._runtime import double_precision
from sgpmic.io.checkpoints import (
    check_belongs,
    describe_outcomes,
    restore_outcome,
    settings_marks,
)
from sgpmic.io.model_file import ModelFileError, read_model, write_model
from sgpmic.learning.checkpoint import Outcome, Snapshot, state_from_leaves
from sgpmic.learning.em import State
from sgpmic.model.rows import pad_rows

if TYPE_CHECKING:
    from sgpmic.scale.crew import SpreadRows

_KIND = "shared checkpoint"
_REST = "rest.sgpmic"


class ShardedCheckpoint:
    """Keeps snapshots of a job (:class:`sgpmic.learning.checkpoint.Keeper`).

    Parameters
    ----------
    path : path-like
        A folder that all processes can read and write.
    crew : SpreadRows
    belongs_to : mapping of str to str
        Marks of the data, the settings and the program (:func:`spread_marks`).
    every : int
        Rounds between two snapshots. The end of a start is always kept.
    block : int or None
        Rows in a block, at most.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        crew: SpreadRows,
        belongs_to: Mapping[str, str],
        every: int,
        block: int | None,
    ) -> None:
        self.path = Path(path)
        self._crew = crew
        self._belongs_to = dict(belongs_to)
        self._every = every
        self._block = block
        if self.path.is_file():
            raise ModelFileError(
                f"{self.path} is the checkpoint of one process by itself; go on with one process."
            )

    def save(self, snapshot: Snapshot) -> None:
        """Write the snapshot, if it is time for one."""
        last = snapshot.outcomes[-1]
        if len(last.history) % self._every and not last.ended:
            return
        crew = self._crew
        number = sum(len(outcome.history) for outcome in snapshot.outcomes)
        final = self.path / f"round-{number:06d}"
        beginning = self.path / f".{final.name}.part"
        if crew.process == 0:
            shutil.rmtree(beginning, ignore_errors=True)
            beginning.mkdir(parents=True)
        crew.wait("checkpoint is begun")
        own = {}
        for i, outcome in enumerate(snapshot.outcomes):
            state = outcome.state
            for name, array in (("X", state.parameters.X), ("S", state.S)):
                own[f"{i}.{name}"] = np.ascontiguousarray(crew.own_part(array)[: crew.n_own])
        first, end = crew.first, crew.first + crew.n_own
        write_model(beginning / f"rows-{first}-{end}.sgpmic", {"kind": _KIND}, own)
        crew.wait("rows are written")
        if crew.process == 0:
            self._write_rest(beginning / _REST, snapshot)
            shutil.rmtree(final, ignore_errors=True)
            beginning.rename(final)
            for older in self._rounds()[:-1]:
                shutil.rmtree(older, ignore_errors=True)

    def _write_rest(self, path: Path, snapshot: Snapshot) -> None:
        states = [_without_rows(outcome.state) for outcome in snapshot.outcomes]
        described, arrays = describe_outcomes(snapshot.outcomes, states)
        header = {
            "kind": _KIND,
            "belongs_to": self._belongs_to,
            "seeds": snapshot.seeds,
            "outcomes": described,
            "n_rows": self._crew.n_rows,
        }
        write_model(path, header, arrays)

    def _rounds(self) -> list[Path]:
        """Return the checkpoints that are whole, the newest last."""
        if not self.path.is_dir():
            return []
        return sorted(p for p in self.path.iterdir() if re.fullmatch(r"round-\d{6,}", p.name))

    def load(self, template: State) -> Snapshot | None:
        """Return the newest snapshot, every process with its own rows; None where there is none."""
        # The first process decides, or one that is late could see a folder that is being removed.
        rounds = self._rounds()
        newest = int(rounds[-1].name.split("-")[1]) if rounds else -1
        newest = int(self._crew.agree(np.array([newest]))[0])
        if newest < 0:
            return None
        folder = self.path / f"round-{newest:06d}"
        header, arrays = read_model(folder / _REST)
        if header.get("kind") != _KIND:
            raise ModelFileError(f"{folder / _REST} is not a checkpoint; name another folder.")
        check_belongs(self.path, self._belongs_to, header["belongs_to"])
        own = self._own_rows(folder, len(header["outcomes"]))
        outcomes: list[Outcome] = []
        for i, described in enumerate(header["outcomes"]):
            leaves = [arrays[f"{i}.{place}"] for place in range(described["leaves"])]
            state = state_from_leaves(template, leaves)
            X, S = (self._spread(own[f"{i}.{name}"]) for name in "XS")
            state = state._replace(parameters=state.parameters._replace(X=X), S=S)
            outcomes.append(restore_outcome(described, state))
        return Snapshot(list(header["seeds"]), outcomes)

    def _own_rows(self, folder: Path, n_outcomes: int) -> dict[str, np.ndarray]:
        """Read this process's rows from all files that have some of them."""
        first, end = self._crew.first, self._crew.first + self._crew.n_own
        parts: list[tuple[int, dict[str, np.ndarray]]] = []
        for path in folder.glob("rows-*-*.sgpmic"):
            start, stop = map(int, path.stem.split("-")[1:])
            if start < end and stop > first:
                _, arrays = read_model(path)
                wanted = slice(max(first - start, 0), end - start)
                parts.append((start, {name: array[wanted] for name, array in arrays.items()}))
        parts.sort(key=lambda part: part[0])
        found = {
            f"{i}.{name}": np.concatenate([arrays[f"{i}.{name}"] for _, arrays in parts])
            for i in range(n_outcomes)
            for name in "XS"
            if parts
        }
        if any(len(array) != end - first for array in found.values()) or not found:
            raise ModelFileError(f"{folder} lacks rows; delete it to go on from nothing.")
        return found

    def _spread(self, own: np.ndarray) -> Any:
        n_blocks, size = self._crew.layout(self._block)
        with double_precision():
            return self._crew.put(pad_rows(own, n_blocks * size))


def _without_rows(state: State) -> State:
    nothing: Any = np.zeros(0)
    return state._replace(parameters=state.parameters._replace(X=nothing), S=nothing)


def spread_marks(
    own: np.ndarray, crew: SpreadRows, parameters: Mapping[str, Any]
) -> dict[str, str]:
    """Return marks of all that decides the result of a fit, however many processes there are."""
    return {"data": spread_data_mark(own, crew), **settings_marks(parameters)}


def spread_data_mark(own: np.ndarray, crew: SpreadRows) -> str:
    """Return a mark of the whole table, the same however it is spread."""
    mark = crew.total(np.array([table_mark(own, crew.first)], dtype=np.uint64))[0]
    return f"{crew.n_rows} x {own.shape[1]}, {int(mark):016x}"


def table_mark(rows: np.ndarray, first: int) -> int:
    """Return 64 bits that stand for rows at their places; those of parts of a table add up."""
    rng = np.random.RandomState(0)
    factors = rng.randint(0, 2**63, size=rows.shape[1], dtype=np.int64).astype(np.uint64) * 2 + 1
    total = np.zeros((), np.uint64)
    step = 65_536
    with np.errstate(over="ignore"):
        for start in range(0, len(rows), step):
            # Adding 0.0 turns -0.0, which is equal to 0.0 but has other bits, into 0.0.
            part = np.ascontiguousarray(rows[start : start + step], np.float64) + 0.0
            bits = _mixed(part.view(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
            places = np.arange(first + start, first + start + len(part), dtype=np.uint64)
            total += _mixed(bits + _mixed(places + np.uint64(1))).sum(dtype=np.uint64)
    return int(total)


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Return every number's bits well shaken (the finaliser of SplitMix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
