"""ApiVersions: what this broker speaks, from the table in `dispatch`."""

from __future__ import annotations

import re
from typing import Any

from drayd.call import Call, Result
from protocol.errors import ErrorCode
from protocol.messages import has_field, make, nested, response_class

KEY = 18
NAME = "ApiVersions"
VERSIONS = range(5)

TABLE: list[tuple[int, int, int]] = []
"""Key, lowest and highest version of each API; `dispatch` fills it."""

METADATA_VERSIONS = (7, 30)
"""The feature levels of Kafka 4.3."""

GROUP_VERSION = 1
"""The group protocol of KIP-848 is there."""
FEATURES_FROM_ZERO_VERSION = 4
"""Older clients can't read a feature whose lowest level is 0."""

FEATURES_EPOCH = 1
"""Counts changes to what is finalized: there are none."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(call: Call) -> Result:
    code = ErrorCode.none
    if call.version >= 3 and not _named_well(call.request):
        code = ErrorCode.invalid_request
    if code is not ErrorCode.none:
        return call.respond(error_code=code, api_keys=(), throttle_time=0)
    return call.respond(
        error_code=code,
        api_keys=_keys(call.response_class),
        throttle_time=0,
        **_features(call.response_class),
    )


def _features(cls: Any) -> dict[str, Any]:
    """From version 3 on: tools read from it which Kafka we resemble."""
    if not has_field(cls, "finalized_features"):
        return {}
    supported, finalized = nested(cls, "supported_features"), nested(cls, "finalized_features")
    low, high = METADATA_VERSIONS
    offered = [make(supported, name="metadata.version", min_version=low, max_version=high)]
    if cls.__version__ >= FEATURES_FROM_ZERO_VERSION:
        offered.append(
            make(supported, name="group.version", min_version=0, max_version=GROUP_VERSION)
        )
    return {
        "supported_features": tuple(offered),
        "finalized_features_epoch": FEATURES_EPOCH,
        "finalized_features": (
            make(
                finalized, name="metadata.version", max_version_level=high, min_version_level=high
            ),
            make(
                finalized,
                name="group.version",
                max_version_level=GROUP_VERSION,
                min_version_level=GROUP_VERSION,
            ),
        ),
    }


def unsupported_version() -> Any:
    """The answer to a version that we don't know: which ones there are, in version 0 (KIP-511)."""
    cls = response_class(KEY, 0)
    own = [each for each in _keys(cls) if each.api_key == KEY]
    return make(cls, error_code=ErrorCode.unsupported_version, api_keys=tuple(own))


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
