"""Memory for large frames, cut from a few large pieces that are used again and again.

A frame lives from its first byte until its batches leave the hot cache. To get fresh memory for
each one from the kernel costs more than everything else that is done with its bytes: the kernel
clears it page by page. So frames are cut one after the other from arenas that ask for huge pages,
and an arena is used anew when the last view of its last frame is gone.

What lives longest in an arena is the hot cache, which forgets in order of arrival; so arenas come
back in that order too, and one small survivor doesn't hold up many of them.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections import deque

ARENA_BYTES = 16 * 1024 * 1024
FROM_BYTES = 64 * 1024
"""Smaller frames are allocated as usual."""
MAX_FREE = 4
_ALIGN = 64


class _Arena:
    __slots__ = ("live", "memory", "used")

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, ARENA_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        advice = getattr(mmap, "MADV_HUGEPAGE", None)
        if advice is not None:
            self.memory.madvise(advice)
        self.used = 0
        self.live = 0


class FrameMemory:
    """For one thread; only the last view of a frame may be dropped by any thread."""

    def __init__(self) -> None:
        self._current: _Arena | None = None
        self._free: list[_Arena] = []
        # Finalizers run in whatever thread drops the last view, in the middle of anything. They
        # only leave a note here; it is read when the next frame is cut.
        self._released: deque[_Arena] = deque()

    def frame(self, size: int) -> memoryview:
        """Writable memory of `size` bytes, with anything in it."""
        if not FROM_BYTES <= size <= ARENA_BYTES:
            return memoryview(bytearray(size))
        self._take_back()
        arena = self._current
        if arena is None or arena.used + size > ARENA_BYTES:
            arena = self._next()
        # Every view of the frame keeps this object alive, however it was sliced.
        owner = (ctypes.c_ubyte * size).from_buffer(arena.memory, arena.used)
        arena.used += -(-size // _ALIGN) * _ALIGN
        arena.live += 1
        weakref.finalize(owner, self._released.append, arena).atexit = False
        return memoryview(owner).cast("B")

    def _next(self) -> _Arena:
        full = self._current
        self._current = self._free.pop() if self._free else _Arena()
        if full is not None and not full.live:
            self._keep(full)
        return self._current

    def _take_back(self) -> None:
        while self._released:
            arena = self._released.popleft()
            arena.live -= 1
            if not arena.live and arena is not self._current:
                self._keep(arena)

    def _keep(self, arena: _Arena) -> None:
        arena.used = 0
        if len(self._free) < MAX_FREE:
            self._free.append(arena)
