"""ApiVersions: what this broker speaks, from the table in `dispatch`."""

from __future__ import annotations

import re
from typing import Any

from drayd.call import Call, Result
from protocol.errors import ErrorCode
from protocol.messages import make, nested, response_class

KEY = 18
NAME = "ApiVersions"
VERSIONS = range(5)

TABLE: list[tuple[int, int, int]] = []
"""Key, lowest and highest version of each API; `dispatch` fills it."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(call: Call) -> Result:
    code = ErrorCode.none
    if call.version >= 3 and not _named_well(call.request):
        code = ErrorCode.invalid_request
    keys = _keys(call.response_class) if code is ErrorCode.none else ()
    return call.respond(error_code=code, api_keys=keys, throttle_time=0)


def unsupported_version() -> Any:
    """The answer to a version that we don't know: the table, in version 0 (KIP-511)."""
    cls = response_class(KEY, 0)
    return make(cls, error_code=ErrorCode.unsupported_version, api_keys=_keys(cls))


def _named_well(request: Any) -> bool:
    return bool(
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    )


def _keys(cls: Any) -> tuple[Any, ...]:
    item = nested(cls, "api_keys")
    return tuple(
        make(item, api_key=key, min_version=low, max_version=high) for key, low, high in TABLE
    )
