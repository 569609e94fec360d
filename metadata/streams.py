"""The streams of one MetaDomain: heads, offset index, producers, and their one transaction.

`DomainLog.append` commits any number of WAL objects at once. Every commit checks the version of
each head and each marker that it relies on, also where it only refuses, so a cached value that
somebody else has changed makes a conflict, never a second use of an offset.

What is known of a stream's producers belongs to the head under which it was read: whenever the
head turns out to be another's, they are dropped with it.

Own commits are folded into the cache at once; what others write is read again on a conflict or
when `forget` is called for it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    Lifecycle,
    Marker,
    ProducerState,
    StreamHead,
    WalObject,
    decode,
    encode,
)

RECENT_ENTRIES = 256
MAX_RECENT_ENTRIES = 50_000
"""Over all streams of a domain; an entry takes some 700 bytes."""
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


@dataclass(slots=True)
class _View:
    """What the store holds of everything that occurs in an append, as far as is known. It is
    taken within one turn of the event loop: what is cached may change between two."""

    markers: dict[str, int | None] = field(default_factory=dict)
    heads: dict[int, StreamHead | None] = field(default_factory=dict)
    versions: dict[int, int | None] = field(default_factory=dict)
    producers: dict[ProducerKey, ProducerState | None] = field(default_factory=dict)


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
        on_unknown: Callable[[], None] = lambda: None,
    ) -> None:
        self.domain = domain
        self.scope = keys.domain_scope(domain)
        self.store = self._store = store
        self.turn = asyncio.Lock()
        """Held by whoever changes heads, so that a change among many appends gets its turn. It
        spares conflicts within this process; it is the checks that keep the log right."""
        self._now_ms = now_ms
        self.producer_expiration_ms = producer_expiration_ms
        self._garbage_grace_ms = garbage_grace_ms
        self._on_retry = on_retry
        self._on_unknown = on_unknown
        self._streams: dict[int, Stream] = {}
        self._recent_order: deque[tuple[int, int]] = deque()
        self._producers: dict[int, dict[int, ProducerState | None]] = {}
        self._producer_count = 0
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
            self.forget([stream_id])
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
            self._forget_producers(stream_id)
        return stream

    def forget(self, stream_ids: Iterable[int]) -> None:
        for stream_id in stream_ids:
            self._streams.pop(stream_id, None)
            self._forget_producers(stream_id)

    def _forget_producers(self, stream_id: int) -> None:
        self._producer_count -= len(self._producers.pop(stream_id, ()))

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

    async def producers(self, stream_id: int) -> dict[int, ProducerState]:
        """The producers that the stream remembers. StreamMissing if it doesn't exist."""
        if (await self.refresh(stream_id)).head.state != Lifecycle.ACTIVE:
            raise StreamMissing(f"stream {stream_id} is being deleted")
        prefix = keys.producers(self.domain, stream_id)
        oldest_ms = self._now_ms() - self.producer_expiration_ms
        found = {}
        async for item in self._store.scan(prefix, keys.end_of(prefix), scope=self.scope):
            state = decode(ProducerState, item.value)
            if state.updated_ms >= oldest_ms:
                found[keys.producer_id_of(item.key)] = state
        return found

    # -- appending ---------------------------------------------------------------------------

    async def append(self, objects: Sequence[StoredObject]) -> list[Appended | None]:
        """Makes the objects part of the log in one transaction.

        None in place of an outcome: the object's marker was fenced or is gone, so its bytes
        may be deleted at any moment; or it follows such an object in a stream. It must be
        written again under another id. Raises Unavailable when nothing was committed."""
        async with self.turn:
            return await self._append(objects)

    async def _append(self, objects: Sequence[StoredObject]) -> list[Appended | None]:
        while True:
            view = await self._load(objects)
            usable = _usable(objects, view)
            if not usable:
                return [None] * len(objects)
            plan = plan_append(
                usable,
                view.heads,
                view.producers,
                now_ms=self._now_ms(),
                producer_expiration_ms=self.producer_expiration_ms,
            )
            try:
                version = await self._commit(usable, view, plan)
            except Conflict:
                self._on_retry()
                self.forget(view.heads)
                for marker in view.markers:
                    self._markers.pop(marker, None)
                continue
            self._fold(plan, version)
            results = {
                stored.wal_id: appended
                for stored, appended in zip(usable, plan.objects, strict=True)
            }
            return [results.get(stored.wal_id) for stored in objects]

    async def _load(self, objects: Sequence[StoredObject]) -> _View:
        missing: set[int] = set()
        while True:
            view = _View()
            unread = self._look(objects, missing, view)
            if not unread:
                return view
            for read in unread:
                if isinstance(read, str):
                    await self._read_marker(read)
                elif isinstance(read, tuple):
                    await self._read_producer(*read)
                else:
                    try:
                        await self.refresh(read)
                    except StreamMissing:
                        missing.add(read)

    def _look(
        self, objects: Sequence[StoredObject], missing: set[int], view: _View
    ) -> set[str | int | ProducerKey]:
        """Fills `view` from the cache; returns the markers, streams and producers to be read.
        A head is read before its producers: what is written in between makes a conflict."""
        unread: set[str | int | ProducerKey] = set()
        for stored in objects:
            if stored.marker in self._markers:
                view.markers[stored.marker] = self._markers[stored.marker]
            else:
                unread.add(stored.marker)
            for chunk in stored.chunks:
                stream_id = chunk.stream_id
                stream = self._streams.get(stream_id)
                if stream is None:
                    view.heads[stream_id] = view.versions[stream_id] = None
                    if stream_id not in missing:
                        unread.add(stream_id)
                    continue
                view.heads[stream_id], view.versions[stream_id] = stream.head, stream.version
                known = self._producers.get(stream_id, {})
                for batch in chunk.batches:
                    producer_id = batch.producer_id
                    if producer_id == NO_PRODUCER:
                        continue
                    if producer_id in known:
                        view.producers[stream_id, producer_id] = known[producer_id]
                    else:
                        unread.add((stream_id, producer_id))
        return unread

    async def _read_marker(self, key: str) -> None:
        found = await self._store.get(key, scope=self.scope)
        alive = found is not None and not decode(Marker, found.value).fenced_ms
        self._markers[key] = found.version if found and alive else None

    async def _read_producer(self, stream_id: int, producer_id: int) -> None:
        stream = self._streams.get(stream_id)
        version = None if stream is None else stream.version
        key = keys.producer(self.domain, stream_id, producer_id)
        found = await self._store.get(key, scope=self.scope)
        if stream is None or stream is not self._streams.get(stream_id):
            return
        if stream.version != version:
            # It may be older than the head that came in meanwhile.
            return
        state = None if found is None else decode(ProducerState, found.value)
        self._remember_producers(stream_id, {producer_id: state})

    def _remember_producers(
        self, stream_id: int, states: Mapping[int, ProducerState | None]
    ) -> None:
        known = self._producers.pop(stream_id, {})
        self._producer_count -= len(known)
        known.update(states)
        self._producer_count += len(known)
        # At the end: the streams that weren't used for longest are the first to go.
        self._producers[stream_id] = known

    async def _commit(self, objects: Sequence[StoredObject], view: _View, plan: Plan) -> int:
        now_ms = self._now_ms()
        checks = [
            Check(marker, view.markers[marker]) for marker in {stored.marker for stored in objects}
        ]
        for stream_id in _streams_of(objects):
            key = keys.stream_head(self.domain, stream_id)
            checks.append(Check(key, view.versions[stream_id]))
        writes: list[Put | Delete] = []
        for stream_id, head in plan.heads.items():
            writes.append(Put(keys.stream_head(self.domain, stream_id), encode(head)))
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
            self._on_unknown()
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
        current = set()
        for stream_id, head in plan.heads.items():
            stream = self._streams.get(stream_id)
            # Dropped while we committed, or read again after somebody else's later commit.
            if stream is not None and stream.version <= version:
                stream.head, stream.version = head, version
                current.add(stream_id)
        for appended in plan.objects:
            for stream_id, entry in appended.entries:
                if stream_id in current:
                    self._streams[stream_id].recent.append(entry)
                    self._recent_order.append((stream_id, entry.end_offset))
        while len(self._recent_order) > MAX_RECENT_ENTRIES:
            self._drop_recent(*self._recent_order.popleft())
        for (stream_id, producer_id), state in plan.producers.items():
            if stream_id in current:
                self._remember_producers(stream_id, {producer_id: state})
        while self._producer_count > KNOWN_PRODUCERS:
            self._forget_producers(next(iter(self._producers)))

    def _drop_recent(self, stream_id: int, end_offset: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None and stream.recent and stream.recent[0].end_offset <= end_offset:
            stream.recent.popleft()

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
        async with self.turn:
            return await self._change_head(stream_id, change)

    async def _change_head(
        self, stream_id: int, change: Callable[[StreamHead], StreamHead | None]
    ) -> StreamHead:
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
            self.replaced(stream_id, head, result.version)
            return head

    def replaced(self, stream_id: int, head: StreamHead, version: int) -> None:
        """Folds in a head that this process has committed."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.version > version:
            return
        stream.head, stream.version = head, version
        while stream.recent and stream.recent[0].end_offset <= head.log_start:
            stream.recent.popleft()

    def garbage_at_ms(self) -> int:
        """When an object that loses its last reference now may be deleted."""
        return self._now_ms() + self._garbage_grace_ms


def _usable(objects: Sequence[StoredObject], view: _View) -> list[StoredObject]:
    """Without the objects that have lost their marker, and those that come after them in a
    stream: their turn is after them."""
    usable = []
    held_back: set[int] = set()
    for stored in objects:
        streams = _streams_of([stored])
        if view.markers[stored.marker] is None or not held_back.isdisjoint(streams):
            held_back |= streams
        else:
            usable.append(stored)
    return usable


def _streams_of(objects: Iterable[StoredObject]) -> set[int]:
    return {chunk.stream_id for stored in objects for chunk in stored.chunks}


def wal_id(base: UUID, number: int) -> UUID:
    """The id of the `number`th object of a marker's range."""
    return UUID(bytes=base.bytes[:12] + number.to_bytes(4, "big"))
