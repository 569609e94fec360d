"""The cache: what is found is what was put, and no more is kept than the budgets allow."""

from __future__ import annotations

import gc
import weakref
from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drayd.cache import FIRST_SLAB_BYTES, KEEP_FROM_BYTES, LAST_SLAB_BYTES, Cache, Found
from protocol.batch import BatchHeader, iter_batches
from tests.protocol.building import batch, record
from wal.buffer import Batch
from wal.segment import Slab

EPOCH = 2
MANY = 10**9


def built(size: int, records: int = 1) -> bytes:
    return batch([record(n, value=bytes(size if n == 0 else 1)) for n in range(records)])


BATCHES = {
    (size, records): built(size, records)
    for size in (1, 300, 5000, KEEP_FROM_BYTES + 500)
    for records in (1, 2, 3)
}


def as_batch(data: bytes, records: int, owned_bytes: int | None = None) -> Batch:
    view = memoryview(bytearray(data))
    return Batch(view, records, 0, 0, -1, -1, -1, owned_bytes or len(data))


def headers(found: Found) -> list[BatchHeader]:
    joined = b"".join(found.buffers)
    assert len(joined) == found.size
    return [header for _, header in iter_batches(joined)]


class Log:
    """Appends batches to a cache and remembers them."""

    def __init__(self, cache: Cache, stream_id: int = 1) -> None:
        self.cache = cache
        self.stream_id = stream_id
        self.end = 0
        self.bases: list[tuple[int, bytes]] = []

    def append(self, size: int, records: int = 1, owned_bytes: int | None = None) -> None:
        data = BATCHES[size, records]
        item = as_batch(data, records, owned_bytes)
        self.cache.append(self.stream_id, item, self.end, EPOCH)
        self.bases.append((self.end, data))
        self.end += records


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2]), st.sampled_from(sorted(BATCHES))),
        min_size=1,
        max_size=40,
    ),
    st.data(),
)
def test_any_read_gives_what_was_appended(
    appends: list[tuple[int, tuple[int, int]]], data: st.DataObject
) -> None:
    cache = Cache(hot_max_bytes=MANY, cold_max_bytes=MANY)
    logs = {n: Log(cache, n) for n in (1, 2)}
    for stream_id, (size, records) in appends:
        logs[stream_id].append(size, records)
    log = logs[data.draw(st.sampled_from([n for n, each in logs.items() if each.end]))]
    offset = data.draw(st.integers(0, log.end - 1))
    max_bytes = data.draw(st.integers(0, 200_000))
    found = cache.read(log.stream_id, offset, max_bytes)
    got = headers(found)
    assert got[0].base_offset <= offset < got[0].end_offset
    assert all(one.end_offset == other.base_offset for one, other in pairwise(got))
    assert found.size <= max_bytes or len(got) == 1
    assert found.next_offset == got[-1].end_offset
    expected = dict(log.bases)
    joined = b"".join(found.buffers)
    for at, header in iter_batches(joined):
        original = expected[header.base_offset]
        assert joined[at + 16 : at + header.size] == original[16:]
        assert header.partition_leader_epoch == EPOCH
    everything = cache.read(log.stream_id, offset, MANY)
    assert everything.next_offset == log.end


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(sorted(BATCHES))), max_size=60))
def test_the_hot_budget_holds_and_the_newest_stay(
    appends: list[tuple[int, tuple[int, int]]],
) -> None:
    cache = Cache(hot_max_bytes=100_000, cold_max_bytes=0)
    logs = {n: Log(cache, n) for n in range(1, 6)}
    for stream_id, (size, records) in appends:
        log = logs[stream_id]
        log.append(size, records)
        assert cache.hot_bytes <= 100_000
        found = cache.read(stream_id, log.end - 1, 1)
        assert found.next_offset == log.end
        for each in logs.values():
            # What is left of a stream reaches to its end: the oldest go first.
            held = [cache.find(each.stream_id, base) is not None for base, _ in each.bases]
            assert held == sorted(held)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=40))
def test_the_cold_budget_holds_whatever_overlaps(ranges: list[tuple[int, int]]) -> None:
    data = BATCHES[300, 1]
    cache = Cache(hot_max_bytes=0, cold_max_bytes=20 * len(data))
    for start, count in ranges:
        slab = Slab(bytearray(count * len(data)), start)
        for _ in range(count):
            assert slab.add(memoryview(data), 1, EPOCH)
        cache.insert(1, slab)
        assert cache.cold_bytes <= 20 * len(data)
        for offset in range(65):
            found = cache.read(1, offset, 10 * len(data))
            if found.buffers:
                assert headers(found)[0].base_offset == offset
        if count <= 20:
            assert cache.find(1, start) is slab
    cache.drop(1)
    assert cache.cold_bytes == 0 and cache.find(1, 0) is None


