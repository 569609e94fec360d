"""The data folder: made if it is missing, and used by one process at a time.

The lock is an flock on a file in the folder, so it goes with the process however that ends. The
process id in the file is only there for the message; the lock alone decides.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

LOCK_NAME = "LOCK"


class DataDirError(Exception):
    """The data folder can't be used; the message is one sentence."""


class DataDir:
    """A folder that is ours until `close`."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: Path) -> Self:
        """Make the folder durable and lock it, or raise DataDirError."""
        path = path.absolute()
        try:
            _make(path)
            lock_fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirError(f"Can't use the data folder {path}: {error.strerror}.") from None
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock_fd, 32, 0).decode("ascii", "replace").strip()
            os.close(lock_fd)
            if not isinstance(error, BlockingIOError):
                raise DataDirError(
                    f"Can't lock the data folder {path}: {error.strerror}."
                ) from None
            who = f" (pid {holder})" if holder.isdigit() else ""
            raise DataDirError(
                f"The data folder {path} is in use by another process{who}; "
                "stop that one, or choose another folder with --data-dir."
            ) from None
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)
        return cls(path, lock_fd)

    def close(self) -> None:
        """Let the next process have it. The lock file stays: removing it would be a race."""
        if self._lock_fd >= 0:
            os.ftruncate(self._lock_fd, 0)
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _make(path: Path) -> None:
    """mkdir -p, with each new entry synced: what is acknowledged must survive a power cut."""
    missing = [path] if not path.is_dir() else []
    while missing and not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        parent_fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(parent_fd)
        finally:
            os.close(parent_fd)
