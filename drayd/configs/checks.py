"""What values may be. A check takes a key's name and its typed value, and raises BadValue."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from drayd.configs.values import BadValue, Value, show, show_java

Check: TypeAlias = Callable[[str, Value], None]

_REPLICA = re.compile(r"(?:[0-9]+:[0-9]+)?")
_DURATION = re.compile(
    r"[+-]?P(?=[^T]|T.)(?:[+-]?[0-9]+D)?"
    r"(?:T(?=[+\-0-9])(?:[+-]?[0-9]+H)?(?:[+-]?[0-9]+M)?(?:[+-]?[0-9]+(?:[.,][0-9]{0,9})?S)?)?",
    re.IGNORECASE,
)


def anything(name: str, value: Value) -> None:
    """Every value of the type is fine."""


def at_least(low: int) -> Check:
    def check(name: str, value: Value) -> None:
        if isinstance(value, int | float) and value < low:
            raise BadValue.of(name, show(value), f"Value must be at least {low}")

    return check


def between(low: int, high: int) -> Check:
    check_low = at_least(low)

    def check(name: str, value: Value) -> None:
        check_low(name, value)
        if isinstance(value, int | float) and value > high:
            raise BadValue.of(name, show(value), f"Value must be no more than {high}")

    return check


def gzip_level(name: str, value: Value) -> None:
    if value != -1 and not (isinstance(value, int) and 1 <= value <= 9):
        problem = "Value must be between 1 and 9 or equal to -1"
        raise BadValue.of(name, show(value), problem)


def one_of(*allowed: str) -> Check:
    def check(name: str, value: Value) -> None:
        if value not in allowed:
            raise BadValue.of(name, value, f"String must be one of: {', '.join(allowed)}")

    return check


def all_of(*allowed: str) -> Check:
    """A list whose parts are among the allowed ones."""
    check_part = one_of(*allowed)

    def check(name: str, value: Value) -> None:
        parts = value if isinstance(value, tuple) else ()
        for part in parts:
            if not part:
                raise BadValue(f"Configuration '{name}' values must not be empty.")
            check_part(name, part)

    return check


def throttled_replicas(name: str, value: Value) -> None:
    parts = value if isinstance(value, tuple) else ()
    if parts != ("*",) and not all(_REPLICA.fullmatch(part) for part in parts):
        raise BadValue.of(
            name,
            show_java(value),
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def offset_reset(name: str, value: Value) -> None:
    """Of share groups: earliest, latest, or a duration before now."""
    if value in ("earliest", "latest"):
        return
    prefix, _, duration = str(value).partition(":")
    if prefix != "by_duration" or not _DURATION.fullmatch(duration):
        raise BadValue.of(
            name,
            value,
            f"Invalid value `{value}` for configuration {name}. The value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        )
