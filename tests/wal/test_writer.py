"""The writer: flushes, orders, repeats and gives up, over a store that fails on demand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from wal.buffer import Batch, Buffer, Sealed, Ticket
from wal.faulty import Fault, Faulty, Gate
from wal.format import decode
from wal.objectstore import Unavailable, open_store
from wal.writer import MAX_OBJECTS_PER_COMMIT, Name, Policy, Writer, Written

HOUR_MS = 3_600_000.0
FULL = 1000


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wal.writer.FIRST_BACKOFF_S", 0.001)
    monkeypatch.setattr("wal.writer.MAX_BACKOFF_S", 0.01)


class Names:
    def __init__(self) -> None:
        self.taken: list[Name] = []
        self.settled_names: list[Name] = []
        self.fenced_names: list[Name] = []
        self.failures = 0

    async def take(self) -> Name:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise Unavailable("no marker")
        number = len(self.taken)
        self.taken.append(Name(UUID(int=number), f"wal/{number}.wo", f"marker-{number // 8}"))
        return self.taken[-1]

    def settled(self, name: Name) -> None:
        self.settled_names.append(name)

    def fenced(self, name: Name) -> None:
        self.fenced_names.append(name)


class Sink:
    """Remembers what it is given; each batch holds its slot as text."""

    def __init__(self, store: Faulty) -> None:
        self.store = store
        self.commits: list[list[Written]] = []
        self.delivered: list[int] = []
        self.failed: list[int] = []
        self.fence = 0
        """So many objects are refused because of their marker."""
        self.unavailable = 0
        self.gate: Gate | None = None
        self.under_way = 0

    async def commit(self, objects: Sequence[Written]) -> Sequence[str | None]:
        assert not self.under_way, "two commits at once"
        self.under_way += 1
        try:
            await asyncio.sleep(0)
            if self.gate is not None:
                await self.gate.pass_through()
            if self.unavailable:
                self.unavailable -= 1
                raise Unavailable("no metadata")
            for written in objects:
                await self._check(written)
        finally:
            self.under_way -= 1
        self.commits.append(list(objects))
        results: list[str | None] = []
        held_back: set[int] = set()
        for written in objects:
            # What follows a refused object in a stream is refused with it.
            if self.fence or not held_back.isdisjoint(written.sealed.streams):
                self.fence = max(self.fence - 1, 0)
                held_back |= set(written.sealed.streams)
                results.append(None)
            else:
                results.append("committed")
        return results

    async def _check(self, written: Written) -> None:
        """The object is there, whole, and holds what it should where it should."""
        data = await self.store.get(written.name.path)
        assert len(data) == written.size
        found = decode(data)
        assert found.header.wal_id == written.name.wal_id
        expected = {
            stream_id: [ticket.batch.data for ticket in tickets if ticket.batch]
            for stream_id, tickets in written.sealed.streams.items()
        }
        assert {chunk.stream_id: list(chunk.batches) for chunk in found.chunks} == expected
        for entry, placed in zip(found.entries, written.chunks, strict=True):
            assert (entry.offset, entry.length) == tuple(placed)

    def deliver(self, written: Written, result: str) -> None:
        assert result == "committed"
        self.delivered += slots(written.sealed)

    def fail(self, sealed: Sealed, error: Exception) -> None:
        self.failed += slots(sealed)


def slots(sealed: Sealed) -> list[int]:
    return [ticket.slot for tickets in sealed.streams.values() for ticket in tickets]


class Setup:
    def __init__(self, policy: Policy, max_bytes: int) -> None:
        self.store = Faulty(open_store("memory://"))
        self.names = Names()
        self.sink = Sink(self.store)
        buffer = Buffer(max_bytes=max_bytes, max_commit_bytes=10**9)
        self.writer: Writer[str] = Writer(
            0, buffer, self.store, self.names, self.sink, policy, now_ms=lambda: 5
        )
        self.slot = 0

    def reserve(self, stream_id: int = 1) -> Ticket:
        self.slot += 1
        return self.writer.reserve(stream_id, None, self.slot - 1)

    def fill(self, ticket: Ticket, size: int = 10) -> None:
        data = memoryview(b"%d" % ticket.slot + bytes(size))
        self.writer.fill(ticket, Batch(data, 1, 0, 0, -1, -1, -1, len(data)))

    def put(self, stream_id: int = 1, size: int = 10) -> int:
        ticket = self.reserve(stream_id)
        self.fill(ticket, size)
        return ticket.slot

    async def delivered(self, *expected: int) -> None:
        """Waits until exactly these were delivered, in any order."""
        await until(lambda: set(self.sink.delivered) >= set(expected))
        assert sorted(self.sink.delivered) == sorted(expected)


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.0005)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(
    *,
    max_bytes: int = 10**6,
    max_in_flight: int = 4,
    linger_ms: float = HOUR_MS,
    min_linger_ms: float = 0,
    put_timeout_s: float = 60,
    hedge_after_s: float | None = None,
) -> AsyncIterator[Setup]:
    policy = Policy(linger_ms, min_linger_ms, max_in_flight, put_timeout_s, hedge_after_s)
    here = Setup(policy, max_bytes)
    task = asyncio.create_task(here.writer.run())
    await asyncio.sleep(0)
    try:
        yield here
    finally:
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- when it flushes ---------------------------------------------------------------------------


async def test_an_idle_writer_flushes_at_once_what_arrived_together() -> None:
    async with running() as here:
        for stream_id in (2, 1, 2):
            here.put(stream_id)
        await here.delivered(0, 1, 2)
        assert here.store.calls["put"] == 1
        assert here.names.settled_names == here.names.taken


async def test_a_busy_writer_gathers_until_it_is_idle_again() -> None:
    async with running() as here:
        gate = here.store.hold("put")
        here.put()
        await gate.reached.wait()
        for _ in range(5):
            here.put()
            await turns()
        assert here.store.calls["put"] == 1
        gate.open()
        await here.delivered(*range(6))
        assert here.store.calls["put"] == 2


async def test_a_busy_writer_does_not_linger_for_ever() -> None:
    async with running(linger_ms=1) as here:
        gate = here.store.hold("put")
        here.put(1)
        await gate.reached.wait()
        here.put(2)
        await here.delivered(1)
        gate.open()
        await here.delivered(0, 1)


async def test_full_objects_are_put_side_by_side_up_to_the_limit() -> None:
    async with running(max_bytes=FULL, max_in_flight=3) as here:
        gate = here.store.hold("put", 10)
        for stream_id in range(10):
            here.put(stream_id, FULL)
            await turns()
        assert here.store.calls["put"] == here.writer.in_flight == 3
        gate.open()
        await here.delivered(*range(10))


async def test_a_least_linger_is_kept_even_when_idle() -> None:
    async with running(min_linger_ms=HOUR_MS, max_bytes=FULL) as here:
        here.put(size=10)
        await turns()
        assert here.store.calls["put"] == 0 and here.writer.buffered_bytes
        here.put(size=FULL)
        await here.delivered(0, 1)
        assert here.store.calls["put"] == 2


# -- in which order ----------------------------------------------------------------------------


async def test_objects_that_share_a_stream_are_committed_in_order_and_others_overtake() -> None:
    async with running(max_bytes=FULL) as here:
        slow = here.store.hold("put")
        first = here.put(1, FULL)
        await slow.reached.wait()
        second = here.put(1, FULL)
        await until(lambda: here.store.calls["put"] == 2 and here.writer.in_flight == 1)
        other = here.put(2, FULL)
        await here.delivered(other)
        slow.open()
        await here.delivered(other, first, second)
        assert here.sink.delivered == [other, first, second]


async def test_order_goes_through_objects_that_are_held_up_themselves() -> None:
    """The second shares a stream with the first, the third with the second."""
    async with running(max_bytes=FULL) as here:
        slow = here.store.hold("put")
        here.put(1, FULL)
        await slow.reached.wait()
        tickets = [here.reserve(1), here.reserve(2), here.reserve(2)]
        here.fill(tickets[0], 400)
        here.fill(tickets[1], 590)
        await until(lambda: here.writer.in_flight == 1 and here.store.calls["put"] == 2)
        here.fill(tickets[2], FULL)
        await until(lambda: here.store.calls["put"] == 3 and here.writer.in_flight == 1)
        await turns()
        assert here.sink.delivered == []
        slow.open()
        await here.delivered(0, 1, 2, 3)
        assert here.sink.delivered == [0, 1, 2, 3]


async def test_what_is_ready_is_committed_together() -> None:
    async with running(max_bytes=100, max_in_flight=100) as here:
        here.sink.gate = gate = Gate()
        here.put(1, 90)
        await gate.reached.wait()
        for _ in range(MAX_OBJECTS_PER_COMMIT + 5):
            here.put(1, 99)
        puts = MAX_OBJECTS_PER_COMMIT + 6
        await until(lambda: here.store.calls["put"] == puts and here.writer.in_flight == 0)
        gate.open()
        await here.delivered(*range(MAX_OBJECTS_PER_COMMIT + 6))
        assert [len(commit) for commit in here.sink.commits] == [1, MAX_OBJECTS_PER_COMMIT, 5]
        assert here.sink.delivered == list(range(MAX_OBJECTS_PER_COMMIT + 6))


async def test_a_stream_waits_for_its_unfilled_place() -> None:
    async with running() as here:
        first = here.reserve(1)
        here.put(1)
        here.put(2)
        await here.delivered(2)
        here.fill(first)
        await here.delivered(2, 0, 1)
        assert here.sink.delivered == [2, 0, 1]


async def test_a_dropped_place_lets_the_stream_go_on() -> None:
    async with running() as here:
        first = here.reserve(1)
        here.put(1)
        await turns()
        assert here.sink.delivered == []
        here.writer.drop(first)
        await here.delivered(1)


# -- what fails --------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER])
async def test_a_put_that_fails_is_repeated_under_another_name(fault: Fault) -> None:
    async with running() as here:
        here.store.plan("put", fault, times=3)
        here.put()
        await here.delivered(0)
        assert len(here.names.taken) == 4
        assert here.names.settled_names == here.names.taken[3:]


async def test_a_name_that_cannot_be_had_is_asked_for_again() -> None:
    async with running() as here:
        here.names.failures = 2
        here.put()
        await here.delivered(0)


async def test_somebody_elses_object_is_left_alone() -> None:
    async with running() as here:
        await here.store.put("wal/0.wo", [b"not ours"])
        here.put()
        await here.delivered(0)
        assert await here.store.get("wal/0.wo") == b"not ours"
        assert here.names.settled_names == here.names.taken[1:]


async def test_after_its_deadline_an_object_is_given_up_and_the_queue_moves_on() -> None:
    async with running(max_bytes=FULL, put_timeout_s=0.05) as here:
        here.store.hold("put")
        here.put(1, FULL)
        await turns()
        here.put(1, FULL)
        await until(lambda: here.sink.failed)
        assert here.sink.failed == [0]
        await here.delivered(1)
        here.put(1)
        await here.delivered(1, 2)
        assert here.names.taken[0] not in here.names.settled_names


async def test_a_store_that_is_down_fails_what_waits_and_recovers() -> None:
    async with running(put_timeout_s=0.05) as here:
        here.store.plan("put", Fault.FAIL, times=10**4)
        here.put()
        await until(lambda: here.sink.failed == [0])
        here.store.clear()
        here.put()
        await here.delivered(1)


async def test_a_commit_that_fails_is_told_to_those_who_wait_and_the_next_succeeds() -> None:
    async with running() as here:
        here.sink.unavailable = 1
        here.put()
        await until(lambda: here.sink.failed)
        here.put()
        await here.delivered(1)
        assert here.sink.failed == [0]
        assert here.names.settled_names == here.names.taken[1:]


async def test_a_fenced_object_is_written_again_in_its_place() -> None:
    async with running(max_bytes=FULL) as here:
        here.sink.fence = 1
        here.sink.gate = gate = Gate()
        here.put(1, FULL)
        await gate.reached.wait()
        here.put(1, FULL)
        await until(lambda: here.store.calls["put"] == 2 and here.writer.in_flight == 0)
        gate.open()
        await here.delivered(0, 1)
        assert here.sink.delivered == [0, 1]
        assert here.names.fenced_names == here.names.taken[:1]
        assert sorted(here.names.settled_names) == sorted(here.names.taken[1:])


async def test_a_slow_put_is_tried_a_second_time_side_by_side() -> None:
    async with running(hedge_after_s=0.001) as here:
        gate = here.store.hold("put")
        here.put()
        await here.delivered(0)
        assert here.store.calls["put"] == 2
        assert [written.name for written in here.sink.commits[0]] == here.names.taken[1:]
        gate.open()
        await turns()
        assert here.sink.delivered == [0] and here.sink.failed == []


async def test_the_first_of_two_attempts_may_win() -> None:
    async with running(hedge_after_s=0.001) as here:
        first, second = here.store.hold("put"), here.store.hold("put")
        here.put()
        await second.reached.wait()
        first.open()
        await here.delivered(0)
        assert [written.name for written in here.sink.commits[0]] == here.names.taken[:1]


async def test_when_both_attempts_fail_it_is_repeated() -> None:
    async with running(hedge_after_s=0.001) as here:
        first, second = here.store.hold("put"), here.store.hold("put")
        here.put()
        await second.reached.wait()
        # Both meet the other's name when they are let go.
        for name in here.names.taken:
            await here.store._store.put(name.path, [b"taken"])
        first.open()
        second.open()
        await here.delivered(0)
        assert len(here.names.taken) >= 3


async def test_a_quick_failure_is_not_hedged() -> None:
    async with running(hedge_after_s=60) as here:
        here.store.plan("put", Fault.FAIL)
        here.put()
        await here.delivered(0)
        assert here.store.calls["put"] == 2


# -- how it ends -------------------------------------------------------------------------------


async def test_draining_flushes_what_lingers_and_waits_for_it() -> None:
    async with running(min_linger_ms=HOUR_MS) as here:
        here.put()
        await turns()
        assert here.store.calls["put"] == 0
        async with asyncio.timeout(30):
            await here.writer.drain()
        assert here.sink.delivered == [0]


async def test_draining_waits_for_places_that_are_not_filled_yet() -> None:
    async with running() as here:
        first, second = here.reserve(1), here.reserve(2)
        drained = asyncio.create_task(here.writer.drain())
        await turns()
        assert not drained.done()
        here.fill(first)
        await here.delivered(0)
        assert not drained.done()
        here.writer.drop(second)
        async with asyncio.timeout(30):
            await drained


async def test_draining_with_nothing_to_do_ends_at_once() -> None:
    async with running() as here:
        async with asyncio.timeout(30):
            await here.writer.drain()
            here.put()
            await here.writer.drain()
        assert here.sink.delivered == [0]


async def test_draining_ends_when_all_failed() -> None:
    async with running(put_timeout_s=0.02) as here:
        here.store.plan("put", Fault.FAIL, times=10**4)
        for stream_id in range(5):
            here.put(stream_id)
        async with asyncio.timeout(30):
            await here.writer.drain()
        assert sorted(here.sink.failed) == list(range(5))


async def test_what_was_not_flushed_when_it_is_stopped_is_left_alone() -> None:
    async with running(max_bytes=FULL, max_in_flight=1) as here:
        gate = here.store.hold("put")
        here.put(1, FULL)
        await gate.reached.wait()
        here.put(1, FULL)
        await turns()
    await turns()
    assert here.store.calls["put"] == 1 and here.sink.delivered == here.sink.failed == []


async def test_what_came_before_it_ran_is_flushed_when_it_does() -> None:
    here = Setup(Policy(0, 0, 1, 60, None), FULL)
    here.put()
    await turns()
    task = asyncio.create_task(here.writer.run())
    await here.delivered(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# -- all of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_everything_is_answered_once_and_streams_stay_in_order(
    seed: int,
) -> None:
    chance = random.Random(seed)
    async with running(
        max_bytes=2000,
        linger_ms=1,
        put_timeout_s=30,
        hedge_after_s=0.002 if seed % 2 else None,
    ) as here:
        stream_of: dict[int, int] = {}
        open_tickets: list[Ticket] = []
        dropped: set[int] = set()
        gates: list[Gate] = []
        for _ in range(400):
            match chance.randrange(12):
                case 0:
                    here.store.plan("put", chance.choice(list(Fault)))
                case 1:
                    gates.append(here.store.hold("put"))
                case 2:
                    here.sink.fence += 1
                case 3:
                    here.sink.unavailable += chance.randrange(2)
                case 4 if gates:
                    gates.pop(chance.randrange(len(gates))).open()
                case _:
                    ticket = here.reserve(chance.randrange(5))
                    stream_of[ticket.slot] = ticket.stream_id
                    open_tickets.append(ticket)
            if open_tickets and chance.random() < 0.7:
                ticket = open_tickets.pop(chance.randrange(len(open_tickets)))
                if chance.random() < 0.1:
                    here.writer.drop(ticket)
                    dropped.add(ticket.slot)
                else:
                    here.fill(ticket, chance.randrange(600))
            if chance.random() < 0.2:
                await turns(chance.randrange(10))
        for ticket in open_tickets:
            here.fill(ticket)
        here.store.clear()
        for gate in gates:
            gate.open()
        async with asyncio.timeout(60):
            await here.writer.drain()
        told = here.sink.delivered + here.sink.failed
        assert sorted(told) == sorted(set(stream_of) - dropped)
        for stream_id in range(5):
            in_order = [slot for slot in here.sink.delivered if stream_of[slot] == stream_id]
            assert in_order == sorted(in_order)
        committed = [written.name for commit in here.sink.commits for written in commit]
        assert len(committed) == len(set(committed))
