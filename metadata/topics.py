"""The topic registry: names, ids, and the creation and deletion of topics across scopes.

A topic spans scopes but a commit doesn't. Creation writes the stream heads first and the topic
record last, so a visible topic is complete. Deletion frees the name and marks the record
DELETING, then marks every head, and only then answers: no produce is acknowledged after that,
since every append checks its head. The rest is removed piece by piece by `purge`, which whoever
starts next can resume.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from metadata import keys
from metadata.cluster import Numbers
from metadata.following import follow
from metadata.references import PIECE
from metadata.store import (
    Change,
    Check,
    CommitUnknown,
    Conflict,
    Delete,
    Gap,
    MetadataStore,
    Put,
    Watch,
)
from metadata.streams import DomainLog, StreamMissing
from metadata.trim import clear_below
from metadata.values import Lifecycle, StreamHead, StreamRef, Topic, TopicName, decode, encode

LAST_OFFSET = 2**63 - 1
REMEMBERED_DELETIONS = 1000


class TopicExists(Exception):
    pass


class TopicMissing(Exception):
    pass


class TopicChanged(Exception):
    """The topic doesn't have the partitions that the change was made for."""


@dataclass(slots=True)
class NewTopic:
    name: str
    topic_id: UUID
    partitions: int
    config: Mapping[str, str]
    created_ms: int


