"""An object store that answers later than it could: for tests and benchmarks only.

A store that answers in no time hides every mistake (architecture, decision 10). What changes
the store waits `put_ms` after it is done, as if the answer were still on its way; what reads
waits `get_ms`. Delays of concurrent calls overlap, as those of a network do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from wal.objectstore import Buffer, ObjectInfo, ObjectStore


class Delayed:
    def __init__(self, store: ObjectStore, *, put_ms: float = 0, get_ms: float = 0) -> None:
        if put_ms < 0 or get_ms < 0:
            raise ValueError(f"delays put_ms {put_ms} and get_ms {get_ms} must not be negative")
        self._store = store
        self._put_seconds = put_ms / 1000
        self._get_seconds = get_ms / 1000

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._store.put(path, parts)
        await _wait(self._put_seconds)

    async def get(self, path: str) -> bytes:
        await _wait(self._get_seconds)
        return await self._store.get(path)

    async def get_range(self, path: str, start: int, length: int) -> Buffer:
        await _wait(self._get_seconds)
        return await self._store.get_range(path, start, length)

    async def head(self, path: str) -> ObjectInfo:
        await _wait(self._get_seconds)
        return await self._store.head(path)

    async def delete(self, path: str) -> None:
        await self._store.delete(path)
        await _wait(self._put_seconds)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        await _wait(self._get_seconds)
        async for info in self._store.list(prefix):
            yield info

    async def close(self) -> None:
        await self._store.close()


async def _wait(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)
