"""OffsetCommit. Its answer waits for the metadata commit; later requests of the connection are
handled meanwhile, since a group does what it is asked in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drayd.call import Call, Result
from drayd.groups.machine import Committer
from metadata.group_values import CommittedOffset
from metadata.groups import Partition
from metadata.values import Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 8
NAME = "OffsetCommit"
VERSIONS = range(2, 11)

_BY_ID_FROM = 10


async def handle(call: Call) -> Result:
    request = call.request
    codes: dict[tuple[int, int], ErrorCode] = {}
    """The partitions that are refused, by their place in the request."""
    offsets: dict[Partition, CommittedOffset] = {}
    now_ms = call.broker.now_ms()
    retention_ms = _milliseconds(getattr(request, "retention_time", -1))
    expire_ms = now_ms + retention_ms if retention_ms >= 0 else -1
    longest = call.broker.settings.offset_metadata_max_bytes
    for at, wanted in enumerate(request.topics):
        topic, missing = await _topic(call, wanted)
        for number, partition in enumerate(wanted.partitions):
            metadata = partition.committed_metadata or ""
            if topic is None:
                codes[at, number] = missing
            elif not 0 <= partition.partition_index < len(topic.partitions):
                codes[at, number] = ErrorCode.unknown_topic_or_partition
            elif len(metadata) > longest:
                codes[at, number] = ErrorCode.offset_metadata_too_large
            else:
                offsets[topic.topic_id, partition.partition_index] = CommittedOffset(
                    partition.committed_offset,
                    getattr(partition, "committed_leader_epoch", -1),
                    metadata,
                    now_ms,
                    expire_ms,
                )
    if not offsets and codes and ErrorCode.offset_metadata_too_large not in codes.values():
        # Nothing is left to commit: the group isn't asked, as in Kafka.
        return _respond(call, codes, ErrorCode.none)
    committer = Committer(
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
        call.version,
        partitions=tuple(offsets),
    )
    committed = call.broker.groups.commit(request.group_id, committer, offsets)
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(finished: asyncio.Future[ErrorCode]) -> None:
        if answer.done():
            return
        error = finished.exception()
        code = error.code if isinstance(error, KafkaError) else ErrorCode.unknown_server_error
        answer.set_result(_respond(call, codes, code if error else finished.result()))

    committed.add_done_callback(done)
    return answer


async def _topic(call: Call, wanted: Any) -> tuple[Topic | None, ErrorCode]:
    if call.version < _BY_ID_FROM:
        return await call.broker.topics.find(wanted.name), ErrorCode.unknown_topic_or_partition
    if wanted.topic_id is None:
        return None, ErrorCode.unknown_topic_id
    return await call.broker.topics.find_id(wanted.topic_id), ErrorCode.unknown_topic_id


def _respond(call: Call, codes: Mapping[tuple[int, int], ErrorCode], code: ErrorCode) -> Any:
    topic_class, partition_class = (
        call.item_class("topics"),
        call.item_class("topics", "partitions"),
    )
    topics = tuple(
        make(
            topic_class,
            name=getattr(wanted, "name", None),
            topic_id=getattr(wanted, "topic_id", None),
            partitions=tuple(
                make(
                    partition_class,
                    partition_index=partition.partition_index,
                    error_code=codes.get((at, number), code),
                )
                for number, partition in enumerate(wanted.partitions)
            ),
        )
        for at, wanted in enumerate(call.request.topics)
    )
    return call.respond(throttle_time=0, topics=topics)


def _milliseconds(duration: timedelta | int) -> int:
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    return duration
