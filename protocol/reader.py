"""A bounded reader of Kafka messages, driven by kio's message classes.

kio's own reader must not see the network: it reserves memory for whatever array length it is
sent (correctness rule 1). Here

- every length is checked against the bytes that are left before anything is allocated, and an
  array of n elements needs at least n times the smallest size of an element;
- a message has at most `MAX_ELEMENTS` array elements in all: an element of two bytes becomes an
  object of two hundred, so without this 100 MB from the network would become 10 GB;
- unknown tagged fields are skipped (KIP-482); a known one must fill its declared size exactly;
- null where the schema has no null, invalid UTF-8 and overlong varints are `Malformed`;
- bytes after the message are not an error: the end offset is returned.

Values come out as kio's reader yields them (zero UUID → None, milliseconds → timedelta,
`ErrorCode`), but legal values that kio refuses are let through, as Kafka does:

- any non-zero byte is a true bool; floats may be NaN or infinite;
- an unknown error code is `unknown_server_error`;
- an int64 duration beyond timedelta's range is clamped to the nearest one that fits;
- an int64 point in time is an aware datetime, or None where it is negative or beyond year 9999
  (such fields exist in responses only; timestamps in requests are plain int64).

`records` fields are memoryview slices of the data, not copies.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from struct import Struct
from struct import error as StructError  # noqa: N812  (its only name in the standard library)
from threading import local
from typing import Any, TypeVar
from uuid import UUID

from protocol.errors import ErrorCode, Malformed
from protocol.schema import EntityClass, FieldSpec, field_specs, per_class

T = TypeVar("T")
# Reads one value at an offset; returns it with the offset after it.
Read = Callable[[memoryview, int], tuple[Any, int]]
# Reads one or more fields at an offset into an entity; returns the offset after them.
Step = Callable[[Any, memoryview, int], int]
Length = Callable[[memoryview, int], tuple[int, int]]
Setter = Callable[[Any, Any], None]

# Several times what a client has reason to ask for in one request.
MAX_ELEMENTS = 500_000
_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_MAX_LENGTH = 2**31 - 1
_ZERO_UUID = bytes(16)
_MAX_DURATION_MS = timedelta.max // timedelta(milliseconds=1)
_MIN_DURATION_MS = -((-timedelta.min) // timedelta(milliseconds=1))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIME_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


class _Budget(local):
    """How many array elements the message being read in this thread may still have."""

    elements = 0


_budget = _Budget()


def read_message(cls: type[T], data: memoryview, offset: int = 0) -> tuple[T, int]:
    """Decode a message of class `cls` at `offset`; returns it and the offset after it.

    `data` must be a one-dimensional view of bytes. Raises `Malformed`, and nothing else.
    """
    _budget.elements = MAX_ELEMENTS
    try:
        return _entity_reader(cls)(data, offset)
    # A fixed-size field or a byte beyond the end is found by struct and by indexing.
    except (StructError, IndexError) as error:
        raise Malformed(f"{cls.__name__} ends in the middle of a field") from error
    except UnicodeDecodeError as error:
        raise Malformed(f"{cls.__name__} has a string that is not UTF-8") from error


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 31 bits (a length, a tag or a count)."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MAX_LENGTH:
                raise Malformed(f"varint {value} is larger than 31 bits")
            return value, at
    raise Malformed("varint of more than five bytes")


def skip_tagged_fields(data: memoryview, at: int) -> int:
    """Step over a section of tagged fields; returns the offset after it."""
    count, at = read_uvarint(data, at)
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at = _end(data, at, size)
    return at


def _end(data: memoryview, at: int, size: int) -> int:
    end = at + size
    if end > len(data):
        raise Malformed(f"a field of {size} bytes where {len(data) - at} are left")
    return end


# Lengths: -1 (or, in the old encoding, anything negative) is null.


def _compact_length(data: memoryview, at: int) -> tuple[int, int]:
    value, at = read_uvarint(data, at)
    return value - 1, at


def _int16_length(data: memoryview, at: int) -> tuple[int, int]:
    return _INT16.unpack_from(data, at)[0], at + 2


def _int32_length(data: memoryview, at: int) -> tuple[int, int]:
    return _INT32.unpack_from(data, at)[0], at + 4


# Values of a fixed size: struct format, and what turns the number into kio's value.


def _duration(ms: int) -> timedelta:
    return timedelta(milliseconds=max(_MIN_DURATION_MS, min(ms, _MAX_DURATION_MS)))


def _point_in_time(ms: int) -> datetime | None:
    return _EPOCH + timedelta(milliseconds=ms) if 0 <= ms <= _MAX_TIME_MS else None


def _uuid(raw: bytes) -> UUID | None:
    return None if raw == _ZERO_UUID else UUID(bytes=raw)


def _error_code(value: int) -> ErrorCode:
    return _ERROR_CODES.get(value, ErrorCode.unknown_server_error)


_ERROR_CODES = {int(code): code for code in ErrorCode}
_FIXED: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "bool": ("?", None),
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "uint8": ("B", None),
    "uint16": ("H", None),
    "uint32": ("I", None),
    "uint64": ("Q", None),
    "float64": ("d", None),
    "uuid": ("16s", _uuid),
    "error_code": ("h", _error_code),
    "timedelta_i32": ("i", _duration),
    "timedelta_i64": ("q", _duration),
    "datetime_i64": ("q", _point_in_time),
}


# Values of a variable size.


def _text(view: memoryview) -> str:
    return str(view, "utf-8")


def _view(view: memoryview) -> memoryview:
    return view


_SLICES: dict[str, Callable[[memoryview], Any]] = {
    "string": _text,
    "bytes": bytes,
    "records": _view,
}


def _slice_reader(spec: FieldSpec, flexible: bool, nullable: bool) -> Read:
    convert = _SLICES[spec.kafka_type or ""]
    length = _length_reader(spec.kafka_type, flexible)

    def read_slice(data: memoryview, at: int) -> tuple[Any, int]:
        size, at = length(data, at)
        if size < 0:
            if nullable:
                return None, at
            raise Malformed(f"null in {spec.name}, which has no null")
        end = at + size
        if end > len(data):
            raise Malformed(f"{spec.name} of {size} bytes where {len(data) - at} are left")
        return convert(data[at:end]), end

    return read_slice


def _length_reader(kafka_type: str | None, flexible: bool) -> Length:
    if flexible:
        return _compact_length
    return _int16_length if kafka_type == "string" else _int32_length


def _fixed_reader(kafka_type: str) -> Read:
    code, convert = _FIXED[kafka_type]
    struct = Struct(">" + code)

    def read_fixed(data: memoryview, at: int) -> tuple[Any, int]:
        value = struct.unpack_from(data, at)[0]
        return (value if convert is None else convert(value)), at + struct.size

    return read_fixed


def _array_reader(spec: FieldSpec, flexible: bool) -> Read:
    length = _length_reader(None, flexible)
    element = _element_reader(spec, flexible)
    element_min_size = _element_min_size(spec, flexible)

    def read_array(data: memoryview, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = length(data, at)
        if count < 0:
            if spec.nullable:
                return None, at
            raise Malformed(f"null in {spec.name}, which has no null")
        if count * element_min_size > len(data) - at:
            raise Malformed(
                f"{spec.name} of {count} elements where {len(data) - at} bytes are left"
            )
        _budget.elements -= count
        if _budget.elements < 0:
            raise Malformed(f"more than {MAX_ELEMENTS} array elements in a message")
        elements: list[Any] = []
        append = elements.append
        for _ in range(count):
            value, at = element(data, at)
            append(value)
        return tuple(elements), at

    return read_array


def _element_reader(spec: FieldSpec, flexible: bool) -> Read:
    """One element of an array, or the value of a field that is no array and not nullable."""
    if spec.entity is not None:
        return _entity_reader(spec.entity)
    if spec.kafka_type in _FIXED:
        return _fixed_reader(spec.kafka_type)
    return _slice_reader(spec, flexible, nullable=False)


def _nullable_entity_reader(entity: EntityClass) -> Read:
    """A struct after a byte that is negative for null (KIP-893)."""
    read = _entity_reader(entity)

    def read_nullable(data: memoryview, at: int) -> tuple[Any, int]:
        if _INT8.unpack_from(data, at)[0] < 0:
            return None, at + 1
        return read(data, at + 1)

    return read_nullable


def _field_reader(spec: FieldSpec, flexible: bool) -> Read:
    if spec.is_array:
        return _array_reader(spec, flexible)
    if spec.entity is not None and spec.nullable:
        return _nullable_entity_reader(spec.entity)
    if spec.kafka_type in _SLICES:
        return _slice_reader(spec, flexible, spec.nullable)
    return _element_reader(spec, flexible)


# The smallest size on the wire, which bounds what an array may claim to hold.


def _element_min_size(spec: FieldSpec, flexible: bool) -> int:
    if spec.entity is not None:
        return _entity_min_size(spec.entity)
    if spec.kafka_type in _FIXED:
        return Struct(">" + _FIXED[spec.kafka_type][0]).size
    if flexible:
        return 1
    return 2 if spec.kafka_type == "string" else 4


@per_class
def _entity_min_size(cls: EntityClass) -> int:
    flexible = cls.__flexible__
    total = 1 if flexible else 0
    for spec in field_specs(cls):
        if spec.tag is not None:
            continue
        if spec.is_array:
            total += 1 if flexible else 4
        elif spec.entity is not None and spec.nullable:
            total += 1
        else:
            total += _element_min_size(spec, flexible)
    return max(total, 1)


# Entities. Fields are set through their slots: kio's classes are frozen, and going round their
# __init__ halves the time of a decode.


def _setter(cls: EntityClass, name: str, convert: Callable[[Any], Any] | None = None) -> Setter:
    setter: Setter = getattr(cls, name).__set__
    if convert is None:
        return setter

    def set_converted(entity: Any, value: Any) -> None:
        setter(entity, convert(value))

    return set_converted


def _run_step(cls: EntityClass, run: list[FieldSpec]) -> Step:
    """Neighbouring fields of fixed size, read by one struct."""
    formats = [_FIXED[spec.kafka_type or ""] for spec in run]
    struct = Struct(">" + "".join(code for code, _ in formats))
    unpack_from, size = struct.unpack_from, struct.size
    setters = [
        _setter(cls, spec.name, convert) for spec, (_, convert) in zip(run, formats, strict=True)
    ]

    def step(entity: Any, data: memoryview, at: int) -> int:
        # As many setters as values by construction; strict=True costs a tenth of the decode.
        for set_field, value in zip(setters, unpack_from(data, at)):  # noqa: B905
            set_field(entity, value)
        return at + size

    return step


def _single_step(cls: EntityClass, spec: FieldSpec) -> Step:
    read = _field_reader(spec, cls.__flexible__)
    set_field = _setter(cls, spec.name)

    def step(entity: Any, data: memoryview, at: int) -> int:
        value, at = read(data, at)
        set_field(entity, value)
        return at

    return step


def _tags_step(cls: EntityClass, specs: list[FieldSpec]) -> Step:
    known = {spec.tag: (spec.name, _single_step(cls, spec)) for spec in specs}
    defaults = [(_setter(cls, spec.name), spec.default) for spec in specs]

    def step(entity: Any, data: memoryview, at: int) -> int:
        for set_field, default in defaults:
            set_field(entity, default)
        if data[at] == 0:
            return at + 1
        count, at = read_uvarint(data, at)
        for _ in range(count):
            tag, at = read_uvarint(data, at)
            size, at = read_uvarint(data, at)
            end = _end(data, at, size)
            if tag in known:
                name, read_field = known[tag]
                if read_field(entity, data[:end], at) != end:
                    raise Malformed(f"tagged field {name} does not fill its {size} bytes")
            at = end
        return at

    return step


def _steps(cls: EntityClass) -> list[Step]:
    steps: list[Step] = []
    run: list[FieldSpec] = []
    untagged = [spec for spec in field_specs(cls) if spec.tag is None]
    for spec in untagged:
        if spec.kafka_type in _FIXED and not spec.is_array:
            run.append(spec)
            continue
        if run:
            steps.append(_run_step(cls, run))
            run = []
        steps.append(_single_step(cls, spec))
    if run:
        steps.append(_run_step(cls, run))
    if cls.__flexible__:
        tagged = [spec for spec in field_specs(cls) if spec.tag is not None]
        steps.append(_tags_step(cls, tagged))
    return steps


@per_class
def _entity_reader(cls: EntityClass) -> Read:
    steps = _steps(cls)
    new = object.__new__

    def read_entity(data: memoryview, at: int) -> tuple[Any, int]:
        entity = new(cls)
        for step in steps:
            at = step(entity, data, at)
        return entity, at

    return read_entity