class Topics:
    """Active topics by name and id, held in memory and kept current by the store's watch."""

    def __init__(
        self,
        store: MetadataStore,
        domains: Sequence[DomainLog],
        *,
        now_ms: Callable[[], int],
        garbage_grace_ms: int,
    ) -> None:
        self._store = store
        self._domains = domains
        self._now_ms = now_ms
        self._garbage_grace_ms = garbage_grace_ms
        self._stream_ids = Numbers(store, "stream-id", block=1000)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._versions: dict[UUID, int] = {}
        """Of the records in memory: what the watch brings may be older than our own change."""
        self._deleted: deque[UUID] = deque(maxlen=REMEMBERED_DELETIONS)
        """The last ones: an answer that was read before a deletion may arrive after it."""
        self.version = 0
        """Another number after every change of the topics that exist, or of their partitions."""
        self.on_removed: Callable[[UUID], None] = lambda topic_id: None
        """Is told of every topic that goes."""
        self._watch: Watch | None = None

    # -- looking up --------------------------------------------------------------------------

    def by_name(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def all(self) -> list[Topic]:
        return [self._by_name[name] for name in sorted(self._by_name)]

    async def find(self, name: str) -> Topic | None:
        """As `by_name`, but asks the store before it says that there is none."""
        return self._by_name.get(name) or await self._read_name(name)

    async def find_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id) or await self._read_id(topic_id)

    async def _read_name(self, name: str) -> Topic | None:
        found = await self._store.get(keys.topic_name(name), scope=keys.TOPICS_SCOPE)
        if found is None:
            return None
        return await self._read_id(decode(TopicName, found.value).topic_id)

    async def _read_id(self, topic_id: UUID) -> Topic | None:
        found = await self._store.get(keys.topic_id(topic_id), scope=keys.TOPICS_SCOPE)
        if found is None:
            return None
        topic = decode(Topic, found.value)
        if topic.state != Lifecycle.ACTIVE or topic_id in self._deleted:
            return None
        self._add(topic, found.version)
        return topic

    def names(self) -> Collection[str]:
        return self._by_name.keys()

    def _add(self, topic: Topic, version: int) -> None:
        if self._versions.get(topic.topic_id, 0) > version:
            return
        self._versions[topic.topic_id] = version
        known = self._by_id.get(topic.topic_id)
        if known is None or len(known.partitions) != len(topic.partitions):
            self.version += 1
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def _remove(self, topic_id: UUID) -> None:
        self._deleted.append(topic_id)
        self._versions.pop(topic_id, None)
        topic = self._by_id.pop(topic_id, None)
        if topic is None:
            return
        self.version += 1
        self.on_removed(topic_id)
        current = self._by_name.get(topic.name)
        if current is not None and current.topic_id == topic_id:
            del self._by_name[topic.name]

    async def load(self) -> list[Topic]:
        """Reads every topic; returns those whose deletion somebody has to finish."""
        if self._watch is None:
            # Before the first read, so that nothing is missed until `follow` runs.
            self._watch = self._store.watch(keys.TOPIC_IDS)
        active: list[tuple[Topic, int]] = []
        deleting: list[Topic] = []
        async for item in self._store.scan(
            keys.TOPIC_IDS, keys.end_of(keys.TOPIC_IDS), scope=keys.TOPICS_SCOPE
        ):
            topic = decode(Topic, item.value)
            if topic.state == Lifecycle.ACTIVE:
                active.append((topic, item.version))
            else:
                deleting.append(topic)
        # Only now, so that nobody sees half of the topics; what happened since is in the watch.
        self._by_name.clear()
        self._by_id.clear()
        self.version += 1
        self._versions.clear()
        for topic, version in active:
            if topic.topic_id not in self._deleted:
                self._add(topic, version)
        return deleting

    async def follow(self) -> None:
        """Keeps the registry current with what others do; runs until cancelled. `load` first."""
        assert self._watch is not None
        await follow(self._watch, self._take)

    async def _take(self, change: Change | Gap) -> None:
        if isinstance(change, Gap):
            await self.load()
            return
        topic_id = UUID(hex=change.key.removeprefix(keys.TOPIC_IDS))
        topic = None if change.value is None else decode(Topic, change.value)
        if topic is None or topic.state != Lifecycle.ACTIVE:
            self._remove(topic_id)
        elif topic_id in self._by_id:
            self._add(topic, change.version)
        else:
            # New to us, or deleted by us since: the store knows.
            await self._read_id(topic_id)

    # -- creating ----------------------------------------------------------------------------

    async def create(self, new: NewTopic) -> Topic:
        if await self.find(new.name) is not None:
            raise TopicExists(new.name)
        refs = await self._create_streams(new.topic_id, range(new.partitions))
        topic = Topic(new.topic_id, new.name, refs, dict(new.config), new.created_ms)
        await self._register(topic)
        return topic

    async def _create_streams(self, topic_id: UUID, partitions: range) -> tuple[StreamRef, ...]:
        numbers = await self._stream_ids.take(len(partitions))
        refs = tuple(StreamRef(n, self._domain_of(n)) for n in numbers)
        by_domain: dict[int, list[tuple[int, StreamHead]]] = {}
        for partition, ref in zip(partitions, refs, strict=True):
            head = StreamHead(topic_id=topic_id, partition=partition)
            by_domain.setdefault(ref.domain, []).append((ref.stream_id, head))
        for domain, heads in by_domain.items():
            await self._domains[domain].create_streams(heads)
        return refs

    async def add_partitions(self, topic_id: UUID, has: int, count: int) -> Topic:
        """Gives a topic that has `has` partitions `count` of them, or raises TopicChanged.

        The record is read before the heads are written, and replaced under that version: whoever
        takes the new heads for abandoned touches the record first, and then this fails."""
        while True:
            found = await self._store.get(keys.topic_id(topic_id), scope=keys.TOPICS_SCOPE)
            topic = None if found is None else decode(Topic, found.value)
            if found is None or topic is None or topic.state != Lifecycle.ACTIVE:
                raise TopicMissing(str(topic_id))
            self._add(topic, found.version)
            if len(topic.partitions) != has:
                raise TopicChanged(topic.name)
            refs = await self._create_streams(topic_id, range(has, count))
            grown = msgspec.structs.replace(topic, partitions=topic.partitions + refs)
            key = keys.topic_id(topic_id)
            try:
                result = await self._store.commit(
                    keys.TOPICS_SCOPE, [Check(key, found.version)], [Put(key, encode(grown))]
                )
            except Conflict:
                # Its configuration has changed, or its partitions, or it is gone.
                await self._drop_heads(refs)
                continue
            except CommitUnknown:
                now = await self._read_id(topic_id)
                if now is not None and now.partitions[has : has + len(refs)] == refs:
                    return now
                await self._drop_heads(refs)
                raise
            self._add(grown, result.version)
            return grown

    def _domain_of(self, stream_id: int) -> int:
        # Fibonacci hashing: neighbours spread over the domains; the result is stored with the
        # stream, so the number of domains may grow later.
        return (stream_id * 0x9E3779B97F4A7C15 >> 32 & 0xFFFFFFFF) % len(self._domains)

    async def _register(self, topic: Topic) -> None:
        name_key, id_key = keys.topic_name(topic.name), keys.topic_id(topic.topic_id)
        try:
            result = await self._store.commit(
                keys.TOPICS_SCOPE,
                [Check(name_key, None), Check(id_key, None)],
                [Put(name_key, encode(TopicName(topic.topic_id))), Put(id_key, encode(topic))],
            )
        except Conflict:
            await self._read_name(topic.name)
            await self._drop_heads(topic.partitions)
            raise TopicExists(topic.name) from None
        except CommitUnknown:
            # The id is ours alone: if it is there, we have written it.
            if await self._read_id(topic.topic_id) is None:
                await self._drop_heads(topic.partitions)
                raise
            return
        self._add(topic, result.version)

    async def _drop_heads(self, refs: Sequence[StreamRef]) -> None:
        for ref in refs:
            domain = self._domains[ref.domain]
            domain.forget([ref.stream_id])
            await self._store.commit(
                domain.scope, [], [Delete(keys.stream_head(ref.domain, ref.stream_id))]
            )

    # -- changing ----------------------------------------------------------------------------

    async def update(self, topic_id: UUID, change: Callable[[Topic], Topic]) -> Topic:
        """Replaces a topic by `change` of it; what `change` raises is passed on. Applying the
        change twice must do no harm: so an unknown outcome is resolved."""
        key = keys.topic_id(topic_id)
        while True:
            found = await self._store.get(key, scope=keys.TOPICS_SCOPE)
            topic = None if found is None else decode(Topic, found.value)
            if found is None or topic is None or topic.state != Lifecycle.ACTIVE:
                raise TopicMissing(str(topic_id))
            wanted, version = change(topic), found.version
            if wanted != topic:
                try:
                    result = await self._store.commit(
                        keys.TOPICS_SCOPE, [Check(key, found.version)], [Put(key, encode(wanted))]
                    )
                except (Conflict, CommitUnknown):
                    continue
                version = result.version
            if topic_id in self._by_id:
                self._add(wanted, version)
            return wanted

    # -- deleting ----------------------------------------------------------------------------

    async def delete(self, topic_id: UUID) -> Topic:
        """After this no append to the topic succeeds and its name is free. `purge` follows."""
        topic = await self._mark(topic_id)
        self._remove(topic_id)
        await self._mark_heads(topic)
        return topic

    async def _mark(self, topic_id: UUID) -> Topic:
        id_key = keys.topic_id(topic_id)
        unknown = False
        while True:
            found = await self._store.get(id_key, scope=keys.TOPICS_SCOPE)
            topic = None if found is None else decode(Topic, found.value)
            if topic is not None and topic.state == Lifecycle.DELETING and unknown:
                return topic
            if found is None or topic is None or topic.state != Lifecycle.ACTIVE:
                raise TopicMissing(str(topic_id))
            marked = msgspec.structs.replace(topic, state=Lifecycle.DELETING)
            try:
                await self._store.commit(
                    keys.TOPICS_SCOPE,
                    [Check(id_key, found.version)],
                    [Put(id_key, encode(marked)), Delete(keys.topic_name(topic.name))],
                )
            except Conflict:
                continue
            except CommitUnknown:
                unknown = True
                continue
            return marked

    async def _mark_heads(self, topic: Topic) -> None:
        def marked(head: StreamHead) -> StreamHead | None:
            if head.state != Lifecycle.ACTIVE:
                return None
            return msgspec.structs.replace(head, state=Lifecycle.DELETING)

        for ref in topic.partitions:
            try:
                await self._domains[ref.domain].change_head(ref.stream_id, marked)
            except StreamMissing:
                continue

    async def purge(self, topic: Topic) -> None:
        """Removes what a deleted topic has left, in small transactions that may be repeated."""
        await self._mark_heads(topic)
        for ref in topic.partitions:
            await self._purge_entries(ref)
            await self._purge_producers(ref)
            domain = self._domains[ref.domain]
            await self._store.commit(
                domain.scope, [], [Delete(keys.stream_head(ref.domain, ref.stream_id))]
            )
            domain.forget([ref.stream_id])
        await self._store.commit(keys.TOPICS_SCOPE, [], [Delete(keys.topic_id(topic.topic_id))])

    async def _purge_entries(self, ref: StreamRef) -> None:
        await clear_below(
            self._store,
            ref,
            LAST_OFFSET,
            delete_after_ms=self._now_ms() + self._garbage_grace_ms,
        )

    async def _purge_producers(self, ref: StreamRef) -> None:
        scope = keys.domain_scope(ref.domain)
        prefix = keys.producers(ref.domain, ref.stream_id)
        while True:
            piece: list[Put | Delete] = [
                Delete(item.key)
                async for item in self._store.scan(
                    prefix, keys.end_of(prefix), scope=scope, limit=PIECE
                )
            ]
            if not piece:
                return
            await self._store.commit(scope, [], piece)
