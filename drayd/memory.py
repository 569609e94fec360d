"""How the C library keeps the memory of frames, and how often Python looks for cycles.

Frames of about a megabyte come and go all the time, at the pace of the hot cache. Left alone,
glibc gives each of them back to the kernel and takes it anew, page fault by page fault: a third
of the broker's time under load. Keeping freed memory for the next frame avoids that; what is kept
is bounded by the most that was in use, which the settings bound.
"""

from __future__ import annotations

import ctypes
import gc
import sys

_COLLECT_EVERY = (20_000, 20, 20)

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 1 << 30
_FROM_HEAP_BYTES = 32 * 1024 * 1024


def keep_freed_memory() -> None:
    """Has no effect where the C library isn't glibc."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES)


def look_for_cycles_seldom() -> None:
    """Called once all is loaded. What lives as long as the process isn't looked through again, and
    what is made for requests, which rarely forms cycles, less often: that took a tenth of the time
    of small requests."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_EVERY)
