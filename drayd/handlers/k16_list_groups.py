"""ListGroups: the groups that this broker runs, by state and type. Clients ask every broker."""

from __future__ import annotations

from drayd.call import Call, Result
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 16
NAME = "ListGroups"
VERSIONS = range(6)


async def handle(call: Call) -> Result:
    states = {each.lower() for each in getattr(call.request, "states_filter", ())}
    types = {each.lower() for each in getattr(call.request, "types_filter", ())}
    try:
        groups = await call.broker.groups.groups()
    except KafkaError as error:
        return call.respond(throttle_time=0, error_code=error.code, groups=())
    found = []
    for group in groups:
        summary = group.summary()
        if states and summary.state.lower() not in states:
            continue
        if types and group.kind.lower() not in types:
            continue
        found.append(
            make(
                call.item_class("groups"),
                group_id=group.group_id,
                protocol_type=summary.protocol_type,
                group_state=summary.state,
                group_type=group.kind.lower(),
            )
        )
    return call.respond(throttle_time=0, error_code=ErrorCode.none, groups=tuple(found))
