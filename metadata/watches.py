"""Bounded feeds of changes for the stores that live in this process.

Invariants: changes are offered in commit order and read in that order; a feed never holds more
than its bounds. A feed that would overflow forgets what it holds and begins again with ``Gap``,
so a slow reader costs bounded memory and knows that it must read again. Everything here belongs
to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable

from metadata.store import Change, Gap

MAX_PENDING_CHANGES = 4096
MAX_PENDING_BYTES = 16 * 1024 * 1024


class Feed:
    """One subscription; satisfies ``metadata.store.Watch``."""

    def __init__(self, prefix: str, max_changes: int, max_bytes: int, feeds: list[Feed]) -> None:
        self._prefix = prefix
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._feeds = feeds
        self._pending: deque[Change | Gap] = deque()
        self._pending_bytes = 0
        self._ready = asyncio.Event()
        self._ended = False

    def __aiter__(self) -> AsyncIterator[Change | Gap]:
        return self

    async def __anext__(self) -> Change | Gap:
        while not self._pending:
            if self._ended:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        item = self._pending.popleft()
        if isinstance(item, Change):
            self._pending_bytes -= len(item.value or b"")
        return item

    async def close(self) -> None:
        if self in self._feeds:
            self._feeds.remove(self)
        self.end()

    def end(self) -> None:
        self._ended = True
        self._ready.set()

    def offer(self, change: Change) -> None:
        if not change.key.startswith(self._prefix):
            return
        size = len(change.value or b"")
        full = len(self._pending) >= self._max_changes
        if full or (self._pending and self._pending_bytes + size > self._max_bytes):
            self.skip()
        else:
            self._pending.append(change)
            self._pending_bytes += size
            self._ready.set()

    def skip(self) -> None:
        """Put a gap in place of all that has not been read."""
        self._pending.clear()
        self._pending_bytes = 0
        self._pending.append(Gap())
        self._ready.set()


class Watches:
    """The open feeds of one store."""

    def __init__(
        self, max_changes: int = MAX_PENDING_CHANGES, max_bytes: int = MAX_PENDING_BYTES
    ) -> None:
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._feeds: list[Feed] = []

    def open(self, prefix: str) -> Feed:
        feed = Feed(prefix, self._max_changes, self._max_bytes, self._feeds)
        self._feeds.append(feed)
        return feed

    def publish(self, changes: Iterable[Change]) -> None:
        if self._feeds:
            for change in changes:
                for feed in self._feeds:
                    feed.offer(change)

    def skip(self) -> None:
        for feed in self._feeds:
            feed.skip()

    def close(self) -> None:
        for feed in self._feeds:
            feed.end()
        self._feeds.clear()
