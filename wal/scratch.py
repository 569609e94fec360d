"""Named temporary files of the local store, for file systems without anonymous ones.

They lie in `<root>/.tmp/<owner>/`, one folder per open store, which holds an flock on it for as
long as it lives. Whoever opens the store next removes the folders that nobody holds: what a
killed process left. The lock on `.tmp` itself makes creation and cleaning exclude one another,
so that a folder is never removed between its creation and its owner's lock. All of it is given
up by the kernel when a process dies; nothing here needs to be durable.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SCRATCH_FOLDER = ".tmp"


class Scratch:
    def __init__(self, root: str) -> None:
        """Remove what dead owners left, and make a folder of our own."""
        self._parent = f"{root}/{SCRATCH_FOLDER}"
        os.makedirs(self._parent, exist_ok=True)
        self._numbers = itertools.count()
        with _locked(self._parent):
            for name in os.listdir(self._parent):
                _remove_unowned(f"{self._parent}/{name}")
            self._folder = f"{self._parent}/{os.getpid()}-{secrets.token_hex(8)}"
            os.mkdir(self._folder, 0o755)
            self._owner_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._owner_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def next_path(self) -> str:
        """A path that no other caller gets."""
        return f"{self._folder}/{next(self._numbers)}"

    def close(self) -> None:
        os.close(self._owner_fd)
        # The disk may be gone; if it comes back, the next opening cleans up.
        with suppress(FileNotFoundError), _locked(self._parent):
            _remove_unowned(self._folder)


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _remove_unowned(folder: str) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # its owner lives
    else:
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/{name}")
        with suppress(FileNotFoundError):
            os.rmdir(folder)
    finally:
        os.close(fd)
