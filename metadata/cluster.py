"""What the whole cluster shares: its id, and counters that hand out numbers only once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from metadata import keys
from metadata.store import Check, CommitUnknown, Conflict, MetadataStore, Put
from metadata.values import Cluster, Counter, decode, encode


async def cluster_id(store: MetadataStore, propose: Callable[[], str], now_ms: int) -> str:
    """The id of the cluster, made once by whoever comes first."""
    while True:
        found = await store.get(keys.CLUSTER_ID, scope=keys.CLUSTER_SCOPE)
        if found is not None:
            return decode(Cluster, found.value).cluster_id
        first = Put(keys.CLUSTER_ID, encode(Cluster(propose(), now_ms)))
        try:
            await store.commit(keys.CLUSTER_SCOPE, [Check(first.key, None)], [first])
        except (Conflict, CommitUnknown):
            continue


class Numbers:
    """Unique numbers from a counter, reserved a block at a time. What is left of a block when
    the process ends is never used by anybody."""

    def __init__(self, store: MetadataStore, name: str, block: int) -> None:
        self._store = store
        self._key = keys.counter(name)
        self._block = block
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def take(self, count: int = 1) -> range:
        """`count` consecutive numbers."""
        async with self._lock:
            if self._end - self._next < count:
                await self._reserve(max(count, self._block))
            first = self._next
            self._next += count
            return range(first, first + count)

    async def _reserve(self, count: int) -> None:
        while True:
            found = await self._store.get(self._key, scope=keys.CLUSTER_SCOPE)
            first = 0 if found is None else decode(Counter, found.value).next
            check = Check(self._key, None if found is None else found.version)
            put = Put(self._key, encode(Counter(first + count)))
            try:
                await self._store.commit(keys.CLUSTER_SCOPE, [check], [put])
            except (Conflict, CommitUnknown):
                # Unknown: the block may be reserved and lost, which costs only numbers.
                continue
            self._next, self._end = first, first + count
            return
