"""Objects, batches and brokers for the tests of the log's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

from metadata import keys
from metadata.append import StoredBatch, StoredChunk, StoredObject
from metadata.store import MetadataStore
from metadata.streams import DomainLog
from metadata.values import IndexEntry, Marker, ProducerState, StreamHead, decode

EXPIRATION_MS = 1000
GRACE_MS = 50
TOPIC = UUID(int=7)


class Clock:
    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def domain_log(store: MetadataStore, clock: Clock | None = None, domain: int = 0) -> DomainLog:
    """What one broker knows of a domain."""
    return DomainLog(
        store,
        domain,
        now_ms=clock or Clock(),
        producer_expiration_ms=EXPIRATION_MS,
        garbage_grace_ms=GRACE_MS,
    )


async def marked(log: DomainLog) -> str:
    base = uuid4()
    marker = Marker(1, "incarnation", base, 1000, "", 0)
    return await log.place_marker(base.hex, marker)


async def with_streams(log: DomainLog, *stream_ids: int) -> str:
    """Creates the streams, and a marker to write objects under."""
    await log.create_streams([(n, StreamHead(TOPIC, n)) for n in stream_ids])
    return await marked(log)


def batch(
    records: int = 1,
    *,
    size: int = 100,
    producer: tuple[int, int, int] | None = None,
    times: tuple[int, int] = (10, 20),
) -> StoredBatch:
    """`producer`: id, epoch and base sequence. The position is set by `stored`."""
    return StoredBatch(0, size + 4, records, *times, *(producer or (-1, -1, -1)))


def stored(marker: str, chunks: Mapping[int, Sequence[StoredBatch]]) -> StoredObject:
    """An object with its batches laid out one after the other, as the writer does."""
    position = 200
    laid_out = []
    for stream_id, batches in sorted(chunks.items()):
        placed = []
        for item in batches:
            placed.append(item._replace(position=position))
            position += item.length
        laid_out.append(StoredChunk(stream_id, placed))
    wal_id = uuid4()
    return StoredObject(wal_id, f"wal/{wal_id}.wo", position + 4, marker, laid_out)


async def stored_head(store: MetadataStore, stream_id: int, domain: int = 0) -> StreamHead | None:
    found = await store.get(keys.stream_head(domain, stream_id), scope=keys.domain_scope(domain))
    return None if found is None else decode(StreamHead, found.value)


async def stored_entries(store: MetadataStore, stream_id: int, domain: int = 0) -> list[IndexEntry]:
    prefix = keys.index(domain, stream_id)
    found = store.scan(prefix, keys.end_of(prefix), scope=keys.domain_scope(domain))
    return [decode(IndexEntry, item.value) async for item in found]


async def stored_producer(
    store: MetadataStore, stream_id: int, producer_id: int, domain: int = 0
) -> ProducerState | None:
    found = await store.get(
        keys.producer(domain, stream_id, producer_id), scope=keys.domain_scope(domain)
    )
    return None if found is None else decode(ProducerState, found.value)


async def keys_under(store: MetadataStore, prefix: str, domain: int = 0) -> list[str]:
    found = store.scan(prefix, keys.end_of(prefix), scope=keys.domain_scope(domain))
    return [item.key async for item in found]
