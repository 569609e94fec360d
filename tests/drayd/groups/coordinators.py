"""Brokers that are nothing but coordinators, on one store, with a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from drayd.coordinator import Coordinator, Policy
from drayd.groups.classic_events import Heartbeat, Join, Joined, Sync, Synced
from drayd.groups.machine import Committer, GroupSettings, TopicFacts
from drayd.membership import Membership
from drayd.metrics import Metrics
from metadata.faults import FaultyStore
from metadata.group_values import CommittedOffset
from metadata.groups import Groups
from metadata.memory import MemoryState, MemoryStore
from metadata.values import Broker
from protocol.errors import ErrorCode, KafkaError

TOPIC = UUID(int=7)
OTHER = UUID(int=8)
NOW_MS = 1_700_000_000_000
RETENTION_MS = 600_000
NOBODY = Committer("", None, -1, 9)


class FixedTopics:
    """Satisfies `TopicsView`."""

    version = 1

    def __init__(self) -> None:
        self.topics = {
            TOPIC: TopicFacts(TOPIC, "topic", 4),
            OTHER: TopicFacts(OTHER, "other", 4),
        }

    def by_name(self, name: str) -> TopicFacts | None:
        return next((each for each in self.topics.values() if each.name == name), None)

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        return self.topics.get(topic_id)

    def names(self) -> Collection[str]:
        return [each.name for each in self.topics.values()]


@dataclass
class Clock:
    ms: int = 1_000_000

    def __call__(self) -> int:
        return self.ms


@dataclass
class Node:
    store: FaultyStore
    membership: Membership
    coordinator: Coordinator

    async def commit(
        self, offset: int, *, group: str = "g", committer: Committer = NOBODY, partition: int = 0
    ) -> ErrorCode:
        committed = CommittedOffset(offset, -1, "", NOW_MS)
        return await self.coordinator.commit(group, committer, {(TOPIC, partition): committed})

    async def offset(self, group: str = "g", partition: int = 0) -> int | None:
        found = await self.coordinator.look(
            group, lambda live: live.offsets.get((TOPIC, partition))
        )
        return None if found is None else found.offset

    def join(self, member_id: str, *, group: str = "g") -> asyncio.Future[Joined]:
        return self.coordinator.ask(
            group,
            Join(
                member_id=member_id,
                new_member_id=uuid4().hex,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=(("range", b""),),
                id_required=False,
            ),
        )

    async def stable(self, group: str = "g") -> tuple[str, int]:
        """A group of one member; its id and generation."""
        joined = await self.join("", group=group)
        assert joined.error is ErrorCode.none, joined
        sync = Sync(
            member_id=joined.member_id,
            generation=joined.generation,
            assignments=((joined.member_id, b"all"),),
        )
        synced: Synced = await self.coordinator.ask(group, sync)
        assert synced.assignment == b"all", synced
        return joined.member_id, joined.generation

    async def beat(self, member_id: str, generation: int, group: str = "g") -> ErrorCode:
        """KafkaErrors count as their codes."""
        try:
            beaten = await self.coordinator.ask(
                group, Heartbeat(member_id=member_id, generation=generation)
            )
        except KafkaError as error:
            return error.code
        code: ErrorCode = beaten.error
        return code


@dataclass
class World:
    state: MemoryState = field(default_factory=MemoryState)
    clock: Clock = field(default_factory=Clock)
    now_ms: int = NOW_MS
    topics: FixedTopics = field(default_factory=FixedTopics)
    nodes: list[Node] = field(default_factory=list)

    async def node(self, broker_id: int) -> Node:
        store = FaultyStore(MemoryStore(self.state))
        membership = Membership(store, broker_id)
        await membership.join(
            lambda name: Broker(broker_id, "host", broker_id, "", "i", NOW_MS, "v", name)
        )

        async def exists(topic_id: UUID) -> bool:
            return topic_id in self.topics.topics

        coordinator = Coordinator(
            Groups(store, now_ms=lambda: self.now_ms),
            membership,
            self.topics,
            exists,
            lambda group_id: GroupSettings(initial_rebalance_delay_ms=0),
            Metrics(),
            Policy(retention_ms=RETENTION_MS, check_interval_ms=1_000),
            clock_ms=self.clock,
            now_ms=lambda: self.now_ms,
        )
        self.nodes.append(Node(store, membership, coordinator))
        return self.nodes[-1]

    async def close(self) -> None:
        for node in self.nodes:
            await node.coordinator.close()
            await node.membership.close()
            await node.store.close()
