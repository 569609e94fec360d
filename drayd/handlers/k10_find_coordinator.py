"""FindCoordinator: the broker that runs a group. Never by zone: there is one holder.

Transactions aren't served yet; their coordinator is this broker, which refuses them in words that
a producer understands (InitProducerId).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from drayd.call import Call, Result
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make

KEY = 10
NAME = "FindCoordinator"
VERSIONS = range(7)

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_BATCHED_FROM = 4
_SHARE_FROM = 6
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d+", re.DOTALL)
_NO_ERROR = "NONE"
"""What versions 1 to 3 say of a success."""
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)
_NOT_AVAILABLE = "The coordinator is not available."


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
            error_message=found.message or _NO_ERROR,
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
    if key_type == _SHARE and call.version >= _SHARE_FROM and _SHARE_KEY.fullmatch(key):
        # As of a Kafka whose share coordinator isn't ready: share groups aren't served.
        return _failed(ErrorCode.coordinator_not_available)
    if key_type != _GROUP:
        return _failed(ErrorCode.invalid_request, "" if key_type == _SHARE else _MALFORMED)
    try:
        found = await broker.groups.find(key)
    except KafkaError as error:
        return _failed(error.code, _NOT_AVAILABLE)
    return _Found(found.broker_id, found.host, found.port)
