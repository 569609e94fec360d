"""Messages to and from bytes, as mappings of plain values, driven by kio's schemas.

A stricter writer comes with kio; this one sends what a scenario says, also null where the schema
has none. What a version lacks is dropped, what isn't given is the schema's default. Reading gives
every field: error codes are names, ids text, bytes text with escapes, record batches mappings.
"""

import struct
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription
from kio.schema.errors import ErrorCode

from compat.oracle import batches
from compat.oracle.schema import Spec, Struct, struct_of

_FIXED = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint8": ">B",
    "uint16": ">H",
    "uint32": ">I",
    "uint64": ">Q",
    "float64": ">d",
    "bool": ">?",
    "error_code": ">h",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
}
_EMBEDDED = {"subscription": ConsumerProtocolSubscription, "assignment": ConsumerProtocolAssignment}


class Unreadable(Exception):
    """An answer that doesn't follow its schema."""


def error_name(code: int) -> str | int:
    """The name of an error code; the number itself if kio doesn't know it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return code


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def encode(shape: Struct, values: Mapping[str, Any]) -> bytes:
    """A struct; tagged fields are sent where they are given."""
    data = bytearray()
    tagged: list[tuple[int, bytes]] = []
    for spec in shape.specs:
        if spec.tag is None:
            data += _field(spec, values.get(spec.name, spec.default), shape.flexible)
        elif spec.name in values:
            tagged.append((spec.tag, _field(spec, values[spec.name], shape.flexible)))
    if shape.flexible:
        data += uvarint(len(tagged))
        for tag, body in sorted(tagged):
            data += uvarint(tag) + uvarint(len(body)) + body
    return bytes(data)


def _field(spec: Spec, value: Any, flexible: bool) -> bytes:
    if spec.is_array:
        if value is None:
            return b"\0" if flexible else b"\xff\xff\xff\xff"
        items = b"".join(_item(spec, each, flexible) for each in value)
        return (uvarint(len(value) + 1) if flexible else struct.pack(">i", len(value))) + items
    if spec.struct is not None and spec.nullable and spec.tag is None:
        return b"\xff" if value is None else b"\x01" + encode(spec.struct, value)
    return _item(spec, value, flexible)


def _item(spec: Spec, value: Any, flexible: bool) -> bytes:
    if spec.struct is not None:
        return encode(spec.struct, value)
    if spec.kind == "uuid":
        return UUID(value).bytes if value else bytes(16)
    if spec.kind in ("string", "bytes", "records"):
        wide = spec.kind != "string"
        data = None if value is None else _bytes(spec.kind, value)
        if flexible:
            return b"\0" if data is None else uvarint(len(data) + 1) + data
        form = ">i" if wide else ">h"
        return struct.pack(form, -1) if data is None else struct.pack(form, len(data)) + data
    if spec.kind == "error_code" and isinstance(value, str):
        value = ErrorCode[value].value
    return struct.pack(_FIXED[spec.kind], -1 if value is None else value)


def _bytes(kind: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, Mapping) and "hex" in value:
        return bytes.fromhex(value["hex"])
    if isinstance(value, Mapping) and "repeat" in value:
        return str(value["repeat"]).encode() * int(value["times"])
    if kind == "records":
        return batches.encode(value)
    if isinstance(value, Mapping):
        ((what, fields),) = value.items()
        body = encode(struct_of(_EMBEDDED[what]), fields)
        return struct.pack(">h", 3) + body
    return str(value).encode()


def decode(shape: Struct, data: bytes, at: int) -> dict[str, Any]:
    """The struct that begins at `at` and ends with the data."""
    reader = _Reader(data, at)
    try:
        values = reader.struct(shape)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from error
    if reader.at != len(data):
        values["(bytes left over)"] = len(data) - reader.at
    return values


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def struct(self, shape: Struct) -> dict[str, Any]:
        values = {
            spec.name: self._field(spec, shape.flexible) for spec in shape.specs if spec.tag is None
        }
        tagged = {spec.tag: spec for spec in shape.specs if spec.tag is not None}
        values.update({spec.name: _plain(spec, spec.default) for spec in tagged.values()})
        if shape.flexible:
            for _ in range(self._uvarint()):
                tag, size = self._uvarint(), self._uvarint()
                end = self.at + size
                if tag in tagged:
                    values[tagged[tag].name] = self._field(tagged[tag], True)
                else:
                    values[f"(tag {tag})"] = self.data[self.at : end].hex()
                self.at = end
        return values

    def _field(self, spec: Spec, flexible: bool) -> Any:
        if spec.is_array:
            count = self._uvarint() - 1 if flexible else self._fixed(">i")
            return None if count < 0 else [self._item(spec, flexible) for _ in range(count)]
        if spec.struct is not None and spec.nullable and spec.tag is None:
            return None if self._fixed(">b") < 0 else self.struct(spec.struct)
        return self._item(spec, flexible)

    def _item(self, spec: Spec, flexible: bool) -> Any:
        if spec.struct is not None:
            return self.struct(spec.struct)
        if spec.kind == "uuid":
            value = UUID(bytes=self._take(16))
            return str(value) if value.int else None
        if spec.kind in ("string", "bytes", "records"):
            wide = spec.kind != "string"
            size = self._uvarint() - 1 if flexible else self._fixed(">i" if wide else ">h")
            if size < 0:
                return None
            data = self._take(size)
            if spec.kind == "records":
                return batches.decode(data)
            return data.decode() if not wide else batches.text(data)
        value = self._fixed(_FIXED[spec.kind])
        return error_name(value) if spec.kind == "error_code" else value

    def _fixed(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def _take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise IndexError(f"{size} bytes at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def _plain(spec: Spec, default: Any) -> Any:
    """A tagged field's default, in the form in which it would be read."""
    if spec.kind == "error_code":
        return error_name(default)
    if spec.struct is not None and not spec.is_array and default == {}:
        return {each.name: _plain(each, each.default) for each in spec.struct.specs}
    return batches.text(default) if isinstance(default, bytes) else default
