"""The buffer: order, completeness and limits under any interleaving."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from wal.buffer import (
    COMMIT_BYTES_PER_PRODUCER,
    COMMIT_BYTES_PER_STREAM,
    LENGTH_PREFIX,
    Batch,
    Buffer,
    Sealed,
    State,
    Ticket,
)

MAX_BYTES = 500
MAX_COMMIT_BYTES = 3 * COMMIT_BYTES_PER_STREAM


def batch(size: int = 10, producer_id: int = -1) -> Batch:
    return Batch(memoryview(bytes(size)), 1, 0, 0, producer_id, 0, 0, size)


def tickets_of(sealed: Sealed) -> list[Ticket]:
    return [ticket for tickets in sealed.streams.values() for ticket in tickets]


def commit_bytes(tickets: list[Ticket]) -> int:
    streams = {ticket.stream_id for ticket in tickets}
    producers = {
        (ticket.stream_id, ticket.batch.producer_id)
        for ticket in tickets
        if ticket.batch is not None and ticket.batch.producer_id >= 0
    }
    return len(streams) * COMMIT_BYTES_PER_STREAM + len(producers) * COMMIT_BYTES_PER_PRODUCER


def length_of(ticket: Ticket) -> int:
    assert ticket.batch is not None
    return LENGTH_PREFIX + len(ticket.batch.data)


class BufferMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer(max_bytes=MAX_BYTES, max_commit_bytes=MAX_COMMIT_BYTES)
        self.waiting: list[Ticket] = []
        """What is in the buffer, in order."""
        self.numbers = count()
        self.last_of_stream: dict[int, int] = {}
        self.now_ms = 0.0
        self.ready_since: float | None = None

    @rule(stream_id=st.integers(1, 4), times=st.integers(1, 3))
    def reserve(self, stream_id: int, times: int) -> None:
        for _ in range(times):
            self.waiting.append(self.buffer.reserve(stream_id, self, next(self.numbers)))

    def reserved(self) -> list[Ticket]:
        return [ticket for ticket in self.waiting if ticket.state is State.RESERVED]

    @precondition(lambda self: self.reserved())
    @rule(
        data=st.data(), size=st.sampled_from([1, 100, 240, 496, 600]), producer=st.integers(-1, 2)
    )
    def fill(self, data: st.DataObject, size: int, producer: int) -> None:
        self.now_ms += 1
        ticket = data.draw(st.sampled_from(self.reserved()))
        self.buffer.fill(ticket, batch(size, producer), self.now_ms)
        if self.ready_since is None:
            self.ready_since = self.now_ms

    @precondition(lambda self: self.reserved())
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.reserved()))
        self.buffer.drop(ticket)
        self.waiting.remove(ticket)

    @rule()
    def seal(self) -> None:
        self.now_ms += 1
        expected = self.sealable()
        sealed = self.buffer.seal(self.now_ms)
        if sealed is None:
            assert not expected
        else:
            taken = tickets_of(sealed)
            assert sorted(ticket.slot for ticket in taken) == [t.slot for t in expected]
            assert list(sealed.streams) == sorted(sealed.streams)
            assert sealed.size == sum(map(length_of, taken))
            for stream_id, tickets in sealed.streams.items():
                assert all(ticket.stream_id == stream_id for ticket in tickets)
                for ticket in tickets:
                    # In order, none twice, over all seals.
                    assert ticket.slot > self.last_of_stream.get(stream_id, -1)
                    self.last_of_stream[stream_id] = ticket.slot
            self.waiting = [ticket for ticket in self.waiting if ticket not in taken]
        filled = any(ticket.state is State.FILLED for ticket in self.waiting)
        self.ready_since = self.now_ms if filled else None

    def sealable(self) -> list[Ticket]:
        """Filled, with nothing unfilled before it in its stream, up to the limits."""
        taken: list[Ticket] = []
        blocked: set[int] = set()
        for ticket in self.waiting:
            if ticket.state is State.RESERVED:
                blocked.add(ticket.stream_id)
            elif ticket.stream_id not in blocked:
                more = [*taken, ticket]
                if taken and (
                    sum(map(length_of, more)) > MAX_BYTES or commit_bytes(more) > MAX_COMMIT_BYTES
                ):
                    break
                taken = more
        return taken

    @invariant()
    def counts_are_right(self) -> None:
        filled = [ticket for ticket in self.waiting if ticket.state is State.FILLED]
        assert len(self.buffer) == len(self.waiting)
        assert self.buffer.ready_bytes == sum(map(length_of, filled))
        assert self.buffer.oldest_ms == self.ready_since
        full = self.buffer.ready_bytes >= MAX_BYTES or commit_bytes(filled) >= MAX_COMMIT_BYTES
        assert self.buffer.full == full


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(max_examples=60, stateful_step_count=40)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 300)), max_size=40))
def test_everything_comes_out_in_the_end(asked: list[tuple[int, int]]) -> None:
    buffer = Buffer(max_bytes=MAX_BYTES, max_commit_bytes=MAX_COMMIT_BYTES)
    for slot, (stream_id, size) in enumerate(asked):
        buffer.fill(buffer.reserve(stream_id, None, slot), batch(size), 0.0)
    out: Counter[int] = Counter()
    while (sealed := buffer.seal(0.0)) is not None:
        assert sealed.size <= MAX_BYTES or len(tickets_of(sealed)) == 1
        out.update(ticket.slot for ticket in tickets_of(sealed))
    assert out == Counter(range(len(asked)))
    assert len(buffer) == buffer.ready_bytes == 0 and buffer.oldest_ms is None


def test_a_stream_waits_for_its_unfilled_ticket_and_others_do_not() -> None:
    buffer = Buffer(max_bytes=MAX_BYTES, max_commit_bytes=10_000)
    first = buffer.reserve(1, None, 0)
    second = buffer.reserve(1, None, 1)
    other = buffer.reserve(2, None, 2)
    buffer.fill(second, batch(), 0)
    buffer.fill(other, batch(), 0)
    sealed = buffer.seal(1)
    assert sealed is not None and list(sealed.streams) == [2]
    assert buffer.seal(2) is None
    buffer.fill(first, batch(), 3)
    sealed = buffer.seal(4)
    assert sealed is not None and sealed.streams == {1: [first, second]}


def test_a_dropped_ticket_lets_its_stream_go_on() -> None:
    buffer = Buffer(max_bytes=MAX_BYTES, max_commit_bytes=10_000)
    first, second = buffer.reserve(1, None, 0), buffer.reserve(1, None, 1)
    buffer.fill(second, batch(), 0)
    buffer.drop(first)
    sealed = buffer.seal(1)
    assert sealed is not None and sealed.streams == {1: [second]}
    assert len(buffer) == 0


@pytest.mark.parametrize("again", ["fill", "drop"])
def test_a_ticket_is_decided_once(again: str) -> None:
    buffer = Buffer(max_bytes=MAX_BYTES, max_commit_bytes=10_000)
    ticket = buffer.reserve(1, None, 0)
    buffer.fill(ticket, batch(), 0)
    with pytest.raises(AssertionError):
        if again == "fill":
            buffer.fill(ticket, batch(), 0)
        else:
            buffer.drop(ticket)


def test_a_batch_that_is_larger_than_the_limit_goes_alone() -> None:
    buffer = Buffer(max_bytes=100, max_commit_bytes=10_000)
    for slot, size in enumerate((5, 1000, 5)):
        buffer.fill(buffer.reserve(1, None, slot), batch(size), 0)
    sizes = []
    while (sealed := buffer.seal(0)) is not None:
        sizes.append(sealed.size)
    assert sizes == [9, 1004, 9]


def test_tiny_batches_of_many_streams_are_limited_by_their_commit() -> None:
    buffer = Buffer(max_bytes=10**9, max_commit_bytes=100 * COMMIT_BYTES_PER_STREAM)
    for slot in range(1000):
        buffer.fill(buffer.reserve(slot, None, slot), batch(1), 0)
    assert buffer.full
    sealed = buffer.seal(0)
    assert sealed is not None and len(sealed.streams) == 100
