"""OffsetDelete: an administrator removes committed offsets of topics that nobody in the group
reads."""

from __future__ import annotations

from typing import Any

from drayd.call import Call, Result
from drayd.coordinator_group import LiveGroup
from metadata.groups import Partition
from metadata.values import Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 47
NAME = "OffsetDelete"
VERSIONS = range(1)


async def handle(call: Call) -> Result:
    request = call.request
    if not request.group_id:
        return call.respond(throttle_time=0, error_code=ErrorCode.invalid_group_id, topics=())
    topics = {each.name: await call.broker.topics.find(each.name) for each in request.topics}
    codes: dict[str, ErrorCode] = {}
    """Of the partitions that exist."""

    def choose(group: LiveGroup) -> list[Partition]:
        _check(group)
        subscribed = group.summary().subscriptions or frozenset()
        chosen: list[Partition] = []
        for each in request.topics:
            topic = topics[each.name]
            if topic is None:
                codes[each.name] = ErrorCode.unknown_topic_or_partition
            elif each.name in subscribed:
                codes[each.name] = ErrorCode.group_subscribed_to_topic
            else:
                codes[each.name] = ErrorCode.none
                wanted = [(topic.topic_id, one.partition_index) for one in each.partitions]
                chosen += [one for one in wanted if one in group.offsets]
        return list(dict.fromkeys(chosen))

    try:
        await call.broker.groups.delete_offsets(request.group_id, choose)
    except KafkaError as error:
        return call.respond(throttle_time=0, error_code=error.code, topics=())
    return call.respond(
        throttle_time=0,
        error_code=ErrorCode.none,
        topics=tuple(
            _result(call, each, topics[each.name], codes[each.name]) for each in request.topics
        ),
    )


def _check(group: LiveGroup) -> None:
    """A group that isn't one of consumers can't say what it reads: it must have no members."""
    if not group.exists:
        raise KafkaError(ErrorCode.group_id_not_found)
    summary = group.summary()
    if summary.members and summary.protocol_type != "consumer":
        raise KafkaError(ErrorCode.non_empty_group)


def _result(call: Call, wanted: Any, topic: Topic | None, code: ErrorCode) -> Any:
    """Partitions that don't exist come first, as in Kafka."""
    count = 0 if topic is None else len(topic.partitions)
    codes = [
        (
            each.partition_index,
            code if 0 <= each.partition_index < count else ErrorCode.unknown_topic_or_partition,
        )
        for each in wanted.partitions
    ]
    codes.sort(key=lambda one: one[1] is not ErrorCode.unknown_topic_or_partition)
    return make(
        call.item_class("topics"),
        name=wanted.name,
        partitions=tuple(
            make(call.item_class("topics", "partitions"), partition_index=index, error_code=each)
            for index, each in codes
        ),
    )
