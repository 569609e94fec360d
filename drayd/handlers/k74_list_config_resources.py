"""ListConfigResources: what DescribeConfigs knows. Version 0 lists client metrics only."""

from __future__ import annotations

from drayd.call import Call, Result
from drayd.configs.service import Kind
from protocol.errors import ErrorCode
from protocol.messages import make

KEY = 74
NAME = "ListConfigResources"
VERSIONS = range(2)


async def handle(call: Call) -> Result:
    kinds = getattr(call.request, "resource_types", (Kind.CLIENT_METRICS,))
    item = call.item_class("config_resources")
    return call.respond(
        throttle_time=0,
        error_code=ErrorCode.none,
        config_resources=tuple(
            make(item, resource_name=name, resource_type=kind)
            for kind, name in call.broker.configs.resources(kinds)
        ),
    )
