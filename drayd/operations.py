"""Authorized operations: the bit sets in which Kafka says what a client may do (KIP-430).

Without an authorizer everybody may do everything that there is for a kind of resource. The bits
are those of Kafka's AclOperation.
"""

from __future__ import annotations

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12

NOT_ASKED = -(2**31)
"""What stands in the field when the client didn't ask, or may know nothing of the resource."""


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


CLUSTER = _bits(
    *(_CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION),
    *(_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE),
)
TOPIC = _bits(
    *(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
)
GROUP = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)


def shown(operations: int, asked: bool) -> int:
    """The field's value."""
    return operations if asked else NOT_ASKED
