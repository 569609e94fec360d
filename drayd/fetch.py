"""The fetch path: plans what a request may take, and reads it from the cache or from objects.

A fetch scans no index, decodes no record and copies no payload that is in memory. What isn't in
memory is read by range, each range once however many readers wait for it, and the next piece is
read ahead for a reader that has just come from there.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drayd.cache import Cache, Found
from drayd.metrics import Metrics
from metadata.streams import DomainLog
from metadata.values import IndexEntry, Point, Run, StreamRef
from wal.objectstore import NotFound, ObjectStoreError
from wal.reader import CorruptLog, Extent, Reader
from wal.segment import Segment

log = logging.getLogger(__name__)

ENTRIES_PER_LOOKUP = 32
MAX_LOADS = 8
"""Loads from the object store side by side; with the read-ahead size it bounds their memory."""


class Wanted(NamedTuple):
    """A partition's part of a fetch, already checked against the log's bounds."""

    ref: StreamRef
    offset: int
    end_offset: int
    max_bytes: int


def extents(entries: Sequence[IndexEntry], offset: int, max_bytes: int) -> Iterator[Extent]:
    """The byte ranges that hold the batches from `offset` on: about `max_bytes`, cut only
    where the index knows a batch to begin; at least one range."""
    left = max_bytes
    for entry in entries:
        runs, points = entry.runs, entry.points
        # An entry may have as many runs as batches, so each step looks at few of them.
        first = max(bisect_right(runs, offset, key=_start_offset) - 1, 0)
        for number in range(first, len(runs)):
            run = runs[number]
            last = number + 1 == len(runs)
            end_offset = entry.end_offset if last else runs[number + 1].start_offset
            if end_offset <= offset:
                continue
            # Every run begins with a point.
            at = bisect_right(points, max(offset, run.start_offset), key=_base_offset) - 1
            start = points[at]
            end_position = run.position + run.length
            cut = bisect_left(points, start.position + max(left, 1), at + 1, key=_position)
            if cut < len(points) and points[cut].position < end_position:
                end_position, end_offset = points[cut].position, points[cut].base_offset
            length = end_position - start.position
            yield Extent(entry.path, start.position, length, start.base_offset, end_offset)
            offset = end_offset
            left -= length
            if left <= 0:
                return


def _start_offset(run: Run) -> int:
    return run.start_offset


def _base_offset(point: Point) -> int:
    return point.base_offset


def _position(point: Point) -> int:
    return point.position


class Fetcher:
    def __init__(
        self,
        domains: Sequence[DomainLog],
        cache: Cache,
        reader: Reader,
        metrics: Metrics,
        *,
        read_ahead_bytes: int,
    ) -> None:
        self._domains = domains
        self._cache = cache
        self._reader = reader
        self._metrics = metrics
        self._read_ahead_bytes = read_ahead_bytes
        self._loads = asyncio.Semaphore(MAX_LOADS)
        self._loading: dict[tuple[int, int], asyncio.Task[list[Segment]]] = {}

    def read_cached(self, wanted: Wanted, max_bytes: int) -> Found | None:
        """What the cache has, or None if the object store must be asked."""
        if wanted.offset >= wanted.end_offset:
            return Found([], 0, wanted.offset)
        found = self._cache.read(wanted.ref.stream_id, wanted.offset, max_bytes)
        if not found.buffers:
            return None
        self._metrics.hot_cache_hits.inc()
        self._read_ahead(wanted, found.next_offset)
        return found

    async def read(self, wanted: Wanted, max_bytes: int) -> Found:
        """From the cache or the object store. Raises CorruptLog or ObjectStoreError."""
        found = self.read_cached(wanted, max_bytes)
        if found is None:
            self._metrics.hot_cache_misses.inc()
            found = await self._read_cold(wanted, max_bytes)
            self._read_ahead(wanted, found.next_offset)
        return found

    async def _read_cold(self, wanted: Wanted, max_bytes: int) -> Found:
        stream_id = wanted.ref.stream_id
        segments = await self._load(wanted.ref, wanted.offset)
        found = self._cache.read(stream_id, wanted.offset, max_bytes)
        if found.buffers:
            return found
        # The cache was too small to keep them even this long.
        for segment in segments:
            if segment.start_offset <= wanted.offset < segment.end_offset:
                part = segment.take(wanted.offset, max_bytes)
                return Found(part.buffers, part.size, part.next_offset)
        raise CorruptLog(f"the index has no entry for offset {wanted.offset}")

    def _read_ahead(self, wanted: Wanted, offset: int) -> None:
        """Has the piece ready that follows the one which holds `offset`."""
        stream_id = wanted.ref.stream_id
        segment = self._cache.find(stream_id, offset) if offset < wanted.end_offset else None
        if segment is not None:
            offset = segment.end_offset
        if offset >= wanted.end_offset or self._cache.find(stream_id, offset) is not None:
            return
        # Whoever reads there next meets an error again, and reports it.
        self._start(wanted.ref, offset).add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )

    async def _load(self, ref: StreamRef, offset: int) -> list[Segment]:
        # Shielded: other readers may wait for the same load.
        return await asyncio.shield(self._start(ref, offset))

    def _start(self, ref: StreamRef, offset: int) -> asyncio.Task[list[Segment]]:
        key = (ref.stream_id, offset)
        task = self._loading.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._load_segments(ref, offset))
            self._loading[key] = task
            task.add_done_callback(lambda _: self._loading.pop(key, None))
        return task

    async def _load_segments(self, ref: StreamRef, offset: int) -> list[Segment]:
        domain = self._domains[ref.domain]
        try:
            return await self._load_entries(domain, ref.stream_id, offset)
        except NotFound as missing:
            # The entry may have been replaced while we looked: ask the store, not the cache.
            domain.forget([ref.stream_id])
            try:
                return await self._load_entries(domain, ref.stream_id, offset)
            except NotFound:
                self._metrics.object_reads_failed["missing"].inc()
                log.error("an object that the index names is gone: %s", missing)
                raise
        except CorruptLog as error:
            self._metrics.object_reads_failed["corrupt"].inc()
            log.error("a stored object is damaged: %s", error)
            raise

    async def _load_entries(self, domain: DomainLog, stream_id: int, offset: int) -> list[Segment]:
        async with self._loads:
            return await self._read_entries(domain, stream_id, offset)

    async def _read_entries(self, domain: DomainLog, stream_id: int, offset: int) -> list[Segment]:
        entries = await domain.entries(stream_id, offset, ENTRIES_PER_LOOKUP)
        stream = await domain.stream(stream_id)
        epoch = stream.head.leader_epoch
        results = await asyncio.gather(
            *(
                self._reader.segment(extent, epoch)
                for extent in extents(entries, offset, self._read_ahead_bytes)
            ),
            return_exceptions=True,
        )
        segments: list[Segment] = []
        for result in results:
            if isinstance(result, BaseException):
                if segments and isinstance(result, CorruptLog | ObjectStoreError):
                    # What comes before the damage can still be read.
                    break
                raise result
            segments.append(result)
            self._cache.insert(stream_id, result)
        return segments

    async def close(self) -> None:
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        await self._reader.close()
