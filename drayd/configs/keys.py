"""What there is to know of one key of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drayd.configs.checks import Check, anything
from drayd.configs.values import Type, Value, parse, show


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    type: Type
    default: str
    doc: str
    check: Check = anything
    broker_key: str = ""
    """The broker's setting that is the default of this one; empty if there is none."""
    unique: bool = False
    """Of a list: what is named twice counts once."""
    hidden: bool = False
    """Shown only where it is set."""

    def parse(self, text: str) -> Value:
        """BadValue if it can't be used."""
        value = parse(self.name, self.type, text)
        if self.unique and isinstance(value, tuple):
            value = tuple(dict.fromkeys(value))
        self.check(self.name, value)
        return value

    def show(self, text: str) -> str:
        """The text of a stored value, which was checked when it was stored."""
        return show(self.parse(text))


def table(*keys: Key) -> Mapping[str, Key]:
    return {key.name: key for key in keys}
