"""The state of a consumer group (KIP-848) in memory, and the record that it is stored as.

`Group` is what is stored, `State` adds what a new coordinator can do without: deadlines and what
was last looked at. All of it is immutable: a change makes new objects, and shares what is the same.

Invariant: no partition is in `assigned` or `revoking` of two members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from drayd.groups.assignors import Partitions
from drayd.groups.consumer_events import STATIC_LEAVE_EPOCH
from drayd.groups.machine import TopicsView
from metadata.group_values import (
    ConsumerMember,
    ConsumerRecord,
    HeldPartitions,
    ResolvedRegex,
    SubscribedTopic,
    TopicPartitions,
)

Held: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic, each with the epoch that the member had when it was given to it."""


class MemberState(IntEnum):
    STABLE = 0
    """Has all that it should have of its epoch's target, and nothing else."""
    UNREVOKED_PARTITIONS = 1
    """Was told to give partitions up, and hasn't said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """Waits for partitions that others haven't given up yet."""


class TopicShape(NamedTuple):
    topic_id: UUID
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)

    @property
    def away(self) -> bool:
        return self.epoch == STATIC_LEAVE_EPOCH

    def holds(self) -> Iterator[tuple[UUID, int]]:
        for held in (self.assigned, self.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    yield topic_id, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What is stored."""

    epoch: int = 1
    assignment_epoch: int = 1
    members: Mapping[str, Member] = field(default_factory=dict)
    targets: Mapping[str, Partitions] = field(default_factory=dict)
    topics: Mapping[str, TopicShape] = field(default_factory=dict)
    """The subscribed topics that existed when the epoch was last decided."""
    regexes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What the members' regular expressions matched when they were last looked at."""

    def static_member(self, instance_id: str) -> Member | None:
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member
        return None

    def names_of(self, member: Member) -> frozenset[str]:
        """The topics that a member subscribes to, whether they exist or not."""
        matched = self.regexes.get(member.regex)
        return member.topic_names | matched if matched else member.topic_names

    def subscribed_names(self) -> frozenset[str]:
        return frozenset[str]().union(*map(self.names_of, self.members.values()))

    def shapes(self, topics: TopicsView) -> dict[str, TopicShape]:
        """The subscribed topics as they are now."""
        found = {name: topics.by_name(name) for name in self.subscribed_names()}
        return {
            name: TopicShape(facts.topic_id, facts.partitions)
            for name, facts in found.items()
            if facts is not None
        }

    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        for member in self.members.values():
            if member.state is not MemberState.STABLE or member.epoch != self.assignment_epoch:
                return "Reconciling"
        return "Stable"

    def assignor(self, known: tuple[str, ...]) -> str:
        """The one that most of those members want who want any."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.assignor in known:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return max(known, key=lambda name: votes.get(name, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    group_id: str
    group: Group = field(default_factory=Group)
    exists: bool = False
    session_ends_ms: Mapping[str, int] = field(default_factory=dict)
    """Monotonic, by member: when it is taken for dead unless it is heard."""
    revoke_by_ms: Mapping[str, int] = field(default_factory=dict)
    """Monotonic, by member: when it must have given up what it was told to."""
    assigned_ms: int | None = None
    """When targets were last computed."""
    topics_version: int | None = None
    """What of `env.topics` the group's epoch took into account."""
    regexes_ms: int | None = None
    """When the regular expressions were last matched …"""
    regexes_version: int | None = None
    """… and with which topics."""

    def wake_ms(self) -> int | None:
        return min((*self.session_ends_ms.values(), *self.revoke_by_ms.values()), default=None)


# -- to and from the record ----------------------------------------------------------------------


def to_record(group: Group) -> ConsumerRecord:
    return ConsumerRecord(
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        members=tuple(
            _stored(member, group.targets.get(member.member_id, {}))
            for member in group.members.values()
        ),
        topics=tuple(
            SubscribedTopic(name, shape.topic_id, shape.partitions)
            for name, shape in sorted(group.topics.items())
        ),
        regexes=tuple(
            ResolvedRegex(regex, tuple(sorted(names)))
            for regex, names in sorted(group.regexes.items())
        ),
    )


def from_record(record: ConsumerRecord) -> Group:
    return Group(
        epoch=record.epoch,
        assignment_epoch=record.assignment_epoch,
        members={stored.member_id: _loaded(stored) for stored in record.members},
        targets={
            stored.member_id: {each.topic_id: frozenset(each.partitions) for each in stored.target}
            for stored in record.members
        },
        topics={each.name: TopicShape(each.topic_id, each.partitions) for each in record.topics},
        regexes={each.regex: frozenset(each.topic_names) for each in record.regexes},
    )


def _stored(member: Member, target: Partitions) -> ConsumerMember:
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=tuple(sorted(member.topic_names)),
        regex=member.regex,
        assignor=member.assignor,
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        state=int(member.state),
        assigned=_stored_held(member.assigned),
        revoking=_stored_held(member.revoking),
        target=tuple(
            TopicPartitions(topic_id, tuple(sorted(partitions)))
            for topic_id, partitions in sorted(target.items())
        ),
    )


def _loaded(stored: ConsumerMember) -> Member:
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        topic_names=frozenset(stored.topic_names),
        regex=stored.regex,
        assignor=stored.assignor,
        epoch=stored.epoch,
        previous_epoch=stored.previous_epoch,
        state=MemberState(stored.state),
        assigned=_loaded_held(stored.assigned),
        revoking=_loaded_held(stored.revoking),
    )


def _stored_held(held: Held) -> tuple[HeldPartitions, ...]:
    return tuple(
        HeldPartitions(topic_id, tuple(sorted(epochs)), tuple(epochs[p] for p in sorted(epochs)))
        for topic_id, epochs in sorted(held.items())
    )


def _loaded_held(stored: tuple[HeldPartitions, ...]) -> Held:
    return {each.topic_id: dict(zip(each.partitions, each.epochs, strict=True)) for each in stored}
