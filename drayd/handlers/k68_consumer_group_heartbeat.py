"""ConsumerGroupHeartbeat (KIP-848): a member joins, stays, acknowledges or leaves."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any
from uuid import UUID, uuid4

from drayd.call import Call, Result
from drayd.groups.assignors import Partitions
from drayd.groups.consumer_checks import check_request
from drayd.groups.consumer_events import Beat, BeatAnswer, Refused
from drayd.groups.machine import GroupSettings
from protocol.errors import KafkaError
from protocol.messages import make

KEY = 68
NAME = "ConsumerGroupHeartbeat"
VERSIONS = range(2)

_NO_ID = UUID(int=0)


async def handle(call: Call) -> Result:
    beat = _beat(call)
    try:
        # A group without a name can't be asked.
        if not beat.group_id:
            check_request(beat, GroupSettings())
        answer: BeatAnswer = await call.broker.groups.ask(beat.group_id, beat)
    except Refused as refused:
        answer = refused.answer
    except KafkaError as error:
        answer = BeatAnswer(error.code, error.message or None)
    return call.respond(
        throttle_time=0,
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval=answer.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _assignment(call, answer.assignment),
    )


def _beat(call: Call) -> Beat:
    request = call.request
    names = request.subscribed_topic_names
    joins_without_id = not request.member_id and request.member_epoch == 0
    return Beat(
        api_version=call.version,
        group_id=request.group_id,
        member_id=request.member_id,
        new_member_id=_new_id() if joins_without_id else "",
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=_milliseconds(request.rebalance_timeout),
        topic_names=None if names is None else frozenset(names),
        regex=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
    )


def _owned(topics: Iterable[Any] | None) -> Partitions | None:
    if topics is None:
        return None
    owned: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        topic_id = topic.topic_id or _NO_ID
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _assignment(call: Call, assignment: Partitions) -> Any:
    topic_class = call.item_class("assignment", "topic_partitions")
    return make(
        call.item_class("assignment"),
        topic_partitions=tuple(
            make(topic_class, topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in assignment.items()
        ),
    )


def _new_id() -> str:
    """As Kafka makes them for version 0: a random UUID in 22 characters."""
    return base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


def _milliseconds(duration: Any) -> int:
    return duration if isinstance(duration, int) else round(duration.total_seconds() * 1000)
