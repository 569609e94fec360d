"""DeleteGroups: groups without members, with their committed offsets."""

from __future__ import annotations

from drayd.call import Call, Result
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 42
NAME = "DeleteGroups"
VERSIONS = range(3)


async def handle(call: Call) -> Result:
    results = []
    for group_id in dict.fromkeys(call.request.groups_names):
        code = ErrorCode.none
        try:
            await call.broker.groups.delete(group_id)
        except KafkaError as error:
            code = error.code
        results.append(make(call.item_class("results"), group_id=group_id, error_code=code))
    return call.respond(throttle_time=0, results=tuple(results))
