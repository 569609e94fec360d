"""Heartbeat: a member of a classic group is alive, and hears of rebalances."""

from __future__ import annotations

from drayd.call import Call, Result
from drayd.groups.classic_events import Beaten, Heartbeat
from protocol.errors import ErrorCode, KafkaError

KEY = 12
NAME = "Heartbeat"
VERSIONS = range(5)

INSTANCE_ID = 3
"""The first version that has one."""


async def handle(call: Call) -> Result:
    request = call.request
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    beat = Heartbeat(
        member_id=request.member_id,
        instance_id=request.group_instance_id if call.version >= INSTANCE_ID else None,
        generation=request.generation_id,
    )
    beaten: Beaten = await call.broker.groups.ask(request.group_id, beat)
    return call.respond(throttle_time=0, error_code=beaten.error)
