"""What is stored of consumer groups. As in `values`: fields are only ever added at the end, with
a default.

A group's record holds all of its membership: it changes together, and fits into one value.
Committed offsets have a key each. Times are of the wall clock, in milliseconds.
"""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import msgspec

# -- classic groups ------------------------------------------------------------------------------


class ClassicMember(msgspec.Struct, array_like=True, frozen=True):
    """A member of the present generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """What it offers, in its order of preference, with its metadata for each."""
    assignment: bytes
    """From the leader; empty until the group is stable."""


class ClassicRecord(msgspec.Struct, array_like=True, frozen=True, tag="classic"):
    """A group of the classic protocol."""

    generation: int = 0
    status: str = "Empty"
    protocol_type: str | None = None
    """None: nobody ever joined, there are only offsets."""
    protocol_name: str | None = None
    leader: str | None = None
    members: tuple[ClassicMember, ...] = ()
    """In the order of their joining."""


# -- consumer groups (KIP-848) -------------------------------------------------------------------


class TopicPartitions(msgspec.Struct, array_like=True, frozen=True):
    topic_id: UUID
    partitions: tuple[int, ...]


class HeldPartitions(msgspec.Struct, array_like=True, frozen=True):
    """What a member has of a topic, and since which of its epochs."""

    topic_id: UUID
    partitions: tuple[int, ...]
    epochs: tuple[int, ...]
    """Of each partition: the member's epoch when it was given to it."""


class ConsumerMember(msgspec.Struct, array_like=True, frozen=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...]
    regex: str
    """Empty: none."""
    assignor: str | None
    epoch: int
    """-2: a static member that is away."""
    previous_epoch: int
    state: int
    assigned: tuple[HeldPartitions, ...]
    revoking: tuple[HeldPartitions, ...]
    """Not the member's any more, but nobody else's either until it says that it let go."""
    target: tuple[TopicPartitions, ...]


class SubscribedTopic(msgspec.Struct, array_like=True, frozen=True):
    """A topic as it was when the group's epoch was last decided."""

    name: str
    topic_id: UUID
    partitions: int


class ResolvedRegex(msgspec.Struct, array_like=True, frozen=True):
    regex: str
    topic_names: tuple[str, ...]


class ConsumerRecord(msgspec.Struct, array_like=True, frozen=True, tag="consumer"):
    """A group of the consumer protocol."""

    epoch: int = 1
    assignment_epoch: int = 1
    """The epoch that the members' targets are of."""
    members: tuple[ConsumerMember, ...] = ()
    topics: tuple[SubscribedTopic, ...] = ()
    regexes: tuple[ResolvedRegex, ...] = ()


# -- of every group ------------------------------------------------------------------------------

GroupRecord: TypeAlias = ClassicRecord | ConsumerRecord


class StoredGroup(msgspec.Struct, array_like=True, frozen=True):
    record: ClassicRecord | ConsumerRecord
    written_ms: int
    """When the record was last changed."""


class GroupName(msgspec.Struct, array_like=True, frozen=True):
    """An entry of the directory. It is written before the group and removed after it, so there
    may be an entry without a group, and never a group without an entry."""

    group_id: str


class Lease(msgspec.Struct, array_like=True, frozen=True):
    """Who runs the group. Every write to a group checks this key's version, so that a holder
    that was replaced can't write any more."""

    broker_id: int
    registration: str
    epoch: int
    """Grows with every holder."""
    taken_ms: int


class CommittedOffset(msgspec.Struct, array_like=True, frozen=True):
    offset: int
    leader_epoch: int
    """-1 if the member gave none."""
    metadata: str
    committed_ms: int
    expire_ms: int = -1
    """Only of a commit that gave its own retention time."""
