"""Reads record batches back from WAL objects.

What one turn of the event loop asks of an object is fetched together: a fetch over many
partitions pays one range read where their chunks lie side by side. Every batch is checked
against its own CRC before it leaves, so a damaged object is an error here and not at a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from protocol.batch import HEADER_SIZE
from wal.objectstore import ObjectStore, ObjectStoreError
from wal.segment import Loose, Segment, Slab

MERGE_GAP_BYTES = 256 * 1024
MAX_MERGED_BYTES = 16 * 1024 * 1024
KEEP_APART_FROM_BYTES = 16 * 1024

_U32 = Struct(">I")
# Of a batch header: length, leader epoch, magic, crc, attributes, last offset delta.
_HEAD = Struct(">iibIhi")
_HEAD_AT = 8
_CRC_FROM = 21
_MAGIC = 2


class CorruptLog(Exception):
    """The stored bytes aren't what the index says."""


class Extent(NamedTuple):
    """Whole batches, with their length prefixes, in an object."""

    path: str
    position: int
    length: int
    base_offset: int
    end_offset: int


class _Read(NamedTuple):
    start: int
    length: int
    done: asyncio.Future[memoryview]


class Reader:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._asked: dict[str, list[_Read]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def segment(self, extent: Extent, leader_epoch: int) -> Segment:
        """Raises CorruptLog, or what the object store raises."""
        raw = await self._read(extent.path, extent.position, extent.length)
        if len(raw) != extent.length:
            raise CorruptLog(
                f"{extent.path} ends within the {extent.length} bytes at {extent.position}"
            )
        try:
            return to_segment(raw, extent.base_offset, extent.end_offset, leader_epoch)
        except CorruptLog as error:
            raise CorruptLog(f"{extent.path} at {extent.position}: {error}") from None

    async def _read(self, path: str, start: int, length: int) -> memoryview:
        done: asyncio.Future[memoryview] = self._loop.create_future()
        reads = self._asked.get(path)
        if reads is None:
            self._asked[path] = [_Read(start, length, done)]
            self._loop.call_soon(self._issue, path)
        else:
            reads.append(_Read(start, length, done))
        return await done

    def _issue(self, path: str) -> None:
        reads = sorted(self._asked.pop(path), key=lambda read: (read.start, read.length))
        group: list[_Read] = []
        end = 0
        for read in reads:
            if group and not _joins(group[0].start, end, read):
                self._spawn(path, group)
                group, end = [], 0
            group.append(read)
            end = max(end, read.start + read.length)
        self._spawn(path, group)

    def _spawn(self, path: str, group: list[_Read]) -> None:
        task = self._loop.create_task(self._fetch(path, group))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _fetch(self, path: str, group: list[_Read]) -> None:
        start = group[0].start
        end = max(read.start + read.length for read in group)
        try:
            data = memoryview(await self._store.get_range(path, start, end - start))
        except (ObjectStoreError, asyncio.CancelledError) as error:
            for read in group:
                if not read.done.done():
                    read.done.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        # Small batches are moved together in place: two askers must not have the same bytes.
        shared = len(group) > 1
        for read in group:
            if not read.done.done():
                part = data[read.start - start : read.start - start + read.length]
                read.done.set_result(part.toreadonly() if shared else part)

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


def _joins(start: int, end: int, read: _Read) -> bool:
    """Whether a read is fetched together with those that cover [start, end)."""
    return (
        read.start <= end + MERGE_GAP_BYTES and read.start + read.length - start <= MAX_MERGED_BYTES
    )


def to_segment(raw: memoryview, base_offset: int, end_offset: int, leader_epoch: int) -> Segment:
    """Checks the batches and sets their offsets. Large ones stay where they are; small ones are
    moved together, in place if `raw` can be written to."""
    segment: Segment
    if len(raw) >= _U32.size and _U32.unpack_from(raw)[0] >= KEEP_APART_FROM_BYTES:
        segment = loose = Loose(base_offset)
        for at, end, records in _batches(raw):
            loose.adopt(raw[at:end], records, leader_epoch)
    else:
        if raw.readonly:
            raw = memoryview(bytearray(raw))
        segment = slab = Slab(raw, base_offset)
        out = 0
        for at, end, records in _batches(raw):
            size = end - at
            raw[out : out + size] = raw[at:end]
            slab.adopt(out, out + size, records, leader_epoch)
            out += size
    if segment.end_offset != end_offset:
        raise CorruptLog(f"the batches end at {segment.end_offset}, not at {end_offset}")
    return segment


def _batches(raw: memoryview) -> Iterator[tuple[int, int, int]]:
    """Where each batch begins and ends, and its records. What is behind the end of the batch at
    hand isn't looked at before the next one is asked for."""
    size_of, head_of = _U32.unpack_from, _HEAD.unpack_from
    total = len(raw)
    at = 0
    while at < total:
        if at + _U32.size + HEADER_SIZE > total:
            raise CorruptLog(f"{total - at} bytes are left where a batch should be")
        (size,) = size_of(raw, at)
        at += _U32.size
        length, _, magic, crc, _, last_delta = head_of(raw, at + _HEAD_AT)
        if length != size - 12 or magic != _MAGIC or last_delta < 0 or at + size > total:
            raise CorruptLog("the header of a batch makes no sense")
        if crc32c(raw[at + _CRC_FROM : at + size]) != crc:
            raise CorruptLog("the CRC of a batch doesn't match")
        yield at, at + size, last_delta + 1
        at += size
