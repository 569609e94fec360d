"""Stores, brokers and collectors under one clock that only the test moves.

A `Broker` is the produce path in single steps (take a name, PUT, commit), so that a test can
stop between any two of them. Its records are plain text, checked when they are read back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from compactor import Collector, Policy
from drayd.names import MAX_AGE_MS, MarkedNames
from drayd.topics import new_topic_id
from metadata import keys
from metadata.append import Appended, StoredBatch, StoredChunk, StoredObject
from metadata.memory import MemoryState, MemoryStore
from metadata.store import MetadataStore
from metadata.streams import DomainLog
from metadata.topics import NewTopic, Topics
from metadata.values import IndexEntry, StreamHead, Topic, decode
from wal.format import Chunk, encode
from wal.objectstore import Buffer, ObjectInfo, ObjectStore, open_store
from wal.paths import WAL_PREFIX
from wal.writer import Name

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
START_MS = 1_750_000_000_000
GRACE_MS = 10 * MINUTE_MS
TTL_MS = DAY_MS
PRODUCER_EXPIRATION_MS = DAY_MS
CLUSTER = "cluster-under-test"


class Clock:
    def __init__(self) -> None:
        self.ms = START_MS

    def __call__(self) -> int:
        return self.ms


class Dated:
    """An object store in which an object is as old as the test's clock says."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self.inner = store
        self._clock = clock
        self._modified_ms: dict[str, int] = {}

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        # Before it can be listed.
        self._modified_ms[path] = self._clock()
        await self.inner.put(path, parts)

    async def get(self, path: str) -> bytes:
        return await self.inner.get(path)

    async def get_range(self, path: str, start: int, length: int) -> Buffer:
        return await self.inner.get_range(path, start, length)

    async def head(self, path: str) -> ObjectInfo:
        return self._dated(await self.inner.head(path))

    async def delete(self, path: str) -> None:
        await self.inner.delete(path)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async for info in self.inner.list(prefix):
            yield self._dated(info)

    async def close(self) -> None:
        await self.inner.close()

    def _dated(self, info: ObjectInfo) -> ObjectInfo:
        return info._replace(modified_ms=self._modified_ms[info.path])


class Written(NamedTuple):
    name: Name
    stored: StoredObject


class Broker:
    def __init__(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        clock: Clock,
        *,
        domains: int = 1,
        incarnation: str = "one",
        range_size: int = 4,
    ) -> None:
        self.store = store
        self.objects = objects
        self.clock = clock
        self.incarnation = incarnation
        self.domains = [
            DomainLog(
                store,
                number,
                now_ms=clock,
                producer_expiration_ms=PRODUCER_EXPIRATION_MS,
                garbage_grace_ms=GRACE_MS,
            )
            for number in range(domains)
        ]
        self.names = [
            MarkedNames(
                domain,
                broker_id=1,
                incarnation=incarnation,
                zone="",
                range_size=range_size,
                now_ms=clock,
            )
            for domain in self.domains
        ]
        self.topics = Topics(store, self.domains, now_ms=clock, garbage_grace_ms=GRACE_MS)

    async def create(self, name: str, partitions: int = 1) -> Topic:
        now_ms = self.clock()
        return await self.topics.create(
            NewTopic(name, new_topic_id(now_ms), partitions, {}, now_ms)
        )

    async def put(
        self,
        records: Mapping[int, str],
        *,
        domain: int = 0,
        producer_id: int = -1,
        sequence: int = 0,
    ) -> Written:
        """Stores one record per stream in one object."""
        name = await self.names[domain].take()
        return await self.put_as(name, records, domain, producer_id, sequence)

    async def put_as(
        self,
        name: Name,
        records: Mapping[int, str],
        domain: int = 0,
        producer_id: int = -1,
        sequence: int = 0,
    ) -> Written:
        now_ms = self.clock()
        streams = sorted(records)
        encoded = encode(
            name.wal_id,
            domain,
            now_ms,
            [Chunk(stream, [records[stream].encode()], 1, now_ms, now_ms) for stream in streams],
        )
        await self.objects.put(name.path, encoded.parts)
        chunks = [
            StoredChunk(
                stream,
                [
                    StoredBatch(
                        placed.offset, placed.length, 1, now_ms, now_ms, producer_id, 0, sequence
                    )
                ],
            )
            for stream, placed in zip(streams, encoded.chunks, strict=True)
        ]
        return Written(
            name, StoredObject(name.wal_id, name.path, encoded.size, name.marker, chunks)
        )

    async def commit(self, written: Written, *, domain: int = 0) -> Appended | None:
        [result] = await self.domains[domain].append([written.stored])
        if result is not None:
            self.names[domain].settled(written.name)
        return result

    async def produce(self, records: Mapping[int, str], *, domain: int = 0) -> Appended:
        """As the writer does: what was fenced is written again."""
        while True:
            appended = await self.commit(await self.put(records, domain=domain), domain=domain)
            if appended is not None:
                return appended


