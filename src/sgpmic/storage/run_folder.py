"""The output folder of a run: its files, locking, and atomic replacement of earlier results.

A fit writes its results to a subfolder ``.new``. When complete, it is atomically renamed to
``.complete``, and only then do its files replace those of an earlier run. If a fit ends before the
rename, the earlier results are unchanged; if it ends after, the next command finishes the
replacement.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from sgpmic.storage.model_file import NUMBER, check_kinds, write_bytes

FORMAT = 1


class RunFolderError(ValueError):
    """A folder cannot be used as requested; the message gives the reason in one sentence."""


class FolderLock:
    """An advisory lock on a folder: only one program at a time writes to it.

    The operating system releases it however the program ends, so a lock file left behind by a
    killed process blocks nobody. The file names the owner, for the error message of others.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"
        self._lock = FileLock(
            self._path, timeout=0, thread_local=False, fallback_to_soft=False, on_acquired=_sign
        )

    def acquire(self) -> None:
        """Acquire the lock, or raise a RunFolderError if another process holds it."""
        try:
            self._lock.acquire()
        except Timeout:
            raise RunFolderError(
                f"Another sgpmic is writing to {self._path.parent} ({_owner(self._path)}); wait "
                "for it to end, or name another folder."
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            # The file system does not support locks.
            self._path.unlink(missing_ok=True)

    def release(self) -> None:
        """Release the lock if this process holds it."""
        if self._lock.is_locked:
            with suppress(OSError):
                self._path.unlink()
            self._lock.release()


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode())


def _owner(path: Path) -> str:
    """Return the owner named in a lock file: "process 123 on host"."""
    with suppress(OSError, ValueError):
        # Do not follow a symbolic link, and do not block on a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(path, flags), "rb") as file:
            words = file.read(200).decode().strip()
        if words.isprintable() and words:
            return f"process {words}"
    return "another process"


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
        self._complete = self.path / ".complete"
        # Backup of an unfinished run's checkpoint until the fit that replaces it has its own.
        self._set_aside = self.path / ".checkpoint-before"
        #: Where a fit writes its results, between `make_ready` and `finish`.
        self.new = Results.within(self._unfinished)
        self._lock = FolderLock(self.path)

    @property
    def is_complete(self) -> bool:
        """Whether the folder holds the results of a fit."""
        return self.results.record.is_file() or self._has_complete

    @property
    def is_finished(self) -> bool:
        """Whether the last fit that was started is complete."""
        return self._has_complete or (self.is_complete and not self.has_checkpoint)

    @property
    def _has_complete(self) -> bool:
        # A symbolic link, as in a folder from elsewhere, does not lead to a fit's results.
        return self._complete.is_dir() and not self._complete.is_symlink()

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return any(self.checkpoint.glob("iteration-*"))

    def would_overwrite(self, path: Path) -> bool:
        """Return whether ``path`` is one of the files that a fit writes here."""
        ours = (*self.results, self.checkpoint, self._unfinished, self._complete, self._set_aside)
        place = Path(os.path.realpath(path))
        return any(place.is_relative_to(os.path.realpath(file)) for file in ours)

    def make_ready(self, *, force: bool, resume: bool) -> None:
        """Create and lock the folder for a fit, until :meth:`leave`; or raise a RunFolderError.

        With ``force``, the results of an earlier run may be replaced once there are new ones;
        files that are not from a run never are. With ``resume``, an unfinished run is resumed.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file; name a folder with --out.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            self._settle()
            self._check(force=force, resume=resume)
            if not resume and self.checkpoint.exists():
                os.replace(self.checkpoint, self._set_aside)
            self._unfinished.mkdir()
        except BaseException as error:
            self._lock.release()
            if not isinstance(error, OSError):
                raise
            why = f"The folder {self.path} cannot be written to: {error.strerror}."
            raise RunFolderError(why) from None

    def leave(self) -> None:
        """Clean up and release the lock of :meth:`make_ready`, whether the fit completed or not."""
        with suppress(OSError):  # the next fit retries
            self._settle()
        self._lock.release()

    def tidy(self) -> None:
        """Remove leftovers of a killed process, if possible."""
        with suppress(OSError, RunFolderError), self.locked():
            self._settle()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock on the folder."""
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def _settle(self) -> None:
        """Move complete results into place and remove incomplete ones."""
        self._move_complete()
        if self.has_checkpoint:
            _remove(self._set_aside)
        elif self._set_aside.exists():
            _remove(self.checkpoint)
            os.replace(self._set_aside, self.checkpoint)
        _remove(self._unfinished)
        _remove(self._complete)
        for file in self.path.glob(".*"):
            if _TEMPORARY.fullmatch(file.name):
                _remove(file)

    def _move_complete(self) -> None:
        """Move complete results into place; commands that only read do this as well."""
        if not self._has_complete:
            return
        _remove(self.checkpoint)
        _remove(self._set_aside)
        for new, old in zip(Results.within(self._complete), self.results, strict=True):
            with suppress(FileNotFoundError):  # another command may be doing the same
                os.replace(new, old)
        shutil.rmtree(self._complete, ignore_errors=True)

    def _check(self, *, force: bool, resume: bool) -> None:
        # Ignore partial files left by a killed process.
        names = {p.name for p in self.path.iterdir() if not p.name.startswith(".")}
        if not names:
            return
        for file in self.results:
            if file.is_dir():
                raise RunFolderError(f"{file} is a folder; name another folder with --out.")
        a_run = self.is_complete or self.checkpoint.exists()
        strangers = sorted(names & {file.name for file in self.results})
        other = "name another folder with --out"
        if not a_run and strangers:
            why = f"has a {strangers[0]} that no run wrote; {other}."
        elif force or (resume and a_run):
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
        os.replace(self._unfinished, self._complete)
        self._settle()

    def read_record(self) -> dict[str, Any]:
        """Return the contents of ``run.json``, or raise a RunFolderError if there are none."""
        if not self.path.is_dir():
            why = "is a file" if self.path.exists() else "does not exist"
            raise RunFolderError(f"{self.path} {why}; name a run folder that sgpmic fit wrote.")
        if not self.is_complete:
            why = "no run (no run.json); name a folder that sgpmic fit wrote."
            if self.checkpoint.exists():
                why = "an unfinished run; finish it with sgpmic fit … --resume."
            raise RunFolderError(f"{self.path} holds {why}")
        file = self.results.record
        try:
            self._move_complete()  # a fit may have been killed during the replacement
            if file.stat().st_size > _LONGEST_RECORD:
                raise ValueError("it is longer than any record")
            record = json.loads(file.read_text(encoding="utf-8"))
            version = record["format"]
            if version == FORMAT:
                check_kinds(record, _RECORD)
        except OSError as error:
            raise RunFolderError(f"{file} cannot be read: {error.strerror}.") from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RunFolderError(f"{file} is damaged; run sgpmic fit again.") from None
        if version != FORMAT:
            raise RunFolderError(
                f"{file} was written by another version of sgpmic (format {version!s:.20}); "
                "update sgpmic, or run sgpmic fit again."
            )
        return record


#: Far longer than the record of a table with a million columns.
_LONGEST_RECORD = 100_000_000
#: Schema of the record entries that are read back.
_RECORD: dict[str, Any] = {
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


#: Temporary files left by a killed process (`model_file.replacing`).
_TEMPORARY = re.compile(
    r"\.(labels\.csv|model\.sgpmic|report\.html|run\.json)\.[0-9a-f]{16}|\.labels-\d{6}\.part"
)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
