"""A bounded cache of open file descriptors, shared by the event loop and worker threads.

Invariants: a descriptor is closed only when nobody holds its `Descriptor` any more, so evicting
one never pulls it from under a running read; a file opened before it was deleted is not cached
after that, so deleted objects do not come back or hold their disk space.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock


class Descriptor:
    """Owns a file descriptor; it closes when the last reference goes."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


class DescriptorCache:
    """Least recently used descriptors by path; `limit` of them at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._entries: OrderedDict[str, Descriptor] = OrderedDict()
        self._discards = 0

    def get(self, path: str) -> Descriptor | None:
        with self._lock:
            descriptor = self._entries.get(path)
            if descriptor is not None:
                self._entries.move_to_end(path)
            return descriptor

    def opened(self, path: str, open_path: Callable[[str], Descriptor]) -> Descriptor:
        """The cached descriptor, or a new one from `open_path`, which may block and raise."""
        descriptor = self.get(path)
        if descriptor is not None:
            return descriptor
        discards = self._discards
        descriptor = open_path(path)
        evicted: Descriptor | None = None
        with self._lock:
            if discards == self._discards:
                self._entries[path] = descriptor
                if len(self._entries) > self._limit:
                    _, evicted = self._entries.popitem(last=False)
        del evicted  # closed outside the lock
        return descriptor

    def discard(self, path: str) -> None:
        """Forget a path; call it after the file was removed."""
        with self._lock:
            self._discards += 1
            removed = self._entries.pop(path, None)
        del removed

    def clear(self) -> None:
        with self._lock:
            self._discards += 1
            removed = self._entries
            self._entries = OrderedDict()
        del removed
