"""The records that clients write and must get back, with everything that may go wrong in them."""

from __future__ import annotations

import time
from typing import NamedTuple

BASE_MS = 1_700_000_000_000
READ_WITHIN_S = 60.0
"""No test waits longer for its records. Generous: how fast a machine is decides nothing."""


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class Received(NamedTuple):
    partition: int
    offset: int
    record: Record


def corner_cases(*, null_headers: bool) -> list[Record]:
    many = tuple((f"header-{number}", b"%d" % number) for number in range(200))
    shapes: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (b"", b"", ()),
        (b"key", b"", (("empty", b""),)),
        (b"\x00\xff", bytes(range(256)), (("binary", b"\x80\xfe\xff"),)),
        ("Schlüssel".encode(), "Wert ✓".encode(), (("Überschrift", b"1"),)),
        (b"key", b"twice", (("same", b"1"), ("other", b"2"), ("same", b"3"), ("same", b"1"))),
        (b"key", b"many headers", many),
        (b"k" * 5000, b"v" * 100_000, ()),
    ]
    if null_headers:
        shapes.append((b"key", b"null header", (("null", None), ("null", b"not"))))
    return [
        # Not in order of time: the producer's times are kept as they are.
        Record(key, value, headers, BASE_MS + 1000 * (number * 7 % 11))
        for number, (key, value, headers) in enumerate(shapes)
    ]


def simple(count: int, text: str = "value") -> list[Record]:
    return [
        Record(b"%d" % number, f"{text} {number}".encode(), (), BASE_MS + 1000 * number)
        for number in range(count)
    ]


class Deadline:
    def __init__(self) -> None:
        self._end = time.monotonic() + READ_WITHIN_S

    def check(self, have: int, want: int) -> None:
        assert time.monotonic() < self._end, f"{have} of {want} records"
