"""OffsetFetch: committed offsets of one group, or from version 8 on of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from drayd.call import Call, Result
from drayd.coordinator_group import LiveGroup
from metadata.group_values import CommittedOffset
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 9
NAME = "OffsetFetch"
VERSIONS = range(1, 11)

_CODE_FROM = 2
_BATCHED_FROM = 8
_BY_ID_FROM = 10


class _Wanted(NamedTuple):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: Sequence[Any] | None


class _TopicFound(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: list[tuple[int, CommittedOffset | None, ErrorCode]]


async def handle(call: Call) -> Result:
    request = call.request
    if call.version < _BATCHED_FROM:
        wanted = _Wanted(request.group_id, None, -1, request.topics)
        code, topics = await _fetch(call, wanted)
        return call.respond(
            throttle_time=0, error_code=code, topics=_topics(call, topics, "topics")
        )
    groups = []
    for each in request.groups:
        wanted = _Wanted(
            each.group_id,
            getattr(each, "member_id", None),
            getattr(each, "member_epoch", -1),
            each.topics,
        )
        code, topics = await _fetch(call, wanted)
        groups.append(
            make(
                call.item_class("groups"),
                group_id=each.group_id,
                error_code=code,
                topics=_topics(call, topics, "groups", "topics"),
            )
        )
    return call.respond(throttle_time=0, groups=tuple(groups))


async def _fetch(call: Call, wanted: _Wanted) -> tuple[ErrorCode, list[_TopicFound]]:
    by_id = call.version >= _BY_ID_FROM
    known: dict[Any, UUID | None] = {}
    try:
        for topic in wanted.topics or ():
            key = topic.topic_id if by_id else topic.name
            if by_id:
                found = None if key is None else await call.broker.topics.find_id(key)
            else:
                found = await call.broker.topics.find(key)
            known[key] = None if found is None else found.topic_id

        def read(group: LiveGroup) -> tuple[ErrorCode, list[_TopicFound]]:
            code = ErrorCode.none
            if wanted.member_id is not None or wanted.member_epoch >= 0:
                machine = group.world.machines[group.kind]
                if group.exists:
                    code = machine.admit_fetch(group.state, wanted.member_id, wanted.member_epoch)
            if code is not ErrorCode.none:
                return code, []
            if wanted.topics is None:
                return code, _all(group)
            return code, [_one(group, topic, by_id, known) for topic in wanted.topics]

        code, topics = await call.broker.groups.look(wanted.group_id, read)
    except KafkaError as error:
        code, topics = error.code, []
    if code is not ErrorCode.none and call.version < _CODE_FROM:
        # Before version 2 only partitions have a code.
        topics = [
            _TopicFound(
                topic.name, None, [(index, None, code) for index in topic.partition_indexes]
            )
            for topic in wanted.topics or ()
        ]
    return code, topics


def _all(group: LiveGroup) -> list[_TopicFound]:
    """Every committed offset of a topic that still exists."""
    by_topic: dict[UUID, _TopicFound] = {}
    for topic_id, partition in sorted(group.offsets):
        facts = group.world.topics.by_id(topic_id)
        if facts is None:
            continue
        found = by_topic.setdefault(topic_id, _TopicFound(facts.name, topic_id, []))
        committed = group.offsets[topic_id, partition]
        found.partitions.append((partition, committed, ErrorCode.none))
    return list(by_topic.values())


def _one(group: LiveGroup, topic: Any, by_id: bool, known: dict[Any, UUID | None]) -> _TopicFound:
    key = topic.topic_id if by_id else topic.name
    topic_id = known[key]
    missing = ErrorCode.unknown_topic_id if by_id and topic_id is None else ErrorCode.none
    return _TopicFound(
        None if by_id else key,
        key if by_id else None,
        [
            (
                index,
                None if topic_id is None else group.offsets.get((topic_id, index)),
                missing,
            )
            for index in topic.partition_indexes
        ],
    )


def _topics(call: Call, found: list[_TopicFound], *path: str) -> tuple[Any, ...]:
    topic_class = call.item_class(*path)
    partition_class = call.item_class(*path, "partitions")
    return tuple(
        make(
            topic_class,
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(
                make(
                    partition_class,
                    partition_index=index,
                    committed_offset=-1 if committed is None else committed.offset,
                    committed_leader_epoch=-1 if committed is None else committed.leader_epoch,
                    metadata="" if committed is None else committed.metadata,
                    error_code=code,
                )
                for index, committed, code in topic.partitions
            ),
        )
        for topic in found
    )
