"""Checkpoints: the state of a fit after an EM iteration, written atomically.

The checkpoint folder holds one subfolder,

``iteration-000007/``
    ``rows-0-500000.sgpmic``, ``rows-500000-1000000.sgpmic``
        X and S of some rows, one file from each process;
    ``rest.sgpmic``
        everything small, and fingerprints of the data, settings and versions.

It is written under a temporary name and renamed when complete. File names give the range of rows,
so any number of processes can resume.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sgpmic
from sgpmic.learning.em import IterationInfo, StartFit, State, by_row, with_rows
from sgpmic.learning.settings import Computation, Settings
from sgpmic.process_group import ProcessGroup
from sgpmic.storage.model_file import (
    NUMBER,
    ModelFileError,
    array_checksum,
    check_kinds,
    read_model,
    write_model,
)
from sgpmic.storage.models import NOT_STORED, encode_parameters

_Snapshot = tuple[list[int], list[StartFit]]  # seeds of all starts, and fits of those begun
_KIND = "shared checkpoint"
_REST = "rest.sgpmic"
#: Entries of a fit's history for every iteration.
_RECORD = ("start", "iteration", *IterationInfo._fields[:-2], "seconds")
#: Schema of a start in the header.
_START = {
    "bound": (*NUMBER, None),
    "converged": bool,
    "history": [dict.fromkeys(_RECORD, NUMBER)],
    "notes": [str],
    "broke_off": bool,
    "ended": bool,
}
_HEADER = {"belongs_to": dict, "seeds": [int], "outcomes": [_START]}


class Checkpoint:
    """Checkpoint folder: the fits so far and the seeds of all starts.

    All processes must be able to read and write it. A fit resumes only if the fingerprints of the
    data (``own`` rows of every process), the parameters and the versions all match. The end of a
    start is always saved.
    """

    def __init__(
        self,
        computation: Computation,
        own: np.ndarray,
        group: ProcessGroup,
        parameters: Mapping[str, Any],
    ) -> None:
        assert computation.checkpoint is not None  # for the type checker: there is a folder
        self.path = Path(computation.checkpoint)
        self._group, self._every = group, int(computation.checkpoint_every)
        self._belongs_to = {
            "data": data_fingerprint(own, group),
            "settings": _settings_fingerprint(parameters),
            "versions": f"sgpmic {sgpmic.__version__}, jax {jax.__version__}",
        }
        # The folder is created after the first iteration, which would be late for an error.
        there = next(p for p in (self.path, *self.path.absolute().parents) if p.exists())
        if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
            raise ModelFileError(
                f"The checkpoint {self.path} cannot be written: {there} is not a folder "
                "that you may write to; name another place."
            )

    def save(self, seeds: list[int], fits: list[StartFit]) -> None:
        """Write a snapshot if one is due."""
        last = fits[-1]
        if len(last.history) % self._every and not last.ended:
            return
        number = sum(len(fit.history) for fit in fits)
        final = self._folder(number)
        unfinished = self.path / f".{final.name}.part"
        try:
            self._write(unfinished, seeds, fits)
            if self._group.process == 0:
                shutil.rmtree(final, ignore_errors=True)
                unfinished.rename(final)
                for older in self._iterations()[:-1]:
                    shutil.rmtree(self._folder(older), ignore_errors=True)
        except OSError:
            shutil.rmtree(unfinished, ignore_errors=True)  # the disk may be full
            raise

    def _write(self, folder: Path, seeds: list[int], fits: list[StartFit]) -> None:
        group = self._group
        if group.process == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        group.wait("checkpoint is begun")
        own = {
            f"{i}.{name}": np.ascontiguousarray(group.own_rows(array))
            for i, fit in enumerate(fits)
            for name, array in by_row(fit.state).items()
        }
        first, end = group.first, group.first + group.n_own
        write_model(folder / f"rows-{first}-{end}.sgpmic", {"kind": _KIND}, own)
        group.wait("rows are written")
        if group.process > 0:
            return
        arrays: dict[str, np.ndarray] = {}
        described = []
        for i, fit in enumerate(fits):
            nothing = {name: np.zeros(0) for name in by_row(fit.state)}
            leaves = jax.tree.leaves(with_rows(fit.state, nothing))
            arrays |= {f"{i}.{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
            described.append({name: getattr(fit, name) for name in _START})
            if not fit.history:  # the bound is still NaN, which JSON cannot hold
                described[-1]["bound"] = None
        header = {"kind": _KIND, "belongs_to": self._belongs_to, "seeds": seeds}
        write_model(folder / _REST, header | {"outcomes": described}, arrays)

    def _folder(self, number: int) -> Path:
        return self.path / f"iteration-{number:06d}"

    def _iterations(self) -> list[int]:
        """Numbers of the snapshots there are, in order."""
        names = [re.fullmatch(r"iteration-(\d{6,})", p.name) for p in self.path.glob("iteration-*")]
        return sorted(int(name[1]) for name in names if name)

    def load(self, template: State, n_starts: int) -> _Snapshot | None:
        """Return the newest snapshot, with X and S of this process's rows, or None."""
        # Process 0 decides: a slower process could see a folder that is being removed.
        newest = max(self._iterations(), default=-1)
        newest = int(self._group.agree(np.array([newest]))[0])
        if newest < 0:
            return None
        folder = self._folder(newest)
        try:
            return self._read(folder, template, n_starts)
        except ModelFileError:
            raise
        except (KeyError, TypeError, ValueError, IndexError) as error:
            why = f"{folder} cannot be resumed ({error}); delete it to start over."
            raise ModelFileError(why) from error

    def _read(self, folder: Path, template: State, n_starts: int) -> _Snapshot:
        header, arrays = read_model(folder / _REST)
        if header.get("kind") != _KIND:
            raise ValueError("it is another kind of file")
        check_kinds(header, _HEADER)
        found = header["belongs_to"]
        others = [what for what, known in self._belongs_to.items() if found.get(what) != known]
        if others:
            raise ModelFileError(
                f"{self.path} is the checkpoint of a fit with different {' and '.join(others)}; "
                "delete it to start over, or resume with the original ones."
            )
        seeds, n_fits = header["seeds"], len(header["outcomes"])
        if len(seeds) != n_starts or not 0 < n_fits <= n_starts:
            raise ValueError(f"it has {len(seeds)} seeds and {n_fits} fits of {n_starts} starts")
        if not all(0 <= seed < 2**32 for seed in seeds):
            raise ValueError("its seeds are out of range")
        own = self._read_own_rows(folder)
        n_leaves, structure = len(jax.tree.leaves(template)), jax.tree.structure(template)
        fits: list[StartFit] = []
        for i, described in enumerate(header["outcomes"]):
            leaves = [arrays[f"{i}.{place}"] for place in range(n_leaves)]
            rest: State = jax.tree.unflatten(structure, leaves)
            state = with_rows(rest, {name: own[f"{i}.{name}"] for name in by_row(template)})
            _check_state(state, template)
            says = {name: described[name] for name in _START}
            says["bound"] = np.nan if says["bound"] is None else says["bound"]
            fits.append(StartFit(state=state, **says | {"notes": tuple(says["notes"])}))
        return seeds, fits

    def _read_own_rows(self, folder: Path) -> dict[str, np.ndarray]:
        first, end = self._group.first, self._group.first + self._group.n_own
        found = (re.fullmatch(r"rows-(\d+)-(\d+)\.sgpmic", path.name) for path in folder.iterdir())
        pieces = []
        for start, stop, name in sorted((int(f[1]), int(f[2]), f[0]) for f in found if f):
            if start < end and stop > first:
                wanted = slice(max(first - start, 0), end - start)
                arrays = read_model(folder / name)[1]
                pieces.append({key: array[wanted] for key, array in arrays.items()})
        names = pieces[0] if pieces else ()
        own = {name: np.concatenate([piece[name] for piece in pieces]) for name in names}
        if not own or any(len(array) != end - first for array in own.values()):
            raise ValueError("rows are missing")
        return own


