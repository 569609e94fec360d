"""FindCoordinator: the broker that runs a group. Never by zone: there is one holder.

Transactions aren't served yet; their coordinator is this broker, which refuses them in words that
a producer understands (InitProducerId).
"""

from __future__ import annotations

from dataclasses import dataclass

from drayd.call import Call, Result
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 10
NAME = "FindCoordinator"
VERSIONS = range(7)

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_BATCHED_FROM = 4


@dataclass(frozen=True, slots=True)
class _Found:
    node_id: int
    host: str
    port: int
    code: ErrorCode = ErrorCode.none
    message: str = ""


def _failed(code: ErrorCode, message: str = "") -> _Found:
    return _Found(-1, "", -1, code, message)


async def handle(call: Call) -> Result:
    request = call.request
    key_type = getattr(request, "key_type", _GROUP)
    if call.version < _BATCHED_FROM:
        found = await _find(call, key_type, request.key)
        return call.respond(
            throttle_time=0,
            error_code=found.code,
            error_message=found.message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    coordinators = []
    for key in request.coordinator_keys:
        found = await _find(call, key_type, key)
        coordinators.append(
            make(
                call.item_class("coordinators"),
                key=key,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
                error_code=found.code,
                error_message=found.message,
            )
        )
    return call.respond(throttle_time=0, coordinators=tuple(coordinators))


async def _find(call: Call, key_type: int, key: str) -> _Found:
    broker = call.broker
    if key_type == _TRANSACTION:
        node = broker.node
        return _Found(node.node_id, node.host, node.port)
    if key_type != _GROUP:
        return _failed(ErrorCode.invalid_request)
    try:
        found = await broker.groups.find(key)
    except KafkaError as error:
        return _failed(error.code, error.message)
    return _Found(found.broker_id, found.host, found.port)
