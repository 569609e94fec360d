"""Long polls that wait for streams to grow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Wait:
    """Wakes when its streams have grown by `min_bytes` since it was registered, or changed in
    a way that a reader must see at once."""

    __slots__ = ("_bytes", "_future", "ended", "min_bytes", "streams")

    def __init__(self, streams: Iterable[int], min_bytes: int) -> None:
        self.streams = tuple(streams)
        self.min_bytes = min_bytes
        self.ended = False
        self._bytes = 0
        self._future: asyncio.Future[None] | None = None

    def grew(self, size: int) -> None:
        self._bytes += size
        if self._bytes >= self.min_bytes:
            self.wake()

    def wake(self) -> None:
        self._bytes = self.min_bytes
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def end(self) -> None:
        """Wakes it for good."""
        self.ended = True
        self.wake()

    async def until(self, deadline: float) -> None:
        """Returns when woken, or at `deadline` (of the loop's clock)."""
        if self._bytes >= self.min_bytes:
            self._bytes = 0
            return
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = loop.call_at(deadline, self.wake)
        try:
            await self._future
        finally:
            timer.cancel()
            self._future = None
            self._bytes = 0


class Waiters:
    def __init__(self) -> None:
        self._by_stream: dict[int, set[Wait]] = {}
        self._closed = False

    def add(self, wait: Wait) -> None:
        if self._closed:
            wait.end()
        for stream_id in wait.streams:
            self._by_stream.setdefault(stream_id, set()).add(wait)

    def remove(self, wait: Wait) -> None:
        for stream_id in wait.streams:
            waits = self._by_stream.get(stream_id)
            if waits is not None:
                waits.discard(wait)
                if not waits:
                    del self._by_stream[stream_id]

    def grew(self, stream_id: int, size: int) -> None:
        for wait in tuple(self._by_stream.get(stream_id, ())):
            wait.grew(size)

    def changed(self, stream_id: int) -> None:
        for wait in tuple(self._by_stream.get(stream_id, ())):
            wait.wake()

    def close(self) -> None:
        """Ends every wait, now and from now on: the broker shuts down."""
        self._closed = True
        for waits in self._by_stream.values():
            for wait in waits:
                wait.end()
