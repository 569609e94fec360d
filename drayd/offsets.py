"""Offsets by time. The index keeps a running maximum of timestamps, so the entry is found by
binary search; only then are batches looked into."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from drayd.broker import Broker
from drayd.fetch import Wanted
from metadata.values import IndexEntry, StreamHead, StreamRef
from protocol.batch import (
    BatchHeader,
    first_record_at_or_after,
    iter_batches,
    record_with_max_timestamp,
)

READ_BYTES = 1024 * 1024
ENTRIES_PER_STEP = 64


class OffsetAt(NamedTuple):
    offset: int
    timestamp_ms: int


async def by_timestamp(
    broker: Broker, ref: StreamRef, head: StreamHead, timestamp_ms: int
) -> OffsetAt | None:
    """The first record with at least this timestamp."""
    start = await _first_reaching(broker, ref, head, timestamp_ms)
    if start is None:
        return None
    limit = broker.settings.record_decompress_max_bytes
    async for header, batch in _batches(broker, ref, start, head.log_end):
        if header.max_timestamp >= timestamp_ms and header.end_offset > head.log_start:
            found = first_record_at_or_after(batch, timestamp_ms, max_decompressed_bytes=limit)
            if found is not None:
                return OffsetAt(header.base_offset + found.offset_delta, found.timestamp_ms)
    return None


async def of_max_timestamp(broker: Broker, ref: StreamRef, head: StreamHead) -> OffsetAt | None:
    """The first record with the log's largest timestamp."""
    if head.log_start == head.log_end or head.max_timestamp_ms < 0:
        return None
    start = head.max_timestamp_offset
    if start < head.log_start:
        # That record is gone; look for the newest among those that are left.
        newest = None
        async for entry in _entries(broker, ref, head.log_start):
            if newest is None or entry.max_timestamp_ms > newest.max_timestamp_ms:
                newest = entry
        if newest is None:
            return None
        return await by_timestamp(broker, ref, head, newest.max_timestamp_ms)
    limit = broker.settings.record_decompress_max_bytes
    async for header, batch in _batches(broker, ref, start, head.log_end):
        found = record_with_max_timestamp(batch, max_decompressed_bytes=limit)
        if found is not None:
            return OffsetAt(header.base_offset + found.offset_delta, found.timestamp_ms)
    return None


async def _first_reaching(
    broker: Broker, ref: StreamRef, head: StreamHead, timestamp_ms: int
) -> int | None:
    low, high = head.log_start, head.log_end
    found: int | None = None
    while low < high:
        entries = await broker.domain(ref).entries(ref.stream_id, (low + high) // 2, 1)
        if not entries:
            break
        (entry,) = entries
        if entry.running_max_timestamp_ms >= timestamp_ms:
            found = high = entry.start_offset
        else:
            low = entry.end_offset
    return found


async def _entries(broker: Broker, ref: StreamRef, offset: int) -> AsyncIterator[IndexEntry]:
    while entries := await broker.domain(ref).entries(ref.stream_id, offset, ENTRIES_PER_STEP):
        for entry in entries:
            yield entry
        offset = entries[-1].end_offset


async def _batches(
    broker: Broker, ref: StreamRef, offset: int, end_offset: int
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    while offset < end_offset:
        found = await broker.fetcher.read(Wanted(ref, offset, end_offset, READ_BYTES), READ_BYTES)
        whole = memoryview(b"".join(found.buffers))
        for at, header in iter_batches(whole):
            yield header, whole[at : at + header.size]
        offset = found.next_offset
