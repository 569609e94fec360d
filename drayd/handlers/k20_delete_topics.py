"""DeleteTopics, by name or by id. After the answer nothing is acknowledged to the old topic."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from drayd.call import Call, Result
from metadata.values import Topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 20
NAME = "DeleteTopics"
VERSIONS = range(1, 7)

_BY_ID_FROM_VERSION = 6
_ABSENT = {
    ErrorCode.unknown_topic_or_partition: "This server does not host this topic-partition.",
    ErrorCode.unknown_topic_id: "This server does not host this topic ID.",
}


async def handle(call: Call) -> Result:
    request = call.request
    if call.version >= _BY_ID_FROM_VERSION:
        wanted = [(item.name, item.topic_id) for item in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    names = Counter(name for name, topic_id in wanted if topic_id is None)
    ids = Counter(topic_id for name, topic_id in wanted if name is None)
    results = []
    found: list[Topic] = []
    seen: set[tuple[str | None, UUID | None]] = set()
    for name, topic_id in wanted:
        if (name is None) != (topic_id is None) and (name, topic_id) in seen:
            # Asked twice, answered once.
            continue
        seen.add((name, topic_id))
        try:
            topic = await _find(call, name, topic_id, names, ids)
            found.append(topic)
        except KafkaError as error:
            results.append(_result(call, name, topic_id, error.code, error.message or None))
    times = Counter(topic.topic_id for topic in found)
    for topic in {topic.topic_id: topic for topic in found}.values():
        try:
            if times[topic.topic_id] > 1:
                raise KafkaError(
                    ErrorCode.invalid_request,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            call.mutate(len(topic.partitions))
            await call.broker.topics.delete(topic)
            results.append(_result(call, topic.name, topic.topic_id, ErrorCode.none, None))
        except KafkaError as error:
            results.append(
                _result(call, topic.name, topic.topic_id, error.code, error.message or None)
            )
    return call.respond(throttle_time=0, responses=tuple(results))


async def _find(
    call: Call,
    name: str | None,
    topic_id: UUID | None,
    names: Counter[str | None],
    ids: Counter[UUID | None],
) -> Topic:
    if name is None and topic_id is None:
        raise KafkaError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if name is not None and topic_id is not None:
        raise KafkaError(
            ErrorCode.invalid_request, "You may not specify both topic name and topic id."
        )
    if topic_id is not None:
        if ids[topic_id] > 1:
            raise KafkaError(ErrorCode.invalid_request, "Duplicate topic id.")
        topic = await call.broker.topics.find_id(topic_id)
        missing = ErrorCode.unknown_topic_id
    else:
        assert name is not None
        if names[name] > 1:
            raise KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
        topic = await call.broker.topics.find(name)
        missing = ErrorCode.unknown_topic_or_partition
    if topic is None:
        raise KafkaError(missing, _ABSENT[missing])
    return topic


def _result(
    call: Call, name: str | None, topic_id: UUID | None, code: ErrorCode, message: str | None
) -> Any:
    return make(
        call.item_class("responses"),
        name=name,
        topic_id=topic_id,
        error_code=code,
        error_message=message,
    )
