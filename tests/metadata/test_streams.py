"""The log of a domain: one transaction per append, shared by several brokers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from metadata import keys
from metadata.append import Accepted, Duplicate, Outcome, Refusal, Refused, StoredObject
from metadata.faults import Fault, FaultyStore
from metadata.memory import MemoryState, MemoryStore
from metadata.store import (
    Check,
    CommitResult,
    Conflict,
    Delete,
    MetadataStore,
    Put,
    Unavailable,
)
from metadata.streams import DomainLog, StreamMissing, wal_id
from metadata.values import Garbage, Lifecycle, Marker, StreamHead, WalObject, decode, encode
from tests.metadata.stored import (
    GRACE_MS,
    TOPIC,
    Clock,
    batch,
    domain_log,
    keys_under,
    marked,
    stored,
    stored_entries,
    stored_head,
    stored_producer,
    with_streams,
)

SCOPE = keys.domain_scope(0)


class LateAnswers(FaultyStore):
    """Commits are applied at once and answered when `answers` is set."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.answers = asyncio.Event()
        self.answers.set()

    async def commit(
        self, scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]
    ) -> CommitResult:
        result = await super().commit(scope, checks, writes)
        await self.answers.wait()
        return result


async def appended(log: DomainLog, *objects: StoredObject) -> list[list[list[Outcome]]]:
    """The outcomes of objects none of which has to be written again."""
    results = await log.append(objects)
    found = [result.outcomes for result in results if result is not None]
    assert len(found) == len(objects)
    return found


async def test_an_append_is_seen_by_readers_at_once() -> None:
    log = domain_log(MemoryStore())
    marker = await with_streams(log, 1, 2)
    first = stored(marker, {1: [batch(3), batch(2)], 2: [batch(7)]})
    second = stored(marker, {1: [batch(4)]})
    assert await appended(log, first, second) == [
        [[Accepted(0, 0), Accepted(3, 0)], [Accepted(0, 0)]],
        [[Accepted(5, 0)]],
    ]
    stream = await log.stream(1)
    assert (stream.head.log_end, stream.head.total_bytes) == (9, 300)
    entries = await log.entries(1, 0, 10)
    assert [(e.start_offset, e.end_offset, e.path) for e in entries] == [
        (0, 5, first.path),
        (5, 9, second.path),
    ]


async def test_entries_from_the_cache_and_from_the_store_agree() -> None:
    state = MemoryState()
    writer, reader = domain_log(MemoryStore(state)), domain_log(MemoryStore(state))
    marker = await with_streams(writer, 1)
    for size in (3, 1, 4, 1, 5, 9, 2, 6):
        await appended(writer, stored(marker, {1: [batch(size)]}))
    for offset in range(32):
        for limit in (1, 2, 100):
            cached = await writer.entries(1, offset, limit)
            assert cached == await reader.entries(1, offset, limit)
            assert not cached or cached[0].start_offset <= offset < cached[0].end_offset


async def test_more_entries_than_are_remembered_come_from_the_store() -> None:
    log = domain_log(MemoryStore())
    marker = await with_streams(log, 1)
    for _ in range(10):
        await appended(log, *[stored(marker, {1: [batch(1)]}) for _ in range(30)])
    first = await log.entries(1, 0, 2)
    assert [entry.start_offset for entry in first] == [0, 1]
    last = await log.entries(1, 299, 2)
    assert [entry.start_offset for entry in last] == [299]


async def test_brokers_that_write_the_same_stream_share_its_offsets() -> None:
    state = MemoryState()
    logs = [domain_log(MemoryStore(state)) for _ in range(3)]
    await with_streams(logs[0], 1, 2)
    randomness = random.Random(11)
    accepted: dict[int, list[tuple[int, int]]] = {1: [], 2: []}

    async def write(log: DomainLog) -> None:
        marker = await marked(log)
        for _ in range(20):
            chunks = {
                stream_id: [
                    batch(randomness.randint(1, 5)) for _ in range(randomness.randint(1, 3))
                ]
                for stream_id in randomness.sample([1, 2], randomness.randint(1, 2))
            }
            item = stored(marker, chunks)
            (outcomes,) = await appended(log, item)
            for chunk, results in zip(item.chunks, outcomes, strict=True):
                for each, result in zip(chunk.batches, results, strict=True):
                    assert isinstance(result, Accepted)
                    end = result.base_offset + each.record_count
                    accepted[chunk.stream_id].append((result.base_offset, end))

    await asyncio.gather(*map(write, logs))
    store = MemoryStore(state)
    for stream_id, ranges in accepted.items():
        ranges.sort()
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        entries = await stored_entries(store, stream_id)
        assert [e.start_offset for e in entries] == [0, *(e.end_offset for e in entries[:-1])]
        head = await stored_head(store, stream_id)
        assert head is not None and head.log_end == ranges[-1][1] == entries[-1].end_offset


