"""Whole record batches of one stream in one piece of memory, ready to be sent.

Base offsets and leader epochs are already in the batches' headers. Small batches lie side by side,
so that a reader of a million tiny batches takes one slice; large ones stay where they were
received or read, with whatever was between them left out of what is taken.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

from protocol.batch import patch


class Slice(NamedTuple):
    buffers: list[memoryview]
    size: int
    next_offset: int
    """The offset after the last batch in `buffers`."""


class Segment:
    """Offsets [start_offset, end_offset). Only the last segment of a stream grows."""

    __slots__ = ("_bases", "_gap", "_positions", "_view", "end_offset", "start_offset", "used")

    def __init__(self, buffer: bytearray | memoryview, start_offset: int, *, gap: int = 0) -> None:
        """`gap`: bytes between one batch and the next that don't belong to either."""
        self._view = memoryview(buffer)
        self._gap = gap
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
        """Takes in the batch that lies at [at, end) of the buffer and follows the last one."""
        patch(self._view, at, self.end_offset, leader_epoch)
        self._bases.append(self.end_offset)
        self._positions.append(at)
        self.used = end
        self.end_offset += record_count

    def take(self, offset: int, max_bytes: int) -> Slice:
        """Batches from the one that holds `offset`, at most `max_bytes` but at least one."""
        first = bisect_right(self._bases, offset) - 1
        start = self._positions[first]
        last = len(self._positions)
        if self.used - start > max_bytes:
            last = max(bisect_right(self._positions, start + max_bytes) - 1, first + 1)
        return self._slice(first, last)

    def _slice(self, first: int, last: int) -> Slice:
        """The batches numbered first … last - 1."""
        at_end = last == len(self._positions)
        next_offset = self.end_offset if at_end else self._bases[last]
        end = self.used if at_end else self._positions[last] - self._gap
        view, positions, gap = self._view, self._positions, self._gap
        if not gap:
            data = view[positions[first] : end]
            return Slice([data], len(data), next_offset)
        buffers = [view[positions[i] : positions[i + 1] - gap] for i in range(first, last - 1)]
        buffers.append(view[positions[last - 1] : end])
        return Slice(buffers, sum(map(len, buffers)), next_offset)
