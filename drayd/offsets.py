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
    async for entry in _entries(broker, ref, max(start, head.log_start)):
        # The running maximum may be that of records which are deleted.
        if entry.max_timestamp_ms < timestamp_ms:
            continue
        first = max(entry.start_offset, head.log_start)
        async for header, batch in _batches(broker, ref, first, entry.end_offset):
            if header.max_timestamp < timestamp_ms:
                continue
            found = first_record_at_or_after(
                batch,
                timestamp_ms,
                from_delta=max(head.log_start - header.base_offset, 0),
                max_decompressed_bytes=limit,
            )
            if found is not None:
                return OffsetAt(header.base_offset + found.offset_delta, found.timestamp_ms)
    return None


async def of_max_timestamp(broker: Broker, ref: StreamRef, head: StreamHead) -> OffsetAt | None:
    """The first record with the log's largest timestamp."""
    if head.log_start == head.log_end or head.max_timestamp_ms < 0:
        return None
    if head.max_timestamp_offset < head.log_start:
        # That record may be deleted; look among those that are left.
        return await _newest(broker, ref, head)
    # Only the batch at that offset is looked into.
    at = head.max_timestamp_offset
    return await _newest_of_batches(broker, ref, head, at, at + 1)


async def _newest(broker: Broker, ref: StreamRef, head: StreamHead) -> OffsetAt | None:
    newest: IndexEntry | None = None
    best: OffsetAt | None = None
    async for entry in _entries(broker, ref, head.log_start):
        if entry.start_offset < head.log_start:
            # Only part of it is left, so its maximum says nothing.
            best = await _newest_of_batches(broker, ref, head, head.log_start, entry.end_offset)
        elif newest is None or entry.max_timestamp_ms > newest.max_timestamp_ms:
            newest = entry
    if newest is None or (best is not None and best.timestamp_ms >= newest.max_timestamp_ms):
        return best
    return await by_timestamp(broker, ref, head, newest.max_timestamp_ms)


async def _newest_of_batches(
    broker: Broker, ref: StreamRef, head: StreamHead, offset: int, end_offset: int
) -> OffsetAt | None:
    limit = broker.settings.record_decompress_max_bytes
    best: OffsetAt | None = None
    async for header, batch in _batches(broker, ref, offset, end_offset):
        if best is not None and header.max_timestamp <= best.timestamp_ms:
            continue
        found = record_with_max_timestamp(
            batch,
            from_delta=max(head.log_start - header.base_offset, 0),
            max_decompressed_bytes=limit,
        )
        if found is not None and (best is None or found.timestamp_ms > best.timestamp_ms):
            best = OffsetAt(header.base_offset + found.offset_delta, found.timestamp_ms)
    return best


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
