"""DescribeClientQuotas: the entities that match a filter, with their limits."""

from __future__ import annotations

from drayd.call import Call, Result
from drayd.quota_entities import Filter, ordered
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested

KEY = 48
NAME = "DescribeClientQuotas"
VERSIONS = range(2)


async def handle(call: Call) -> Result:
    try:
        wanted = Filter(call.request.components, strict=call.request.strict)
    except KafkaError as error:
        return call.respond(
            throttle_time=0, error_code=error.code, error_message=error.message, entries=None
        )
    entry = call.item_class("entries")
    part, limit = nested(entry, "entity"), nested(entry, "values")
    entries = tuple(
        make(
            entry,
            entity=tuple(
                make(part, entity_type=kind, entity_name=name)
                for kind, name in ordered(quota.entity).items()
            ),
            values=tuple(
                make(limit, key=key, value=value) for key, value in sorted(quota.limits.items())
            ),
        )
        for quota in call.broker.quotas.stored()
        if wanted.matches(quota.entity)
    )
    return call.respond(
        throttle_time=0, error_code=ErrorCode.none, error_message="", entries=entries
    )
