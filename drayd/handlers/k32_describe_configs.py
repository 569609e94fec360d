"""DescribeConfigs: of topics, brokers, loggers, groups and client metrics."""

from __future__ import annotations

from typing import Any

from drayd.call import Call, Result
from drayd.configs.brokers import Entry
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 32
NAME = "DescribeConfigs"
VERSIONS = range(1, 5)


async def handle(call: Call) -> Result:
    results = [await _describe(call, resource) for resource in call.request.resources]
    return call.respond(throttle_time=0, results=tuple(results))


async def _describe(call: Call, resource: Any) -> Any:
    # None and an empty list both ask for all keys.
    wanted = set(resource.configuration_keys or ())
    code, message = ErrorCode.none, ""
    entries: list[Entry] = []
    try:
        found = await call.broker.configs.describe(resource.resource_type, resource.resource_name)
        entries = [entry for entry in found if not wanted or entry.name in wanted]
    except KafkaError as error:
        code, message = error.code, error.message
    return make(
        call.item_class("results"),
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(_entry(call, entry) for entry in entries),
    )


def _entry(call: Call, entry: Entry) -> Any:
    synonym = call.item_class("results", "configs", "synonyms")
    shown = entry.synonyms if call.request.include_synonyms else ()
    return make(
        call.item_class("results", "configs"),
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=tuple(
            make(synonym, name=one.name, value=one.value, source=one.source) for one in shown
        ),
        config_type=entry.type,
        documentation=entry.doc if getattr(call.request, "include_documentation", False) else None,
    )
