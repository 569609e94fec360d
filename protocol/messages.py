"""Message classes by API key and version, and entities made from a superset of fields.

A handler builds its answer once, with every field that any version has; `make` drops those that
the version at hand lacks. Durations and points in time may be given as kio's timedelta and
datetime or as plain milliseconds: our writer takes both.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from protocol.errors import ErrorCode, KafkaError
from protocol.schema import EntityClass, field_specs, per_class


def known_versions(api_key: int) -> Sequence[int]:
    """The versions of an API for which there are message classes, ascending; may be empty."""
    name = api_key_map.get(api_key)
    return sorted(schema_name_map[name]) if name is not None else ()


# Raising is not cached, so keys and versions from the network cannot fill these caches.


@cache
def request_class(api_key: int, version: int) -> EntityClass:
    """The class of a request body; KafkaError(unsupported_version) if there is none."""
    try:
        return load_request_schema(api_key, version)
    except KioIndexError as error:
        raise _unsupported(api_key, version) from error


@cache
def response_class(api_key: int, version: int) -> EntityClass:
    """The class of a response body; KafkaError(unsupported_version) if there is none."""
    try:
        return load_response_schema(api_key, version)
    except KioIndexError as error:
        raise _unsupported(api_key, version) from error


def _unsupported(api_key: int, version: int) -> KafkaError:
    return KafkaError(ErrorCode.unsupported_version, f"API {api_key} has no version {version}")


@per_class
def _names(cls: EntityClass) -> frozenset[str]:
    return frozenset(spec.name for spec in field_specs(cls))


def make(cls: EntityClass, /, **fields: Any) -> Any:
    """An entity of `cls` from those of `fields` that it has; a missing one is a TypeError."""
    names = _names(cls)
    if not names.issuperset(fields):
        fields = {name: value for name, value in fields.items() if name in names}
    return cls(**fields)


@per_class
def nested(cls: EntityClass, field: str) -> EntityClass:
    """The class of the struct, or of the elements of the array of structs, in `cls.field`."""
    for spec in field_specs(cls):
        if spec.name == field:
            if spec.entity is None:
                raise TypeError(f"{cls.__name__}.{field} holds no struct")
            return spec.entity
    raise AttributeError(f"{cls.__name__} of version {cls.__version__} has no field {field}")


def has_field(cls: EntityClass, field: str) -> bool:
    """Whether this version of an entity has the field."""
    return field in _names(cls)
