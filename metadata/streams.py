"""The streams of one MetaDomain: heads, offset index, producers, and their one transaction.

`DomainLog.append` commits any number of WAL objects at once. Every commit checks the version of
each head that it replaces and of each marker that it relies on, so a cached value that somebody
else has changed makes a conflict, never a second use of an offset.

Own commits are folded into the cache at once; what others write is read again on a conflict or
when `forget` is called for it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from metadata import keys
from metadata.append import (
    NO_PRODUCER,
    Appended,
    Plan,
    ProducerKey,
    StoredObject,
    plan_append,
)
from metadata.store import Check, CommitUnknown, Conflict, Delete, MetadataStore, Put, Unavailable
from metadata.values import (
    Garbage,
    IndexEntry,
    Marker,
    ProducerState,
    StreamHead,
    WalObject,
    decode,
    encode,
)

RECENT_ENTRIES = 256
KNOWN_PRODUCERS = 100_000
RESOLVE_RETRY_S = 0.2


class StreamMissing(Exception):
    """The domain has no such stream."""


class Stream:
    """What this process knows of one stream."""

    __slots__ = ("head", "recent", "version")

    def __init__(self, head: StreamHead, version: int) -> None:
        self.head = head
        self.version = version
        self.recent: deque[IndexEntry] = deque(maxlen=RECENT_ENTRIES)
        """The newest entries without a gap, as far as they were written by this process."""


class DomainLog:
    def __init__(
        self,
        store: MetadataStore,
        domain: int,
        *,
        now_ms: Callable[[], int],
        producer_expiration_ms: int,
        garbage_grace_ms: int,
        on_retry: Callable[[], None] = lambda: None,
    ) -> None:
        self.domain = domain
        self.scope = keys.domain_scope(domain)
        self._store = store
        self._now_ms = now_ms
        self._producer_expiration_ms = producer_expiration_ms
        self._garbage_grace_ms = garbage_grace_ms
        self._on_retry = on_retry
        self._streams: dict[int, Stream] = {}
        self._producers: dict[ProducerKey, ProducerState | None] = {}
        self._markers: dict[str, int | None] = {}

    # -- reading -----------------------------------------------------------------------------

    def cached(self, stream_id: int) -> Stream | None:
        return self._streams.get(stream_id)

    async def stream(self, stream_id: int) -> Stream:
        """From the cache, or read. StreamMissing if it doesn't exist."""
        stream = self._streams.get(stream_id)
        return stream if stream is not None else await self.refresh(stream_id)

    async def refresh(self, stream_id: int) -> Stream:
        """Reads the head, so that another broker's acknowledged writes are seen."""
        found = await self._store.get(keys.stream_head(self.domain, stream_id), scope=self.scope)
        if found is None:
            self._streams.pop(stream_id, None)
            raise StreamMissing(f"stream {stream_id} doesn't exist in domain {self.domain}")
        stream = self._streams.get(stream_id)
        if stream is None:
            stream = self._streams[stream_id] = Stream(
                decode(StreamHead, found.value), found.version
            )
        elif found.version > stream.version:
            # Another writer was here: the cached entries no longer reach the log's end.
            stream.head, stream.version = decode(StreamHead, found.value), found.version
            stream.recent.clear()
        return stream

    def forget(self, stream_ids: Iterable[int]) -> None:
        for stream_id in stream_ids:
            self._streams.pop(stream_id, None)

    async def entries(self, stream_id: int, offset: int, limit: int) -> list[IndexEntry]:
        """Up to `limit` entries in order, from the one that covers `offset`."""
        stream = await self.stream(stream_id)
        recent = stream.recent
        if recent and recent[0].start_offset <= offset:
            at = bisect_right(recent, offset, key=lambda entry: entry.end_offset)
            return [recent[i] for i in range(at, min(len(recent), at + limit))]
        found = self._store.scan(
            keys.index_entry(self.domain, stream_id, offset + 1),
            keys.end_of(keys.index(self.domain, stream_id)),
            scope=self.scope,
            limit=limit,
        )
        return [decode(IndexEntry, item.value) async for item in found]

    # -- appending ---------------------------------------------------------------------------

    async def append(self, objects: Sequence[StoredObject]) -> list[Appended | None]:
        """Makes the objects part of the log in one transaction.

        None in place of an outcome: the object's marker was fenced or is gone, so its bytes
        may be deleted at any moment and must be written again under another id. Raises
        Unavailable when nothing was committed."""
        while True:
            await self._load(objects)
            usable = [stored for stored in objects if self._markers[stored.marker] is not None]
            if not usable:
                return [None] * len(objects)
            plan = plan_append(
                usable,
                {stream_id: self._head(stream_id) for stream_id in _streams_of(usable)},
                self._producers,
                now_ms=self._now_ms(),
                producer_expiration_ms=self._producer_expiration_ms,
            )
            try:
                version = await self._commit(usable, plan)
            except Conflict:
                self._on_retry()
                self._drop_cached(objects)
                continue
            self._fold(plan, version)
            results = iter(plan.objects)
            return [
                next(results) if self._markers[stored.marker] is not None else None
                for stored in objects
            ]

    async def _load(self, objects: Sequence[StoredObject]) -> None:
        for stored in objects:
            if stored.marker not in self._markers:
                found = await self._store.get(stored.marker, scope=self.scope)
                alive = found is not None and not decode(Marker, found.value).fenced_ms
                self._markers[stored.marker] = found.version if found and alive else None
            for chunk in stored.chunks:
                if chunk.stream_id not in self._streams:
                    try:
                        await self.refresh(chunk.stream_id)
                    except StreamMissing:
                        continue
                for batch in chunk.batches:
                    key = (chunk.stream_id, batch.producer_id)
                    if batch.producer_id != NO_PRODUCER and key not in self._producers:
                        await self._load_producer(key)

    async def _load_producer(self, key: ProducerKey) -> None:
        found = await self._store.get(keys.producer(self.domain, *key), scope=self.scope)
        self._producers[key] = None if found is None else decode(ProducerState, found.value)

    def _head(self, stream_id: int) -> StreamHead | None:
        stream = self._streams.get(stream_id)
        return None if stream is None else stream.head

    async def _commit(self, objects: Sequence[StoredObject], plan: Plan) -> int:
        now_ms = self._now_ms()
        checks = [
            Check(marker, self._markers[marker]) for marker in {stored.marker for stored in objects}
        ]
        writes: list[Put | Delete] = []
        for stream_id, head in plan.heads.items():
            key = keys.stream_head(self.domain, stream_id)
            checks.append(Check(key, self._streams[stream_id].version))
            writes.append(Put(key, encode(head)))
        for (stream_id, producer_id), state in plan.producers.items():
            writes.append(Put(keys.producer(self.domain, stream_id, producer_id), encode(state)))
        for stored, appended in zip(objects, plan.objects, strict=True):
            for stream_id, entry in appended.entries:
                writes.append(
                    Put(keys.index_entry(self.domain, stream_id, entry.end_offset), encode(entry))
                )
            streams = tuple(stream_id for stream_id, _ in appended.entries)
            writes.append(self._record(stored, streams, now_ms))
        try:
            result = await self._store.commit(self.scope, checks, writes)
        except CommitUnknown:
            return await self._resolve(objects[0])
        return result.version

    def _record(self, stored: StoredObject, streams: tuple[int, ...], now_ms: int) -> Put:
        if streams:
            record = WalObject(stored.path, stored.size, now_ms, streams)
            return Put(keys.wal_object(self.domain, stored.wal_id), encode(record))
        # Nothing in it was accepted: nobody will ever read it.
        unused = Garbage(stored.path, now_ms + self._garbage_grace_ms)
        return Put(keys.garbage_object(self.domain, stored.wal_id), encode(unused))

    async def _resolve(self, witness: StoredObject) -> int:
        """After an unknown outcome the object's own record tells: it is written by exactly one
        transaction. Until the store can be read nothing else is committed here."""
        while True:
            try:
                for key in (
                    keys.wal_object(self.domain, witness.wal_id),
                    keys.garbage_object(self.domain, witness.wal_id),
                ):
                    found = await self._store.get(key, scope=self.scope)
                    if found is not None:
                        return found.version
                raise Conflict("the commit didn't happen")
            except (Unavailable, CommitUnknown):
                await asyncio.sleep(RESOLVE_RETRY_S)

    def _fold(self, plan: Plan, version: int) -> None:
        for appended in plan.objects:
            for stream_id, entry in appended.entries:
                self._streams[stream_id].recent.append(entry)
        for stream_id, head in plan.heads.items():
            stream = self._streams[stream_id]
            stream.head, stream.version = head, version
        self._producers.update(plan.producers)
        while len(self._producers) > KNOWN_PRODUCERS:
            del self._producers[next(iter(self._producers))]

    def _drop_cached(self, objects: Sequence[StoredObject]) -> None:
        streams = _streams_of(objects)
        self.forget(streams)
        for key in [key for key in self._producers if key[0] in streams]:
            del self._producers[key]
        for stored in objects:
            self._markers.pop(stored.marker, None)

    # -- markers -----------------------------------------------------------------------------

    async def place_marker(self, range_id: str, marker: Marker) -> str:
        """Must be committed before the first PUT of an object that it covers."""
        key = keys.marker(self.domain, range_id)
        result = await self._store.commit(
            self.scope, [Check(key, None)], [Put(key, encode(marker))]
        )
        self._markers[key] = result.version
        return key

    async def remove_marker(self, key: str) -> None:
        """When every object of the range has been committed or is known to be absent."""
        self._markers.pop(key, None)
        await self._store.commit(self.scope, [], [Delete(key)])

    # -- life of streams ---------------------------------------------------------------------

    async def create_streams(self, heads: Sequence[tuple[int, StreamHead]]) -> None:
        writes = [
            Put(keys.stream_head(self.domain, stream_id), encode(head)) for stream_id, head in heads
        ]
        checks = [Check(put.key, None) for put in writes]
        result = await self._store.commit(self.scope, checks, writes)
        for stream_id, head in heads:
            self._streams[stream_id] = Stream(head, result.version)

    async def change_head(
        self, stream_id: int, change: Callable[[StreamHead], StreamHead | None]
    ) -> StreamHead:
        """Replaces a head by `change(head)`, or leaves it when that gives None."""
        while True:
            stream = await self.refresh(stream_id)
            head = change(stream.head)
            if head is None:
                return stream.head
            key = keys.stream_head(self.domain, stream_id)
            try:
                result = await self._store.commit(
                    self.scope, [Check(key, stream.version)], [Put(key, encode(head))]
                )
            except Conflict:
                continue
            except CommitUnknown:
                # `change` is asked again about what the store holds now.
                await asyncio.sleep(RESOLVE_RETRY_S)
                continue
            stream.head, stream.version = head, result.version
            return head


def _streams_of(objects: Iterable[StoredObject]) -> set[int]:
    return {chunk.stream_id for stored in objects for chunk in stored.chunks}


def wal_id(base: UUID, number: int) -> UUID:
    """The id of the `number`th object of a marker's range."""
    return UUID(bytes=base.bytes[:12] + number.to_bytes(4, "big"))
