"""A log that was really written: objects in a store, and the index that names them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from metadata.append import Appended, StoredBatch, StoredChunk, StoredObject
from metadata.store import MetadataStore
from metadata.streams import DomainLog
from metadata.values import StreamRef
from protocol.batch import iter_batches
from tests.metadata.stored import domain_log, with_streams
from wal.format import Chunk, encode
from wal.objectstore import ObjectStore

STREAM = 5
REF = StreamRef(STREAM, 0)


class WrittenLog:
    """One stream, or several, of domain 0."""

    def __init__(self, domain: DomainLog, objects: ObjectStore, marker: str) -> None:
        self.domain = domain
        self.objects = objects
        self.marker = marker
        self.paths: list[str] = []

    @classmethod
    async def create(
        cls, metadata: MetadataStore, objects: ObjectStore, *streams: int
    ) -> WrittenLog:
        domain = domain_log(metadata)
        return cls(domain, objects, await with_streams(domain, *(streams or (STREAM,))))

    async def write(self, batches: Sequence[bytes], stream_id: int = STREAM) -> Appended:
        """An object with these batches."""
        return await self.write_all({stream_id: batches})

    async def write_all(self, chunks: dict[int, Sequence[bytes]]) -> Appended:
        wal_id = uuid4()
        encoded = encode(
            wal_id, 0, 0, [Chunk(stream_id, data, 1, 0, 0) for stream_id, data in chunks.items()]
        )
        path = f"wal/{wal_id}.wo"
        await self.objects.put(path, encoded.parts)
        stored = []
        for (stream_id, batches), placed in zip(chunks.items(), encoded.chunks, strict=True):
            position = placed.offset
            described = []
            for data in batches:
                ((_, header),) = iter_batches(data)
                times = (header.base_timestamp, header.max_timestamp)
                producer = (header.producer_id, header.producer_epoch, header.base_sequence)
                described.append(
                    StoredBatch(position, len(data) + 4, header.record_count, *times, *producer)
                )
                position += len(data) + 4
            stored.append(StoredChunk(stream_id, described))
        item = StoredObject(wal_id, path, encoded.size, self.marker, stored)
        (result,) = await self.domain.append([item])
        assert result is not None
        self.paths.append(path)
        return result

    @property
    def end_offset(self) -> int:
        stream = self.domain.cached(STREAM)
        assert stream is not None
        return stream.head.log_end
