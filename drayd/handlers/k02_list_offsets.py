"""ListOffsets: the log's ends, and offsets by time."""

from __future__ import annotations

from typing import Any, NamedTuple

from drayd.call import Call, Result
from drayd.offsets import OffsetAt, by_timestamp, of_max_timestamp
from metadata.store import StoreError
from metadata.streams import StreamMissing
from metadata.values import Lifecycle, StreamHead, StreamRef
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested
from wal.objectstore import ObjectStoreError
from wal.reader import CorruptLog

KEY = 2
NAME = "ListOffsets"
VERSIONS = range(1, 12)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
# The version from which each of them may be asked for.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class _Answer(NamedTuple):
    code: ErrorCode
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


async def handle(call: Call) -> Result:
    topic_class = call.item_class("topics")
    partition_class = nested(topic_class, "partitions")
    topics = []
    for name, asked in _merged(call).items():
        partitions = []
        for index, partition in asked.items():
            if partition is None:
                answer = _Answer(ErrorCode.invalid_request)
            else:
                answer = await _one(call, name, partition)
            partitions.append(
                make(
                    partition_class,
                    partition_index=index,
                    error_code=answer.code,
                    timestamp=answer.timestamp,
                    offset=answer.offset,
                    leader_epoch=answer.leader_epoch,
                )
            )
        topics.append(make(topic_class, name=name, partitions=tuple(partitions)))
    return call.respond(throttle_time=0, topics=tuple(topics))


def _merged(call: Call) -> dict[str, dict[int, Any]]:
    """Every topic and partition once; None where the request has a partition twice."""
    found: dict[str, dict[int, Any]] = {}
    for topic in call.request.topics:
        for partition in topic.partitions:
            known = found.setdefault(topic.name, {})
            index = partition.partition_index
            known[index] = None if index in known else partition
    return found


async def _one(call: Call, name: str, partition: Any) -> _Answer:
    index = partition.partition_index
    try:
        topic = await call.broker.topics.find(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return _Answer(ErrorCode.unknown_topic_or_partition)
        ref = topic.partitions[index]
        # Read, not remembered: another broker's acknowledged writes count.
        stream = await call.broker.domain(ref).refresh(ref.stream_id)
        if stream.head.state != Lifecycle.ACTIVE:
            return _Answer(ErrorCode.unknown_topic_or_partition)
        check_epoch(getattr(partition, "current_leader_epoch", -1), stream.head)
        return await _look_up(call, ref, stream.head, partition.timestamp)
    except KafkaError as error:
        return _Answer(error.code)
    except StreamMissing:
        return _Answer(ErrorCode.unknown_topic_or_partition)
    except CorruptLog:
        return _Answer(ErrorCode.corrupt_message)
    except (StoreError, ObjectStoreError):
        return _Answer(ErrorCode.kafka_storage_error)


def check_epoch(asked: int, head: StreamHead) -> None:
    if asked > head.leader_epoch:
        raise KafkaError(ErrorCode.unknown_leader_epoch)
    if 0 <= asked < head.leader_epoch:
        raise KafkaError(ErrorCode.fenced_leader_epoch)


async def _look_up(call: Call, ref: StreamRef, head: StreamHead, timestamp: int) -> _Answer:
    if call.version < _SINCE.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        return _Answer(ErrorCode.unsupported_version)
    epoch = head.leader_epoch
    match timestamp:
        case -1:
            return _Answer(ErrorCode.none, -1, head.log_end, epoch)
        case -2 | -4:
            return _Answer(ErrorCode.none, -1, head.log_start, epoch)
        case -5 | -6:
            # A log without tiers: nothing was uploaded, nothing waits for it.
            return _Answer(ErrorCode.none, -1, -1, -1)
        case -3:
            found = await of_max_timestamp(call.broker, ref, head)
        case _:
            found = await by_timestamp(call.broker, ref, head, timestamp)
    return _shown(found, epoch)


def _shown(found: OffsetAt | None, epoch: int) -> _Answer:
    if found is None:
        return _Answer(ErrorCode.none)
    return _Answer(ErrorCode.none, found.timestamp_ms, found.offset, epoch)