class World:
    def __init__(self, objects: ObjectStore | None = None, *, domains: int = 1) -> None:
        self.clock = Clock()
        self.state = MemoryState()
        self.store = self.client()
        self.objects = Dated(objects or open_store("memory://"), self.clock)
        self.domain_count = domains

    def client(self) -> MemoryStore:
        """Another process's connection to the same metadata."""
        return MemoryStore(self.state)

    def broker(
        self,
        *,
        store: MetadataStore | None = None,
        objects: ObjectStore | None = None,
        incarnation: str = "one",
        range_size: int = 4,
    ) -> Broker:
        return Broker(
            store or self.client(),
            objects or self.objects,
            self.clock,
            domains=self.domain_count,
            incarnation=incarnation,
            range_size=range_size,
        )

    def policy(self, *, sole_owner: bool = False, incarnation: str = "collector") -> Policy:
        return Policy(
            cluster_id=CLUSTER,
            incarnation=incarnation,
            sole_owner=sole_owner,
            interval_ms=MINUTE_MS,
            sweep_interval_ms=DAY_MS,
            producer_check_interval_ms=GRACE_MS,
            orphan_ttl_ms=TTL_MS,
            grace_ms=GRACE_MS,
            range_life_ms=MAX_AGE_MS,
            producer_expiration_ms=PRODUCER_EXPIRATION_MS,
        )

    def collector(
        self,
        *,
        store: MetadataStore | None = None,
        objects: ObjectStore | None = None,
        sole_owner: bool = False,
        incarnation: str = "collector",
    ) -> Collector:
        store = store or self.store
        objects = objects or self.objects
        domains = Broker(store, objects, self.clock, domains=self.domain_count).domains
        policy = self.policy(sole_owner=sole_owner, incarnation=incarnation)
        return Collector(store, objects, domains, policy, now_ms=self.clock)

    async def paths(self) -> set[str]:
        """WAL objects in the store."""
        return {info.path async for info in self.objects.list(WAL_PREFIX)}

    async def keys(self, prefix: str) -> list[str]:
        scope = keys.scope_of(prefix)
        return [
            item.key async for item in self.store.scan(prefix, keys.end_of(prefix), scope=scope)
        ]

    async def markers(self, domain: int = 0) -> list[str]:
        return await self.keys(keys.staging(domain))

    async def garbage(self, domain: int = 0) -> list[UUID]:
        return [keys.wal_id_of(key) for key in await self.keys(keys.garbage(domain))]

    async def records(self, domain: int = 0) -> list[UUID]:
        return [keys.wal_id_of(key) for key in await self.keys(keys.wal_objects(domain))]

    async def heads(self, domain: int = 0) -> dict[int, StreamHead]:
        found = {}
        async for item in self.store.scan(
            keys.stream_head(domain, 0),
            keys.stream_head(domain, 10**19),
            scope=keys.domain_scope(domain),
        ):
            found[int(item.key.split("/")[-2])] = decode(StreamHead, item.value)
        return found

    async def read(self, stream_id: int, domain: int = 0) -> list[str]:
        """Every record of a stream, from the objects that its index names."""
        prefix = keys.index(domain, stream_id)
        scope = keys.domain_scope(domain)
        records = []
        async for item in self.store.scan(prefix, keys.end_of(prefix), scope=scope):
            entry = decode(IndexEntry, item.value)
            data = await self.objects.get(entry.path)
            records += [
                bytes(data[run.position + 4 : run.position + run.length]).decode()
                for run in entry.runs
            ]
        return records
