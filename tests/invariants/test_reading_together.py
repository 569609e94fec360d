"""Readers that want the same bytes of one object at the same moment."""

from __future__ import annotations

import asyncio
from uuid import UUID

from tests.protocol.building import batch
from wal.format import Chunk, encode
from wal.objectstore import open_store
from wal.reader import Extent, Reader


async def test_two_readers_of_one_extent() -> None:
    data = batch()
    store = open_store("memory://")
    encoded = encode(UUID(int=1), 0, 0, [Chunk(7, [data], 1, 0, 0)])
    await store.put("object", encoded.parts)
    (placed,) = encoded.chunks
    reader = Reader(store)
    extents = [Extent("object", placed.offset, placed.length, base, base + 1) for base in (5, 5, 9)]
    async with asyncio.timeout(60):
        segments = await asyncio.gather(*(reader.segment(extent, 0) for extent in extents))
    # Each has bytes of its own: their base offsets differ.
    for extent, segment in zip(extents, segments, strict=True):
        found = b"".join(segment.take(extent.base_offset, 1).buffers)
        assert found[:8] == extent.base_offset.to_bytes(8, "big")
        assert found[21:] == data[21:]
    await reader.close()
    await store.close()