def test_the_least_recently_used_goes_first_from_the_cold_tier() -> None:
    data = BATCHES[300, 1]
    cache = Cache(hot_max_bytes=0, cold_max_bytes=3 * len(data))

    def put(start: int) -> None:
        slab = Slab(bytearray(len(data)), start)
        slab.add(memoryview(data), 1, EPOCH)
        cache.insert(1, slab)

    for start in (0, 1, 2):
        put(start)
    assert cache.read(1, 0, 1).buffers
    put(3)
    assert [cache.find(1, offset) is not None for offset in range(4)] == [True, False, True, True]


def test_a_reader_who_catches_up_does_not_push_out_the_tail() -> None:
    data = BATCHES[300, 1]
    cache = Cache(hot_max_bytes=50_000, cold_max_bytes=5 * len(data))
    log = Log(cache)
    log.end = 1000
    for _ in range(10):
        log.append(300)
    for start in range(500):
        slab = Slab(bytearray(len(data)), start)
        slab.add(memoryview(data), 1, EPOCH)
        cache.insert(1, slab)
    assert cache.read(1, 1000, MANY).next_offset == 1010


def test_many_small_batches_take_few_slabs_and_one_slice() -> None:
    cache = Cache(hot_max_bytes=MANY, cold_max_bytes=0)
    log = Log(cache)
    for _ in range(2000):
        log.append(1)
    found = cache.read(1, 0, MANY)
    assert found.next_offset == 2000
    assert len(found.buffers) <= 9
    assert cache.hot_bytes <= 2 * found.size + LAST_SLAB_BYTES


def test_an_idle_stream_costs_little() -> None:
    cache = Cache(hot_max_bytes=MANY, cold_max_bytes=0)
    for stream_id in range(100):
        Log(cache, stream_id).append(1)
    assert cache.hot_bytes == 100 * FIRST_SLAB_BYTES


class _Frame(array):  # type: ignore[type-arg] # array isn't generic at run time
    """Memory that a weak reference can be taken of."""


@pytest.mark.parametrize(("times", "kept"), [(1.5, True), (2.5, False)])
def test_a_batch_keeps_its_frame_alive_only_if_it_is_most_of_it(times: float, kept: bool) -> None:
    data = BATCHES[KEEP_FROM_BYTES + 500, 1]
    frame = _Frame("B", bytes(int(len(data) * times)))
    view = memoryview(frame)
    view[: len(data)] = data
    cache = Cache(hot_max_bytes=MANY, cold_max_bytes=0)
    item = Batch(view[: len(data)], 1, 0, 0, -1, -1, -1, len(frame))
    cache.append(1, item, 0, EPOCH)
    alive = weakref.ref(frame)
    held = cache.hot_bytes
    del frame, view, item
    gc.collect()
    assert (alive() is not None) == kept
    assert held == (int(len(data) * times) if kept else len(data))
    assert b"".join(cache.read(1, 0, 1).buffers)[16:] == data[16:]


def test_a_batch_larger_than_the_budget_is_not_kept() -> None:
    cache = Cache(hot_max_bytes=1000, cold_max_bytes=1000)
    log = Log(cache)
    log.append(5000)
    assert cache.hot_bytes == 0 and cache.read(1, 0, MANY).buffers == []


def test_a_gap_is_not_read_over() -> None:
    cache = Cache(hot_max_bytes=MANY, cold_max_bytes=0)
    log = Log(cache)
    log.append(300)
    log.end += 5
    log.append(300)
    assert cache.read(1, 0, MANY).next_offset == 1
    assert cache.read(1, 3, MANY).buffers == []
    assert cache.read(1, 6, MANY).next_offset == 7


def test_a_dropped_stream_is_gone_and_others_stay() -> None:
    cache = Cache(hot_max_bytes=MANY, cold_max_bytes=0)
    one, two = Log(cache, 1), Log(cache, 2)
    for log in (one, two):
        log.append(300)
        log.append(KEEP_FROM_BYTES + 500)
    before = cache.hot_bytes
    cache.drop(1)
    assert cache.read(1, 0, MANY).buffers == []
    assert cache.read(2, 0, MANY).next_offset == 2
    assert cache.hot_bytes == before // 2
    cache.drop(1)


def test_zero_budgets_keep_nothing() -> None:
    cache = Cache(hot_max_bytes=0, cold_max_bytes=0)
    log = Log(cache)
    log.append(1)
    assert cache.hot_bytes == 0 and cache.read(1, 0, 10).buffers == []
