"""ListPartitionReassignments: nothing is ever moved."""

from __future__ import annotations

from drayd.call import Call, Result
from protocol.errors import ErrorCode

KEY = 46
NAME = "ListPartitionReassignments"
VERSIONS = range(1)


async def handle(call: Call) -> Result:
    return call.respond(throttle_time=0, error_code=ErrorCode.none, error_message=None, topics=())
