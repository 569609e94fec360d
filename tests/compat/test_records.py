"""The comparison of what was read with what was written finds every kind of damage."""

from typing import Any

import pytest

from compat import records
from compat.clients.job import Record, pack
from compat.records import Abilities

START_MS = 1_700_000_000_000
FROM_THE_START = [0] * records.PARTITIONS
MAKERS = (records.mixed, records.headers, records.nulls, records.large)


def _received(sent: list[Record]) -> list[dict[str, Any]]:
    offsets = records.expected_offsets(sent)
    return [dict(record) | {"offset": at} for record, at in zip(sent, offsets, strict=True)]


def _compare(sent: list[Record], received: list[dict[str, Any]]) -> str | None:
    return records.compare(sent, received, starts=FROM_THE_START, timestamps=True)


@pytest.mark.parametrize("make", MAKERS)
def test_what_was_sent_is_right(make: Any) -> None:
    sent = make(START_MS, Abilities())
    assert _compare(sent, _received(sent)) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", pack(b"other")),
        ("value", None),
        ("value", pack(b"")),
        ("headers", [["more", None]]),
        ("timestamp", START_MS - 1),
        ("offset", 10_000),
        ("partition", 1),
    ],
)
def test_a_record_that_differs_is_found(field: str, value: object) -> None:
    sent = records.mixed(START_MS, Abilities())
    received = _received(sent)
    assert received[0][field] != value
    received[0][field] = value
    assert _compare(sent, received) is not None


def test_a_missing_a_repeated_and_a_swapped_record_are_found() -> None:
    sent = records.plain(START_MS, 10)
    received = _received(sent)
    assert _compare(sent, received[:-1]) is not None
    assert _compare(sent, received[1:]) is not None
    assert _compare(sent, [*received, received[-1]]) is not None
    assert _compare(sent, [received[1], received[0], *received[2:]]) is not None


def test_reading_from_the_middle_leaves_out_what_is_before() -> None:
    sent = records.plain(START_MS, 20)
    starts = [count // 2 for count in records.counts(sent)]
    received = [each for each in _received(sent) if each["offset"] >= starts[each["partition"]]]
    assert records.compare(sent, received, starts=starts, timestamps=True) is None
    everything = _received(sent)
    assert records.compare(sent, everything, starts=starts, timestamps=True) is not None


def test_a_client_that_can_little_gets_only_that() -> None:
    little = Abilities(null_headers=False, repeated_headers=False, empty=False, bytes=False)
    for make in (records.mixed, records.headers, records.nulls):
        for record in make(START_MS, little):
            assert pack(b"") not in (record["key"], record["value"])
            names = [name for name, _ in record["headers"]]
            assert len(names) == len(set(names))
            assert all(value for _, value in record["headers"])
