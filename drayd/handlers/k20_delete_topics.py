"""DeleteTopics, by name or by id. After the answer nothing is acknowledged to the old topic."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drayd.call import Call, Result
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 20
NAME = "DeleteTopics"
VERSIONS = range(1, 7)

_BY_ID_FROM_VERSION = 6
_NAME_AND_ID = "The provided topic name maps to an ID that was already supplied."
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
    refused = await _twice(call, wanted)
    results = []
    for name, topic_id in dict.fromkeys(wanted):
        try:
            if topic_id is not None and topic_id in refused.values():
                # Its name was refused, which says it all.
                continue
            if name in refused:
                code = ErrorCode.invalid_request
                results.append(_result(call, name, refused[name], code, _NAME_AND_ID))
                continue
            if wanted.count((name, topic_id)) > 1:
                what = "name" if topic_id is None else "id"
                raise KafkaError(ErrorCode.invalid_request, f"Duplicate topic {what}.")
            results.append(await _delete(call, name, topic_id))
        except KafkaError as error:
            results.append(_result(call, name, topic_id, error.code, error.message or None))
    return call.respond(throttle_time=0, responses=tuple(results))


async def _twice(
    call: Call, wanted: list[tuple[str | None, UUID | None]]
) -> dict[str | None, UUID]:
    """The names whose ids are in the list too."""
    ids = {topic_id for _, topic_id in wanted if topic_id is not None}
    found: dict[str | None, UUID] = {}
    for name, topic_id in wanted if ids else ():
        if name is not None and topic_id is None:
            topic = await call.broker.topics.find(name)
            if topic is not None and topic.topic_id in ids:
                found[name] = topic.topic_id
    return found


async def _delete(call: Call, name: str | None, topic_id: UUID | None) -> Any:
    topics = call.broker.topics
    if name is not None and topic_id is not None:
        raise KafkaError(
            ErrorCode.invalid_request, "You may not specify both topic name and topic id."
        )
    if topic_id is not None:
        topic = await topics.find_id(topic_id)
        missing = ErrorCode.unknown_topic_id
    elif name is not None:
        topic = await topics.find(name)
        missing = ErrorCode.unknown_topic_or_partition
    else:
        raise KafkaError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if topic is None:
        raise KafkaError(missing, _ABSENT[missing])
    call.mutate(len(topic.partitions))
    await topics.delete(topic)
    return _result(call, topic.name, topic.topic_id, ErrorCode.none, None)


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
