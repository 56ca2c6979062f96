"""Storage of all runs of a campaign in one file that survives interruption at any time.

The file is JSON lines: a header, then one line for each run, appended and synced as it comes. A
truncated last line, left by a kill, is dropped when the file is next opened, and that run is
repeated. When all runs are there the lines are sorted, so that an interrupted campaign and an
uninterrupted one end with the same file except for the running times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import sgpmic
from sgpmic.storage.model_file import write_bytes
from sgpmic.storage.run_folder import RunFolder, RunFolderError

_FORMAT = "sgpmic paper results"
_VERSION = 1


class ResultsError(RuntimeError):
    """A results file that cannot be used, with the reason in one sentence."""


@dataclass(frozen=True, order=True)
class Case:
    """A run's specification, except for the seed."""

    dataset: str
    n_components: int
    method: str
    n_clusters: int
    n_inducing: int
    #: The point of the method's tuning grid, as names and values; empty if there is none.
    setting: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        words = [f"{self.dataset} Q={self.n_components} {self.method}", self.setting_words]
        return " ".join(filter(None, words))

    @property
    def setting_words(self) -> str:
        """The point of the tuning grid as text: ``penalty=0.1``."""
        return " ".join(f"{name}={value:g}" for name, value in self.setting)


@dataclass(frozen=True)
class Record:
    """One run: its specification, seed and result."""

    case: Case
    seed: int
    data: str  # fingerprint of the data set
    seconds: float
    scores: dict[str, float] = field(default_factory=dict)
    bound: float | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[Case, int, str]:
        """What makes a run unique."""
        return self.case, self.seed, self.data

    def as_line(self) -> str:
        """Return the run as one line of JSON."""
        case = asdict(self.case)
        case["setting"] = dict(self.case.setting)
        rest = {name: getattr(self, name) for name in ("seed", "data", "scores", "bound", "error")}
        return json.dumps({**case, **rest, "seconds": round(self.seconds, 4)})

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read a run from its line."""
        found: dict[str, Any] = json.loads(line)
        setting = tuple(sorted(found.pop("setting").items()))
        names = ("dataset", "n_components", "method", "n_clusters", "n_inducing")
        case = Case(**{name: found.pop(name) for name in names}, setting=setting)
        return cls(case=case, **found)


class ResultsFile:
    """The results of a campaign; its folder is locked while it is open.

    A new file is begun if there is none. A `ResultsError` says that it is something else, damaged,
    of another version, or in use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: dict[tuple[Case, int, str], Record] = {}
        self._lock = RunFolder(path.parent)
        try:
            self._lock.acquire()
        except RunFolderError as error:
            raise ResultsError(str(error)) from None
        try:
            self._read()
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def has(self, case: Case, seed: int, data: str) -> bool:
        """Return whether a run is stored; failed runs do not count, since they are repeated."""
        record = self._records.get((case, seed, data))
        return record is not None and record.error is None

    def add(self, record: Record) -> None:
        """Append a run; it is on disk when this returns."""
        self._append(record.as_line())
        self._records[record.key] = record

    def sort(self) -> None:
        """Rewrite the file with its runs sorted and without those repeated since."""
        records = sorted(self._records.values(), key=lambda record: record.key)
        self._records = {record.key: record for record in records}
        lines = [_header(), *(record.as_line() for record in records)]
        write_bytes(self.path, ("\n".join(lines) + "\n").encode())

    def _append(self, line: str) -> None:
        with self.path.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> None:
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            # The last line is incomplete: the process that wrote it was killed.
            os.truncate(self.path, len(whole))
        lines = whole.decode("utf-8", errors="replace").splitlines()
        if not lines:
            self._append(_header())
            return
        self._check_header(lines[0])
        for number, line in enumerate(lines[1:], start=2):
            try:
                record = Record.from_line(line)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise ResultsError(
                    f"{self.path}, line {number} is damaged; delete that line to run it again."
                ) from None
            self._records[record.key] = record

    def _check_header(self, line: str) -> None:
        try:
            header = json.loads(line)
            known = header["format"] == _FORMAT
        except (ValueError, TypeError, KeyError):
            known = False
        if not known:
            raise ResultsError(f"{self.path} is not a results file; name another one.")
        writer = (header.get("version"), header.get("sgpmic"))
        if writer != (_VERSION, sgpmic.__version__):
            raise ResultsError(
                f"{self.path} was written by sgpmic {writer[1]} and this is sgpmic "
                f"{sgpmic.__version__}; results of two versions are not mixed. Name another folder."
            )


def _header() -> str:
    return json.dumps({"format": _FORMAT, "version": _VERSION, "sgpmic": sgpmic.__version__})
