"""Deletes the records before an offset, and what they leave in the index.

The log's start moves in one transaction and is seen at once by every reader of this broker. Of a
long prefix the rest of the index goes afterwards, in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from drayd.cache import Cache
from drayd.logs import Logger
from drayd.waiters import Waiters
from metadata.store import StoreError
from metadata.streams import DomainLog
from metadata.trim import clear_below, trim
from metadata.values import StreamHead, StreamRef

log = Logger(__name__)


class Trimmer:
    def __init__(self, domains: Sequence[DomainLog], cache: Cache, waiters: Waiters) -> None:
        self._domains = domains
        self._cache = cache
        self._waiters = waiters
        self._left: asyncio.Queue[tuple[StreamRef, int]] = asyncio.Queue()

    async def delete_records(self, ref: StreamRef, offset: int) -> StreamHead:
        """The log starts at `offset`; -1 is its end. Raises OutOfRange, StreamMissing or
        StoreError."""
        head, more = await trim(self._domains[ref.domain], ref.stream_id, offset)
        self._cache.trim(ref.stream_id, head.log_start)
        # A reader that waits for more may stand before the new start.
        self._waiters.changed(ref.stream_id)
        if more:
            self._left.put_nowait((ref, head.log_start))
        return head

    async def run(self) -> None:
        """Removes the rest of long prefixes; runs until cancelled."""
        while True:
            ref, log_start = await self._left.get()
            domain = self._domains[ref.domain]
            try:
                await clear_below(
                    domain.store, ref, log_start, delete_after_ms=domain.garbage_at_ms()
                )
            except StoreError as error:
                # The collector comes by and finds it.
                log.warning("entries below the log's start stay for now", error=str(error))
