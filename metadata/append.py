"""What a commit of WAL objects does to the streams in them. Pure: time comes in.

Offsets are given here, and idempotent producers are checked here, inside the transaction that
makes the records visible; so a retry through any broker finds its first attempt. A batch may
be refused when its bytes are already in the object, therefore an index entry names the runs of
accepted batches and never "the chunk".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from metadata.values import (
    IndexEntry,
    Lifecycle,
    Point,
    ProducerBatch,
    ProducerState,
    Run,
    StreamHead,
)

MAX_SEQUENCE = 2**31 - 1
KEPT_BATCHES = 5
POINT_EVERY_BYTES = 64 * 1024
NO_PRODUCER = -1


class StoredBatch(NamedTuple):
    """A record batch as it lies in its object."""

    position: int
    """Of the length prefix."""
    length: int
    """With the length prefix."""
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    follows_lost: bool = False
    """The broker has lost an earlier batch of this producer on the way, and said so."""


class StoredChunk(NamedTuple):
    stream_id: int
    batches: Sequence[StoredBatch]


class StoredObject(NamedTuple):
    wal_id: UUID
    path: str
    size: int
    marker: str
    """The key of the staging marker that covers the object."""
    chunks: Sequence[StoredChunk]


class Refusal(Enum):
    STREAM_GONE = "the stream was deleted"
    OUT_OF_ORDER = "the sequence number doesn't follow the producer's last one"
    OLD_EPOCH = "a newer epoch of the producer has written"


class Accepted(NamedTuple):
    base_offset: int
    log_start: int


class Duplicate(NamedTuple):
    base_offset: int
    log_start: int


class Refused(NamedTuple):
    reason: Refusal


Outcome = Accepted | Duplicate | Refused
ProducerKey = tuple[int, int]


@dataclass(slots=True)
class Appended:
    """The outcome of one object: per chunk, per batch; and the entries that it got."""

    outcomes: list[list[Outcome]] = field(default_factory=list)
    entries: list[tuple[int, IndexEntry]] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    objects: list[Appended]
    heads: dict[int, StreamHead]
    """The new heads of the streams that took something."""
    producers: dict[ProducerKey, ProducerState]


def last_sequence(base_sequence: int, record_count: int) -> int:
    """Sequence numbers wrap to 0 after 2^31 - 1."""
    return (base_sequence + record_count - 1) & MAX_SEQUENCE


def check_producer(batch: StoredBatch, state: ProducerState | None) -> Refusal | int | None:
    """None: in order. An int: a duplicate of the batch with that base offset."""
    if state is None:
        # Any sequence may be a producer's first, but not one whose predecessor will come again.
        return Refusal.OUT_OF_ORDER if batch.follows_lost else None
    if batch.producer_epoch < state.epoch:
        return Refusal.OLD_EPOCH
    if batch.producer_epoch > state.epoch:
        return None if batch.base_sequence == 0 else Refusal.OUT_OF_ORDER
    last = last_sequence(batch.base_sequence, batch.record_count)
    for kept in state.batches:
        if kept.base_sequence == batch.base_sequence and kept.last_sequence == last:
            return kept.base_offset
    if not state.batches:
        return None
    expected = (state.batches[-1].last_sequence + 1) & MAX_SEQUENCE
    return None if batch.base_sequence == expected else Refusal.OUT_OF_ORDER


def plan_append(
    objects: Sequence[StoredObject],
    heads: Mapping[int, StreamHead | None],
    producers: Mapping[ProducerKey, ProducerState | None],
    *,
    now_ms: int,
    producer_expiration_ms: int,
) -> Plan:
    """Gives offsets to the batches of `objects`, in order. `heads` and `producers` hold what
    the store has for every stream and producer that occurs."""
    plan = Plan([], {}, {})
    for stored in objects:
        appended = Appended()
        plan.objects.append(appended)
        for chunk in stored.chunks:
            head = plan.heads.get(chunk.stream_id) or heads[chunk.stream_id]
            if head is None or head.state != Lifecycle.ACTIVE:
                gone: list[Outcome] = [Refused(Refusal.STREAM_GONE)] * len(chunk.batches)
                appended.outcomes.append(gone)
                continue
            outcomes, entry, new_head = _append_chunk(
                stored, chunk, head, plan.producers, producers, now_ms, producer_expiration_ms
            )
            appended.outcomes.append(outcomes)
            if entry is not None:
                appended.entries.append((chunk.stream_id, entry))
                plan.heads[chunk.stream_id] = new_head
    return plan


def _append_chunk(
    stored: StoredObject,
    chunk: StoredChunk,
    head: StreamHead,
    changed: dict[ProducerKey, ProducerState],
    known: Mapping[ProducerKey, ProducerState | None],
    now_ms: int,
    producer_expiration_ms: int,
) -> tuple[list[Outcome], IndexEntry | None, StreamHead]:
    outcomes: list[Outcome] = []
    start = end = head.log_end
    log_start = head.log_start
    append_ms = max(now_ms, head.append_ms)
    newest_ms, newest_offset = head.max_timestamp_ms, head.max_timestamp_offset
    min_ms, max_ms, size = 2**63 - 1, -1, 0
    runs: list[Run] = []
    points: list[Point] = []
    run_position = run_end = run_offset = next_point = -1
    for batch in chunk.batches:
        key = (chunk.stream_id, batch.producer_id)
        if batch.producer_id != NO_PRODUCER:
            state = changed.get(key)
            if state is None:
                state = known[key]
                if state is not None and state.updated_ms + producer_expiration_ms < now_ms:
                    state = None
            verdict = check_producer(batch, state)
            if isinstance(verdict, Refusal):
                outcomes.append(Refused(verdict))
                continue
            if verdict is not None:
                outcomes.append(Duplicate(verdict, log_start))
                continue
            changed[key] = _remember(batch, state, end, append_ms)
        if batch.position != run_end:
            if run_position >= 0:
                runs.append(Run(run_position, run_end - run_position, run_offset))
            run_position, run_offset, next_point = batch.position, end, batch.position
        if batch.position >= next_point:
            points.append(Point(end, batch.position))
            next_point = batch.position + POINT_EVERY_BYTES
        run_end = batch.position + batch.length
        outcomes.append(Accepted(end, log_start))
        if batch.max_timestamp_ms > newest_ms:
            newest_ms, newest_offset = batch.max_timestamp_ms, end
        min_ms = min(min_ms, batch.min_timestamp_ms)
        max_ms = max(max_ms, batch.max_timestamp_ms)
        size += batch.length - 4
        end += batch.record_count
    if end == start:
        return outcomes, None, head
    runs.append(Run(run_position, run_end - run_position, run_offset))
    entry = IndexEntry(
        start_offset=start,
        end_offset=end,
        path=stored.path,
        wal_id=stored.wal_id,
        runs=tuple(runs),
        points=tuple(points),
        end_bytes=head.total_bytes + size,
        size_bytes=size,
        min_timestamp_ms=min_ms,
        max_timestamp_ms=max_ms,
        running_max_timestamp_ms=newest_ms,
        append_ms=append_ms,
    )
    new_head = StreamHead(
        topic_id=head.topic_id,
        partition=head.partition,
        log_start=log_start,
        log_end=end,
        total_bytes=head.total_bytes + size,
        start_bytes=head.start_bytes,
        max_timestamp_ms=newest_ms,
        max_timestamp_offset=newest_offset,
        append_ms=append_ms,
        leader_epoch=head.leader_epoch,
        state=head.state,
    )
    return outcomes, entry, new_head


def _remember(
    batch: StoredBatch, state: ProducerState | None, base_offset: int, now_ms: int
) -> ProducerState:
    kept = ProducerBatch(
        batch.base_sequence, last_sequence(batch.base_sequence, batch.record_count), base_offset
    )
    last_ms = batch.max_timestamp_ms
    if state is None or batch.producer_epoch != state.epoch:
        return ProducerState(batch.producer_epoch, (kept,), now_ms, last_ms)
    batches = (*state.batches[1 - KEPT_BATCHES :], kept)
    return ProducerState(state.epoch, batches, now_ms, last_ms)
