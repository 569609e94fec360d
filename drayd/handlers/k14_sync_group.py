"""SyncGroup: the leader of a classic group hands in the assignment, everyone gets its part."""

from __future__ import annotations

from drayd.call import Call, Result
from drayd.groups.classic_events import Sync, Synced
from protocol.errors import ErrorCode, KafkaError

KEY = 14
NAME = "SyncGroup"
VERSIONS = range(6)

# From these versions on …
INSTANCE_ID = 3
PROTOCOL = 5


async def handle(call: Call) -> Result:
    try:
        synced: Synced = await call.broker.groups.ask(call.request.group_id, _event(call))
    except KafkaError as error:
        synced = Synced(error.code)
    return call.respond(
        throttle_time=0,
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


def _event(call: Call) -> Sync:
    request = call.request
    named = call.version >= PROTOCOL
    if named and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    return Sync(
        member_id=request.member_id,
        instance_id=request.group_instance_id if call.version >= INSTANCE_ID else None,
        generation=request.generation_id,
        protocol_type=request.protocol_type if named else None,
        protocol_name=request.protocol_name if named else None,
        assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
    )
