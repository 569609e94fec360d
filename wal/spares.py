"""Anonymous files that are opened ahead of the puts that will fill them.

To find a free inode can take longer than to write a small object, above all where many objects
were deleted lately (ext4 doesn't give out their inodes for some minutes, and steps over each).
So a put takes a file that is open already, and another one is opened after it.
"""

from __future__ import annotations

import os
import threading

PER_FOLDER = 4
MAX_TOTAL = 64


class Spares:
    """File descriptors by folder; used from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_folder: dict[str, list[int]] = {}
        self._total = 0
        self._closed = False

    def take(self, folder: str) -> int | None:
        with self._lock:
            spares = self._by_folder.get(folder)
            if not spares:
                return None
            self._total -= 1
            return spares.pop()

    def wants(self, folder: str) -> bool:
        with self._lock:
            return not self._closed and len(self._by_folder.get(folder, ())) < PER_FOLDER

    def add(self, folder: str, fd: int) -> None:
        with self._lock:
            if self._closed:
                os.close(fd)
                return
            spares = self._by_folder.pop(folder, [])
            spares.append(fd)
            # At the end: folders that weren't used for longest, such as yesterday's, go first.
            self._by_folder[folder] = spares
            self._total += 1
            while self._total > MAX_TOTAL:
                self._drop(next(iter(self._by_folder)))

    def discard(self, folder: str) -> None:
        """The folder is gone."""
        with self._lock:
            self._drop(folder)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for folder in list(self._by_folder):
                self._drop(folder)

    def _drop(self, folder: str) -> None:
        for fd in self._by_folder.pop(folder, []):
            self._total -= 1
            os.close(fd)
