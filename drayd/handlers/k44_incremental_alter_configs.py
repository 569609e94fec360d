"""IncrementalAlterConfigs: sets, removes, and adds to what is set for a resource.

Each resource is changed in one piece or not at all; one that can't be doesn't hold up the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from drayd.call import Call, Result
from drayd.configs.changes import Change
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 44
NAME = "IncrementalAlterConfigs"
VERSIONS = range(2)


async def handle(call: Call) -> Result:
    return await alter_all(
        call, lambda entry: Change(entry.name, entry.config_operation, entry.value), replace=False
    )


async def alter_all(call: Call, read: Callable[[Any], Change], *, replace: bool) -> Result:
    """Every resource of a request; `read` gives one change of it."""
    resources = call.request.resources
    times = Counter((one.resource_type, one.resource_name) for one in resources)
    responses = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        code, message = ErrorCode.none, None
        try:
            if times[kind, name] > 1:
                raise KafkaError(
                    ErrorCode.invalid_request, "Each resource must appear at most once."
                )
            await call.broker.configs.alter(
                kind,
                name,
                [read(entry) for entry in resource.configs],
                replace=replace,
                validate_only=call.request.validate_only,
            )
        except KafkaError as error:
            code, message = error.code, error.message or None
        responses.append(
            make(
                call.item_class("responses"),
                error_code=code,
                error_message=message,
                resource_type=kind,
                resource_name=name,
            )
        )
    return call.respond(throttle_time=0, responses=tuple(responses))
