"""ConsumerGroupDescribe (KIP-848): a consumer group with its epochs, members and assignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from drayd.call import Call, Result
from drayd.coordinator_group import LiveGroup
from drayd.groups.consumer_state import Member, State
from drayd.groups.machine import Kind
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 69
NAME = "ConsumerGroupDescribe"
VERSIONS = range(2)

_UNKNOWN_OPERATIONS = -(2**31)
_ALL_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))
"""What may be done with a group: read, delete, describe, and its configs read and altered."""
_CONSUMER_MEMBER = 1
"""As opposed to one that speaks the classic protocol."""


async def handle(call: Call) -> Result:
    groups = []
    for group_id in call.request.group_ids:
        if not group_id:
            groups.append(_group(call, group_id, code=ErrorCode.invalid_group_id))
            continue
        try:
            found = await call.broker.groups.look(group_id, lambda group: _described(call, group))
        except KafkaError as error:
            found = _group(call, group_id, code=error.code, message=error.message or None)
        groups.append(found)
    return call.respond(throttle_time=0, groups=tuple(groups))


def _described(call: Call, group: LiveGroup) -> Any:
    if not group.exists or group.kind is not Kind.CONSUMER:
        reason = "not found" if not group.exists else "is not a consumer group"
        return _group(
            call,
            group.group_id,
            code=ErrorCode.group_id_not_found,
            message=f"Group {group.group_id} {reason}.",
        )
    state: State = group.state
    return _group(
        call,
        group.group_id,
        group_state=state.group.state_name(),
        group_epoch=state.group.epoch,
        assignment_epoch=state.group.assignment_epoch,
        assignor_name=state.group.assignor(group.env().settings.consumer_assignors),
        members=tuple(_member(call, state, each) for each in state.group.members.values()),
    )


def _member(call: Call, state: State, member: Member) -> Any:
    # What it gives up counts as its own until it has said that it did.
    holds: dict[UUID, set[int]] = {}
    for topic_id, partition in member.holds():
        holds.setdefault(topic_id, set()).add(partition)
    target = state.group.targets.get(member.member_id, {})
    return make(
        call.item_class("groups", "members"),
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topic_names)),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(call, "assignment", holds),
        target_assignment=_assignment(call, "target_assignment", target),
        member_type=_CONSUMER_MEMBER,
    )


def _assignment(
    call: Call, field: str, partitions: Mapping[UUID, set[int]] | Mapping[UUID, frozenset[int]]
) -> Any:
    """Without topics that are gone: they have no name."""
    found = []
    for topic_id, each in partitions.items():
        topic = call.broker.topics.cached(None, topic_id)
        if topic is not None:
            found.append(
                make(
                    call.item_class("groups", "members", field, "topic_partitions"),
                    topic_id=topic_id,
                    topic_name=topic.name,
                    partitions=tuple(sorted(each)),
                )
            )
    return make(call.item_class("groups", "members", field), topic_partitions=tuple(found))


def _group(
    call: Call,
    group_id: str,
    *,
    code: ErrorCode = ErrorCode.none,
    message: str | None = None,
    **facts: Any,
) -> Any:
    allowed = call.request.include_authorized_operations and code is ErrorCode.none
    return make(
        call.item_class("groups"),
        **{
            "group_state": "",
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": (),
            **facts,
        },
        error_code=code,
        error_message=message,
        group_id=group_id,
        authorized_operations=_ALL_OPERATIONS if allowed else _UNKNOWN_OPERATIONS,
    )
