"""Kafka's rules for client quotas: which entities and limits there may be, and which of them a
filter asks for. Codes and messages are those of Apache Kafka. Pure.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from typing import Any

from metadata.quotas import Entity
from protocol.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2

_INT_MAX = 2**31 - 1
_LONG_MAX = 2.0**63
_LARGEST: Mapping[str, tuple[str, float] | None] = {
    PRODUCER_BYTE_RATE: ("a LONG", _LONG_MAX),
    CONSUMER_BYTE_RATE: ("a LONG", _LONG_MAX),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
    CONNECTION_CREATION_RATE: ("an INT", _INT_MAX),
}
"""The integral type of a limit and its largest value; None: any number."""
_CLIENT_KEYS = frozenset(_LARGEST) - {CONNECTION_CREATION_RATE}
_IP_KEYS = frozenset({CONNECTION_CREATION_RATE})


_ORDER = (CLIENT_ID, USER, IP)


def ordered(entity: Entity) -> Entity:
    """The types in the order in which Kafka shows them; unknown ones last."""
    known = {kind: entity[kind] for kind in _ORDER if kind in entity}
    return {**known, **entity}


def shown(entity: Entity) -> str:
    """As Kafka's messages have it."""
    parts = (f"{kind}={'null' if name is None else name}" for kind, name in entity.items())
    return f"ClientQuotaEntity(entries={{{', '.join(parts)}}})"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


def check_entity(entity: Entity) -> frozenset[str]:
    """The limits that such an entity may have."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in entity:
        return _CLIENT_KEYS
    if len(entity) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    address = entity[IP]
    if address is not None and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _is_address(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return True
    return False


def check_limit(allowed: frozenset[str], key: str, value: float) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    integral = _LARGEST[key]
    if integral is None:
        return
    kind, largest = integral
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if math.fmod(value, 1.0) > 1e-6:
        raise _invalid(f"{key} cannot be a fractional value.")


class Filter:
    """What DescribeClientQuotas asks for; KafkaError for a filter that makes no sense."""

    def __init__(self, components: tuple[Any, ...], *, strict: bool) -> None:
        self._strict = strict
        self._exact: dict[str, str | None] = {}
        self._any: set[str] = set()
        for component in components:
            self._add(component.entity_type, component.match_type, component.match)
        kinds = self._exact.keys() | self._any
        if IP in kinds and len(kinds) > 1:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be "
                "used with user or clientId filter component."
            )

    def _add(self, kind: str, match_type: int, match: str | None) -> None:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in self._exact or kind in self._any:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        if match_type == MATCH_EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._exact[kind] = match
        elif match_type == MATCH_DEFAULT:
            if match is not None:
                raise _invalid(
                    "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
                )
            self._exact[kind] = None
        elif match_type == MATCH_ANY:
            if match is not None:
                raise _invalid(
                    "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
                )
            self._any.add(kind)
        else:
            raise _invalid(f"Unknown match type {match_type}")

    def matches(self, entity: Entity) -> bool:
        if self._strict and len(entity) != len(self._exact) + len(self._any):
            return False
        return all(kind in entity for kind in self._any) and all(
            kind in entity and entity[kind] == name for kind, name in self._exact.items()
        )
