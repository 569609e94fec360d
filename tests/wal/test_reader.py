"""Reading back: the right bytes to the right asker, few requests, and no damage unnoticed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.batch import iter_batches
from tests.protocol.building import batch, record, records
from wal.faulty import Fault, Faulty
from wal.objectstore import Buffer, NotFound, ObjectStore, Unavailable, open_store
from wal.reader import (
    KEEP_APART_FROM_BYTES,
    MAX_MERGED_BYTES,
    MERGE_GAP_BYTES,
    CorruptLog,
    Extent,
    Reader,
    to_segment,
)
from wal.segment import Loose, Segment, Slab

EPOCH = 3
SMALL = batch(records(2))
LARGE = batch([record(0, value=bytes(KEEP_APART_FROM_BYTES))])


def prefixed(batches: Sequence[bytes]) -> bytes:
    return b"".join(pack(">I", len(data)) + data for data in batches)


def content(segment: Segment) -> bytes:
    return b"".join(segment.take(segment.start_offset, 2**40).buffers)


class Ranges(Faulty):
    """Remembers which ranges were read."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.ranges: list[tuple[str, int, int]] = []

    async def get_range(self, path: str, start: int, length: int) -> Buffer:
        self.ranges.append((path, start, length))
        return await super().get_range(path, start, length)


# -- from bytes to segments --------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([SMALL, LARGE, batch(records(7))]), min_size=1, max_size=5),
    st.integers(0, 2**40),
    st.booleans(),
)
def test_batches_get_their_offsets_and_are_otherwise_untouched(
    batches: list[bytes], base_offset: int, writable: bool
) -> None:
    raw = prefixed(batches)
    counts = [next(iter_batches(data))[1].record_count for data in batches]
    end_offset = base_offset + sum(counts)
    source = bytearray(raw) if writable else raw
    segment = to_segment(memoryview(source), base_offset, end_offset, EPOCH)
    found = content(segment)
    assert [found[at + 16 : at + header.size] for at, header in iter_batches(found)] == [
        data[16:] for data in batches
    ]
    for (_, header), count in zip(iter_batches(found), counts, strict=True):
        assert (header.base_offset, header.partition_leader_epoch) == (base_offset, EPOCH)
        base_offset += count
    assert isinstance(segment, Loose if batches[0] is LARGE else Slab)


@given(st.data())
def test_damage_is_found_before_it_leaves(data: st.DataObject) -> None:
    raw = bytearray(prefixed([SMALL, LARGE[:], SMALL]))
    at = data.draw(st.integers(0, len(raw) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != raw[at]))
    before = content(to_segment(memoryview(bytes(raw)), 0, 5, EPOCH))
    raw[at] = value
    try:
        after = content(to_segment(memoryview(bytes(raw)), 0, 5, EPOCH))
    except CorruptLog:
        return
    # Base offset and leader epoch are outside of the CRC, and are set anew.
    assert after == before


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\0\0\0", "bytes are left"),
        (prefixed([SMALL])[:-1], "no sense"),
        (prefixed([SMALL]) + b"\0" * 10, "bytes are left"),
        (pack(">I", 20) + SMALL, "no sense"),
        (prefixed([batch(records(2), magic=1)]), "no sense"),
        (prefixed([batch(records(2), crc=5)]), "CRC"),
        (prefixed([batch(records(2), last_offset_delta=-1)]), "no sense"),
        (prefixed([SMALL, SMALL]), "end at 4, not at 2"),
    ],
)
def test_bytes_that_the_index_does_not_mean_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(CorruptLog, match=why):
        to_segment(memoryview(raw), 0, 2, EPOCH)


# -- reading from objects ----------------------------------------------------------------------


async def opened(objects: dict[str, bytes]) -> tuple[Ranges, Reader]:
    store = Ranges(open_store("memory://"))
    for path, data in objects.items():
        await store.put(path, [data])
    return store, Reader(store)


def extents_of(path: str, batches: Sequence[bytes], gap: int = 0) -> tuple[bytes, list[Extent]]:
    """An object with one extent for each batch of two records."""
    data = b""
    extents = []
    for number, each in enumerate(batches):
        body = prefixed([each])
        extents.append(Extent(path, len(data), len(body), 2 * number, 2 * number + 2))
        data += body + bytes(gap)
    return data, extents


def distinct(count: int) -> list[bytes]:
    return [
        batch([record(0, value=b"%d" % n), record(1, value=bytes(n % 5))]) for n in range(count)
    ]


