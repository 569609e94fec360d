"""An entity with nothing in it, for answers that say only an error code."""

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages import make
from protocol.schema import EntityClass, FieldSpec, field_specs

_ZEROS: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "float64": 0.0,
    "uuid": None,
    "error_code": ErrorCode.none,
}


def empty(cls: EntityClass, /, **fields: Any) -> Any:
    """An entity of `cls` with `fields`, and zero, null or empty for all others."""
    return make(cls, **{**{spec.name: _zero(spec) for spec in field_specs(cls)}, **fields})


def _zero(spec: FieldSpec) -> Any:
    if spec.tag is not None:
        return spec.default
    if spec.nullable:
        return None
    if spec.is_array:
        return ()
    if spec.entity is not None:
        return empty(spec.entity)
    return _ZEROS.get(spec.kafka_type or "", 0)