async def test_a_stale_head_makes_a_conflict_and_is_read_again() -> None:
    state = MemoryState()
    retries = 0

    def retried() -> None:
        nonlocal retries
        retries += 1

    log = DomainLog(
        MemoryStore(state),
        0,
        now_ms=Clock(),
        producer_expiration_ms=1,
        garbage_grace_ms=1,
        on_retry=retried,
    )
    other = domain_log(MemoryStore(state))
    marker = await with_streams(log, 1)
    await appended(other, stored(marker, {1: [batch(5)]}))
    assert await appended(log, stored(marker, {1: [batch(1)]})) == [[[Accepted(5, 0)]]]
    assert retries == 1


async def test_a_retry_through_another_broker_is_a_duplicate() -> None:
    state = MemoryState()
    here, there = domain_log(MemoryStore(state)), domain_log(MemoryStore(state))
    marker = await with_streams(here, 1)
    first = {1: [batch(2, producer=(9, 0, 0))]}
    assert await appended(here, stored(marker, first)) == [[[Accepted(0, 0)]]]
    assert await appended(there, stored(marker, first)) == [[[Duplicate(0, 0)]]]


async def test_a_producer_that_comes_back_from_another_broker_goes_on() -> None:
    """What this broker remembers of the producer is old, and refusing it would need no write."""
    state = MemoryState()
    here, there = domain_log(MemoryStore(state)), domain_log(MemoryStore(state))
    marker = await with_streams(here, 1)
    await appended(here, stored(marker, {1: [batch(1, producer=(9, 0, 0))]}))
    await appended(there, stored(marker, {1: [batch(1, producer=(9, 0, 1))]}))
    back = stored(marker, {1: [batch(1, producer=(9, 0, 2))]})
    assert await appended(here, back) == [[[Accepted(2, 0)]]]


async def test_a_head_that_was_read_again_brings_its_producers_along() -> None:
    state = MemoryState()
    here, there = domain_log(MemoryStore(state)), domain_log(MemoryStore(state))
    marker = await with_streams(here, 1)
    await appended(here, stored(marker, {1: [batch(1, producer=(9, 0, 0))]}))
    second = {1: [batch(1, producer=(9, 0, 1))]}
    await appended(there, stored(marker, second))
    await here.refresh(1)
    assert await appended(here, stored(marker, second)) == [[[Duplicate(1, 0)]]]


async def test_a_forgotten_stream_is_read_again_with_its_producers() -> None:
    state = MemoryState()
    here, there = domain_log(MemoryStore(state)), domain_log(MemoryStore(state))
    marker = await with_streams(here, 1)
    await appended(here, stored(marker, {1: [batch(1, producer=(9, 0, 0))]}))
    second = {1: [batch(1, producer=(9, 0, 1))]}
    await appended(there, stored(marker, second))
    here.forget([1])
    assert await appended(here, stored(marker, second)) == [[[Duplicate(1, 0)]]]


async def test_a_stream_forgotten_during_its_commit_does_no_harm() -> None:
    store = FaultyStore(MemoryStore())
    log = domain_log(store)
    marker = await with_streams(log, 1)
    store.hold_commits()
    task = asyncio.create_task(log.append([stored(marker, {1: [batch(4)]})]))
    while not store.commits_held:
        await asyncio.sleep(0)
    log.forget([1])
    store.release_commits()
    (result,) = await task
    assert result is not None and result.outcomes == [[Accepted(0, 0)]]
    assert (await log.stream(1)).head.log_end == 4
    assert await appended(log, stored(marker, {1: [batch(1)]})) == [[[Accepted(4, 0)]]]


