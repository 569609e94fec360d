"""The produce path between a decoded request and the log.

`Pending` collects the outcomes of one request's partitions. `DomainSink` commits written objects
to a domain, and hands what was committed to the cache and to waiting fetches before the producer
is answered: whoever has an acknowledgement can read the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from drayd.cache import Cache
from drayd.metrics import Metrics
from drayd.waiters import Waiters
from metadata import store as metastore
from metadata.append import (
    MAX_SEQUENCE,
    Accepted,
    Appended,
    Duplicate,
    Outcome,
    ProducerKey,
    Refusal,
    Refused,
    StoredBatch,
    StoredChunk,
    StoredObject,
)
from metadata.streams import DomainLog
from protocol.errors import ErrorCode
from wal.buffer import LENGTH_PREFIX, Batch, Sealed, Ticket
from wal.objectstore import Unavailable
from wal.writer import Writer, Written

MAX_LOST = 10_000


class PartitionOutcome(NamedTuple):
    code: ErrorCode
    base_offset: int = -1
    log_append_ms: int = -1
    log_start: int = -1
    message: str | None = None


_REFUSALS = {
    Refusal.STREAM_GONE: ErrorCode.unknown_topic_or_partition,
    Refusal.OUT_OF_ORDER: ErrorCode.out_of_order_sequence_number,
    Refusal.OLD_EPOCH: ErrorCode.invalid_producer_epoch,
}


class Pending:
    """A Produce request whose partitions are on their way.

    `done` when it can be answered: all are settled, or the client's deadline has come. `settled`
    when nothing of it is in flight any more: only then is its memory free."""

    __slots__ = ("_left", "_open", "append_ms", "done", "outcomes", "settled")

    def __init__(self, count: int) -> None:
        self.outcomes: list[PartitionOutcome | None] = [None] * count
        self.append_ms: dict[int, int] = {}
        """Slots with LogAppendTime, and their time."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = [True] * count
        self._left = count
        if not count:
            self.done.set_result(None)
            self.settled.set_result(None)

    def settle(self, slot: int, outcome: PartitionOutcome) -> None:
        if not self._open[slot]:
            return
        self._open[slot] = False
        self._left -= 1
        if self.outcomes[slot] is None:
            self.outcomes[slot] = outcome
        if not self._left:
            self.settled.set_result(None)
            if not self.done.done():
                self.done.set_result(None)

    def expire(self) -> None:
        """The client's deadline: whatever becomes of the rest, it won't hear of it."""
        late = PartitionOutcome(ErrorCode.request_timed_out)
        self.outcomes = [outcome or late for outcome in self.outcomes]
        if not self.done.done():
            self.done.set_result(None)


class LostBatches:
    """The first batch that was lost of each idempotent producer, until it comes again.

    Its successors may be on their way already. Where the log knows the producer, their sequence
    numbers show the gap; where it doesn't, only this does."""

    def __init__(self) -> None:
        self._first: dict[ProducerKey, tuple[int, int]] = {}

    def add(self, stream_id: int, batch: Batch) -> None:
        if batch.producer_id < 0:
            return
        key = (stream_id, batch.producer_id)
        known = self._first.pop(key, None)
        if known is None or not self._after(batch, known):
            known = (batch.producer_epoch, batch.base_sequence)
        self._first[key] = known
        if len(self._first) > MAX_LOST:
            del self._first[next(iter(self._first))]

    def come_before(self, stream_id: int, batch: Batch) -> bool:
        first = self._first.get((stream_id, batch.producer_id)) if self._first else None
        return first is not None and self._after(batch, first)

    def settled(self, stream_id: int, batch: Batch) -> None:
        """The log knows the producer now."""
        if self._first:
            self._first.pop((stream_id, batch.producer_id), None)

    @staticmethod
    def _after(batch: Batch, first: tuple[int, int]) -> bool:
        epoch, sequence = first
        # Sequence numbers wrap: what lies less than half a turn ahead comes after.
        ahead = (batch.base_sequence - sequence) & MAX_SEQUENCE
        return batch.producer_epoch == epoch and 0 < ahead <= MAX_SEQUENCE // 2


