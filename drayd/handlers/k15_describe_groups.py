"""DescribeGroups: classic groups with their members. Consumer groups have ConsumerGroupDescribe."""

from __future__ import annotations

from typing import Any

from drayd.call import Call, Result
from drayd.coordinator_group import LiveGroup
from drayd.groups.classic_state import ClassicGroup, described
from drayd.groups.machine import Kind
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 15
NAME = "DescribeGroups"
VERSIONS = range(7)

_DEAD = "Dead"
_CODE_FOR_MISSING_FROM = 6
_UNKNOWN_OPERATIONS = -(2**31)
_ALL_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))
"""What may be done with a group: read, delete, describe, and its configs read and altered."""


async def handle(call: Call) -> Result:
    groups = []
    for group_id in call.request.groups:
        try:
            found = await call.broker.groups.look(group_id, lambda group: _described(call, group))
        except KafkaError as error:
            found = _group(call, group_id, code=error.code, message=error.message or None)
        groups.append(found)
    return call.respond(throttle_time=0, groups=tuple(groups))


def _described(call: Call, group: LiveGroup) -> Any:
    if not group.exists or group.kind is not Kind.CLASSIC:
        reason = "not found" if not group.exists else "is not a classic group"
        missing = call.version >= _CODE_FOR_MISSING_FROM
        return _group(
            call,
            group.group_id,
            code=ErrorCode.group_id_not_found if missing else ErrorCode.none,
            message=f"Group {group.group_id} {reason}." if missing else None,
            state=_DEAD,
        )
    state: ClassicGroup = group.state
    shown = described(state)
    members = tuple(
        make(
            call.item_class("groups", "members"),
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in shown.members
    )
    return _group(
        call,
        group.group_id,
        state=state.status,
        protocol_type=state.protocol_type or "",
        protocol_data=shown.protocol_data,
        members=members,
    )


def _group(
    call: Call,
    group_id: str,
    *,
    code: ErrorCode = ErrorCode.none,
    message: str | None = None,
    state: str = "",
    protocol_type: str = "",
    protocol_data: str = "",
    members: tuple[Any, ...] = (),
) -> Any:
    wanted = getattr(call.request, "include_authorized_operations", False)
    allowed = wanted and code is ErrorCode.none
    return make(
        call.item_class("groups"),
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type=protocol_type,
        protocol_data=protocol_data,
        members=members,
        authorized_operations=_ALL_OPERATIONS if allowed else _UNKNOWN_OPERATIONS,
    )
