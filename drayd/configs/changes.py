"""What AlterConfigs and IncrementalAlterConfigs ask for, applied to what is set. Pure.

Applying a change to its own result changes nothing more, so a commit whose outcome is unknown may
be tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from drayd.configs.keys import Key
from drayd.configs.values import Type
from protocol.errors import ErrorCode, KafkaError


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    name: str
    operation: int
    value: str | None


Apply: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
"""From what is set to what shall be set; KafkaError if that can't be."""


def check_form(changes: Sequence[Change]) -> None:
    """What is wrong whatever the resource; KafkaError says it."""
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    missing = [
        change.name
        for change in changes
        if change.value is None and change.operation != Operation.DELETE
    ]
    if missing:
        raise KafkaError(
            ErrorCode.invalid_request, f"Null value not supported for : {', '.join(missing)}"
        )


def apply_all(
    changes: Sequence[Change],
    lists: Mapping[str, str],
    refuse: Callable[[Change], KafkaError],
) -> Apply:
    """`lists`: what can be appended to, with the text that counts where nothing is set. `refuse`:
    the error for what can't."""

    def apply(current: Mapping[str, str]) -> dict[str, str]:
        wanted = dict(current)
        for change in changes:
            value = change.value or ""
            match change.operation:
                case Operation.SET:
                    wanted[change.name] = value
                case Operation.DELETE:
                    wanted.pop(change.name, None)
                case Operation.APPEND | Operation.SUBTRACT if change.name in lists:
                    old = current.get(change.name, lists[change.name])
                    wanted[change.name] = _edited(old, change.operation, value)
                case _:
                    raise refuse(change)
        return wanted

    return apply


def replace_all(changes: Sequence[Change]) -> Apply:
    return lambda current: {change.name: change.value or "" for change in changes}


def lists_of(keys: Mapping[str, Key]) -> dict[str, str]:
    """The keys of a table that are lists, with their defaults."""
    return {name: key.default for name, key in keys.items() if key.type is Type.LIST}


def _edited(old: str, operation: int, value: str) -> str:
    # As Java splits and joins: nothing is trimmed, and empty parts at the end are dropped.
    parts = old.split(",") if old else []
    for part in value.rstrip(",").split(","):
        if operation == Operation.APPEND and part not in parts:
            parts.append(part)
        if operation == Operation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(part for part in parts if part)
