"""Whole record batches of one stream in memory, ready to be sent with their offsets set.

`Slab` holds them side by side: many small batches are one slice to a reader. `Loose` holds large
batches where they were read; only their first sixteen bytes, which carry base offset and leader
epoch, are kept apart, so nothing is copied or changed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from struct import Struct
from typing import NamedTuple

from protocol.batch import patch

_HEAD = Struct(">qii")
HEAD_BYTES = _HEAD.size
"""Base offset, length, leader epoch."""


class Slice(NamedTuple):
    buffers: list[memoryview | bytes]
    size: int
    next_offset: int
    """The offset after the last batch in `buffers`."""


class Slab:
    """Offsets [start_offset, end_offset). Only the last slab of a stream grows."""

    __slots__ = ("_bases", "_positions", "_view", "end_offset", "start_offset", "used")

    def __init__(self, buffer: bytearray | memoryview, start_offset: int) -> None:
        self._view = memoryview(buffer)
        self._bases = array("q")
        self._positions = array("q")
        self.used = 0
        self.start_offset = start_offset
        self.end_offset = start_offset

    @property
    def capacity(self) -> int:
        return len(self._view)

    def add(self, batch: memoryview, record_count: int, leader_epoch: int) -> bool:
        """Copies a batch to the end; False if it doesn't fit."""
        at = self.used
        end = at + len(batch)
        if end > len(self._view):
            return False
        self._view[at:end] = batch
        self.adopt(at, end, record_count, leader_epoch)
        return True

    def adopt(self, at: int, end: int, record_count: int, leader_epoch: int) -> None:
        """Takes in the batch that lies at [at, end) of the buffer, right behind the last one."""
        patch(self._view, at, self.end_offset, leader_epoch)
        self._bases.append(self.end_offset)
        self._positions.append(at)
        self.used = end
        self.end_offset += record_count

    def take(self, offset: int, max_bytes: int) -> Slice:
        """Batches from the one that holds `offset`, at most `max_bytes` but at least one."""
        first = bisect_right(self._bases, offset) - 1
        start, end, next_offset = self._positions[first], self.used, self.end_offset
        if end - start > max_bytes:
            last = max(bisect_right(self._positions, start + max_bytes) - 1, first + 1)
            if last < len(self._positions):
                end, next_offset = self._positions[last], self._bases[last]
        return Slice([self._view[start:end]], end - start, next_offset)


class Loose:
    """Offsets [start_offset, end_offset); the buffers may be read-only and shared."""

    __slots__ = ("_bases", "_parts", "_sizes", "end_offset", "start_offset")

    def __init__(self, start_offset: int) -> None:
        self._bases = array("q")
        self._sizes = array("q", [0])
        """Bytes before each batch, and at last of all."""
        self._parts: list[memoryview | bytes] = []
        self.start_offset = start_offset
        self.end_offset = start_offset

    @property
    def capacity(self) -> int:
        return self._sizes[-1]

    def adopt(self, batch: memoryview, record_count: int, leader_epoch: int) -> None:
        """Takes in the batch that follows the last one."""
        self._parts.append(_HEAD.pack(self.end_offset, len(batch) - 12, leader_epoch))
        self._parts.append(batch[HEAD_BYTES:])
        self._bases.append(self.end_offset)
        self._sizes.append(self._sizes[-1] + len(batch))
        self.end_offset += record_count

    def take(self, offset: int, max_bytes: int) -> Slice:
        """As `Slab.take`."""
        first = bisect_right(self._bases, offset) - 1
        before = self._sizes[first]
        last = max(bisect_right(self._sizes, before + max_bytes) - 1, first + 1)
        next_offset = self.end_offset if last == len(self._bases) else self._bases[last]
        return Slice(self._parts[2 * first : 2 * last], self._sizes[last] - before, next_offset)


Segment = Slab | Loose
