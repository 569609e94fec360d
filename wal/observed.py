"""An object store that reports every call: what, how it ended, how long, how many bytes.

The report is made also for a call that fails or is cancelled; the observer must not raise.
A listing is one call, timed from its first item asked for to its end.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from wal.objectstore import (
    AlreadyExists,
    Buffer,
    NotFound,
    ObjectInfo,
    ObjectStore,
    Unavailable,
)

Operation = Literal["put", "get", "head", "delete", "list"]
Outcome = Literal["ok", "not_found", "already_exists", "unavailable", "cancelled", "error"]


class Observation(NamedTuple):
    operation: Operation
    outcome: Outcome
    seconds: float
    byte_count: int


class Observed:
    def __init__(
        self,
        store: ObjectStore,
        observe: Callable[[Observation], None],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._observe = observe
        self._clock = clock

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        with self._timed("put") as call:
            await self._store.put(path, parts)
            call.byte_count = sum(map(len, parts))

    async def get(self, path: str) -> bytes:
        with self._timed("get") as call:
            data = await self._store.get(path)
            call.byte_count = len(data)
        return data

    async def get_range(self, path: str, start: int, length: int) -> Buffer:
        with self._timed("get") as call:
            data = await self._store.get_range(path, start, length)
            call.byte_count = len(data)
        return data

    async def head(self, path: str) -> ObjectInfo:
        with self._timed("head"):
            return await self._store.head(path)

    async def delete(self, path: str) -> None:
        with self._timed("delete"):
            await self._store.delete(path)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        with self._timed("list"):
            async for info in self._store.list(prefix):
                yield info

    async def close(self) -> None:
        await self._store.close()

    @contextmanager
    def _timed(self, operation: Operation) -> Iterator[_Call]:
        call = _Call()
        outcome: Outcome = "error"
        started = self._clock()
        try:
            yield call
            outcome = "ok"
        except NotFound:
            outcome = "not_found"
            raise
        except AlreadyExists:
            outcome = "already_exists"
            raise
        except Unavailable:
            outcome = "unavailable"
            raise
        except (CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        finally:
            seconds = self._clock() - started
            self._observe(Observation(operation, outcome, seconds, call.byte_count))


class _Call:
    __slots__ = ("byte_count",)

    def __init__(self) -> None:
        self.byte_count = 0
