"""Topics that were half made or half deleted by a process that died.

Creation writes the stream heads first and the topic record last, so a crash in between leaves
heads whose topic has no record. They are found by their topic id, a ULID, whose first 48 bits
are the time of creation. Before they are removed, the topic id gets a record in state DELETING,
conditional on its absence: a creator that is alive after all then fails to register its topic,
instead of registering one without streams. From there on it is an ordinary unfinished deletion.

Partitions that are added to a topic begin as heads too, of a topic that has a record which doesn't
name them. The record is written again as it is before they are removed: who adds partitions
replaces the record under the version that it read before it wrote the heads, and now fails.

An unfinished deletion (the deleting process died, or lost its store) is simply purged again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

from compactor.expiry import HeadOf
from metadata import keys
from metadata.store import Check, Conflict, Delete, KeyValue, MetadataStore, Put
from metadata.topics import Topics
from metadata.values import Lifecycle, StreamRef, Topic, decode, encode

log = logging.getLogger(__name__)

NAME = "(never registered)"
"""No topic can have this name, so nobody finds the record by it."""


def created_ms(topic_id: UUID) -> int:
    """A ULID's first 48 bits."""
    return int.from_bytes(topic_id.bytes[:6], "big")


class AbandonedTopics:
    def __init__(self, store: MetadataStore, topics: Topics) -> None:
        self._store = store
        self._topics = topics
        self._suspects: frozenset[UUID] = frozenset()
        """Without a record the last time. Seen twice before anything is done: after a machine
        slept, a creator finds its topic old although it has only just begun."""
        self._strays: frozenset[StreamRef] = frozenset()
        """Not named by their topic's record the last time; also seen twice."""

    async def mark(self, heads: Iterable[HeadOf], *, now_ms: int, ttl_ms: int) -> int:
        """Turns topics that never came to be into unfinished deletions; returns how many.

        `heads` must be every head there is, read before this is called."""
        old: dict[UUID, list[HeadOf]] = {}
        for found in heads:
            if created_ms(found.head.topic_id) + ttl_ms < now_ms:
                old.setdefault(found.head.topic_id, []).append(found)
        if old:
            async for item in self._store.scan(
                keys.TOPIC_IDS, keys.end_of(keys.TOPIC_IDS), scope=keys.TOPICS_SCOPE
            ):
                old.pop(UUID(hex=item.key.removeprefix(keys.TOPIC_IDS)), None)
        suspects, self._suspects = self._suspects, frozenset(old)
        marked = 0
        for topic_id in suspects & self._suspects:
            marked += await self._mark(topic_id, old[topic_id])
        return marked

    async def _mark(self, topic_id: UUID, heads: list[HeadOf]) -> bool:
        refs: tuple[StreamRef, ...] = tuple(
            found.ref for found in sorted(heads, key=lambda found: found.head.partition)
        )
        topic = Topic(topic_id, NAME, refs, {}, created_ms(topic_id), Lifecycle.DELETING)
        key = keys.topic_id(topic_id)
        try:
            await self._store.commit(
                keys.TOPICS_SCOPE, [Check(key, None)], [Put(key, encode(topic))]
            )
        except Conflict:
            return False
        log.info("the topic %s was never registered; its %d streams go", topic_id, len(refs))
        return True

    async def remove_strays(self, heads: Iterable[HeadOf]) -> int:
        """Removes heads of partitions that were never added to their topic; returns how many.

        `heads` must have been read before this is called."""
        by_topic: dict[UUID, set[StreamRef]] = {}
        for found in heads:
            by_topic.setdefault(found.head.topic_id, set()).add(found.ref)
        strays: set[StreamRef] = set()
        removed = 0
        async for item in self._store.scan(
            keys.TOPIC_IDS, keys.end_of(keys.TOPIC_IDS), scope=keys.TOPICS_SCOPE
        ):
            topic = decode(Topic, item.value)
            unnamed = by_topic.get(topic.topic_id, set()).difference(topic.partitions)
            strays |= unnamed
            known = unnamed & self._strays
            if known and await self._fence(item):
                removed += len(known)
                await self._drop(known)
        self._strays = frozenset(strays)
        return removed

    async def _fence(self, record: KeyValue) -> bool:
        try:
            await self._store.commit(
                keys.TOPICS_SCOPE,
                [Check(record.key, record.version)],
                [Put(record.key, record.value)],
            )
        except Conflict:
            # Perhaps by the very change that names them.
            return False
        return True

    async def _drop(self, refs: Iterable[StreamRef]) -> None:
        for ref in refs:
            key = keys.stream_head(ref.domain, ref.stream_id)
            await self._store.commit(keys.domain_scope(ref.domain), [], [Delete(key)])
            log.info("stream %d was never added to its topic; it goes", ref.stream_id)

    async def finish_deletions(self) -> int:
        """Purges every topic that is being deleted; harmless beside whoever else does."""
        finished = 0
        async for item in self._store.scan(
            keys.TOPIC_IDS, keys.end_of(keys.TOPIC_IDS), scope=keys.TOPICS_SCOPE
        ):
            topic = decode(Topic, item.value)
            if topic.state == Lifecycle.DELETING:
                await self._topics.purge(topic)
                finished += 1
        return finished
