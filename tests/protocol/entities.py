"""Hypothesis strategies for messages of any kio class."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from kio.schema.index import api_key_map
from kio.serial import entity_writer

from protocol.errors import ErrorCode
from protocol.messages import known_versions, request_class, response_class
from protocol.schema import EntityClass, FieldSpec, field_specs, per_class

API_KEYS = sorted(api_key_map)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low = -(2 ** (bits - 1)) if signed else 0
    return st.integers(low, low + 2**bits - 1)


def _milliseconds(bits: int) -> st.SearchStrategy[timedelta]:
    return _integers(bits).map(lambda ms: timedelta(milliseconds=ms))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint8": _integers(8, signed=False),
    "uint16": _integers(16, signed=False),
    "uint32": _integers(32, signed=False),
    "uint64": _integers(64, signed=False),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=20) | st.text(st.characters(codec="utf-8"), max_size=300),
    "bytes": st.binary(max_size=300),
    "records": st.binary(max_size=300),
    "uuid": st.none() | st.uuids(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": _milliseconds(32),
    # kio's writer goes through floating-point seconds, which hold no more.
    "timedelta_i64": _milliseconds(50),
    "datetime_i64": st.integers(0, 2**37).map(lambda seconds: EPOCH + timedelta(seconds=seconds)),
}


def _values(spec: FieldSpec) -> st.SearchStrategy[Any]:
    values = VALUES[spec.kafka_type or ""] if spec.entity is None else entities(spec.entity)
    if spec.is_array:
        values = st.lists(values, max_size=3).map(tuple)
    values = st.none() | values if spec.nullable else values
    return values if spec.tag is None else st.just(spec.default) | values


@per_class
def entities(cls: Any) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{spec.name: _values(spec) for spec in field_specs(cls)})


def classes(api_key: int, kind: str) -> list[EntityClass]:
    """The request or response classes of an API, one per version."""
    lookup = request_class if kind == "request" else response_class
    return [lookup(api_key, version) for version in known_versions(api_key)]


def messages(api_key: int, kind: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(classes(api_key, kind)).flatmap(entities)


def kio_bytes(entity: Any) -> bytes:
    """What kio's own writer makes of a message."""
    sink = io.BytesIO()
    entity_writer(type(entity))(sink, entity)
    return sink.getvalue()