def _check_state(state: State, template: State) -> None:
    """Raise a ValueError unless a state's arrays match a template, whose sizes 0 match any."""
    for array, like in zip(jax.tree.leaves(state), jax.tree.leaves(template), strict=True):
        shape = tuple(size or found for size, found in zip(like.shape, array.shape, strict=False))
        if array.ndim != like.ndim or array.shape != shape:
            raise ValueError(f"an array has the shape {array.shape}, not {like.shape}")
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError("it has values that are not finite float64 numbers")


#: Parameters that do not affect the result of a fit.
_WITHOUT_EFFECT = (*NOT_STORED, "checkpoint_every", "verbose")


def _settings_fingerprint(parameters: Mapping[str, Any]) -> str:
    """Return a fingerprint of the parameters, including those in settings objects."""
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        flat |= value.get_params() if isinstance(value, Settings) else {name: value}
    # Without a RandomState: the checkpoint holds the seeds drawn from it.
    encoded, arrays = encode_parameters({k: flat[k] for k in flat if k not in _WITHOUT_EFFECT})
    encoded |= {name: array_checksum(array) for name, array in arrays.items()}
    return hashlib.sha256(json.dumps(encoded, sort_keys=True).encode()).hexdigest()


def data_fingerprint(own: np.ndarray, group: ProcessGroup) -> str:
    """Return a fingerprint of the whole table, independent of its distribution over processes."""
    bits = group.total(np.array([table_fingerprint(own, group.first)], dtype=np.uint64))[0]
    return f"{group.n_rows} x {own.shape[1]}, {int(bits):016x}"


def table_fingerprint(rows: np.ndarray, first: int) -> int:
    """Return a 64-bit hash of rows and their positions; hashes of parts of a table add up."""
    rng = np.random.RandomState(0)
    factors = rng.randint(0, 2**63, size=rows.shape[1], dtype=np.int64).astype(np.uint64) * 2 + 1
    total = np.zeros((), np.uint64)
    step = 65_536
    with np.errstate(over="ignore"):
        for start in range(0, len(rows), step):
            # Adding 0.0 turns -0.0 into 0.0, which is equal but has different bits.
            part = np.ascontiguousarray(rows[start : start + step], np.float64) + 0.0
            bits = _mixed(part.view(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
            places = np.arange(first + start, first + start + len(part), dtype=np.uint64)
            total += _mixed(bits + _mixed(places + np.uint64(1))).sum(dtype=np.uint64)
    return int(total)


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Hash every 64-bit number (the finalizer of SplitMix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
