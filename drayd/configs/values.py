"""Typed values of configurations: from text as Kafka reads it, to text as Kafka shows it.

What is stored is the text that somebody sent; it is read again whenever it is used or shown. So
` 7 `, `+7` and `7` are all accepted, mean the same, and are shown as `7`.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...]


class Type(IntEnum):
    """What DescribeConfigs says of a value's type."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(IntEnum):
    """Where DescribeConfigs says that a value comes from."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class BadValue(Exception):
    """A value that can't be used; the message is Kafka's."""

    @classmethod
    def of(cls, name: str, value: object, problem: str) -> BadValue:
        return cls(f"Invalid value {value} for configuration {name}: {problem}")


_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<word>[+-]?(?:NaN|Infinity))"
)
_COMMA = re.compile(r"\s*,\s*")
# What Java's trim() takes away: every character up to the space.
_BLANK = "".join(map(chr, range(0x21)))
# Where Java turns to the notation with an exponent.
_SMALL, _LARGE = 1e-3, 1e7


def parse(name: str, kind: Type, text: str) -> Value:
    """BadValue if the text is none of this type."""
    trimmed = text.strip(_BLANK)
    if kind is Type.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise BadValue.of(name, text, "Expected value to be either true or false")
        return trimmed.lower() == "true"
    if kind in _BITS:
        limit = 2 ** (_BITS[kind] - 1)
        # The length first: Python refuses to read very long numbers, with an error of its own.
        if len(trimmed) > 40 or not _WHOLE.fullmatch(trimmed):
            raise BadValue.of(name, text, f"Not a number of type {kind.name}")
        if not -limit <= (number := int(trimmed)) < limit:
            raise BadValue.of(name, text, f"Not a number of type {kind.name}")
        return number
    if kind is Type.DOUBLE:
        match = _DOUBLE.fullmatch(trimmed)
        if match is None:
            raise BadValue.of(name, text, "Not a number of type DOUBLE")
        return float(match["number"] or match["word"])
    if kind is Type.LIST:
        return tuple(_COMMA.split(trimmed)) if trimmed else ()
    return trimmed


def show(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _show_double(value) if isinstance(value, float) else str(value)


def _show_double(value: float) -> str:
    """As Java prints it: 0.5, 1.0, 1.0E-4, NaN."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _SMALL <= abs(value) < _LARGE:
        return repr(value)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        sign = "-" if value < 0 else ""
        digits = repr(abs(value)).replace(".", "").strip("0")
        power = f"{abs(value):e}".partition("e")[2]
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(power)}"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def show_java(value: Value) -> str:
    """As Java prints a value within a message: a list in brackets."""
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else show(value)
