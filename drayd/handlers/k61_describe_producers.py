"""DescribeProducers: the idempotent producers that a partition remembers."""

from __future__ import annotations

from typing import Any

from drayd.call import Call, Result
from drayd.topic_names import check_name
from metadata.store import StoreError
from metadata.streams import StreamMissing
from metadata.values import StreamRef
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 61
NAME = "DescribeProducers"
VERSIONS = range(1)

NONE = -1


async def handle(call: Call) -> Result:
    topic_class = call.item_class("topics")
    topics = []
    for topic in call.request.topics:
        partitions = [
            await _partition(call, topic.name, index) for index in topic.partition_indexes
        ]
        topics.append(make(topic_class, name=topic.name, partitions=tuple(partitions)))
    return call.respond(throttle_time=0, topics=tuple(topics))


async def _partition(call: Call, name: str, index: int) -> Any:
    code, message = ErrorCode.none, None
    producers: tuple[Any, ...] = ()
    try:
        check_name(name)
        topic = await call.broker.topics.find(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.unknown_topic_or_partition,
                "This server does not host this topic-partition.",
            )
        if not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        producers = await _producers(call, topic.partitions[index])
    except KafkaError as error:
        code, message = error.code, error.message or None
    return make(
        nested(call.item_class("topics"), "partitions"),
        partition_index=index,
        error_code=code,
        error_message=message,
        active_producers=producers,
    )


async def _producers(call: Call, ref: StreamRef) -> tuple[Any, ...]:
    cls = call.item_class("topics", "partitions", "active_producers")
    try:
        found = await call.broker.domain(ref).producers(ref.stream_id)
    except StreamMissing:
        raise KafkaError(ErrorCode.unknown_topic_or_partition) from None
    except StoreError as error:
        raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
    return tuple(
        make(
            cls,
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.batches[-1].last_sequence if state.batches else NONE,
            last_timestamp=state.last_timestamp_ms,
            coordinator_epoch=NONE,
            current_txn_start_offset=NONE,
        )
        for producer_id, state in found.items()
    )
