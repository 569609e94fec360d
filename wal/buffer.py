"""What waits for the next flush of one MetaDomain, in the order in which it was asked for.

A place (`Ticket`) is reserved when a produce frame is read, before its batch is checked, because
checking may have to wait. `seal` takes filled tickets in order and leaves out every stream from
its first unfilled ticket on, so the order of requests is the order in the log.

Pure: no clock, no event loop; time comes in.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

LENGTH_PREFIX = 4
# What the metadata commit of a flush grows by, roughly: an index entry with its head, and the
# state of a producer. A flush is sealed before its commit becomes too large to send.
COMMIT_BYTES_PER_STREAM = 400
COMMIT_BYTES_PER_PRODUCER = 200


class Batch(NamedTuple):
    """A checked record batch on its way into the log."""

    data: memoryview
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    owned_bytes: int
    """The size of the buffer that `data` keeps alive."""


class State(IntEnum):
    RESERVED = 0
    FILLED = 1
    DROPPED = 2


@dataclass(slots=True, eq=False)
class Ticket:
    """One partition's place in the order. `owner` and `slot` are the caller's own."""

    stream_id: int
    owner: object
    slot: int
    state: State = State.RESERVED
    batch: Batch | None = None


@dataclass(slots=True)
class Sealed:
    """The tickets of one WAL object: streams in ascending order, each in request order."""

    streams: dict[int, list[Ticket]]
    size: int
    commit_bytes: int
    """About what its metadata commit takes."""


class Buffer:
    def __init__(self, *, max_bytes: int, max_commit_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.max_commit_bytes = max_commit_bytes
        self._tickets: deque[Ticket] = deque()
        self._open = 0
        self._ready_bytes = 0
        self._commit_bytes = 0
        self._streams: set[int] = set()
        self._producers: set[tuple[int, int]] = set()
        self._oldest_ms: float | None = None

    def __len__(self) -> int:
        """Tickets that are reserved or filled."""
        return self._open

    @property
    def ready_bytes(self) -> int:
        """Bytes of filled tickets."""
        return self._ready_bytes

    @property
    def oldest_ms(self) -> float | None:
        """When the first ticket was filled since the last seal that left nothing ready."""
        return self._oldest_ms

    @property
    def full(self) -> bool:
        return self._ready_bytes >= self._max_bytes or self._commit_bytes >= self.max_commit_bytes

    def reserve(self, stream_id: int, owner: object, slot: int) -> Ticket:
        ticket = Ticket(stream_id, owner, slot)
        self._tickets.append(ticket)
        self._open += 1
        return ticket

    def fill(self, ticket: Ticket, batch: Batch, now_ms: float) -> None:
        assert ticket.state is State.RESERVED
        ticket.state = State.FILLED
        ticket.batch = batch
        self._count(ticket.stream_id, batch)
        if self._oldest_ms is None:
            self._oldest_ms = now_ms

    def drop(self, ticket: Ticket) -> None:
        """The batch was refused: its place is given up."""
        assert ticket.state is State.RESERVED
        ticket.state = State.DROPPED
        self._open -= 1
        while self._tickets and self._tickets[0].state is State.DROPPED:
            self._tickets.popleft()

    def seal(self, now_ms: float) -> Sealed | None:
        """Takes what may be flushed now, up to the size limits (at least one batch)."""
        taken: dict[int, list[Ticket]] = {}
        left: deque[Ticket] = deque()
        blocked: set[int] = set()
        producers: set[tuple[int, int]] = set()
        size = commit_bytes = 0
        tickets = self._tickets
        while tickets:
            ticket = tickets.popleft()
            if ticket.state is State.DROPPED:
                continue
            batch = ticket.batch
            if batch is None or ticket.stream_id in blocked:
                blocked.add(ticket.stream_id)
                left.append(ticket)
                continue
            of_stream = taken.get(ticket.stream_id)
            length = LENGTH_PREFIX + len(batch.data)
            added = 0 if of_stream is not None else COMMIT_BYTES_PER_STREAM
            producer = (ticket.stream_id, batch.producer_id)
            if batch.producer_id >= 0 and producer not in producers:
                added += COMMIT_BYTES_PER_PRODUCER
            if size and (
                size + length > self._max_bytes or commit_bytes + added > self.max_commit_bytes
            ):
                left.append(ticket)
                break
            self._open -= 1
            size += length
            commit_bytes += added
            producers.add(producer)
            if of_stream is None:
                taken[ticket.stream_id] = [ticket]
            else:
                of_stream.append(ticket)
        left.extend(tickets)
        self._tickets = left
        self._recount(now_ms)
        if not taken:
            return None
        return Sealed(dict(sorted(taken.items())), size, commit_bytes)

    def _count(self, stream_id: int, batch: Batch) -> None:
        self._ready_bytes += LENGTH_PREFIX + len(batch.data)
        if stream_id not in self._streams:
            self._streams.add(stream_id)
            self._commit_bytes += COMMIT_BYTES_PER_STREAM
        producer = (stream_id, batch.producer_id)
        if batch.producer_id >= 0 and producer not in self._producers:
            self._producers.add(producer)
            self._commit_bytes += COMMIT_BYTES_PER_PRODUCER

    def _recount(self, now_ms: float) -> None:
        self._ready_bytes = self._commit_bytes = 0
        self._streams.clear()
        self._producers.clear()
        self._oldest_ms = None
        for ticket in self._tickets:
            if ticket.batch is not None:
                self._count(ticket.stream_id, ticket.batch)
                self._oldest_ms = now_ms
