"""OffsetForLeaderEpoch: how far a leader epoch reaches. A stream has one epoch for life, because
no record that was acknowledged is ever taken back."""

from __future__ import annotations

from typing import Any

from drayd.call import Call, Result
from drayd.handlers.k02_list_offsets import check_epoch
from metadata.store import StoreError
from metadata.streams import StreamMissing
from metadata.values import Lifecycle
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 23
NAME = "OffsetForLeaderEpoch"
VERSIONS = range(2, 5)

UNDEFINED = -1


async def handle(call: Call) -> Result:
    topic_class = call.item_class("topics")
    partition_class = nested(topic_class, "partitions")
    topics = []
    for topic in call.request.topics:
        partitions = []
        for asked in topic.partitions:
            try:
                code, epoch, end = ErrorCode.none, *await _end(call, topic.topic, asked)
            except KafkaError as error:
                code, epoch, end = error.code, UNDEFINED, UNDEFINED
            partitions.append(
                make(
                    partition_class,
                    error_code=code,
                    partition=asked.partition,
                    leader_epoch=epoch,
                    end_offset=end,
                )
            )
        topics.append(make(topic_class, topic=topic.topic, partitions=tuple(partitions)))
    return call.respond(throttle_time=0, topics=tuple(topics))


async def _end(call: Call, name: str, asked: Any) -> tuple[int, int]:
    topic = await call.broker.topics.find(name)
    if topic is None or not 0 <= asked.partition < len(topic.partitions):
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    ref = topic.partitions[asked.partition]
    try:
        head = (await call.broker.domain(ref).refresh(ref.stream_id)).head
    except StreamMissing:
        raise KafkaError(ErrorCode.unknown_topic_or_partition) from None
    except StoreError as error:
        raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
    if head.state != Lifecycle.ACTIVE:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    check_epoch(asked.current_leader_epoch, head)
    if asked.leader_epoch == UNDEFINED or asked.leader_epoch > head.leader_epoch:
        return UNDEFINED, UNDEFINED
    if asked.leader_epoch < head.leader_epoch:
        # An epoch before the first one ends where the log begins.
        return asked.leader_epoch, head.log_start
    return head.leader_epoch, head.log_end
