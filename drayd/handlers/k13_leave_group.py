"""LeaveGroup: members go, or are sent away by an administrator."""

from __future__ import annotations

from drayd.call import Call, Result
from drayd.groups.classic_events import Leave, Leaver, Left
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 13
NAME = "LeaveGroup"
VERSIONS = range(6)

# From these versions on …
SEVERAL = 3
REASON = 5


async def handle(call: Call) -> Result:
    request = call.request
    if not request.group_id:
        return _failed(call, ErrorCode.invalid_group_id)
    if call.version < SEVERAL:
        leavers: tuple[Leaver, ...] = (Leaver(request.member_id),)
    else:
        with_reason = call.version >= REASON
        leavers = tuple(
            Leaver(
                each.member_id,
                each.group_instance_id,
                (each.reason or "") if with_reason else "",
            )
            for each in request.members
        )
    try:
        left: Left = await call.broker.groups.ask(request.group_id, Leave(leavers=leavers))
    except KafkaError as error:
        return _failed(call, error.code)
    if call.version < SEVERAL:
        return call.respond(throttle_time=0, error_code=left.results[0].error)
    member = call.item_class("members")
    return call.respond(
        throttle_time=0,
        error_code=ErrorCode.none,
        members=tuple(
            make(
                member,
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                error_code=each.error,
            )
            for each in left.results
        ),
    )


def _failed(call: Call, code: ErrorCode) -> Result:
    return call.respond(throttle_time=0, error_code=code, members=())