async def test_streams_forgotten_at_any_moment_lose_nothing() -> None:
    state = MemoryState()
    log = domain_log(MemoryStore(state))
    marker = await with_streams(log, 1, 2, 3)
    done = asyncio.Event()

    async def disturb() -> None:
        number = 0
        while not done.is_set():
            number += 1
            log.forget([1 + number % 3])
            await log.refresh(1 + number % 2)
            for _ in range(number % 31):
                await asyncio.sleep(0)

    task = asyncio.create_task(disturb())
    for number in range(50):
        chunks = {n: [batch(1, producer=(n, 0, number))] for n in (1, 2, 3)}
        assert await appended(log, stored(marker, chunks)) == [[[Accepted(number, 0)]] * 3]
    done.set()
    await task
    for stream_id in (1, 2, 3):
        assert (await log.refresh(stream_id)).head.log_end == 50
        assert [e.end_offset for e in await log.entries(stream_id, 0, 99)] == list(range(1, 51))


async def test_an_old_commit_folded_in_late_does_not_hide_a_newer_one() -> None:
    state = MemoryState()
    slow = LateAnswers(MemoryStore(state))
    here, there = domain_log(slow), domain_log(MemoryStore(state))
    marker = await with_streams(here, 1)
    slow.answers.clear()
    task = asyncio.create_task(here.append([stored(marker, {1: [batch(1)]})]))
    while (await here.refresh(1)).head.log_end == 0:
        await asyncio.sleep(0)
    await appended(there, stored(marker, {1: [batch(1)]}))
    assert (await here.refresh(1)).head.log_end == 2
    slow.answers.set()
    await task
    assert (await here.stream(1)).head.log_end == 2
    assert [e.end_offset for e in await here.entries(1, 0, 9)] == [1, 2]


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
async def test_an_unknown_outcome_is_found_out(fault: Fault) -> None:
    inner = MemoryStore()
    store = FaultyStore(inner)
    log = domain_log(store)
    marker = await with_streams(log, 1)
    item = stored(marker, {1: [batch(2, producer=(5, 0, 0)), batch(3)]})
    store.fail_commits(fault)
    assert await appended(log, item) == [[[Accepted(0, 0), Accepted(2, 0)]]]
    assert [e.end_offset for e in await stored_entries(inner, 1)] == [5]
    assert await appended(log, stored(marker, {1: [batch(1)]})) == [[[Accepted(5, 0)]]]


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
async def test_an_unknown_outcome_of_refused_batches_is_found_out(fault: Fault) -> None:
    store = FaultyStore(MemoryStore())
    log = domain_log(store)
    marker = await with_streams(log, 1)
    await appended(log, stored(marker, {1: [batch(2, producer=(5, 0, 0))]}))
    store.fail_commits(fault)
    gap = stored(marker, {1: [batch(2, producer=(5, 0, 9))]})
    assert await appended(log, gap) == [[[Refused(Refusal.OUT_OF_ORDER)]]]


async def test_an_outcome_that_cannot_be_read_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("metadata.streams.RESOLVE_RETRY_S", 0.001)
    store = FaultyStore(MemoryStore())
    log = domain_log(store)
    marker = await with_streams(log, 1)
    store.fail_commits(Fault.LOST_ANSWER)
    store.fail_reads(3)
    assert await appended(log, stored(marker, {1: [batch(2)]})) == [[[Accepted(0, 0)]]]


async def test_nothing_is_remembered_of_a_commit_that_failed() -> None:
    store = FaultyStore(MemoryStore())
    log = domain_log(store)
    marker = await with_streams(log, 1)
    item = stored(marker, {1: [batch(2, producer=(5, 0, 0))]})
    store.fail_commits(Fault.UNAVAILABLE)
    with pytest.raises(Unavailable):
        await log.append([item])
    assert (await log.stream(1)).head.log_end == 0
    assert await appended(log, item) == [[[Accepted(0, 0)]]]


