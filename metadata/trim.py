"""The log's start moves forward: records before it are gone, a prefix and never a hole.

`trim` moves the start in one transaction on the stream's head, which takes the first entries
wholly below it, and their references, along. A long prefix leaves more entries than one
transaction should carry; `clear_below` removes the rest piece by piece. Nobody reads below the
start, so what is left there costs space only, and the collector finds it after a crash.

The producers of a stream outlive its records: a retry still finds its first attempt.
"""

from __future__ import annotations

import asyncio

import msgspec

from metadata import keys
from metadata.references import PIECE, first_entries, removal
from metadata.store import Check, CommitUnknown, Conflict, Delete, MetadataStore, Put
from metadata.streams import RESOLVE_RETRY_S, DomainLog, StreamMissing
from metadata.values import IndexEntry, Lifecycle, StreamHead, StreamRef, decode, encode

LOG_END = -1
"""As an offset: everything that is there."""


class OutOfRange(Exception):
    """The offset is no place in the log."""


async def trim(log: DomainLog, stream_id: int, offset: int) -> tuple[StreamHead, bool]:
    """The log starts at `offset`, or later if it did already. True: `clear_below` has work."""
    async with log.turn:
        while True:
            stream = await log.refresh(stream_id)
            head = stream.head
            if head.state != Lifecycle.ACTIVE:
                raise StreamMissing(f"stream {stream_id} is being deleted")
            start = head.log_end if offset == LOG_END else offset
            if not 0 <= start <= head.log_end:
                raise OutOfRange(f"{offset} is not in [{head.log_start}, {head.log_end}]")
            if start <= head.log_start:
                return head, False
            trimmed = msgspec.structs.replace(
                head, log_start=start, start_bytes=await _bytes_below(log, stream_id, start, head)
            )
            ref = StreamRef(stream_id, log.domain)
            entries = await first_entries(log.store, ref, start)
            checks, writes = await removal(
                log.store, ref, entries, delete_after_ms=log.garbage_at_ms()
            )
            key = keys.stream_head(log.domain, stream_id)
            put: list[Put | Delete] = [Put(key, encode(trimmed)), *writes]
            try:
                result = await log.store.commit(
                    log.scope, [Check(key, stream.version), *checks], put
                )
            except Conflict:
                continue
            except CommitUnknown:
                # The head tells: the start has moved, or the change is made again.
                await asyncio.sleep(RESOLVE_RETRY_S)
                continue
            log.replaced(stream_id, trimmed, result.version)
            return trimmed, len(entries) == PIECE


async def _bytes_below(log: DomainLog, stream_id: int, start: int, head: StreamHead) -> int:
    """Of the entries that lie wholly below."""
    if start == head.log_end:
        return head.total_bytes
    (entry,) = await log.entries(stream_id, start, 1)
    return entry.end_bytes - entry.size_bytes


async def clear_below(
    store: MetadataStore, ref: StreamRef, log_start: int, *, delete_after_ms: int
) -> int:
    """Removes the entries that end at or before the log's start; returns how many there were.
    May be repeated, also side by side."""
    removed = 0
    while entries := await first_entries(store, ref, log_start):
        checks, writes = await removal(store, ref, entries, delete_after_ms=delete_after_ms)
        try:
            await store.commit(keys.domain_scope(ref.domain), checks, writes)
        except Conflict:
            continue
        removed += len(entries)
    return removed


async def has_entries_below(store: MetadataStore, ref: StreamRef, log_start: int) -> bool:
    found = await store.ceiling(
        keys.index_entry(ref.domain, ref.stream_id, 0), scope=keys.domain_scope(ref.domain)
    )
    if found is None or not found.key.startswith(keys.index(ref.domain, ref.stream_id)):
        return False
    return decode(IndexEntry, found.value).end_offset <= log_start
