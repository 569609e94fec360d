"""Turns the buffer of one MetaDomain into WAL objects and has them committed.

- A domain with nothing in flight flushes at once. While objects are written or committed, what
  arrives gathers until they are done, or until the size limit or the linger time, with up to
  `max_in_flight` PUTs side by side. So few requests wait for little, and many share a flush.
- Commits keep the order in which objects were sealed wherever two of them share a stream; a slow
  PUT holds up only the streams in it. One commit is under way at a time, and takes every object
  that is ready.
- A PUT that fails or is slow is tried again under a new id; after the deadline its waiters are
  told and the queue moves on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from wal.buffer import Batch, Buffer, Sealed, Ticket
from wal.format import Chunk, Placed, encode
from wal.objectstore import AlreadyExists, ObjectStore, ObjectStoreError, Unavailable

log = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 2.0
MAX_OBJECTS_PER_COMMIT = 32


class Name(NamedTuple):
    """An object's identity, given out under a staging marker that is already durable."""

    wal_id: UUID
    path: str
    marker: str


class Names(Protocol):
    async def take(self) -> Name:
        """Raises Unavailable when no marker can be placed."""

    def settled(self, name: Name) -> None:
        """The object is part of the log, or was handed to collection, by a commit."""

    def fenced(self, name: Name) -> None:
        """The object's marker no longer holds: no more names may be taken under it."""


class Written(NamedTuple):
    """An object that is durable in the object store and not yet part of the log."""

    sealed: Sealed
    name: Name
    size: int
    chunks: Sequence[Placed]
    """Where each stream of `sealed` lies, in the same order."""


R = TypeVar("R")


class Sink(Protocol[R]):
    """What becomes of written objects."""

    async def commit(self, objects: Sequence[Written]) -> Sequence[R | None]:
        """One transaction. None: the object's marker is fenced, or it shares a stream with such
        an object before it; write it again. Unavailable: nothing was committed."""

    def deliver(self, written: Written, result: R) -> None: ...

    def fail(self, sealed: Sealed, error: Exception) -> None: ...


@dataclass(frozen=True, slots=True)
class Policy:
    linger_ms: float
    min_linger_ms: float
    max_in_flight: int
    put_timeout_s: float
    hedge_after_s: float | None
    """Start a second attempt when the first takes longer; None: never."""


class _State(Enum):
    WRITING = 0
    WRITTEN = 1
    FAILED = 2


@dataclass(slots=True, eq=False)
class _Object:
    sealed: Sealed
    deadline: float = 0.0
    state: _State = _State.WRITING
    written: Written | None = None
    error: Exception | None = None
    streams: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.streams = frozenset(self.sealed.streams)