class DomainSink:
    """Implements wal.writer.Sink for one MetaDomain."""

    def __init__(self, domain: DomainLog, cache: Cache, waiters: Waiters, metrics: Metrics) -> None:
        self._domain = domain
        self._cache = cache
        self._waiters = waiters
        self._metrics = metrics
        self._lost = LostBatches()

    async def commit(self, objects: Sequence[Written]) -> Sequence[Appended | None]:
        started = asyncio.get_running_loop().time()
        try:
            results = await self._domain.append(
                [_stored(written, self._lost) for written in objects]
            )
        except metastore.StoreError as error:
            raise Unavailable(str(error)) from error
        self._metrics.commit_seconds.observe(asyncio.get_running_loop().time() - started)
        self._metrics.commit_objects.observe(len(objects))
        return results

    def deliver(self, written: Written, result: Appended) -> None:
        records = size = 0
        for (stream_id, tickets), outcomes in zip(
            written.sealed.streams.items(), result.outcomes, strict=True
        ):
            grown = 0
            stream = self._domain.cached(stream_id)
            epoch = 0 if stream is None else stream.head.leader_epoch
            for ticket, outcome in zip(tickets, outcomes, strict=True):
                batch = ticket.batch
                if isinstance(outcome, Accepted) and batch is not None:
                    self._lost.settled(stream_id, batch)
                    self._cache.append(stream_id, batch, outcome.base_offset, epoch)
                    grown += len(batch.data)
                    records += batch.record_count
            if grown:
                size += grown
                self._waiters.grew(stream_id, grown)
            log_start = -1 if stream is None else stream.head.log_start
            for ticket, outcome in zip(tickets, outcomes, strict=True):
                _settle(ticket, outcome, log_start)
        self._metrics.produced_bytes.inc(size)
        self._metrics.produced_records.inc(records)

    def fail(self, sealed: Sealed, error: Exception) -> None:
        failed = PartitionOutcome(
            ErrorCode.kafka_storage_error, message=f"the records could not be stored: {error}"
        )
        for stream_id, tickets in sealed.streams.items():
            for ticket in tickets:
                if ticket.batch is not None:
                    self._lost.add(stream_id, ticket.batch)
                _owner(ticket).settle(ticket.slot, failed)


def _owner(ticket: Ticket) -> Pending:
    assert isinstance(ticket.owner, Pending)
    return ticket.owner


def _settle(ticket: Ticket, outcome: Outcome, log_start_now: int) -> None:
    owner = _owner(ticket)
    match outcome:
        case Accepted(base_offset, log_start):
            append_ms = owner.append_ms.get(ticket.slot, -1)
            settled = PartitionOutcome(ErrorCode.none, base_offset, append_ms, log_start)
        case Duplicate(base_offset, log_start):
            # Kafka tells the time of the first attempt here, whatever the timestamps' type.
            first_ms = -1 if ticket.batch is None else ticket.batch.max_timestamp_ms
            settled = PartitionOutcome(ErrorCode.none, base_offset, first_ms, log_start)
        case Refused(reason):
            shown = -1 if reason is Refusal.STREAM_GONE else log_start_now
            settled = PartitionOutcome(_REFUSALS[reason], log_start=shown)
    owner.settle(ticket.slot, settled)


def _stored(written: Written, lost: LostBatches) -> StoredObject:
    chunks = []
    for (stream_id, tickets), placed in zip(
        written.sealed.streams.items(), written.chunks, strict=True
    ):
        position = placed.offset
        batches = []
        for ticket in tickets:
            batch = ticket.batch
            assert batch is not None
            length = LENGTH_PREFIX + len(batch.data)
            batches.append(
                StoredBatch(
                    position,
                    length,
                    batch.record_count,
                    batch.min_timestamp_ms,
                    batch.max_timestamp_ms,
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    lost.come_before(stream_id, batch),
                )
            )
            position += length
        chunks.append(StoredChunk(stream_id, batches))
    name = written.name
    return StoredObject(name.wal_id, name.path, written.size, name.marker, chunks)


DomainWriter = Writer[Appended]
