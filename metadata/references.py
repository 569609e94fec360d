"""Takes streams out of the references of WAL objects.

References are sets, so a repeated removal does no harm. The change belongs into the transaction
that removes the index entries; the last stream to leave hands the object to collection.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec

from metadata import keys
from metadata.store import Check, Delete, KeyValue, MetadataStore, Put
from metadata.values import Garbage, IndexEntry, StreamRef, WalObject, decode, encode

PIECE = 32
"""Keys per transaction of a large change: small enough not to starve in a busy domain."""


async def first_entries(store: MetadataStore, ref: StreamRef, end_offset: int) -> list[KeyValue]:
    """The first index entries that end at or before `end_offset`, at most a piece."""
    scope = keys.domain_scope(ref.domain)
    found = store.scan(
        keys.index_entry(ref.domain, ref.stream_id, 0),
        keys.index_entry(ref.domain, ref.stream_id, end_offset + 1),
        scope=scope,
        limit=PIECE,
    )
    return [item async for item in found]


async def unrefer(
    store: MetadataStore, ref: StreamRef, wal_ids: Iterable[UUID], *, delete_after_ms: int
) -> tuple[list[Check], list[Put | Delete]]:
    """The change that takes a stream out of the references of these objects."""
    checks: list[Check] = []
    writes: list[Put | Delete] = []
    for wal_id in wal_ids:
        key = keys.wal_object(ref.domain, wal_id)
        found = await store.get(key, scope=keys.domain_scope(ref.domain))
        if found is None:
            continue
        record = decode(WalObject, found.value)
        left = tuple(stream for stream in record.streams if stream != ref.stream_id)
        checks.append(Check(key, found.version))
        if left:
            writes.append(Put(key, encode(msgspec.structs.replace(record, streams=left))))
            continue
        unused = Garbage(record.path, delete_after_ms)
        writes.append(Delete(key))
        writes.append(Put(keys.garbage_object(ref.domain, wal_id), encode(unused)))
    return checks, writes


async def removal(
    store: MetadataStore, ref: StreamRef, entries: Iterable[KeyValue], *, delete_after_ms: int
) -> tuple[list[Check], list[Put | Delete]]:
    """The change that removes index entries together with their references."""
    entries = list(entries)
    wal_ids = {decode(IndexEntry, item.value).wal_id for item in entries}
    checks, writes = await unrefer(store, ref, wal_ids, delete_after_ms=delete_after_ms)
    return checks, [*(Delete(item.key) for item in entries), *writes]
