"""Stores that do something at a chosen call: let somebody else act, or die."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from metadata.store import (
    Check,
    CommitResult,
    Delete,
    KeyValue,
    MetadataStore,
    Put,
    Session,
    Versioned,
    Watch,
)
from wal.objectstore import Buffer, ObjectInfo, ObjectStore

Hook = Callable[[], Awaitable[None]]


class Died(Exception):
    """Stands for the end of the process: nothing may catch it."""


class Countdown:
    """Calls `hook` once, at the `number`th call (from 0) that passes here."""

    def __init__(self, number: int, hook: Hook) -> None:
        self._left = number
        self._hook = hook
        self.reached = False

    async def tick(self) -> None:
        self._left -= 1
        if self._left < 0 and not self.reached:
            self.reached = True
            await self._hook()


async def die() -> None:
    raise Died


class HookedMetadata:
    """Ticks before each call and after each commit."""

    def __init__(self, inner: MetadataStore, countdown: Countdown) -> None:
        self._inner = inner
        self._countdown = countdown

    async def get(self, key: str, *, scope: str) -> Versioned | None:
        await self._countdown.tick()
        return await self._inner.get(key, scope=scope)

    async def ceiling(self, key: str, *, scope: str) -> KeyValue | None:
        await self._countdown.tick()
        return await self._inner.ceiling(key, scope=scope)

    async def scan(
        self,
        start: str,
        end: str,
        *,
        scope: str,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[KeyValue]:
        await self._countdown.tick()
        async for row in self._inner.scan(start, end, scope=scope, limit=limit, reverse=reverse):
            yield row

    async def commit(
        self, scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]
    ) -> CommitResult:
        await self._countdown.tick()
        result = await self._inner.commit(scope, checks, writes)
        await self._countdown.tick()
        return result

    def watch(self, prefix: str) -> Watch:
        return self._inner.watch(prefix)

    async def session(self, ttl: float) -> Session:
        return await self._inner.session(ttl)

    async def close(self) -> None:
        await self._inner.close()


class HookedObjects:
    """Ticks before each call and after each change."""

    def __init__(self, inner: ObjectStore, countdown: Countdown) -> None:
        self._inner = inner
        self._countdown = countdown

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._countdown.tick()
        await self._inner.put(path, parts)
        await self._countdown.tick()

    async def get(self, path: str) -> bytes:
        await self._countdown.tick()
        return await self._inner.get(path)

    async def get_range(self, path: str, start: int, length: int) -> Buffer:
        await self._countdown.tick()
        return await self._inner.get_range(path, start, length)

    async def head(self, path: str) -> ObjectInfo:
        await self._countdown.tick()
        return await self._inner.head(path)

    async def delete(self, path: str) -> None:
        await self._countdown.tick()
        await self._inner.delete(path)
        await self._countdown.tick()

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        await self._countdown.tick()
        async for info in self._inner.list(prefix):
            yield info

    async def close(self) -> None:
        await self._inner.close()
