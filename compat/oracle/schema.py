"""What kio's generated classes say about each API: its name, versions and fields."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

_ZEROS: Mapping[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "float64": 0.0,
    "uuid": None,
}


class Spec(NamedTuple):
    """One field. `struct` is set for structs and arrays of them, `kind` for everything else."""

    name: str
    kind: str
    struct: "Struct | None"
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any


class Struct(NamedTuple):
    """The fields in wire order."""

    flexible: bool
    specs: tuple[Spec, ...]


class Message(NamedTuple):
    """A request or response body, and whether its header is flexible."""

    body: Struct
    flexible_header: bool


class Api(NamedTuple):
    """An API and the versions for which there are message classes."""

    key: int
    name: str
    versions: range


@cache
def apis() -> Mapping[str, Api]:
    """Every API by its name in Kafka's documents: Produce, CreateTopics, …"""
    found = {}
    for key, module in api_key_map.items():
        versions = sorted(schema_name_map[module])
        name = load_request_schema(key, versions[-1]).__name__.removesuffix("Request")
        found[name] = Api(key, name, range(versions[0], versions[-1] + 1))
    return found


@cache
def request(key: int, version: int) -> Message:
    """The request of an API in a version."""
    return _message(load_request_schema(key, version))


@cache
def response(key: int, version: int) -> Message:
    """The response of an API in a version."""
    return _message(load_response_schema(key, version))


def _message(cls: Any) -> Message:
    return Message(struct_of(cls), bool(cls.__header_schema__.__flexible__))


def struct_of(cls: Any) -> Struct:
    """The fields of a kio class."""
    return Struct(bool(cls.__flexible__), tuple(_spec(each) for each in fields(cls)))


def _spec(field: Field[Any]) -> Spec:
    inner, nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    struct = struct_of(inner) if is_dataclass(inner) else None
    kind = "struct" if struct else field.metadata["kafka_type"]
    default = _default(field, kind, struct, is_array, nullable)
    return Spec(field.name, kind, struct, is_array, nullable, field.metadata.get("tag"), default)


def _default(
    field: Field[Any], kind: str, struct: Struct | None, is_array: bool, nullable: bool
) -> Any:
    if is_array:
        return None if field.default is None else []
    if struct is not None:
        return None if nullable else {}
    if field.default is MISSING:
        return _ZEROS.get(kind, 0)
    if kind.startswith(("timedelta", "datetime")) and field.default is not None:
        # kio has spans of time here; on the wire they are milliseconds.
        return round(field.default.total_seconds() * 1000) if kind.startswith("timedelta") else -1
    return field.default


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (UnionType, Union):
        return annotation, False
    (inner,) = [each for each in get_args(annotation) if each is not NoneType]
    return inner, True


@cache
def all_fields(key: int) -> frozenset[str]:
    """The dotted names of the request's fields in any version, to find misspelt ones."""
    found: set[str] = set()
    for api in apis().values():
        if api.key == key:
            for version in api.versions:
                _collect(request(key, version).body, "", found)
    return frozenset(found)


def _collect(struct: Struct, prefix: str, into: set[str]) -> None:
    for spec in struct.specs:
        into.add(prefix + spec.name)
        if spec.struct is not None:
            _collect(spec.struct, f"{prefix}{spec.name}.", into)