async def test_an_object_without_its_marker_is_written_again() -> None:
    store = MemoryStore()
    log, collector = domain_log(store), domain_log(store)
    gone, kept = await with_streams(log, 1, 2), await marked(log)
    await collector.remove_marker(gone)
    results = await log.append([stored(gone, {1: [batch()]}), stored(kept, {2: [batch()]})])
    assert results[0] is None
    assert results[1] is not None and results[1].outcomes == [[Accepted(0, 0)]]
    assert await stored_entries(store, 1) == []


async def test_a_fenced_marker_is_as_good_as_none() -> None:
    store = MemoryStore()
    log = domain_log(store)
    marker = await with_streams(log, 1)
    found = await store.get(marker, scope=SCOPE)
    assert found is not None
    old = decode(Marker, found.value)
    fenced = Marker(old.broker_id, old.incarnation, old.base, old.count, "", 0, fenced_ms=5)
    await store.commit(SCOPE, [], [Put(marker, encode(fenced))])
    assert await log.append([stored(marker, {1: [batch()]})]) == [None]
    assert await stored_entries(store, 1) == []


async def test_what_follows_a_fenced_object_in_its_stream_waits_for_it() -> None:
    """Or the later object's batches would come first in the log."""
    store = MemoryStore()
    log, collector = domain_log(store), domain_log(store)
    gone, kept = await with_streams(log, 1, 2, 3), await marked(log)
    await collector.remove_marker(gone)
    results = await log.append(
        [
            stored(gone, {1: [batch()]}),
            stored(kept, {1: [batch()], 2: [batch()]}),
            stored(kept, {2: [batch()]}),
            stored(kept, {3: [batch()]}),
        ]
    )
    assert [result is None for result in results] == [True, True, True, False]
    assert await stored_entries(store, 1) == await stored_entries(store, 2) == []


async def test_an_object_with_nothing_accepted_is_garbage() -> None:
    store = MemoryStore()
    clock = Clock()
    log = domain_log(store, clock)
    marker = await with_streams(log, 1)
    first = {1: [batch(producer=(5, 0, 0))]}
    await appended(log, stored(marker, first))
    again = stored(marker, first)
    await appended(log, again)
    assert await store.get(keys.wal_object(0, again.wal_id), scope=SCOPE) is None
    found = await store.get(keys.garbage_object(0, again.wal_id), scope=SCOPE)
    assert found is not None
    assert decode(Garbage, found.value) == Garbage(again.path, clock.now_ms + GRACE_MS)


async def test_an_object_record_names_the_streams_that_took_something() -> None:
    store = MemoryStore()
    log = domain_log(store)
    marker = await with_streams(log, 1, 2)
    first = {1: [batch(producer=(5, 0, 0))]}
    await appended(log, stored(marker, first))
    item = stored(marker, {**first, 2: [batch()], 3: [batch()]})
    assert await appended(log, item) == [
        [[Duplicate(0, 0)], [Accepted(0, 0)], [Refused(Refusal.STREAM_GONE)]]
    ]
    found = await store.get(keys.wal_object(0, item.wal_id), scope=SCOPE)
    assert found is not None
    record = decode(WalObject, found.value)
    assert (record.path, record.size, record.streams) == (item.path, item.size, (2,))


async def test_nothing_is_appended_once_a_stream_is_marked_deleted() -> None:
    state = MemoryState()
    here, there = domain_log(MemoryStore(state)), domain_log(MemoryStore(state))
    marker = await with_streams(here, 1)
    await there.change_head(1, lambda head: StreamHead(TOPIC, 1, state=Lifecycle.DELETING))
    item = stored(marker, {1: [batch()]})
    assert await appended(here, item) == [[[Refused(Refusal.STREAM_GONE)]]]
    assert await stored_entries(MemoryStore(state), 1) == []


async def test_a_stream_deleted_while_appending_takes_all_or_nothing() -> None:
    state = MemoryState()
    here, there = domain_log(MemoryStore(state)), domain_log(MemoryStore(state))
    marker = await with_streams(here, 1)
    acknowledged = 0

    async def write() -> None:
        nonlocal acknowledged
        while True:
            ((outcomes,),) = await appended(here, stored(marker, {1: [batch()]}))
            if outcomes == [Refused(Refusal.STREAM_GONE)]:
                return
            acknowledged += 1
            for _ in range(acknowledged % 7):
                await asyncio.sleep(0)

    task = asyncio.create_task(write())
    while acknowledged < 5:
        await asyncio.sleep(0)

    def marked_deleted(head: StreamHead) -> StreamHead:
        return StreamHead(TOPIC, 1, log_end=head.log_end, state=Lifecycle.DELETING)

    head = await there.change_head(1, marked_deleted)
    at_deletion = head.log_end
    await task
    assert acknowledged == at_deletion == len(await stored_entries(MemoryStore(state), 1))


