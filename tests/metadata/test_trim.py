"""The log's start: moved as a whole, never back, and what lies before it leaves nothing behind."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata import keys
from metadata.append import Accepted, Duplicate
from metadata.faults import Fault, FaultyStore
from metadata.memory import MemoryState, MemoryStore
from metadata.references import PIECE
from metadata.streams import DomainLog, StreamMissing
from metadata.trim import LOG_END, OutOfRange, clear_below, has_entries_below, trim
from metadata.values import Lifecycle, StreamHead, StreamRef
from tests.metadata.stored import (
    TOPIC,
    batch,
    domain_log,
    keys_under,
    stored,
    stored_entries,
    stored_head,
    stored_producer,
    with_streams,
)

REF = StreamRef(1, 0)


async def written(store: MemoryStore | FaultyStore, objects: int) -> tuple[DomainLog, str]:
    """Each object has two records of stream 1 and one of stream 2."""
    log = domain_log(store)
    marker = await with_streams(log, 1, 2)
    for _ in range(objects):
        await log.append([stored(marker, {1: [batch(2)], 2: [batch()]})])
    return log, marker


async def test_entries_below_the_start_leave_with_their_references() -> None:
    store = MemoryStore()
    log, _ = await written(store, 4)
    head, more = await trim(log, 1, 5)
    assert (head.log_start, head.log_end, more) == (5, 8, False)
    # The third entry holds offset 5, so it stays, and so do its bytes.
    assert [entry.start_offset for entry in await stored_entries(store, 1)] == [4, 6]
    assert head.total_bytes - head.start_bytes == 200
    assert head == await stored_head(store, 1)
    # Stream 2 still refers to every object; when it goes too, so do the first ones.
    assert await keys_under(store, keys.garbage(0)) == []
    await trim(log, 2, LOG_END)
    assert len(await keys_under(store, keys.garbage(0))) == 2
    assert len(await keys_under(store, keys.wal_objects(0))) == 2
    assert await stored_entries(store, 2) == []


async def test_the_start_never_goes_back() -> None:
    log, _ = await written(MemoryStore(), 3)
    await trim(log, 1, 4)
    head, _ = await trim(log, 1, 2)
    assert head.log_start == 4


@pytest.mark.parametrize("offset", [-2, 7, 2**62])
async def test_an_offset_outside_of_the_log_changes_nothing(offset: int) -> None:
    store = MemoryStore()
    log, _ = await written(store, 3)
    with pytest.raises(OutOfRange):
        await trim(log, 1, offset)
    head = await stored_head(store, 1)
    assert head is not None and head.log_start == 0


async def test_a_stream_that_is_deleted_is_not_trimmed() -> None:
    store = MemoryStore()
    log = domain_log(store)
    await log.create_streams([(1, StreamHead(TOPIC, 0, state=Lifecycle.DELETING))])
    for stream in (1, 2):
        with pytest.raises(StreamMissing):
            await trim(log, stream, LOG_END)


async def test_a_long_prefix_goes_in_pieces() -> None:
    store = MemoryStore()
    log, _ = await written(store, 2 * PIECE + 3)
    head, more = await trim(log, 1, LOG_END)
    assert more and await has_entries_below(store, REF, head.log_start)
    assert await clear_below(store, REF, head.log_start, delete_after_ms=0) == PIECE + 3
    assert await stored_entries(store, 1) == []
    assert not await has_entries_below(store, REF, head.log_start)


async def test_producers_outlive_their_records() -> None:
    store = MemoryStore()
    log, marker = await written(store, 0)
    first = [batch(2, producer=(9, 0, 0), times=(3, 4))]
    await log.append([stored(marker, {1: first})])
    await trim(log, 1, LOG_END)
    state = await stored_producer(store, 1, 9)
    assert state is not None and state.last_timestamp_ms == 4
    (again,) = await log.append([stored(marker, {1: first})])
    (following,) = await log.append([stored(marker, {1: [batch(producer=(9, 0, 2))]})])
    assert again is not None and following is not None
    assert again.outcomes == [[Duplicate(0, 2)]]
    assert following.outcomes == [[Accepted(2, 2)]]


async def test_appends_see_the_new_start_also_in_another_broker() -> None:
    state = MemoryState()
    log, marker = await written(MemoryStore(state), 2)
    other = domain_log(MemoryStore(state))
    assert (await other.stream(1)).head.log_start == 0
    await trim(log, 1, 3)
    (result,) = await other.append([stored(marker, {1: [batch()]})])
    assert result is not None and result.outcomes == [[Accepted(4, 3)]]
    # And the trimming broker's start stays when the other has appended.
    head, _ = await trim(log, 1, LOG_END)
    assert head.log_start == 5


async def test_a_trim_gets_its_turn_among_appends() -> None:
    log, marker = await written(MemoryStore(), 1)
    busy = True

    async def appends() -> int:
        count = 0
        while busy:
            (result,) = await log.append([stored(marker, {1: [batch()]})])
            count += result is not None
        return count

    running = asyncio.create_task(appends())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        head, _ = await trim(log, 1, 2)
    busy = False
    count = await running
    assert head.log_start == 2
    assert (await log.refresh(1)).head.log_end == 2 + count


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
async def test_an_unknown_outcome_is_resolved(fault: Fault) -> None:
    store = FaultyStore(MemoryStore())
    log, _ = await written(store, 3)
    store.fail_commits(fault)
    head, _ = await trim(log, 1, 4)
    assert head.log_start == 4
    assert [entry.start_offset for entry in await stored_entries(store, 1)] == [4]


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["append", "trim"]), st.integers(1, 9)),
        max_size=20,
    )
)
async def test_two_brokers_trim_and_append(steps: list[tuple[str, str, int]]) -> None:
    """Against a model: the start, the end, and an index that covers exactly what is between."""
    state = MemoryState()
    store = MemoryStore(state)
    first = domain_log(store)
    marker = await with_streams(first, 1)
    logs = {"a": first, "b": domain_log(MemoryStore(state))}
    start = end = 0
    for broker, what, number in steps:
        if what == "append":
            await logs[broker].append([stored(marker, {1: [batch(number)]})])
            end += number
        elif number <= end:
            head, _ = await trim(logs[broker], 1, number)
            start = max(start, number)
            assert head.log_start == start
    head_now = await stored_head(store, 1)
    assert head_now is not None and (head_now.log_start, head_now.log_end) == (start, end)
    entries = await stored_entries(store, 1)
    assert all(entry.end_offset > start for entry in entries)
    if start < end:
        assert entries[0].start_offset <= start and entries[-1].end_offset == end
        assert head_now.total_bytes - head_now.start_bytes == sum(e.size_bytes for e in entries)
    for before, after in pairwise(entries):
        assert before.end_offset == after.start_offset
    records = await keys_under(store, keys.wal_objects(0))
    assert len(records) == len(entries)
