"""The quick walk agrees with the careful one, or leaves the batch to it."""

from __future__ import annotations

import random

import pytest
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records import PADDING, BadRecords, walk, walk_quickly

BASE_MS = 1_700_000_000_000


def build(records: list[tuple[int, bytes | None, bytes | None]]) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset, (time_ms, key, value) in enumerate(records):
        builder.append(offset, time_ms, key, value, [])
    return bytearray(builder.build())


def careful(batch: bytearray) -> object:
    padded = memoryview(bytes(batch) + PADDING)
    try:
        found = walk(padded[: len(batch)], find_missing_keys=True)
    except BadRecords:
        return "refused"
    return found.timestamps_ms, found.earliest_ms, found.latest_ms, found.without_key


def quick(batch: bytearray) -> object:
    found = walk_quickly(memoryview(batch), find_missing_keys=True)
    if found is None:
        return None
    return found.timestamps_ms, found.earliest_ms, found.latest_ms, found.without_key


@pytest.mark.parametrize("count", [64, 65, 1000, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("step_ms", [0, 1, 37, -1])
def test_equal_sizes_are_walked_quickly(count: int, key: bytes | None, step_ms: int) -> None:
    batch = build([(BASE_MS + number * step_ms, key, b"x" * 100) for number in range(count)])
    assert quick(batch) == careful(batch)
    assert quick(batch) is not None


def test_varying_sizes_are_left_to_the_careful_walk() -> None:
    choose = random.Random(3)
    batch = build([(BASE_MS, None, b"x" * choose.randrange(10, 500)) for _ in range(500)])
    assert quick(batch) is None


def test_any_attributes_are_fine_as_in_kafka() -> None:
    batch = build([(BASE_MS, b"a", b"three")] * 64)
    batch[61 + 16 * 13 + 1] = 0x80
    assert quick(batch) == careful(batch) != "refused"


def test_null_values() -> None:
    batch = build([(BASE_MS, b"k", None)] * 200)
    assert quick(batch) == careful(batch) != "refused"


RECORD = st.tuples(
    st.integers(BASE_MS, BASE_MS + 3),
    st.sampled_from([None, b"a", b"b"]),
    st.sampled_from([b"one", b"two", b"three"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORD, min_size=1, max_size=6), st.integers(20, 60), st.data())
def test_whatever_it_accepts_the_careful_walk_finds_too(
    pattern: list[tuple[int, bytes | None, bytes | None]], times: int, data: st.DataObject
) -> None:
    repeated = [record for record in pattern for _ in range(times)]
    batch = build(repeated)
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(61, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del batch[-data.draw(st.integers(1, 20)) :]
    found = quick(batch)
    assert found is None or found == careful(batch)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.integers(-1, 2**31 - 1))
def test_garbage_is_never_accepted_against_the_careful_walk(body: bytes, count: int) -> None:
    batch = build([(BASE_MS, None, b"x")])[:61] + body
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    found = quick(batch)
    assert found is None or found == careful(batch)