async def test_a_missing_stream_is_said_to_be_missing() -> None:
    log = domain_log(MemoryStore())
    with pytest.raises(StreamMissing):
        await log.stream(1)
    await with_streams(log, 1)
    with pytest.raises(Conflict):
        await log.create_streams([(1, StreamHead(TOPIC, 1))])


async def test_a_head_is_left_alone_when_its_change_says_so() -> None:
    store = FaultyStore(MemoryStore())
    log = domain_log(store)
    await with_streams(log, 1)
    store.hold_commits()
    assert await log.change_head(1, lambda head: None) == StreamHead(TOPIC, 1)


async def test_a_change_of_unknown_outcome_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("metadata.streams.RESOLVE_RETRY_S", 0.001)
    store = FaultyStore(MemoryStore())
    log = domain_log(store)
    await with_streams(log, 1)
    seen: list[int] = []

    def grow(head: StreamHead) -> StreamHead | None:
        seen.append(head.log_end)
        return None if head.log_end else StreamHead(TOPIC, 1, log_end=4)

    store.fail_commits(Fault.LOST_ANSWER)
    assert (await log.change_head(1, grow)).log_end == 4
    assert seen == [0, 4]


async def test_only_so_many_producers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metadata.streams.KNOWN_PRODUCERS", 10)
    store = MemoryStore()
    log = domain_log(store)
    marker = await with_streams(log, 1, 2)
    for number in range(0, 60, 3):
        chunks = {n: [batch(producer=(p, 0, 0)) for p in range(number, number + 3)] for n in (1, 2)}
        await appended(log, stored(marker, chunks))
    again = stored(marker, {1: [batch(producer=(p, 0, 0)) for p in range(60)]})
    assert await appended(log, again) == [[[Duplicate(p, 0) for p in range(60)]]]
    assert len([state for known in log._producers.values() for state in known]) <= 10


async def test_markers_stand_before_use_and_go_when_told() -> None:
    store = MemoryStore()
    log = domain_log(store)
    marker = await marked(log)
    assert await keys_under(store, keys.staging(0)) == [marker]
    await log.remove_marker(marker)
    assert await keys_under(store, keys.staging(0)) == []


async def test_a_producer_that_expired_starts_anew() -> None:
    store = MemoryStore()
    clock = Clock()
    log = domain_log(store, clock)
    marker = await with_streams(log, 1)
    await appended(log, stored(marker, {1: [batch(producer=(5, 3, 0))]}))
    clock.now_ms += 1000
    gap = {1: [batch(producer=(5, 3, 77))]}
    assert await appended(log, stored(marker, gap)) == [[[Refused(Refusal.OUT_OF_ORDER)]]]
    clock.now_ms += 1
    assert await appended(log, stored(marker, gap)) == [[[Accepted(1, 0)]]]
    state = await stored_producer(store, 1, 5)
    assert state is not None and [kept.base_sequence for kept in state.batches] == [77]


async def test_a_producer_whose_key_was_removed_is_unknown_to_a_new_broker() -> None:
    store = MemoryStore()
    log = domain_log(store)
    marker = await with_streams(log, 1)
    await appended(log, stored(marker, {1: [batch(producer=(5, 3, 0))]}))
    await store.commit(SCOPE, [], [Delete(keys.producer(0, 1, 5))])
    late = stored(marker, {1: [batch(producer=(5, 2, 40))]})
    assert await appended(domain_log(store), late) == [[[Accepted(1, 0)]]]


def test_ids_of_a_range_differ_in_their_last_four_bytes() -> None:
    base = UUID(int=0x0123456789ABCDEF0123456700000000)
    assert wal_id(base, 258) == UUID(int=0x0123456789ABCDEF0123456700000102)
