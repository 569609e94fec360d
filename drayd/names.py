"""Names for WAL objects, given out under staging markers that are durable already.

A marker covers a range of ids, so a flush doesn't pay for one: the next range is reserved while
the present one is in use. A range's marker is removed when every id that was taken from it was
settled by a commit; otherwise it stays, and collection finds what a failed PUT has left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

from metadata import store as metastore
from metadata.streams import DomainLog, wal_id
from metadata.values import Marker
from wal.objectstore import Unavailable
from wal.paths import wal_path
from wal.writer import Name

log = logging.getLogger(__name__)

# A path has the day on which its range was reserved, so a range isn't kept for long.
MAX_AGE_MS = 3_600_000


@dataclass(slots=True, eq=False)
class _Range:
    key: str
    base: UUID
    count: int
    created_ms: int
    taken: int = 0
    settled: int = 0
    retired: bool = False


class MarkedNames:
    def __init__(
        self,
        domain: DomainLog,
        *,
        broker_id: int,
        incarnation: str,
        zone: str,
        range_size: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._domain = domain
        self._broker_id = broker_id
        self.incarnation = incarnation
        self._zone = zone
        self._range_size = range_size
        self._now_ms = now_ms
        self._current: _Range | None = None
        self._next: asyncio.Task[_Range] | None = None
        self._ranges: dict[str, _Range] = {}
        self._removing: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    async def take(self) -> Name:
        current = self._current
        if current is None or not self._usable(current):
            current = await self._advance()
        number = current.taken
        current.taken += 1
        if current.taken * 2 >= current.count and self._next is None:
            self._next = asyncio.ensure_future(self._reserve())
        identity = wal_id(current.base, number)
        path = wal_path(self._zone, self._domain.domain, current.created_ms, identity)
        return Name(identity, path, current.key)

    def settled(self, name: Name) -> None:
        used = self._ranges.get(name.marker)
        if used is not None:
            used.settled += 1
            self._remove_if_done(used)

    def fenced(self, name: Name) -> None:
        """The collector has taken the range for abandoned; it also removes the marker."""
        used = self._ranges.get(name.marker)
        if used is not None:
            used.count = used.taken

    async def close(self) -> None:
        """Removes the markers of ranges that have nothing unsettled."""
        if self._next is not None:
            await asyncio.gather(self._next, return_exceptions=True)
        for used in list(self._ranges.values()):
            used.retired = True
            self._remove_if_done(used)
        await asyncio.gather(*self._removing, return_exceptions=True)

    def _usable(self, used: _Range) -> bool:
        return used.taken < used.count and self._now_ms() - used.created_ms < MAX_AGE_MS

    async def _advance(self) -> _Range:
        async with self._lock:
            while self._current is None or not self._usable(self._current):
                try:
                    fresh = await self._fresh()
                except metastore.StoreError as error:
                    raise Unavailable(f"no staging marker can be placed: {error}") from error
                if self._current is not None:
                    self._current.retired = True
                    self._remove_if_done(self._current)
                self._current = fresh
            return self._current

    async def _fresh(self) -> _Range:
        waiting, self._next = self._next, None
        if waiting is not None:
            try:
                return await waiting
            except metastore.StoreError as error:
                # That may have been a while ago.
                log.info("no staging marker was reserved ahead: %s", error)
        return await self._reserve()

    async def _reserve(self) -> _Range:
        base = UUID(bytes=uuid4().bytes[:12] + bytes(4))
        marker = Marker(
            broker_id=self._broker_id,
            incarnation=self.incarnation,
            base=base,
            count=self._range_size,
            zone=self._zone,
            created_ms=self._now_ms(),
        )
        key = await self._domain.place_marker(base.hex, marker)
        reserved = _Range(key, base, self._range_size, marker.created_ms)
        self._ranges[key] = reserved
        return reserved

    def _remove_if_done(self, used: _Range) -> None:
        if used.retired and used.settled == used.taken and used.key in self._ranges:
            del self._ranges[used.key]
            task = asyncio.ensure_future(self._remove(used.key))
            self._removing.add(task)
            task.add_done_callback(self._removing.discard)

    async def _remove(self, key: str) -> None:
        try:
            await self._domain.remove_marker(key)
        except metastore.StoreError as error:
            # It stays for the collector, who finds that every object has its record.
            log.info("a staging marker wasn't removed: %s", error)
