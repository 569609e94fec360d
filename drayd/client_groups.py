"""What `drayd admin groups` asks of brokers: each group of the broker that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Any, NamedTuple

from drayd.client import LIST_OFFSETS, Api, Client, ClientError, expect_success
from drayd.kinds import HostPort
from protocol.errors import ErrorCode
from protocol.messages import make

FIND_COORDINATOR = Api(10, "FindCoordinator", 4, 6)
LIST_GROUPS = Api(16, "ListGroups", 4, 5)
DESCRIBE_GROUPS = Api(15, "DescribeGroups", 4, 5)
CONSUMER_GROUP_DESCRIBE = Api(69, "ConsumerGroupDescribe", 0, 1)
OFFSET_FETCH = Api(9, "OffsetFetch", 8, 9)
OFFSET_COMMIT = Api(8, "OffsetCommit", 8, 9)
DELETE_GROUPS = Api(42, "DeleteGroups", 2, 2)

DEAD = "Dead"
EMPTY = "Empty"

_INT16 = Struct(">h")
_INT32 = Struct(">i")

Place = tuple[str, int]
"""(topic, partition)"""


class Listed(NamedTuple):
    group_id: str
    kind: str
    state: str
    protocol: str


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Described:
    group_id: str
    kind: str
    state: str
    assignor: str
    members: list[Member] = field(default_factory=list)


class GroupClient:
    """Speaks of groups through a connection to any broker."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> list[Listed]:
        """Every group, of every broker."""
        found = []
        for broker in self._client.cluster().brokers:
            with Client(HostPort(broker.host, broker.port)) as client:
                answer = client.ask(LIST_GROUPS, states_filter=(), types_filter=())
            expect_success("list the groups", answer.error_code, None)
            found += [
                Listed(
                    each.group_id,
                    getattr(each, "group_type", ""),
                    each.group_state,
                    each.protocol_type,
                )
                for each in answer.groups
            ]
        return sorted(found)

    def coordinator(self, group_id: str) -> Client:
        answer = self._client.ask(FIND_COORDINATOR, key_type=0, coordinator_keys=(group_id,))
        (found,) = answer.coordinators
        expect_success(f'find who runs "{group_id}"', found.error_code, found.error_message)
        return Client(HostPort(found.host, found.port))

    def describe(self, group_id: str) -> Described | None:
        """None if there is no such group."""
        with self.coordinator(group_id) as client:
            if client.offers(CONSUMER_GROUP_DESCRIBE):
                answer = client.ask(
                    CONSUMER_GROUP_DESCRIBE,
                    group_ids=(group_id,),
                    include_authorized_operations=False,
                )
                (group,) = answer.groups
                if group.error_code is not ErrorCode.group_id_not_found:
                    expect_success(f'describe "{group_id}"', group.error_code, group.error_message)
                    return _consumer(group)
            answer = client.ask(
                DESCRIBE_GROUPS, groups=(group_id,), include_authorized_operations=False
            )
        (group,) = answer.groups
        expect_success(f'describe "{group_id}"', group.error_code, None)
        return None if group.group_state == DEAD else _classic(group)

    def committed(self, group_id: str) -> dict[Place, int]:
        """Every committed offset."""
        with self.coordinator(group_id) as client:
            wanted = make(
                client.item(OFFSET_FETCH, "groups"),
                group_id=group_id,
                member_id=None,
                member_epoch=-1,
                topics=None,
            )
            answer = client.ask(OFFSET_FETCH, groups=(wanted,), require_stable=False)
        (group,) = answer.groups
        expect_success(f'read the offsets of "{group_id}"', group.error_code, None)
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in group.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    def commit(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """Only of a group without members."""
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, {})[partition] = offset
        with self.coordinator(group_id) as client:
            topic_class = client.item(OFFSET_COMMIT, "topics")
            partition_class = client.item(OFFSET_COMMIT, "topics", "partitions")
            answer = client.ask(
                OFFSET_COMMIT,
                group_id=group_id,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                topics=tuple(
                    make(
                        topic_class,
                        name=topic,
                        partitions=tuple(
                            make(
                                partition_class,
                                partition_index=partition,
                                committed_offset=offset,
                                committed_leader_epoch=-1,
                                committed_metadata="",
                            )
                            for partition, offset in partitions.items()
                        ),
                    )
                    for topic, partitions in by_topic.items()
                ),
            )
        for topic in answer.topics:
            for each in topic.partitions:
                expect_success(
                    f"set the offset of {topic.name}/{each.partition_index}",
                    each.error_code,
                    None,
                )

    def delete(self, group_id: str) -> None:
        with self.coordinator(group_id) as client:
            answer = client.ask(DELETE_GROUPS, groups_names=(group_id,))
        (result,) = answer.results
        expect_success(f'delete "{group_id}"', result.error_code, None)

    def at(self, topic: str, partitions: list[int], timestamp: int) -> dict[int, int]:
        """The offset of each partition at a time, or EARLIEST, or LATEST; -1 if none is so late."""
        if not self._client.offers(LIST_OFFSETS):
            raise ClientError("The broker has no ListOffsets.")
        return self._client.offsets(topic, partitions, timestamp)


def _classic(group: Any) -> Described:
    return Described(
        group.group_id,
        "classic",
        group.group_state,
        group.protocol_data,
        [
            Member(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                tuple(
                    _assigned(each.member_assignment) if group.protocol_type == "consumer" else ()
                ),
            )
            for each in group.members
        ],
    )


def _consumer(group: Any) -> Described:
    return Described(
        group.group_id,
        "consumer",
        group.group_state,
        group.assignor_name,
        [
            Member(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                tuple(
                    (topic.topic_name, partition)
                    for topic in each.assignment.topic_partitions
                    for partition in topic.partitions
                ),
            )
            for each in group.members
        ],
    )


def _assigned(data: bytes) -> list[Place]:
    """The partitions of a ConsumerProtocolAssignment; nothing if it is another format."""
    found: list[Place] = []
    try:
        (topics,) = _INT32.unpack_from(data, 2)
        at = 6
        for _ in range(topics):
            (size,) = _INT16.unpack_from(data, at)
            name = bytes(data[at + 2 : at + 2 + size]).decode()
            at += 2 + size
            (count,) = _INT32.unpack_from(data, at)
            at += 4
            for _ in range(count):
                (partition,) = _INT32.unpack_from(data, at)
                found.append((name, partition))
                at += 4
    except (error, UnicodeDecodeError):
        return []
    return found
