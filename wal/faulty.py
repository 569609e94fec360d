"""An object store that fails on demand: for tests only.

Faults are planned per kind of call and used up in order, one per call:

    store.plan("put", Fault.FAIL, times=2)     # the next two puts do nothing, Unavailable
    store.plan("put", Fault.LOSE_ANSWER)       # the one after is done, but Unavailable
    gate = store.hold("get")                   # the next get waits for gate.open()
    await gate.reached.wait()

A call without a plan passes through. Held calls are held before anything is done; a cancelled
one leaves nothing. `get` stands for `get` and `get_range`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import Enum
from typing import Literal, TypeVar

from wal.objectstore import Buffer, ObjectInfo, ObjectStore, Unavailable

T = TypeVar("T")

Operation = Literal["put", "get", "head", "delete", "list"]


class Fault(Enum):
    FAIL = "nothing is done and the call fails"
    LOSE_ANSWER = "it is done and the call fails"


class Gate:
    """Holds calls until it is opened; `reached` is set when the first one arrives."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def pass_through(self) -> None:
        self.reached.set()
        await self._opened.wait()


class Faulty:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._plans: defaultdict[Operation, deque[Fault | Gate | None]] = defaultdict(deque)
        self.calls: Counter[Operation] = Counter()

    def plan(self, operation: Operation, fault: Fault | None, times: int = 1) -> None:
        """Let the next `times` unplanned calls meet the fault; None lets them succeed."""
        self._plans[operation].extend([fault] * times)

    def hold(self, operation: Operation, times: int = 1) -> Gate:
        """Hold the next `times` unplanned calls at one gate."""
        gate = Gate()
        self._plans[operation].extend([gate] * times)
        return gate

    def clear(self) -> None:
        """Forget what is planned; calls already held stay held."""
        self._plans.clear()

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._call("put", path, lambda: self._store.put(path, parts))

    async def get(self, path: str) -> bytes:
        return await self._call("get", path, lambda: self._store.get(path))

    async def get_range(self, path: str, start: int, length: int) -> Buffer:
        return await self._call("get", path, lambda: self._store.get_range(path, start, length))

    async def head(self, path: str) -> ObjectInfo:
        return await self._call("head", path, lambda: self._store.head(path))

    async def delete(self, path: str) -> None:
        await self._call("delete", path, lambda: self._store.delete(path))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        await self._call("list", prefix, _nothing)
        async for info in self._store.list(prefix):
            yield info

    async def close(self) -> None:
        await self._store.close()

    async def _call(self, operation: Operation, path: str, work: Callable[[], Awaitable[T]]) -> T:
        self.calls[operation] += 1
        plans = self._plans[operation]
        planned = plans.popleft() if plans else None
        if planned is Fault.FAIL:
            raise Unavailable(f"planned failure of {operation} {path}")
        if isinstance(planned, Gate):
            await planned.pass_through()
        result = await work()
        if planned is Fault.LOSE_ANSWER:
            raise Unavailable(f"planned loss of the answer to {operation} {path}")
        return result


async def _nothing() -> None:
    return
