"""Batches in memory, by stream and offset: the newest ones from produce, and what was read back.

Two budgets, so that a reader who catches up doesn't push out the log's tail: `hot` is filled by
commits and forgets the oldest, `cold` is filled by reads and forgets the least recently used.
Nothing here is authoritative.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import NamedTuple

from wal.buffer import Batch
from wal.segment import Loose, Segment, Slab

KEEP_FROM_BYTES = 32 * 1024
FIRST_SLAB_BYTES = 4 * 1024
LAST_SLAB_BYTES = 256 * 1024


class Found(NamedTuple):
    buffers: list[memoryview | bytes]
    size: int
    next_offset: int


class _Tier:
    """Segments of many streams within one budget, in the order in which they go."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._order: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._streams: dict[int, list[Segment]] = {}

    def segments(self, stream_id: int) -> list[Segment]:
        return self._streams.get(stream_id, [])

    def find(self, stream_id: int, offset: int) -> Segment | None:
        segments = self._streams.get(stream_id)
        if not segments:
            return None
        at = bisect_right(segments, offset, key=_start) - 1
        if at < 0 or segments[at].end_offset <= offset:
            return None
        return segments[at]

    def tail(self, stream_id: int) -> Segment | None:
        segments = self._streams.get(stream_id)
        return segments[-1] if segments else None

    def insert(self, stream_id: int, segment: Segment, held_bytes: int) -> None:
        segments = self._streams.setdefault(stream_id, [])
        at = bisect_right(segments, segment.start_offset, key=_start)
        if at and segments[at - 1].start_offset == segment.start_offset:
            self._remove(stream_id, segment.start_offset)
            segments = self._streams.setdefault(stream_id, [])
            at -= 1
        segments.insert(at, segment)
        self._order[(stream_id, segment.start_offset)] = held_bytes
        self.bytes += held_bytes
        while self.bytes > self.max_bytes and self._order:
            self._remove(*next(iter(self._order)))

    def touch(self, stream_id: int, segment: Segment) -> None:
        key = (stream_id, segment.start_offset)
        if key in self._order:
            self._order.move_to_end(key)

    def drop(self, stream_id: int) -> None:
        for segment in list(self._streams.get(stream_id, ())):
            self._remove(stream_id, segment.start_offset)

    def trim(self, stream_id: int, log_start: int) -> None:
        for segment in list(self._streams.get(stream_id, ())):
            if segment.end_offset <= log_start:
                self._remove(stream_id, segment.start_offset)

    def _remove(self, stream_id: int, start_offset: int) -> None:
        self.bytes -= self._order.pop((stream_id, start_offset))
        segments = self._streams[stream_id]
        at = bisect_right(segments, start_offset, key=_start) - 1
        del segments[at]
        if not segments:
            del self._streams[stream_id]


def _start(segment: Segment) -> int:
    return segment.start_offset


class Cache:
    def __init__(self, *, hot_max_bytes: int, cold_max_bytes: int) -> None:
        self._hot = _Tier(hot_max_bytes)
        self._cold = _Tier(cold_max_bytes)

    @property
    def hot_bytes(self) -> int:
        return self._hot.bytes

    @property
    def cold_bytes(self) -> int:
        return self._cold.bytes

    def append(self, stream_id: int, batch: Batch, base_offset: int, leader_epoch: int) -> None:
        """Takes in a batch that was just committed."""
        size = len(batch.data)
        if size > self._hot.max_bytes:
            return
        # A slice must not keep a frame alive that is much larger than itself.
        if size >= KEEP_FROM_BYTES and batch.owned_bytes <= 2 * size:
            loose = Loose(base_offset)
            loose.adopt(batch.data, batch.record_count, leader_epoch)
            self._hot.insert(stream_id, loose, batch.owned_bytes)
            return
        tail = self._hot.tail(stream_id)
        grown = FIRST_SLAB_BYTES
        if isinstance(tail, Slab) and tail.end_offset == base_offset:
            if tail.add(batch.data, batch.record_count, leader_epoch):
                return
            grown = min(2 * tail.capacity, LAST_SLAB_BYTES)
        slab_bytes = max(size, grown)
        slab = Slab(bytearray(slab_bytes), base_offset)
        slab.add(batch.data, batch.record_count, leader_epoch)
        self._hot.insert(stream_id, slab, slab_bytes)

    def insert(self, stream_id: int, segment: Segment) -> None:
        """Takes in what was read back from an object."""
        self._cold.insert(stream_id, segment, segment.capacity)

    def find(self, stream_id: int, offset: int) -> Segment | None:
        segment = self._hot.find(stream_id, offset)
        if segment is None:
            segment = self._cold.find(stream_id, offset)
            if segment is not None:
                self._cold.touch(stream_id, segment)
        return segment

    def read(self, stream_id: int, offset: int, max_bytes: int) -> Found:
        """Batches from `offset` on, as far as they are here: at most `max_bytes`, but the
        first one in any case."""
        buffers: list[memoryview | bytes] = []
        size = 0
        while size < max_bytes or not buffers:
            segment = self.find(stream_id, offset)
            if segment is None:
                break
            part = segment.take(offset, max_bytes - size)
            if buffers and size + part.size > max_bytes:
                break
            buffers += part.buffers
            size += part.size
            offset = part.next_offset
        return Found(buffers, size, offset)

    def trim(self, stream_id: int, log_start: int) -> None:
        """Forgets what lies wholly before the log's start."""
        self._hot.trim(stream_id, log_start)
        self._cold.trim(stream_id, log_start)

    def drop(self, stream_id: int) -> None:
        self._hot.drop(stream_id)
        self._cold.drop(stream_id)
