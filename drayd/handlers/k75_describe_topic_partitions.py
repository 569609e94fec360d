"""DescribeTopicPartitions: as Metadata, in the order of names, a page at a time (KIP-966)."""

from __future__ import annotations

from typing import Any

from drayd import operations
from drayd.call import Call, Result
from drayd.topic_names import check_name
from metadata.values import Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 75
NAME = "DescribeTopicPartitions"
VERSIONS = range(1)

MAX_PARTITIONS = 2000
"""In one answer, whatever the client asks for."""


async def handle(call: Call) -> Result:
    request = call.request
    names, refused = _names(call)
    if refused is not ErrorCode.none:
        topics = [_shown(call, name, refused, operations.NOT_ASKED) for name in names]
        return call.respond(throttle_time=0, topics=tuple(topics), next_cursor=None)
    left = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    topics = []
    cursor: tuple[str, int] | None = None
    for name in names:
        first = 0
        if request.cursor is not None and request.cursor.topic_name == name:
            first = request.cursor.partition_index
        if not left:
            cursor = (name, 0)
            break
        topic, code = await _find(call, name)
        if topic is None:
            topics.append(_shown(call, name, code, operations.TOPIC))
            continue
        end = min(len(topic.partitions), first + left)
        topics.append(
            _shown(call, name, ErrorCode.none, operations.TOPIC, topic, range(first, end))
        )
        left -= max(end - first, 0)
        if end < len(topic.partitions):
            cursor = (name, end)
            break
    return call.respond(
        throttle_time=0,
        topics=tuple(topics),
        next_cursor=None
        if cursor is None
        else make(call.item_class("next_cursor"), topic_name=cursor[0], partition_index=cursor[1]),
    )


def _names(call: Call) -> tuple[list[str], ErrorCode]:
    """What is asked for, from the cursor on; or what is wrong with it as a whole."""
    request = call.request
    cursor = request.cursor
    in_order = [topic.name for topic in request.topics]
    if "" in in_order:
        # Kafka asks its authorizer about it, which fails.
        return in_order, ErrorCode.unknown_server_error
    asked = set(in_order)
    names = sorted(asked or {topic.name for topic in call.broker.topics.all()})
    if cursor is None:
        return names, ErrorCode.none
    if cursor.partition_index < 0 or (asked and cursor.topic_name not in asked):
        return in_order, ErrorCode.invalid_request
    return [name for name in names if name >= cursor.topic_name], ErrorCode.none


async def _find(call: Call, name: str) -> tuple[Topic | None, ErrorCode]:
    try:
        topic = await call.broker.topics.find(name)
        if topic is None:
            check_name(name)
    except KafkaError as error:
        return None, error.code
    return topic, ErrorCode.unknown_topic_or_partition


def _shown(
    call: Call,
    name: str,
    code: ErrorCode,
    authorized: int,
    topic: Topic | None = None,
    partitions: range = range(0),
) -> Any:
    cls = call.item_class("topics")
    partition_class = nested(cls, "partitions")
    shown = []
    for index in partitions:
        assert topic is not None
        leader = call.broker.leader(topic.partitions[index]).node_id
        shown.append(
            make(
                partition_class,
                error_code=ErrorCode.none,
                partition_index=index,
                leader_id=leader,
                leader_epoch=0,
                replica_nodes=(leader,),
                isr_nodes=(leader,),
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=(),
            )
        )
    return make(
        cls,
        error_code=code,
        name=name,
        topic_id=None if topic is None else topic.topic_id,
        is_internal=False,
        partitions=tuple(shown),
        topic_authorized_operations=authorized,
    )
