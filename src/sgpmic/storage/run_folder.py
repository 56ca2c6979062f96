"""The folder of a run: what is in it, and when it may be written to.

``run.json`` is written last, so a folder that has one is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from sgpmic.storage.outputs import write_bytes

FORMAT = 1


class RunFolderError(ValueError):
    """A folder that cannot be used as asked, with the reason in one sentence."""


class RunFolder:
    """A folder with the results of a fit.

    Parameters
    ----------
    path : path-like
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.labels = self.path / "labels.csv"
        self.model = self.path / "model.sgpmic"
        self.report = self.path / "report.html"
        self.checkpoint = self.path / "checkpoint.sgpmic"
        self._run = self.path / "run.json"
        self._results = (self.labels, self.model, self.report)

    @property
    def is_complete(self) -> bool:
        """Whether a fit has ended in it."""
        return self._run.is_file()

    @property
    def has_checkpoint(self) -> bool:
        """Whether something was learned that can be resumed."""
        return any(self.checkpoint.glob("round-*"))

    def make_ready(self, *, force: bool, resume: bool) -> None:
        """Create the folder, without the results of an earlier run unless it is resumed.

        Parameters
        ----------
        force : bool
            The results of an earlier run may be replaced. Files that are not a run's never are.
        resume : bool
            An unfinished run is to be resumed.

        Raises
        ------
        RunFolderError
            Unless a fit may write to the folder.
        """
        self._check(force=force, resume=resume)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not resume:
                # The record last: killed in between, the folder still passes for a run's.
                for file in (*self._results, self.checkpoint, self._run):
                    _remove(file)
        except OSError as error:
            raise RunFolderError(
                f"The folder {self.path} cannot be created: {error.strerror}."
            ) from None

    def _check(self, *, force: bool, resume: bool) -> None:
        """Raise unless a fit may write to the folder."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file; name a folder with --out.")
        names = {p.name for p in self.path.iterdir()} if self.path.is_dir() else set()
        # What a kill left of a file that was being written is nobody's.
        names = {name for name in names if not name.startswith(".")}
        if not names:
            return
        a_run = self.is_complete or self.checkpoint.exists()
        strangers = sorted(names & {file.name for file in self._results})
        if not a_run and strangers:
            raise RunFolderError(
                f"{self.path} has a {strangers[0]} that is no run's; name another folder with "
                "--out."
            )
        if resume and (a_run or force):
            return
        if resume:
            raise RunFolderError(
                f"{self.path} has no checkpoint to resume from, but other files; name another "
                "folder with --out, or add --force."
            )
        if not force and a_run and not self.is_complete:
            raise RunFolderError(
                f"{self.path} holds an unfinished run; add --resume to resume it, or --force to "
                "start again."
            )
        if not force:
            raise RunFolderError(
                f"{self.path} is not empty; name another folder with --out, or add --force."
            )

    def write_record(self, record: dict[str, Any]) -> None:
        """Write ``run.json``, which makes the run complete, and drop its checkpoint."""
        content = json.dumps({"format": FORMAT, **record}, indent=2, ensure_ascii=False)
        write_bytes(self._run, content.encode() + b"\n")
        _remove(self.checkpoint)

    def read_record(self) -> dict[str, Any]:
        """Return what ``run.json`` says.

        Raises
        ------
        RunFolderError
            Where there is no run, it has not ended, or its record is damaged or too new.
        """
        if not self.path.is_dir():
            raise RunFolderError(f"There is no folder {self.path}; name one that sgpmic fit wrote.")
        if not self.is_complete:
            unfinished = self.checkpoint.exists()
            raise RunFolderError(
                f"{self.path} holds an unfinished run; finish it with sgpmic fit … --resume."
                if unfinished
                else f"{self.path} holds no run (no run.json); name a folder that sgpmic fit wrote."
            )
        try:
            record = json.loads(self._run.read_text(encoding="utf-8"))
            version = record["format"]
        except OSError as error:
            raise RunFolderError(f"{self._run} cannot be read: {error.strerror}.") from None
        except (ValueError, TypeError, KeyError):
            raise RunFolderError(f"{self._run} is damaged; run sgpmic fit again.") from None
        if version != FORMAT:
            raise RunFolderError(
                f"{self._run} was written by another version of sgpmic (format {version}); "
                "update sgpmic, or run sgpmic fit again."
            )
        found: dict[str, Any] = record
        return found


def _remove(path: Path) -> None:
    """Remove a file, or the folder that the checkpoint of several processes is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
