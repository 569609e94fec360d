"""A consumer group to play with: virtual time, topics that come and go, and a store that keeps
only what the machine wanted stored. After each step the group's invariants are checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

import msgspec

from drayd.groups import consumer
from drayd.groups.assignors import Partitions
from drayd.groups.consumer_events import Beat, BeatAnswer
from drayd.groups.consumer_state import Member, State, to_record
from drayd.groups.machine import (
    Committer,
    Decision,
    Env,
    Event,
    GroupSettings,
    Reply,
    Tick,
    TopicFacts,
)
from metadata.group_values import ConsumerRecord
from protocol.errors import ErrorCode

AT_ONCE = GroupSettings(consumer_assignment_interval_ms=0)


class Topics:
    def __init__(self) -> None:
        self._topics: dict[str, TopicFacts] = {}
        self._made = 0
        self.version = 1

    def put(self, name: str, partitions: int) -> UUID:
        """Create the topic, or let it grow."""
        known = self._topics.get(name)
        self._made += 1
        topic_id = known.topic_id if known else UUID(int=self._made)
        self._topics[name] = TopicFacts(topic_id, name, partitions)
        self.version += 1
        return topic_id

    def drop(self, name: str) -> None:
        del self._topics[name]
        self.version += 1

    def by_name(self, name: str) -> TopicFacts | None:
        return self._topics.get(name)

    def by_id(self, topic_id: UUID) -> TopicFacts | None:
        found = [facts for facts in self._topics.values() if facts.topic_id == topic_id]
        return found[0] if found else None

    def names(self) -> Collection[str]:
        return list(self._topics)


class Play:
    def __init__(self, settings: GroupSettings = AT_ONCE, **topics: int) -> None:
        self.topics = Topics()
        self.ids = {name: self.topics.put(name, count) for name, count in topics.items()}
        self.settings = settings
        self.now_ms = 1_000_000
        self.state: State = consumer.fresh("g")
        self.stored: bytes | None = None
        self.wake_ms: int | None = None
        self.writes = 0

    # -- steps -----------------------------------------------------------------------------------

    def env(self) -> Env:
        return Env(self.now_ms, self.settings, self.topics, token=7)

    def tell(self, event: Event) -> tuple[Reply, ...]:
        before = self.state.group
        decision: Decision[State] = consumer.decide(self.state, event, self.env())
        self.state, self.wake_ms = decision.state, decision.wake_ms
        if decision.record is not None:
            assert isinstance(decision.record, ConsumerRecord)
            self.stored = msgspec.msgpack.encode(decision.record)
            self.writes += 1
        after = self.state.group
        assert after.epoch >= before.epoch
        assert after.epoch >= after.assignment_epoch >= before.assignment_epoch
        if self.state.exists:
            assert self.stored == msgspec.msgpack.encode(to_record(after)), "not stored"
        held = [slot for member in after.members.values() for slot in member.holds()]
        assert len(held) == len(set(held)), "a partition with two owners"
        assert after.members.keys() == self.state.session_ends_ms.keys()
        return decision.replies

    def beat(self, member_id: str, epoch: int, **fields: Any) -> BeatAnswer:
        owned = fields.pop("own", None)
        by_id = None if owned is None else self.partitions(owned)
        return self.beat_owning(member_id, epoch, by_id, **fields)

    def beat_owning(
        self,
        member_id: str,
        epoch: int,
        owned: Partitions | None,
        *,
        names: Iterable[str] | None = None,
        **fields: Any,
    ) -> BeatAnswer:
        beat = Beat(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            topic_names=None if names is None else frozenset(names),
            owned=owned,
            **fields,
        )
        ((token, answer),) = self.tell(beat)
        assert token == 7
        assert isinstance(answer, BeatAnswer)
        return answer

    def join(self, member_id: str, names: Iterable[str] | None = None, **fields: Any) -> BeatAnswer:
        fields.setdefault("rebalance_timeout_ms", 60_000)
        return self.beat(member_id, 0, names=names, own=fields.pop("own", {}), **fields)

    def run_to(self, now_ms: int) -> None:
        """Time passes, and the machine is woken when it asked for it."""
        while self.wake_ms is not None and self.wake_ms <= now_ms:
            self.now_ms = max(self.now_ms, self.wake_ms)
            self.tell(Tick())
        self.now_ms = max(self.now_ms, now_ms)

    def pass_ms(self, duration_ms: int) -> None:
        self.run_to(self.now_ms + duration_ms)

    def fail_over(self, away_ms: int = 0) -> None:
        """Another coordinator takes over, with another clock, and only what was stored."""
        self.now_ms += away_ms
        if self.stored is None:
            self.state = consumer.fresh("g")
            return
        record = msgspec.msgpack.decode(self.stored, type=ConsumerRecord)
        before = self.state.group
        decision = consumer.restore("g", record, self.env())
        assert decision.record is None
        assert to_record(decision.state.group) == to_record(before)
        self.state, self.wake_ms = decision.state, decision.wake_ms

    # -- looking -----------------------------------------------------------------------------------

    def partitions(self, by_name: dict[str, Iterable[int]]) -> dict[UUID, frozenset[int]]:
        return {self.ids[name]: frozenset(each) for name, each in by_name.items()}

    def given(self, answer: BeatAnswer) -> dict[str, list[int]] | None:
        """The assignment of an answer by name."""
        if answer.assignment is None:
            return None
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return {names[topic]: sorted(each) for topic, each in answer.assignment.items()}

    def target(self, member_id: str) -> dict[str, list[int]]:
        names = {topic_id: name for name, topic_id in self.ids.items()}
        found = self.state.group.targets.get(member_id, {})
        return {names[topic]: sorted(each) for topic, each in found.items()}

    def member(self, member_id: str) -> Member:
        return self.state.group.members[member_id]

    def epochs(self) -> tuple[int, int]:
        return self.state.group.epoch, self.state.group.assignment_epoch

    def state_name(self) -> str:
        return consumer.summary(self.state).state

    def commit(
        self, member_id: str, epoch: int, *partitions: int, api_version: int = 9
    ) -> ErrorCode:
        committer = Committer(
            member_id,
            None,
            epoch,
            api_version,
            partitions=tuple((self.ids["t"], each) for each in partitions),
        )
        return consumer.admit_commit(self.state, committer, self.env()).code


def code(answer: BeatAnswer) -> str:
    return answer.error.name
