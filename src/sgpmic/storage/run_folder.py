"""The output folder of a run: its files, locking, and atomic replacement of earlier results.

A fit writes its results to a subfolder ``.new``. When they are complete, they replace those of an
earlier run, which are unchanged until then. A fit that ends during the replacement leaves no
``run.json``, but its checkpoint, and can be resumed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from sgpmic.storage.model_file import NUMBER, check_kinds, write_bytes

FORMAT = 1


class RunFolderError(ValueError):
    """A folder cannot be used as requested; the message gives the reason in one sentence."""


class Results(NamedTuple):
    """The files of a run, in the order in which they replace earlier ones; the record is last."""

    labels: Path
    model: Path
    report: Path
    record: Path

    @classmethod
    def within(cls, folder: Path) -> Results:
        """Return the files of a run in a folder."""
        return cls(*map(folder.joinpath, ("labels.csv", "model.sgpmic", "report.html", "run.json")))


class RunFolder:
    """A folder with the results of a fit."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        #: Results of the last completed fit.
        self.results = Results.within(self.path)
        #: Checkpoint of an unfinished fit.
        self.checkpoint = self.path / "checkpoint.sgpmic"
        self._unfinished = self.path / ".new"
        #: Where a fit writes its results, between `make_ready` and `finish`.
        self.new = Results.within(self._unfinished)
        # The operating system releases it however the program ends, so a lock file left behind by a
        # killed process blocks nobody.
        self._lock = FileLock(
            self.path / ".lock", timeout=0, thread_local=False, fallback_to_soft=False
        )

    @property
    def is_complete(self) -> bool:
        """Whether the folder holds the results of a fit."""
        return self.results.record.is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the last fit that was started is complete."""
        return self.is_complete and not self.has_checkpoint

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return any(self.checkpoint.glob("iteration-*"))

    def would_overwrite(self, path: Path) -> bool:
        """Return whether ``path`` is one of the files that a fit writes here."""
        ours = (*self.results, self.checkpoint, self._unfinished)
        place = Path(os.path.realpath(path))
        return any(place.is_relative_to(os.path.realpath(file)) for file in ours)

    def make_ready(self, *, force: bool, resume: bool) -> None:
        """Create and lock the folder for a fit, until :meth:`leave`; or raise a RunFolderError.

        With ``force``, the results of an earlier run may be replaced once there are new ones;
        files that are not from a run never are. With ``resume``, an unfinished run is resumed.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.acquire()
            _remove(self._unfinished)
            self._check(force=force, resume=resume)
            self._unfinished.mkdir()
            if not resume:
                self._remove_checkpoint()
        except BaseException as error:
            self.release()
            if isinstance(error, OSError):
                why = f"The folder {self.path} cannot be written to: {error.strerror}."
                raise RunFolderError(why) from None
            raise

    def leave(self) -> None:
        """Clean up and release the lock of :meth:`make_ready`, whether the fit completed or not."""
        with suppress(OSError):  # the next fit retries
            _remove(self._unfinished)
        self.release()

    def acquire(self) -> None:
        """Acquire the lock on the folder, or raise a RunFolderError if another process holds it."""
        try:
            self._lock.acquire()
        except Timeout:
            raise RunFolderError(
                f"Another sgpmic is writing to {self.path}; wait for it to end, or name another "
                "folder."
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise  # else, the file system does not support locks

    def release(self) -> None:
        """Release the lock if this process holds it."""
        if self._lock.is_locked:
            with suppress(OSError):
                os.unlink(self._lock.lock_file)
            self._lock.release()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock on the folder."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def _check(self, *, force: bool, resume: bool) -> None:
        # Ignore partial files left by a killed process.
        is_empty = all(path.name.startswith(".") for path in self.path.iterdir())
        a_run = self.is_complete or self.checkpoint.exists()
        other = "name another folder with --out"
        foreign = [file for file in self.results if file.is_dir() or (file.exists() and not a_run)]
        if foreign:
            why = f"has a {foreign[0].name} that no run wrote; {other}."
        elif is_empty or force or (resume and a_run):
            return
        elif resume:
            why = f"has no checkpoint to resume from, but other files; {other}, or add --force."
        elif a_run and not self.is_finished:
            why = "holds an unfinished run; add --resume to resume it, or --force to start again."
        else:
            why = f"is not empty; {other}, or add --force."
        raise RunFolderError(f"{self.path} {why}")

    def finish(self, record: dict[str, Any]) -> None:
        """Write ``run.json``, which completes the results, and move them into place."""
        text = json.dumps({"format": FORMAT, **record}, indent=2, ensure_ascii=False)
        # File names may hold lone surrogates, which JSON can hold as escapes.
        write_bytes(self.new.record, text.encode(errors="backslashreplace") + b"\n")
        self.results.record.unlink(missing_ok=True)
        for new, old in zip(self.new, self.results, strict=True):
            os.replace(new, old)
        self._remove_checkpoint()
        _remove(self._unfinished)

    def _remove_checkpoint(self) -> None:
        # Renamed first, because one that is half removed could not be resumed.
        if self.checkpoint.exists():
            os.replace(self.checkpoint, self._unfinished / "checkpoint")
            _remove(self._unfinished / "checkpoint")

    def read_record(self) -> dict[str, Any]:
        """Return the contents of ``run.json``, or raise a RunFolderError if there are none."""
        if not self.is_complete:
            why = "no run; name a folder that sgpmic fit wrote."
            if self.checkpoint.exists():
                why = "an unfinished run; finish it with sgpmic fit … --resume."
            raise RunFolderError(f"{self.path} holds {why}")
        file = self.results.record
        try:
            if file.stat().st_size > _LONGEST_RECORD:
                raise ValueError("it is longer than any record")
            record = json.loads(file.read_text(encoding="utf-8"))
            check_kinds(record, _RECORD)
            if record["format"] != FORMAT:
                raise ValueError("another version wrote it")
        except OSError as error:
            raise RunFolderError(f"{file} cannot be read: {error.strerror}.") from None
        except (ValueError, TypeError, RecursionError):
            raise RunFolderError(
                f"{file} is damaged, or another version of sgpmic wrote it; run sgpmic fit again."
            ) from None
        return dict(record)


#: Far longer than the record of a table with a million columns.
_LONGEST_RECORD = 100_000_000
#: Schema of the record entries that are read back.
_RECORD: dict[str, Any] = {
    "format": int,
    "table": str,
    "data": {
        "rows": int,
        "features": [str],
        "id": (str, None),
        "label": (str, None),
        "fingerprint": str,
    },
    "settings": dict,
    "unusual_below": NUMBER,
    "warnings": [str],
    "seconds": {Any: NUMBER},
    "versions": {Any: str},
}


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
