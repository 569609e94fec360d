"""The state of a classic group, and what can be read from it.

A state is never changed in place: `classic_draft.Draft` works on copies of its mappings.
The part that outlives a coordinator is `ClassicRecord`; tokens and deadlines are the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from struct import Struct, error
from typing import Any, NamedTuple

import msgspec

from drayd.groups.classic_events import JoinedMember, Protocols
from drayd.groups.machine import Token
from protocol.errors import ErrorCode

CONSUMER_PROTOCOL_TYPE = "consumer"
_INT16 = Struct(">h")
_INT32 = Struct(">i")


class Status(StrEnum):
    """As DescribeGroups and ListGroups name it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Members are asked to join; those who have wait for the others."""
    COMPLETING = "CompletingRebalance"
    """Everyone has the new generation; the leader's assignment is awaited."""
    STABLE = "Stable"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    fresh: bool = False
    """It joined since the last generation began: it isn't part of any, so a failover may forget
    it, and its session is the time that its first JoinGroup may wait."""
    join: Token | None = None
    """Its JoinGroup waits for the other members."""
    sync: Token | None = None
    """Its SyncGroup waits for the leader's."""
    deadline_ms: int | None = None
    """When its session ends; None while a request of it waits."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it says to the leader under this protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""


class Initial(msgspec.Struct, frozen=True):
    """The first rebalance of an empty group, which waits for members that come at the same time
    and gets longer while they do."""

    delay_ms: int
    """Of the present wait."""
    remaining_ms: int
    """By how much the wait may still grow."""
    member_added: bool = False
    """Somebody joined during the present wait."""


class ClassicGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    exists: bool = False
    """False until somebody joins without a member id."""
    status: Status = Status.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = {}
    """In the order of their joining."""
    pending: Mapping[str, int] = {}
    """Member ids that were given out and not yet used, with their deadlines."""
    pending_sync: frozenset[str] = frozenset()
    """Members of this generation whose SyncGroup hasn't come."""
    initial: Initial | None = None
    """Only while preparing, and only after Empty."""
    join_deadline_ms: int | None = None
    """While preparing: who hasn't joined then is left behind."""
    sync_deadline_ms: int | None = None
    """Who hasn't synced then is removed."""
    subscriptions: frozenset[str] | None = None
    """Topics that this generation of a consumer group is subscribed to, if they can be read."""


def member_error(
    members: Mapping[str, Member], member_id: str, instance_id: str | None
) -> ErrorCode:
    """Whether this is who it says it is. An instance id belongs to the member that used it last."""
    if instance_id is not None:
        owner = static_member(members, instance_id)
        if owner is None:
            return ErrorCode.unknown_member_id
        if owner != member_id:
            return ErrorCode.fenced_instance_id
    return ErrorCode.none if member_id in members else ErrorCode.unknown_member_id


def static_member(members: Mapping[str, Member], instance_id: str) -> str | None:
    """The member id behind an instance id."""
    for member in members.values():
        if member.instance_id == instance_id:
            return member.member_id
    return None


def supported_by_all(members: Collection[Member]) -> list[str]:
    """The protocols that every member offers, as the first lists them."""
    if not members:
        return []
    first, *others = members
    offered = [{name for name, _ in member.protocols} for member in others]
    return [name for name, _ in first.protocols if all(name in names for names in offered)]


def select_protocol(members: Collection[Member]) -> str:
    """Every member votes for the first of its protocols that all support; most votes win."""
    candidates = set(supported_by_all(members))
    votes: dict[str, int] = {}
    for member in members:
        choice = next(name for name, _ in member.protocols if name in candidates)
        votes[choice] = votes.get(choice, 0) + 1
    # Kafka takes the first of equals in the order of its hash map. Members that agree on nothing
    # but the set of protocols get the same one as there.
    return min(votes, key=lambda name: (-votes[name], _bucket(name)))


def _bucket(name: str) -> int:
    """Where a Java hash map of few strings has this one."""
    code = 0
    encoded = name.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        code = (31 * code + int.from_bytes(encoded[at : at + 2])) & 0xFFFFFFFF
    return (code ^ code >> 16) & 15


def joined_members(
    members: Iterable[Member], protocol_name: str | None
) -> tuple[JoinedMember, ...]:
    """What a leader is told of the members."""
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
        for member in members
    )


def subscribed_topics(members: Iterable[Member], protocol_name: str) -> frozenset[str] | None:
    """The topics that consumers name in their metadata; None if one of them can't be read."""
    topics: set[str] = set()
    for member in members:
        try:
            topics.update(_subscription(member.metadata(protocol_name)))
        except (error, UnicodeDecodeError, ValueError):
            return None
    return frozenset(topics)


def _subscription(metadata: bytes) -> list[str]:
    """The topics of a ConsumerProtocolSubscription: a version, then an array of strings."""
    (version,) = _INT16.unpack_from(metadata)
    if version < 0:
        raise ValueError(f"version {version}")
    (count,) = _INT32.unpack_from(metadata, 2)
    at, topics = 6, []
    for _ in range(count):
        (size,) = _INT16.unpack_from(metadata, at)
        at += 2
        if size < 0 or at + size > len(metadata):
            raise ValueError(f"a topic of {size} bytes")
        topics.append(metadata[at : at + size].decode())
        at += size
    return topics


def replaced(member: Member, **changes: Any) -> Member:
    """The same member with some fields changed."""
    return msgspec.structs.replace(member, **changes)


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Described(NamedTuple):
    protocol_data: str
    members: tuple[DescribedMember, ...]


def described(state: ClassicGroup) -> Described:
    """What DescribeGroups shows. While a rebalance is under way there is no protocol, so nothing
    is said of what members offer under it."""
    name = state.protocol_name if state.status is Status.STABLE else None
    return Described(
        name or "",
        tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                b"" if name is None else member.metadata(name),
                member.assignment,
            )
            for member in state.members.values()
        ),
    )
