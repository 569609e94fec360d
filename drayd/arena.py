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
    def __init__(self) -> None:
        self._current: _Arena | None = None
        self._free: list[_Arena] = []

    def frame(self, size: int) -> memoryview:
        """Writable memory of `size` bytes, with anything in it."""
        if not FROM_BYTES <= size <= ARENA_BYTES:
            return memoryview(bytearray(size))
        arena = self._current
        if arena is None or arena.used + size > ARENA_BYTES:
            arena = self._next()
        # Every view of the frame keeps this object alive, however it was sliced.
        owner = (ctypes.c_ubyte * size).from_buffer(arena.memory, arena.used)
        arena.used += -(-size // _ALIGN) * _ALIGN
        arena.live += 1
        weakref.finalize(owner, self._released, arena).atexit = False
        return memoryview(owner).cast("B")

    def _next(self) -> _Arena:
        full, self._current = self._current, None
        if full is not None:
            self._recycle(full)
        arena = self._free.pop() if self._free else _Arena()
        self._current = arena
        return arena

    def _released(self, arena: _Arena) -> None:
        arena.live -= 1
        if arena is not self._current:
            self._recycle(arena)

    def _recycle(self, arena: _Arena) -> None:
        # Used already 0: another thread was faster, and it must not be free twice.
        if not arena.live and arena.used:
            arena.used = 0
            if len(self._free) < MAX_FREE:
                self._free.append(arena)
