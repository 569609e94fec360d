"""DescribeUserScramCredentials. Nobody has any yet; `kafka-configs --entity-type users` asks for
them before it shows a user's quotas."""

from __future__ import annotations

from collections import Counter

from drayd.call import Call, Result
from protocol.errors import ErrorCode
from protocol.messages import make

KEY = 50
NAME = "DescribeUserScramCredentials"
VERSIONS = range(1)


async def handle(call: Call) -> Result:
    item = call.item_class("results")
    times = Counter(user.name for user in call.request.users or ())
    results = []
    for name, count in times.items():
        if count > 1:
            code = ErrorCode.duplicate_resource
            message = (
                "Cannot describe SCRAM credentials for the same user twice in a single request: "
                f"{name}"
            )
        else:
            code = ErrorCode.resource_not_found
            message = f"Attempt to describe a user credential that does not exist: {name}"
        results.append(
            make(item, user=name, error_code=code, error_message=message, credential_infos=())
        )
    return call.respond(
        throttle_time=0, error_code=ErrorCode.none, error_message="", results=tuple(results)
    )