async def test_neighbours_are_read_together_and_everybody_gets_their_own() -> None:
    batches = distinct(40)
    data, extents = extents_of("a", batches, gap=100)
    store, reader = await opened({"a": data})
    segments = await asyncio.gather(*(reader.segment(extent, EPOCH) for extent in extents[::-1]))
    assert len(store.ranges) == 1
    for extent, segment, original in zip(extents[::-1], segments, batches[::-1], strict=True):
        assert segment.start_offset == extent.base_offset
        assert content(segment)[16:] == original[16:]


async def test_the_same_range_for_two_askers_is_read_once_and_not_shared() -> None:
    data, (extent,) = extents_of("a", [SMALL])
    store, reader = await opened({"a": data})
    moved = extent._replace(base_offset=100, end_offset=102)
    first, second = await asyncio.gather(
        reader.segment(extent, EPOCH), reader.segment(moved, EPOCH)
    )
    assert len(store.ranges) == 1
    assert next(iter_batches(content(first)))[1].base_offset == 0
    assert next(iter_batches(content(second)))[1].base_offset == 100


async def test_ranges_far_apart_and_other_objects_are_read_on_their_own() -> None:
    data, extents = extents_of("a", distinct(2), gap=MERGE_GAP_BYTES + 1)
    other, others = extents_of("b", distinct(1))
    store, reader = await opened({"a": data, "b": other})
    await asyncio.gather(*(reader.segment(extent, EPOCH) for extent in [*extents, *others]))
    assert sorted(path for path, _, _ in store.ranges) == ["a", "a", "b"]
    assert sum(length for _, _, length in store.ranges) == sum(
        extent.length for extent in [*extents, *others]
    )


async def test_a_merged_read_has_a_bound() -> None:
    value = bytes(MAX_MERGED_BYTES // 5)
    batches = [batch([record(0, value=value), record(1)]) for _ in range(9)]
    data, extents = extents_of("a", batches)
    store, reader = await opened({"a": data})
    await asyncio.gather(*(reader.segment(extent, EPOCH) for extent in extents))
    assert len(store.ranges) == 3
    assert max(length for _, _, length in store.ranges) <= MAX_MERGED_BYTES


async def test_an_error_goes_to_everybody_who_asked_and_the_next_one_asks_again() -> None:
    data, extents = extents_of("a", distinct(3))
    store, reader = await opened({"a": data})
    store.plan("get", Fault.FAIL)
    results = await asyncio.gather(
        *(reader.segment(extent, EPOCH) for extent in extents), return_exceptions=True
    )
    assert [type(result) for result in results] == [Unavailable] * 3
    assert (await reader.segment(extents[0], EPOCH)).end_offset == 2
    with pytest.raises(NotFound):
        await reader.segment(extents[0]._replace(path="missing"), EPOCH)


async def test_one_who_goes_away_does_not_take_the_answer_from_the_others() -> None:
    data, extents = extents_of("a", distinct(2))
    store, reader = await opened({"a": data})
    gate = store.hold("get")
    tasks = [asyncio.create_task(reader.segment(extent, EPOCH)) for extent in extents]
    await gate.reached.wait()
    tasks[0].cancel()
    gate.open()
    assert (await tasks[1]).start_offset == 2


async def test_an_object_that_ends_too_early_is_corrupt() -> None:
    data, extents = extents_of("a", distinct(3))
    _, reader = await opened({"a": data[:-1]})
    results = await asyncio.gather(
        *(reader.segment(extent, EPOCH) for extent in extents), return_exceptions=True
    )
    assert [isinstance(result, CorruptLog) for result in results] == [False, False, True]
    assert "a ends within" in str(results[2])


async def test_many_reads_of_one_object_are_planned_quickly() -> None:
    """Ten thousand at once: a plan that compares each with each would take minutes."""
    batches = distinct(20) * 500
    data, extents = extents_of("a", batches)
    store, reader = await opened({"a": data})
    compared = 0

    class Counted(int):
        def __add__(self, other: int) -> int:
            nonlocal compared
            compared += 1
            return int(self) + other

    counted = [extent._replace(position=Counted(extent.position)) for extent in extents]
    await asyncio.gather(*(reader.segment(extent, EPOCH) for extent in counted))
    assert len(store.ranges) == 1
    assert compared <= 10 * len(extents)


async def test_closing_ends_what_is_under_way() -> None:
    data, (extent,) = extents_of("a", [SMALL])
    store, reader = await opened({"a": data})
    gate = store.hold("get")
    task = asyncio.create_task(reader.segment(extent, EPOCH))
    await gate.reached.wait()
    await reader.close()
    with pytest.raises(asyncio.CancelledError):
        await task
