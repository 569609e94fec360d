"""Segments: what is taken is what was put, whole batches from any offset."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.batch import iter_batches
from tests.protocol.building import batch, records
from wal.segment import Loose, Segment, Slab

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=12)
EPOCH = 4
BATCHES = {count: batch(records(count)) for count in range(1, 10)}


def slab_of(counts: list[int], start: int) -> Segment:
    segment = Slab(bytearray(sum(len(BATCHES[count]) for count in counts)), start)
    for count in counts:
        assert segment.add(memoryview(BATCHES[count]), count, EPOCH)
    return segment


def loose_of(counts: list[int], start: int) -> Segment:
    segment = Loose(start)
    for count in counts:
        segment.adopt(memoryview(BATCHES[count]), count, EPOCH)
    return segment


Build = Callable[[list[int], int], Segment]
EACH = pytest.mark.parametrize("build", [slab_of, loose_of])


@EACH
@given(SIZES, st.integers(0, 2**40), st.data())
def test_any_slice_is_whole_batches_from_the_one_with_the_offset(
    build: Build, counts: list[int], start: int, data: st.DataObject
) -> None:
    segment = build(counts, start)
    assert (segment.start_offset, segment.end_offset) == (start, start + sum(counts))
    offset = data.draw(st.integers(start, segment.end_offset - 1))
    max_bytes = data.draw(st.integers(-1, 2 * segment.capacity))
    taken = segment.take(offset, max_bytes)
    joined = b"".join(taken.buffers)
    assert len(joined) == taken.size
    found = [header for _, header in iter_batches(joined)]
    assert found[0].base_offset <= offset < found[0].end_offset
    assert taken.next_offset == found[-1].end_offset
    assert taken.size <= max_bytes or len(found) == 1
    assert all(header.partition_leader_epoch == EPOCH for header in found)
    assert all(one.end_offset == other.base_offset for one, other in pairwise(found))
    if taken.next_offset < segment.end_offset:
        following = segment.take(taken.next_offset, 0)
        assert taken.size + following.size > max_bytes


@EACH
@given(SIZES, st.integers(0, 1000))
def test_reading_on_from_slice_to_slice_gives_everything_once(
    build: Build, counts: list[int], max_bytes: int
) -> None:
    segment = build(counts, 0)
    offset, seen = 0, b""
    while offset < segment.end_offset:
        taken = segment.take(offset, max_bytes)
        seen += b"".join(taken.buffers)
        offset = taken.next_offset
    # Only base offset and leader epoch differ from what was put.
    assert [seen[at + 16 : at + h.size] for at, h in iter_batches(seen)] == [
        BATCHES[count][16:] for count in counts
    ]


def test_a_batch_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    slab = Slab(bytearray(len(BATCHES[1]) + 5), 10)
    assert slab.add(memoryview(BATCHES[1]), 1, EPOCH)
    assert not slab.add(memoryview(BATCHES[9]), 9, EPOCH)
    assert (slab.end_offset, slab.used) == (11, len(BATCHES[1]))
    assert b"".join(slab.take(10, 10**6).buffers)[16:] == BATCHES[1][16:]


def test_a_slice_stays_as_it_is_while_the_slab_grows() -> None:
    slab = Slab(bytearray(1000), 0)
    slab.add(memoryview(BATCHES[1]), 1, EPOCH)
    taken = slab.take(0, 10**6)
    before = b"".join(taken.buffers)
    slab.add(memoryview(BATCHES[2]), 2, EPOCH)
    assert b"".join(taken.buffers) == before
    assert slab.take(0, 10**6).next_offset == 3


def test_many_small_batches_are_one_buffer() -> None:
    slab = slab_of([1] * 50, 0)
    assert len(slab.take(7, 10**6).buffers) == 1


def test_a_loose_batch_stays_where_it_lies_and_as_it_is() -> None:
    data = bytes(BATCHES[2])
    loose = Loose(7)
    loose.adopt(memoryview(data), 2, EPOCH)
    _, body = loose.take(8, 1).buffers
    assert isinstance(body, memoryview) and body.obj is data
    assert data == BATCHES[2]
    assert loose.capacity == len(data)
