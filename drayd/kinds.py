"""The kinds of value that a setting can have.

A kind turns the text found in a file, in the environment or on the command line into a typed
value, and back. All three sources give text, so there is one parser per kind. A text that
doesn't fit raises ValueError with the end of a sentence ("must be …"); the caller knows the
key and where the text came from.

Invariant: `kind.parse(kind.show(value)) == value` for every value within the bounds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_SIZE = re.compile(r"(\d[\d_]*)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})


class HostPort(NamedTuple):
    """A TCP address. An empty host means every interface; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """True for addresses that one can listen on but never connect to."""
        return self.host in _WILDCARDS


def parse_host_port(text: str) -> HostPort:
    """`host:port`, `:port` (every interface) or `[ipv6]:port`."""
    wanted = "must be HOST:PORT, such as localhost:9092 or [::1]:9092"
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or not rest.startswith(":") or ":" not in host:
            raise ValueError(wanted)
        port_text = rest[1:]
    else:
        host, colon, port_text = text.rpartition(":")
        if not colon:
            raise ValueError(wanted)
        if ":" in host:
            raise ValueError(f"{wanted} (an IPv6 address goes in brackets)")
    if re.search(r"[\s/@\[\]]", host):
        raise ValueError(wanted)
    if not (port_text.isascii() and port_text.isdigit()) or int(port_text) > 65535:
        raise ValueError(f"{wanted}, with a port from 0 to 65535")
    return HostPort(host, int(port_text))


class Kind(Protocol):
    """What the settings table needs to know of a kind of value."""

    @property
    def label(self) -> str:
        """One or two words for tables: "size", "integer", "true or false"."""

    def parse(self, text: str) -> object: ...

    def show(self, value: object) -> str: ...


class Integer(NamedTuple):
    """A whole number within bounds (both inclusive)."""

    minimum: int = 0
    maximum: int = INT32_MAX
    label: str = "integer"
    example: str = ""

    def parse(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"must be a whole number{self.example}") from None
        return _bounded(value, self.minimum, self.maximum)

    def show(self, value: object) -> str:
        return str(value)


def millis(minimum: int = 0, maximum: int = INT64_MAX) -> Integer:
    """A duration in milliseconds."""
    return Integer(minimum, maximum, "milliseconds", " of milliseconds")


class Size(NamedTuple):
    """A number of bytes: `8388608`, `8MiB`, `8 MB`."""

    minimum: int = 0
    maximum: int = INT64_MAX
    label: str = "size"

    def parse(self, text: str) -> int:
        match = _SIZE.fullmatch(text.strip())
        unit = _SIZE_UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            raise ValueError("must be a number of bytes, such as 8388608, 8MiB or 8MB")
        return _bounded(int(match[1]) * unit, self.minimum, self.maximum)

    def show(self, value: object) -> str:
        if not isinstance(value, int) or value == 0:
            return str(value)
        for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if value % factor == 0:
                return f"{value // factor}{unit}"
        return str(value)


class Boolean(NamedTuple):
    """`true` or `false`; YAML's other words for them work as well."""

    label: str = "true or false"

    def parse(self, text: str) -> bool:
        word = text.strip().lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        raise ValueError("must be true or false")

    def show(self, value: object) -> str:
        return "true" if value else "false"


class Text(NamedTuple):
    """Any text that matches a pattern; `wanted` says what the pattern means."""

    pattern: str = r".*"
    wanted: str = "text"
    label: str = "text"

    def parse(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError(f"must be {self.wanted}")
        return text

    def show(self, value: object) -> str:
        return str(value)


class HostCounts(NamedTuple):
    """`HOST:NUMBER,HOST:NUMBER`, or nothing."""

    label: str = "host:number, …"

    def parse(self, text: str) -> tuple[tuple[str, int], ...]:
        found = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            host, colon, count = part.rpartition(":")
            if not colon or not host or not (count.isascii() and count.isdigit()):
                raise ValueError("must be HOST:NUMBER,HOST:NUMBER, such as 10.0.0.7:100")
            found.append((host.strip("[]"), _bounded(int(count), 0, INT32_MAX)))
        return tuple(found)

    def show(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(f"{host}:{count}" for host, count in value)


class Choice(NamedTuple):
    """One of a few words, in any case."""

    words: Sequence[str]

    @property
    def label(self) -> str:
        return " · ".join(self.words)

    def parse(self, text: str) -> str:
        for word in self.words:
            if word.lower() == text.strip().lower():
                return word
        raise ValueError(f"must be one of {', '.join(self.words)}")

    def show(self, value: object) -> str:
        return str(value)


class Names(NamedTuple):
    """Some of a few words, separated by commas, in an order that counts."""

    words: Sequence[str]

    @property
    def label(self) -> str:
        return f"some of {', '.join(self.words)}"

    def parse(self, text: str) -> tuple[str, ...]:
        found = tuple(word.strip().lower() for word in text.split(",") if word.strip())
        if not found or len(set(found)) != len(found) or not set(found) <= set(self.words):
            raise ValueError(f"must be some of {', '.join(self.words)}, each once")
        return found

    def show(self, value: object) -> str:
        return ",".join(value) if isinstance(value, tuple) else str(value)


class Address(NamedTuple):
    """HOST:PORT."""

    label: str = "host:port"

    def parse(self, text: str) -> HostPort:
        return parse_host_port(text.strip())

    def show(self, value: object) -> str:
        return str(value)


class OptionalAddress(NamedTuple):
    """HOST:PORT, or nothing at all."""

    label: str = "host:port"
    connectable: bool = False

    def parse(self, text: str) -> HostPort | None:
        if not text.strip():
            return None
        address = parse_host_port(text.strip())
        if self.connectable and address.is_wildcard:
            raise ValueError("must be an address that clients can connect to")
        return address

    def show(self, value: object) -> str:
        return "" if value is None else str(value)


class Folder(NamedTuple):
    """A directory; `~` is the home directory."""

    label: str = "folder"

    def parse(self, text: str) -> Path:
        if not text.strip() or "\0" in text:
            raise ValueError("must be the path of a folder")
        try:
            return Path(text).expanduser()
        except RuntimeError:
            raise ValueError("must be a folder of a user that exists") from None

    def show(self, value: object) -> str:
        return str(value)


class Url(NamedTuple):
    """A URL with one of the schemes, or nothing."""

    schemes: Sequence[str]
    label: str = "URL"

    def parse(self, text: str) -> str:
        scheme, separator, _ = text.partition("://")
        if text and (not separator or scheme not in self.schemes):
            known = ", ".join(f"{scheme}://" for scheme in self.schemes)
            raise ValueError(f"must be a URL that starts with one of {known}")
        return text

    def show(self, value: object) -> str:
        return str(value)


def _bounded(value: int, minimum: int, maximum: int) -> int:
    if value < minimum:
        raise ValueError(f"must be at least {minimum}")
    if value > maximum:
        raise ValueError(f"must be at most {maximum}")
    return value
