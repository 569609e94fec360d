"""Whole record batches of one stream in one piece of memory, ready to be sent.

Base offsets and leader epochs are already in the batches' headers. Batches that are small are
copied side by side into slabs, so that a reader of a million tiny batches takes one slice; a
large batch stays where it was received.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

from protocol.batch import patch


class Slice(NamedTuple):
    data: memoryview
    next_offset: int
    """The offset after the last batch in `data`."""


class Segment:
    """Offsets [start_offset, end_offset). Only the last segment of a stream grows."""

    __slots__ = ("_bases", "_buffer", "_positions", "_view", "end_offset", "start_offset", "used")

    def __init__(self, buffer: bytearray | memoryview, start_offset: int) -> None:
        self._buffer = buffer
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
        if self.used - start <= max_bytes:
            return Slice(self._view[start : self.used], self.end_offset)
        last = bisect_right(self._positions, start + max_bytes) - 1
        if last <= first:
            last = first + 1
            if last == len(self._positions):
                return Slice(self._view[start : self.used], self.end_offset)
        return Slice(self._view[start : self._positions[last]], self._bases[last])
