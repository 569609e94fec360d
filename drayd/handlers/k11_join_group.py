"""JoinGroup: become a member of a classic group. The answer may take as long as a rebalance."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from drayd.call import Call, Result
from drayd.groups.classic_events import Join, Joined
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 11
NAME = "JoinGroup"
VERSIONS = range(10)

# From these versions on …
REBALANCE_TIMEOUT = 1
MEMBER_ID_REQUIRED = 4
INSTANCE_ID = 5
NULLABLE_PROTOCOL = 7
REASON = 8
SKIP_ASSIGNMENT = 9

_MS = timedelta(milliseconds=1)


async def handle(call: Call) -> Result:
    try:
        joined: Joined = await call.broker.groups.ask(call.request.group_id, _event(call))
    except KafkaError as error:
        joined = Joined(error.code, call.request.member_id)
    return _answer(call, joined)


def _event(call: Call) -> Join:
    request, version = call.request, call.version
    settings = call.broker.settings
    if not request.group_id:
        raise KafkaError(ErrorCode.invalid_group_id)
    session_timeout_ms = request.session_timeout // _MS
    lowest_ms, highest_ms = (
        settings.group_min_session_timeout_ms,
        settings.group_max_session_timeout_ms,
    )
    if not lowest_ms <= session_timeout_ms <= highest_ms:
        raise KafkaError(ErrorCode.invalid_session_timeout)
    instance_id = request.group_instance_id if version >= INSTANCE_ID else None
    named_after = call.client_id if instance_id is None else instance_id
    return Join(
        member_id=request.member_id,
        new_member_id=f"{named_after}-{uuid4()}",
        instance_id=instance_id,
        client_id=call.client_id,
        client_host=call.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout // _MS if version >= REBALANCE_TIMEOUT else session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        id_required=version >= MEMBER_ID_REQUIRED,
        can_skip_assignment=version >= SKIP_ASSIGNMENT,
        reason=(request.reason or "") if version >= REASON else "",
    )


def _answer(call: Call, joined: Joined) -> Result:
    protocol_name = joined.protocol_name
    if protocol_name is None and call.version < NULLABLE_PROTOCOL:
        protocol_name = ""
    member = call.item_class("members")
    return call.respond(
        throttle_time=0,
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            make(
                member,
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata,
            )
            for each in joined.members
        ),
    )
