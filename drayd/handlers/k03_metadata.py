"""Metadata: the brokers, and the topics that were asked for; may create a missing topic."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drayd import operations
from drayd.call import Call, Result
from drayd.topic_names import check_name
from metadata.values import Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 3
NAME = "Metadata"
VERSIONS = range(14)

_FLAG_FROM_VERSION = 4
# The schema has ids from version 10 on, but Kafka takes them only from here.
_BY_ID_FROM_VERSION = 12
# What every client takes for "ask again".
_CODES = {
    ErrorCode.kafka_storage_error: ErrorCode.leader_not_available,
    ErrorCode.request_timed_out: ErrorCode.leader_not_available,
}


async def handle(call: Call) -> Result:
    refused = _refused_as_a_whole(call)
    if refused is not ErrorCode.none:
        return _refusal(call, refused)
    broker = call.broker
    controller = min(node.node_id for node in broker.nodes())
    return call.respond(
        throttle_time=0,
        brokers=tuple(
            make(
                call.item_class("brokers"),
                node_id=node.node_id,
                host=node.host,
                port=node.port,
                rack=node.rack,
            )
            for node in broker.nodes()
        ),
        cluster_id=broker.cluster_id,
        controller_id=controller,
        topics=tuple(await _topics(call)),
        cluster_authorized_operations=operations.shown(
            operations.CLUSTER,
            getattr(call.request, "include_cluster_authorized_operations", False),
        ),
        error_code=ErrorCode.none,
    )


def _refused_as_a_whole(call: Call) -> ErrorCode:
    for item in call.request.topics or ():
        topic_id = getattr(item, "topic_id", None)
        if call.version < _BY_ID_FROM_VERSION:
            if item.name is None or topic_id is not None:
                return ErrorCode.invalid_request
        elif item.name is None and topic_id is None:
            # Kafka stumbles over it; the client is told the same.
            return ErrorCode.unknown_server_error
    return ErrorCode.none


def _refusal(call: Call, code: ErrorCode) -> Any:
    cls = call.item_class("topics")
    return call.respond(
        throttle_time=0,
        brokers=(),
        cluster_id=None,
        controller_id=-1,
        topics=tuple(
            make(
                cls,
                error_code=code,
                name=item.name or "",
                topic_id=getattr(item, "topic_id", None),
                is_internal=False,
                partitions=(),
            )
            for item in call.request.topics
        ),
        error_code=code,
    )


async def _topics(call: Call) -> list[Any]:
    wanted = call.request.topics
    if wanted is None or (call.version == 0 and not wanted):
        return [_found(call, topic) for topic in call.broker.topics.all()]
    # Asked twice, answered once; where there are ids, names don't count.
    ids = dict.fromkeys(
        item.topic_id for item in wanted if getattr(item, "topic_id", None) is not None
    )
    if ids:
        return [await _by_id(call, topic_id) for topic_id in ids]
    return [await _by_name(call, name) for name in dict.fromkeys(item.name for item in wanted)]


async def _by_id(call: Call, topic_id: UUID) -> Any:
    try:
        topic = await call.broker.topics.find_id(topic_id)
    except KafkaError as error:
        return _missing(call, _CODES.get(error.code, error.code), None, topic_id)
    if topic is None:
        return _missing(call, ErrorCode.unknown_topic_id, None, topic_id)
    return _found(call, topic)


async def _by_name(call: Call, name: str) -> Any:
    topics = call.broker.topics
    try:
        topic = await topics.find(name)
        if topic is not None:
            return _found(call, topic)
        check_name(name)
        if not _may_create(call):
            return _missing(call, ErrorCode.unknown_topic_or_partition, name, None)
        return _found(call, await topics.auto_create(name))
    except KafkaError as error:
        return _missing(call, _CODES.get(error.code, error.code), name, None)


def _may_create(call: Call) -> bool:
    asked = call.version < _FLAG_FROM_VERSION or call.request.allow_auto_topic_creation
    return bool(asked and call.broker.settings.auto_create_topics_enable)


def _missing(call: Call, code: ErrorCode, name: str | None, topic_id: UUID | None) -> Any:
    return make(
        call.item_class("topics"),
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=_operations(call, asked_by_name=name is not None),
    )


def _operations(call: Call, *, asked_by_name: bool = True) -> int:
    asked = getattr(call.request, "include_topic_authorized_operations", False)
    return operations.shown(operations.TOPIC, asked and asked_by_name)


def _found(call: Call, topic: Topic) -> Any:
    cls = call.item_class("topics")
    partition_class = nested(cls, "partitions")
    partitions = []
    for index, ref in enumerate(topic.partitions):
        leader = call.broker.leader(ref).node_id
        partitions.append(
            make(
                partition_class,
                error_code=ErrorCode.none,
                partition_index=index,
                leader_id=leader,
                leader_epoch=0,
                replica_nodes=(leader,),
                isr_nodes=(leader,),
                offline_replicas=(),
            )
        )
    return make(
        cls,
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=False,
        partitions=tuple(partitions),
        topic_authorized_operations=_operations(call),
    )
