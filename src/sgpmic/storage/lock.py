"""A lock on a folder: one program at a time writes to it.

The system holds the lock for as long as the program lives, and lets go of it however the program
ends, so a lock that a kill left behind keeps nobody out. The file says who has it, for the sentence
that another one is refused with.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

_NAME = ".lock"
#: What the system says when somebody else has the lock.
_TAKEN = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)


class LockedError(Exception):
    """Somebody else has the lock; the message says who, as far as it is known."""


class FolderLock:
    """The lock of a folder, which this process may have or not."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise a LockedError where somebody else has it."""
        while self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            descriptor = os.open(self._path, flags, 0o666)
            try:
                _lock(descriptor)
                # Between the two lines above, the one that had the lock may have removed the file.
                if _is_at(descriptor, self._path):
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode())
                    self._descriptor, descriptor = descriptor, -1
            except OSError as error:
                if error.errno in _TAKEN:
                    raise LockedError(_owner(descriptor)) from None
                raise
            finally:
                if descriptor >= 0:
                    os.close(descriptor)

    def release(self) -> None:
        """Let go of the lock, if this process has it."""
        if self._descriptor is None:
            return
        with suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = None


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _owner(descriptor: int) -> str:
    """Return what a lock file says of the one who has the lock: "process 123 on host"."""
    with suppress(OSError, ValueError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        words = os.read(descriptor, 200).decode().strip()
        if words.isprintable() and words:
            return f"process {words}"
    return "another process"


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        # Far behind the words, since nobody can read what is locked.
        os.lseek(descriptor, 1_000_000, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        # Unlike those of lockf, these locks also keep out other threads of the process.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise  # those mean that the file system knows no locks
