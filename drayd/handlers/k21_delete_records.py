"""DeleteRecords: the log starts later. What lies before is gone for every reader at once."""

from __future__ import annotations

from typing import NamedTuple

from drayd.call import Call, Result
from metadata.store import StoreError
from metadata.streams import StreamMissing
from metadata.trim import OutOfRange
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 21
NAME = "DeleteRecords"
VERSIONS = range(3)


class _Answer(NamedTuple):
    code: ErrorCode
    low_watermark: int = -1


async def handle(call: Call) -> Result:
    # A partition that is named twice gets the last offset, as in Kafka.
    wanted: dict[str, dict[int, int]] = {}
    for topic in call.request.topics:
        for partition in topic.partitions:
            wanted.setdefault(topic.name, {})[partition.partition_index] = partition.offset
    topic_class = call.item_class("topics")
    partition_class = nested(topic_class, "partitions")
    topics = []
    for name, partitions in wanted.items():
        answers = []
        for index, offset in partitions.items():
            answer = await _delete(call, name, index, offset)
            answers.append(
                make(
                    partition_class,
                    partition_index=index,
                    low_watermark=answer.low_watermark,
                    error_code=answer.code,
                )
            )
        topics.append(make(topic_class, name=name, partitions=tuple(answers)))
    return call.respond(throttle_time=0, topics=tuple(topics))


async def _delete(call: Call, name: str, index: int, offset: int) -> _Answer:
    topics = call.broker.topics
    try:
        topic = await topics.find(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return _Answer(ErrorCode.unknown_topic_or_partition)
        if not topics.may_delete_records(topic):
            return _Answer(ErrorCode.policy_violation)
        head = await call.broker.trimmer.delete_records(topic.partitions[index], offset)
    except KafkaError as error:
        return _Answer(error.code)
    except StreamMissing:
        return _Answer(ErrorCode.unknown_topic_or_partition)
    except OutOfRange:
        return _Answer(ErrorCode.offset_out_of_range)
    except StoreError:
        return _Answer(ErrorCode.kafka_storage_error)
    return _Answer(ErrorCode.none, head.log_start)
