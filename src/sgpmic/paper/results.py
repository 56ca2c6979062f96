"""Every single run, in one file that survives being stopped at any moment.

The file is JSON lines: a header, then one line a run, appended and synced as it comes. A line
that was cut off by a kill is dropped on the next opening, and that run is made again. When all
runs are there the lines are put in order, so that an interrupted campaign and an uninterrupted
one end with the same file but for the seconds each run took.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sgpmic
from sgpmic.storage.outputs import write_bytes

_FORMAT = "sgpmic paper results"
_VERSION = 1


class ResultsError(ValueError):
    """A results file that cannot be used, with the reason in one sentence."""


@dataclass(frozen=True, order=True)
class Case:
    """What is run, but for the seed.

    Attributes
    ----------
    dataset : str
    n_components : int
    method : str
    n_clusters : int
    n_inducing : int
    setting : tuple of (name, value) pairs
        The place in the method's tuning grid; empty where there is none.
    """

    dataset: str
    n_components: int
    method: str
    n_clusters: int
    n_inducing: int
    setting: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        words = [self.method, *(f"{name}={value:g}" for name, value in self.setting)]
        return f"{self.dataset} Q={self.n_components} {' '.join(words)}"


@dataclass(frozen=True)
class Record:
    """One run: what, with which seed, and what came of it."""

    case: Case
    seed: int
    data: str
    """Fingerprint of the data the run was made on."""
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
    """The results of a campaign, opened for reading and appending.

    Parameters
    ----------
    path : Path
        Made where it does not exist.

    Raises
    ------
    ResultsError
        Where the file is something else, damaged, of another version, or in use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: dict[tuple[Case, int, str], Record] = {}
        try:
            self._file = open(path, "a+b")  # noqa: SIM115  (closed by __exit__)
        except OSError as error:
            raise ResultsError(f"{path} cannot be opened: {error.strerror}.") from None
        try:
            _lock(self._file.fileno(), path)
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def has(self, case: Case, seed: int, data: str) -> bool:
        """Say whether a run is there. One that failed is not: it is tried again."""
        record = self._records.get((case, seed, data))
        return record is not None and record.error is None

    def add(self, record: Record) -> None:
        """Append a run, safely on disk when this returns."""
        self._append(record.as_line())
        self._records[record.key] = record

    def put_in_order(self) -> None:
        """Rewrite the file with its runs in order and without those made again since."""
        records = sorted(self._records.values(), key=lambda record: record.key)
        self._records = {record.key: record for record in records}
        lines = [_header(), *(record.as_line() for record in records)]
        write_bytes(self.path, ("\n".join(lines) + "\n").encode())
        self._file.close()
        self._file = open(self.path, "a+b")  # noqa: SIM115
        _lock(self._file.fileno(), self.path)

    def _append(self, line: str) -> None:
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            # The last line has no end: the process that wrote it was killed.
            self._file.truncate(len(whole))
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
        made_by = (header.get("version"), header.get("sgpmic"))
        if made_by != (_VERSION, sgpmic.__version__):
            raise ResultsError(
                f"{self.path} was written by sgpmic {made_by[1]} and this is sgpmic "
                f"{sgpmic.__version__}; results of two versions are not mixed. Name another folder."
            )


def _header() -> str:
    return json.dumps({"format": _FORMAT, "version": _VERSION, "sgpmic": sgpmic.__version__})


def _lock(descriptor: int, path: Path) -> None:
    """Let no second process write to the file; the lock goes when its process does."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover  (Windows has no such lock)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ResultsError(f"{path} is in use by another process; wait for it.") from None
    # The other process may have put a new file in this one's place just before it let go.
    if os.fstat(descriptor).st_ino != os.stat(path).st_ino:
        raise ResultsError(f"{path} was just rewritten by another process; try again.")
