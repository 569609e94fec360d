"""What kio's generated dataclasses say about the wire, as plain values.

One `FieldSpec` per field, in wire order; the reader, the writer and `messages` are driven by it.
Only the dataclass and its metadata (`kafka_type`, `tag`) are used, none of kio's private modules.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin

Function = TypeVar("Function", bound=Callable[..., Any])

# kio gives its classes no common base; which fields one has depends on its version.
EntityClass = type[Any]


def per_class(function: Function) -> Function:
    """`functools.cache`, for functions of classes: mypy does not take `type[Any]` for hashable."""
    return cast(Function, cache(function))


class FieldSpec(NamedTuple):
    """One field: `entity` is set for structs, `kafka_type` for everything else."""

    name: str
    kafka_type: str | None
    entity: EntityClass | None
    is_array: bool
    # Of the array itself where the field is an array; elements are null only as zero UUIDs.
    nullable: bool
    tag: int | None
    # The value of a tagged field that is not on the wire.
    default: Any


_IMPLICIT_DEFAULTS: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "float64": 0.0,
    "uuid": None,
}


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """`X | None` → (X, True), `X` → (X, False)."""
    if get_origin(annotation) not in (UnionType, Union):
        return annotation, False
    inner = [argument for argument in get_args(annotation) if argument is not NoneType]
    if len(inner) != 1:
        raise TypeError(f"a union of more than one type with None is not known: {annotation}")
    return inner[0], True


def _tagged_default(
    field: Field[Any], kafka_type: str | None, entity: EntityClass | None, is_array: bool
) -> Any:
    if field.default is not MISSING:
        return field.default
    if is_array:
        return ()
    if entity is not None:
        return entity(
            **{
                nested.name: _tagged_default(nested, nested.metadata.get("kafka_type"), None, False)
                for nested in fields(entity)
            }
        )
    return _IMPLICIT_DEFAULTS.get(kafka_type or "", 0)


def _spec(field: Field[Any]) -> FieldSpec:
    inner, nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    entity: EntityClass | None = cast(EntityClass, inner) if is_dataclass(inner) else None
    kafka_type = None if entity is not None else field.metadata["kafka_type"]
    tag = field.metadata.get("tag")
    default = None if tag is None else _tagged_default(field, kafka_type, entity, is_array)
    return FieldSpec(field.name, kafka_type, entity, is_array, nullable, tag, default)


@per_class
def field_specs(cls: EntityClass) -> tuple[FieldSpec, ...]:
    """The fields of a kio class, in wire order."""
    return tuple(_spec(field) for field in fields(cls))
