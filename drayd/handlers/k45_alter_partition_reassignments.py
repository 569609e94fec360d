"""AlterPartitionReassignments: one replica, in the object store, is where it should be already."""

from __future__ import annotations

from typing import Any

from drayd.assignments import check_replicas
from drayd.call import Call, Result
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 45
NAME = "AlterPartitionReassignments"
VERSIONS = range(2)


async def handle(call: Call) -> Result:
    topic_class = call.item_class("responses")
    partition_class = nested(topic_class, "partitions")
    topics = []
    for topic in call.request.topics:
        partitions = []
        for partition in topic.partitions:
            code, message = ErrorCode.none, None
            try:
                await _check(call, topic.name, partition)
            except KafkaError as error:
                code, message = error.code, error.message or None
            partitions.append(
                make(
                    partition_class,
                    partition_index=partition.partition_index,
                    error_code=code,
                    error_message=message,
                )
            )
        topics.append(make(topic_class, name=topic.name, partitions=tuple(partitions)))
    return call.respond(
        throttle_time=0,
        allow_replication_factor_change=getattr(
            call.request, "allow_replication_factor_change", True
        ),
        error_code=ErrorCode.none,
        # An empty request never reaches Kafka's controller, and its answer is built elsewhere.
        error_message=None if topics else "",
        responses=tuple(topics),
    )


async def _check(call: Call, name: str, partition: Any) -> None:
    topic = await call.broker.topics.find(name)
    if topic is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}."
        )
    index = partition.partition_index
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{index}."
        )
    if partition.replicas is None:
        raise KafkaError(ErrorCode.no_reassignment_in_progress)
    check_replicas(partition.replicas, {node.node_id for node in call.broker.nodes()})
