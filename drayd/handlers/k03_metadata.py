"""Metadata: the brokers, and the topics that were asked for; may create a missing topic."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drayd.call import Call, Result
from drayd.topic_names import check_name
from metadata.values import Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 3
NAME = "Metadata"
VERSIONS = range(14)

_FLAG_FROM_VERSION = 4
# What every client takes for "ask again".
_CODES = {
    ErrorCode.kafka_storage_error: ErrorCode.leader_not_available,
    ErrorCode.request_timed_out: ErrorCode.leader_not_available,
}


async def handle(call: Call) -> Result:
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
        error_code=ErrorCode.none,
    )


async def _topics(call: Call) -> list[Any]:
    wanted = call.request.topics
    if wanted is None or (call.version == 0 and not wanted):
        return [_found(call, topic) for topic in call.broker.topics.all()]
    # Asked twice, answered once.
    return [await _one(call, item) for item in dict.fromkeys(wanted)]


async def _one(call: Call, item: Any) -> Any:
    topics = call.broker.topics
    topic_id: UUID | None = getattr(item, "topic_id", None)
    name: str | None = item.name
    try:
        if topic_id is not None and name is None:
            topic = await topics.find_id(topic_id)
            if topic is None:
                return _missing(call, ErrorCode.unknown_topic_id, None, topic_id)
            return _found(call, topic)
        if name is None:
            return _missing(call, ErrorCode.unknown_topic_id, None, None)
        topic = await topics.find(name)
        if topic is not None:
            return _found(call, topic)
        check_name(name)
        if not _may_create(call):
            return _missing(call, ErrorCode.unknown_topic_or_partition, name, None)
        return _found(call, await topics.auto_create(name))
    except KafkaError as error:
        return _missing(call, _CODES.get(error.code, error.code), name, topic_id)


def _may_create(call: Call) -> bool:
    asked = call.version < _FLAG_FROM_VERSION or call.request.allow_auto_topic_creation
    return bool(asked and call.broker.settings.auto_create_topics_enable)


def _missing(call: Call, code: ErrorCode, name: str | None, topic_id: UUID | None) -> Any:
    cls = call.item_class("topics")
    # Before version 12 the name can't be null.
    shown = name if name is not None or call.version >= 12 else ""
    return make(
        cls, error_code=code, name=shown, topic_id=topic_id, is_internal=False, partitions=()
    )


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
    )