class Writer(Generic[R]):
    def __init__(
        self,
        domain: int,
        buffer: Buffer,
        store: ObjectStore,
        names: Names,
        sink: Sink[R],
        policy: Policy,
        *,
        now_ms: Callable[[], int],
        observe_flush: Callable[[int, float], None] = lambda size, seconds: None,
        on_retry: Callable[[], None] = lambda: None,
    ) -> None:
        self._domain = domain
        self._buffer = buffer
        self._store = store
        self._names = names
        self._sink = sink
        self._policy = policy
        self._now_ms = now_ms
        self._observe_flush = observe_flush
        self._on_retry = on_retry
        self._queue: list[_Object] = []
        self._writing = 0
        self._draining = False
        self._flush_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: asyncio.TaskGroup | None = None
        self._loop = asyncio.get_running_loop()

    # -- filling -----------------------------------------------------------------------------

    def reserve(self, stream_id: int, owner: object, slot: int) -> Ticket:
        self._idle.clear()
        return self._buffer.reserve(stream_id, owner, slot)

    def fill(self, ticket: Ticket, batch: Batch) -> None:
        self._buffer.fill(ticket, batch, self._loop.time() * 1000)
        self._poke()

    def drop(self, ticket: Ticket) -> None:
        self._buffer.drop(ticket)
        self._poke()

    @property
    def in_flight(self) -> int:
        return self._writing

    @property
    def buffered_bytes(self) -> int:
        return self._buffer.ready_bytes

    def _poke(self) -> None:
        # At the end of this turn of the loop, so that what arrived together flushes together.
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._tasks is None:
            # Not yet, or no longer: `run` looks at what has gathered.
            return
        policy = self._policy
        while self._writing < policy.max_in_flight and self._buffer.oldest_ms is not None:
            now_ms = self._loop.time() * 1000
            linger_ms = policy.linger_ms if self._queue else policy.min_linger_ms
            left_ms = self._buffer.oldest_ms + linger_ms - now_ms
            if left_ms > 0 and not self._buffer.full and not self._draining:
                self._timer = self._loop.call_later(left_ms / 1000, self._flush)
                return
            sealed = self._buffer.seal(now_ms)
            if sealed is None:
                break
            self._start(sealed)
        if not self._queue and not len(self._buffer):
            self._idle.set()

    # -- writing -----------------------------------------------------------------------------

    def _start(self, sealed: Sealed) -> None:
        stored = _Object(sealed)
        self._queue.append(stored)
        self._write_in_background(stored)

    def _write_in_background(self, stored: _Object) -> None:
        assert self._tasks is not None
        stored.state = _State.WRITING
        stored.deadline = self._loop.time() + self._policy.put_timeout_s
        self._writing += 1
        self._tasks.create_task(self._write(stored))

    async def _write(self, stored: _Object) -> None:
        started = self._loop.time()
        try:
            async with asyncio.timeout_at(stored.deadline):
                stored.written = await self._put_until_stored(stored)
            stored.state = _State.WRITTEN
            self._observe_flush(stored.written.size, self._loop.time() - started)
        except (ObjectStoreError, TimeoutError) as error:
            stored.state, stored.error = _State.FAILED, error
            log.warning("a WAL object of %d bytes wasn't stored: %r", stored.sealed.size, error)
        finally:
            self._writing -= 1
            self._wake.set()
            self._poke()

    async def _put_until_stored(self, stored: _Object) -> Written:
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                return await self._put_hedged(stored)
            except Unavailable as error:
                if self._loop.time() + backoff_s >= stored.deadline:
                    raise
                self._on_retry()
                log.warning("a PUT failed and is tried again: %s", error)
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)

    async def _put_hedged(self, stored: _Object) -> Written:
        if self._policy.hedge_after_s is None:
            return await self._put(stored)
        running = {asyncio.ensure_future(self._put(stored))}
        try:
            done, _ = await asyncio.wait(running, timeout=self._policy.hedge_after_s)
            if not done:
                running.add(asyncio.ensure_future(self._put(stored)))
            failure: Unavailable | None = None
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for attempt in done:
                    try:
                        return attempt.result()
                    except Unavailable as error:
                        failure = error
            assert failure is not None
            raise failure
        finally:
            for attempt in running:
                attempt.cancel()

    async def _put(self, stored: _Object) -> Written:
        while True:
            name = await self._names.take()
            encoded = encode(name.wal_id, self._domain, self._now_ms(), _chunks(stored.sealed))
            try:
                await self._store.put(name.path, encoded.parts)
            except AlreadyExists:
                # Ids are never given out twice, so this is a stranger's file: leave it alone.
                continue
            return Written(stored.sealed, name, encoded.size, encoded.chunks)

    # -- committing --------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until cancelled; `drain` first for an orderly end."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._poke()
            try:
                await self._commit_all()
            finally:
                self._tasks = None

    async def _commit_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._settle_failed() or await self._commit_ready():
                pass
            if not self._queue:
                self._poke()

    async def drain(self) -> None:
        """Flushes without lingering and waits until everything has been answered."""
        self._draining = True
        self._poke()
        await self._idle.wait()

    def _settle_failed(self) -> bool:
        failed = [stored for stored in self._queue if stored.state is _State.FAILED]
        for stored in failed:
            self._queue.remove(stored)
            self._sink.fail(stored.sealed, stored.error or Unavailable("not stored"))
        return bool(failed)

    def _ready(self) -> Iterator[_Object]:
        blocked: set[int] = set()
        for stored in self._queue:
            if stored.state is _State.WRITTEN and blocked.isdisjoint(stored.streams):
                yield stored
            else:
                blocked |= stored.streams

    def _one_commit(self) -> list[_Object]:
        """What is ready, as far as it fits one transaction; at least one if any is."""
        taken: list[_Object] = []
        size = 0
        for stored in islice(self._ready(), MAX_OBJECTS_PER_COMMIT):
            size += stored.sealed.commit_bytes
            if taken and size > self._buffer.max_commit_bytes:
                break
            taken.append(stored)
        return taken

    async def _commit_ready(self) -> bool:
        ready = self._one_commit()
        if not ready:
            return False
        objects = [stored.written for stored in ready if stored.written is not None]
        try:
            results = await self._sink.commit(objects)
        except Unavailable as error:
            for stored in ready:
                stored.state, stored.error = _State.FAILED, error
            return True
        for stored, written, result in zip(ready, objects, results, strict=True):
            if result is None:
                self._names.fenced(written.name)
                self._write_in_background(stored)
                continue
            self._queue.remove(stored)
            self._names.settled(written.name)
            self._sink.deliver(written, result)
        return True


def _chunks(sealed: Sealed) -> list[Chunk]:
    chunks = []
    for stream_id, tickets in sealed.streams.items():
        batches = [ticket.batch for ticket in tickets if ticket.batch is not None]
        chunks.append(
            Chunk(
                stream_id,
                [batch.data for batch in batches],
                sum(batch.record_count for batch in batches),
                min(batch.min_timestamp_ms for batch in batches),
                max(batch.max_timestamp_ms for batch in batches),
            )
        )
    return chunks
