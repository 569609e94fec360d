"""The fetch planner, and reading through cache, index and objects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drayd.cache import Cache, Found
from drayd.fetch import ENTRIES_PER_LOOKUP, Fetcher, Wanted, extents
from drayd.metrics import Metrics
from metadata.append import POINT_EVERY_BYTES, StoredBatch, StoredChunk, StoredObject, plan_append
from metadata.faults import FaultyStore
from metadata.memory import MemoryState, MemoryStore
from metadata.store import Unavailable
from metadata.values import IndexEntry, StreamHead
from protocol.batch import iter_batches
from tests.drayd.written import REF, STREAM, WrittenLog
from tests.metadata.stored import TOPIC, domain_log
from tests.protocol.building import batch, record, records
from tests.wire.client import FETCH, fetch_request
from tests.wire.running import local_broker
from wal.faulty import Fault, Faulty
from wal.objectstore import NotFound, ObjectStoreError, open_store
from wal.reader import CorruptLog, Extent, Reader

# -- the planner -------------------------------------------------------------------------------

Sizes = list[tuple[int, int, bool]]
"""For each batch of an object: bytes, records, and whether it was accepted."""


def planned(objects: Sequence[Sizes]) -> tuple[list[IndexEntry], dict[tuple[str, int], int]]:
    """The entries of a stream, and where each accepted batch lies: its base offset."""
    head = StreamHead(TOPIC, 0)
    entries: list[IndexEntry] = []
    begins: dict[tuple[str, int], int] = {}
    producer = iter(range(10**6))
    for sizes in objects:
        position = 93
        batches = []
        for size, count, accepted in sizes:
            # A producer with a gap in its sequence is refused.
            producer_id = next(producer) if accepted else 10**9
            batches.append(StoredBatch(position, size, count, 1, 2, producer_id, 0, 7))
            position += size
        stored = StoredObject(
            uuid4(), f"{len(entries)}-{uuid4()}", 0, "m", [StoredChunk(1, batches)]
        )
        known = {(1, each.producer_id): None for each in batches}
        first = plan_append([stored], {1: head}, known, now_ms=1, producer_expiration_ms=10**9)
        blocked = {**known, (1, 10**9): next(iter(first.producers.values()))}
        made = plan_append([stored], {1: head}, blocked, now_ms=1, producer_expiration_ms=10**9)
        for each, outcome in zip(batches, made.objects[0].outcomes[0], strict=True):
            base = getattr(outcome, "base_offset", None)
            if each.producer_id != 10**9 and base is not None:
                begins[stored.path, each.position] = base
        entries += [entry for _, entry in made.objects[0].entries]
        head = made.heads.get(1, head)
    return entries, begins


sizes = st.lists(
    st.tuples(
        st.sampled_from([70, 1000, 30_000, 65_536, 200_000]), st.integers(1, 4), st.booleans()
    ),
    min_size=1,
    max_size=12,
)


@given(st.lists(sizes, min_size=1, max_size=4), st.data())
def test_any_plan_covers_its_offset_with_whole_batches_and_no_gap(
    objects: list[Sizes], data: st.DataObject
) -> None:
    entries, begins = planned(objects)
    if not entries:
        return
    end = entries[-1].end_offset
    offset = data.draw(st.integers(0, end - 1))
    max_bytes = data.draw(st.sampled_from([0, 1, 100, 50_000, 150_000, 10**7]))
    covering = [entry for entry in entries if entry.end_offset > offset]
    plan = list(extents(covering, offset, max_bytes))
    check_plan(plan, begins, covering, offset, max_bytes)


def check_plan(
    plan: list[Extent],
    begins: dict[tuple[str, int], int],
    entries: Sequence[IndexEntry],
    offset: int,
    max_bytes: int,
) -> None:
    assert plan[0].base_offset <= offset < plan[0].end_offset
    for one, other in pairwise(plan):
        assert one.end_offset == other.base_offset
    for extent in plan:
        assert begins[extent.path, extent.position] == extent.base_offset
        after = (extent.path, extent.position + extent.length)
        runs = [run for entry in entries if entry.path == extent.path for run in entry.runs]
        ends = {run.position + run.length for run in runs}
        # It ends where the next batch begins, or with a run.
        assert begins.get(after) == extent.end_offset or after[1] in ends
        (run,) = [r for r in runs if r.position <= extent.position < r.position + r.length]
        assert extent.position + extent.length <= run.position + run.length
    total = sum(extent.length for extent in plan)
    step = POINT_EVERY_BYTES + 200_000
    assert total - plan[-1].length < max(max_bytes, 1)
    assert total < max(max_bytes, 1) + step
    if total < max_bytes:
        assert plan[-1].end_offset == entries[-1].end_offset
    # It doesn't begin more than a step before the batch that holds the offset.
    (path, position), base = max(
        (item for item in begins.items() if item[1] <= offset), key=lambda item: item[1]
    )
    assert path == plan[0].path and base >= plan[0].base_offset
    assert position - plan[0].position < step


def test_an_entry_with_a_run_for_each_batch_is_planned_quickly() -> None:
    """Looking at every run for every run would take minutes."""
    many: Sizes = [(70, 1, number % 2 == 0) for number in range(40_000)]
    entries, _ = planned([many])
    assert len(entries[0].runs) == 20_000
    plan = list(extents(entries, 0, 10**9))
    assert len(plan) == 20_000 and plan[-1].end_offset == 20_000
    assert [extent.base_offset for extent in extents(entries, 19_999, 1)] == [19_999]


def test_nothing_is_planned_where_there_is_nothing() -> None:
    assert list(extents([], 5, 100)) == []


# -- reading -----------------------------------------------------------------------------------


class Setup:
    def __init__(self, log: WrittenLog, objects: Faulty, metrics: Metrics, cache: Cache) -> None:
        self.log = log
        self.objects = objects
        self.metrics = metrics
        self.cache = cache
        self.fetcher = self.fetcher_with(4096)

    def fetcher_with(self, read_ahead_bytes: int) -> Fetcher:
        return Fetcher(
            [self.log.domain],
            self.cache,
            Reader(self.objects),
            self.metrics,
            read_ahead_bytes=read_ahead_bytes,
        )

    def wanted(self, offset: int) -> Wanted:
        return Wanted(REF, offset, self.log.end_offset, 10**6)

    async def read(self, offset: int, max_bytes: int = 1) -> Found:
        return await self.fetcher.read(self.wanted(offset), max_bytes)

    async def settle(self) -> None:
        """Lets what is read ahead arrive."""
        while self.fetcher._loading:
            await asyncio.gather(*self.fetcher._loading.values(), return_exceptions=True)
            await asyncio.sleep(0)


async def setup(cold_max_bytes: int = 10**7) -> Setup:
    objects = Faulty(open_store("memory://"))
    log = await WrittenLog.create(MemoryStore(), objects)
    cache = Cache(hot_max_bytes=0, cold_max_bytes=cold_max_bytes)
    return Setup(log, objects, Metrics(), cache)


def first(found: Found) -> int:
    return next(iter_batches(b"".join(found.buffers)))[1].base_offset


BIG = batch([record(0, value=bytes(3000))])


async def test_every_offset_is_found_in_the_middle_of_batches_too() -> None:
    here = await setup()
    for _ in range(3):
        await here.log.write([batch(records(3)), batch(records(2))])
    for offset in range(15):
        found = await here.read(offset)
        headers = [header for _, header in iter_batches(b"".join(found.buffers))]
        assert len(headers) == 1
        assert headers[0].base_offset <= offset < headers[0].end_offset
    everything = await here.read(0, 10**6)
    assert everything.next_offset == 15


async def test_refused_batches_are_never_read() -> None:
    here = await setup()
    own = [batch(records(1), producer_id=9, producer_epoch=0, base_sequence=n) for n in range(3)]
    await here.log.write([own[0], own[0], own[1], own[0], own[2]])
    found = await here.read(0, 10**6)
    await here.settle()
    found = await here.read(0, 10**6)
    headers = [header for _, header in iter_batches(b"".join(found.buffers))]
    assert [(h.base_offset, h.base_sequence) for h in headers] == [(0, 0), (1, 1), (2, 2)]


async def test_readers_of_the_same_piece_share_one_read() -> None:
    here = await setup()
    await here.log.write([BIG])
    gate = here.objects.hold("get")
    tasks = [asyncio.create_task(here.read(0)) for _ in range(10)]
    await gate.reached.wait()
    tasks[0].cancel()
    gate.open()
    results = await asyncio.gather(*tasks[1:])
    assert {found.next_offset for found in results} == {1}
    assert here.objects.calls["get"] == 1


async def test_the_next_piece_is_ready_before_it_is_asked_for() -> None:
    here = await setup()
    for _ in range(20):
        await here.log.write([BIG])
    await here.read(0)
    for offset in range(20):
        await here.settle()
        assert here.fetcher.read_cached(here.wanted(offset), 1) is not None, offset
    await here.settle()
    assert here.objects.calls["get"] == 20


async def test_reading_ahead_stops_at_the_end_of_the_log() -> None:
    here = await setup()
    await here.log.write([BIG])
    await here.read(0)
    await here.settle()
    calls = here.objects.calls["get"]
    found = here.fetcher.read_cached(here.wanted(1), 100)
    assert found == Found([], 0, 1)
    assert not here.fetcher._loading and here.objects.calls["get"] == calls


async def test_a_cache_that_keeps_nothing_is_slow_and_right() -> None:
    here = await setup(cold_max_bytes=0)
    for _ in range(5):
        await here.log.write([BIG, BIG])
    for offset in range(10):
        found = await here.read(offset)
        assert first(found) == offset and found.next_offset == offset + 1


async def test_damage_is_an_error_there_and_only_there() -> None:
    here = await setup()
    for _ in range(3):
        await here.log.write([BIG])
    path = here.log.paths[1]
    data = bytearray(await here.objects.get(path))
    data[len(data) // 2] ^= 1
    await here.objects.delete(path)
    await here.objects.put(path, [data])
    assert (await here.read(0)).next_offset == 1
    await here.settle()
    with pytest.raises(CorruptLog):
        await here.read(1)
    assert (await here.read(2)).next_offset == 3


async def test_a_missing_object_is_looked_up_again_before_it_is_an_error() -> None:
    here = await setup()
    await here.log.write([BIG])
    await here.objects.delete(here.log.paths[0])
    with pytest.raises(NotFound):
        await here.read(0)
    assert here.objects.calls["get"] == 2


async def test_a_store_that_fails_once_is_asked_again_by_the_next_reader() -> None:
    here = await setup()
    await here.log.write([BIG])
    here.objects.plan("get", Fault.FAIL)
    with pytest.raises(ObjectStoreError):
        await here.read(0)
    assert (await here.read(0)).next_offset == 1


async def test_metadata_that_cannot_be_read_is_an_error() -> None:
    state = MemoryState()
    objects = Faulty(open_store("memory://"))
    log = await WrittenLog.create(MemoryStore(state), objects)
    await log.write([BIG])
    store = FaultyStore(MemoryStore(state))
    other = WrittenLog(domain_log(store), objects, log.marker)
    await other.domain.stream(STREAM)
    cache = Cache(hot_max_bytes=0, cold_max_bytes=10**6)
    here = Setup(other, objects, Metrics(), cache)
    store.fail_reads()
    with pytest.raises(Unavailable):
        await here.read(0)
    assert (await here.read(0)).next_offset == 1


async def test_a_long_log_is_read_from_end_to_end() -> None:
    here = await setup()
    here.fetcher = here.fetcher_with(10**9)
    for number in range(3 * ENTRIES_PER_LOOKUP):
        await here.log.write([batch([record(0, value=b"%d" % number)])])
    offset = 0
    seen = []
    while offset < here.log.end_offset:
        found = await here.read(offset, 300)
        seen += [header.base_offset for _, header in iter_batches(b"".join(found.buffers))]
        offset = found.next_offset
    assert seen == list(range(3 * ENTRIES_PER_LOOKUP))


async def test_no_record_lies_beyond_the_high_watermark_that_is_told(tmp_path: Path) -> None:
    """What is committed while an object is read is in the answer, and so must be its end."""
    async with (
        local_broker(tmp_path) as broker,
        await broker.connect() as reader,
        await broker.connect() as producer,
    ):
        await reader.create_topic("t")
        await producer.produce("t", 0, batch())
        topic = broker.running.broker.topics.cached("t", None)
        assert topic is not None
        broker.running.broker.cache.drop(topic.partitions[0].stream_id)
        gate = broker.objects.hold("get")
        answer = reader.send(FETCH, 12, fetch_request({"t": {0: 0}}, wait_ms=60_000))
        await gate.reached.wait()
        await producer.produce("t", 0, batch())
        gate.open()
        async with asyncio.timeout(30):
            found = (await answer).responses[0].partitions[0]
        (*_, (_, last)) = iter_batches(found.records)
        assert last.end_offset <= found.high_watermark


async def test_closing_ends_what_is_under_way() -> None:
    here = await setup()
    await here.log.write([BIG])
    gate = here.objects.hold("get")
    task = asyncio.create_task(here.read(0))
    await gate.reached.wait()
    await here.fetcher.close()
    with pytest.raises(asyncio.CancelledError):
        await task
