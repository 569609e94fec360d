"""Produce: checks each partition's batch and puts it on its way into the log.

The place of every batch is reserved before anything is awaited for it, so the order of requests
on a connection is the order in the log. Partitions don't wait for one another, and one that is
refused doesn't fail the others.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from drayd.call import Call, Result, Unanswered
from drayd.logs import Logger
from drayd.produce import DomainWriter, PartitionOutcome, Pending
from drayd.topic_config import TopicLimits
from metadata.store import StoreError
from metadata.streams import Stream, StreamMissing
from metadata.values import Topic
from protocol.batch import HEADER_SIZE, InvalidBatch, RecordError, parse_header, validate_produce
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import has_field, make, nested
from protocol.recompress import recompressed
from wal.buffer import Batch, Ticket

log = Logger(__name__)

KEY = 0
NAME = "Produce"
VERSIONS = range(3, 14)
# Kafka advertises 0–2 though it refuses them: without that, older librdkafka doesn't compress.
ADVERTISED_MIN = 0

# Checking a compressed batch of this size takes long enough to leave the event loop.
OFFLOAD_FROM_BYTES = 64 * 1024
# Packing one anew takes ten times as long.
OFFLOAD_PACKING_FROM_BYTES = 8 * 1024

_BY_ID_FROM_VERSION = 13


class _Asked(NamedTuple):
    """A topic of the request, once, and what is to be written to each partition, once."""

    data: Any
    topic: Topic | None
    missing: ErrorCode
    partitions: list[Any]


class _Part(NamedTuple):
    slot: int
    name: str
    stream: Stream | None
    records: memoryview | None
    writer: DomainWriter
    ticket: Ticket
    limits: TopicLimits


async def handle(call: Call) -> Result:
    topics = [await _asked(call, *each) for each in _once(call)]
    pending = Pending(sum(len(each.partitions) for each in topics))
    errors: dict[int, tuple[RecordError, ...]] = {}
    parts = _reserve(call, topics, pending)
    heavy = [part for part in parts if _is_heavy(part)]
    for part in parts:
        if part not in heavy:
            _check(call, part, pending, errors)
    for part in heavy:
        _check_in_thread(call, part, pending, errors)
    if not pending.settled.done():
        call.connection.hold_memory(pending.settled)
    return _when_done(call, topics, pending, errors)


def _once(call: Call) -> list[tuple[Any, list[Any]]]:
    """A partition that is named twice is written once: as in Kafka, the last one counts."""
    by_id = call.version >= _BY_ID_FROM_VERSION
    found: dict[Any, tuple[Any, dict[int, Any]]] = {}
    for data in call.request.topic_data:
        if data.partition_data:
            _, partitions = found.setdefault(data.topic_id if by_id else data.name, (data, {}))
            partitions.update((partition.index, partition) for partition in data.partition_data)
    return [(data, list(partitions.values())) for data, partitions in found.values()]


async def _asked(call: Call, data: Any, partitions: list[Any]) -> _Asked:
    topic, missing = await _topic(call, data)
    for partition in partitions if topic is not None else ():
        if topic is not None and 0 <= partition.index < len(topic.partitions):
            ref = topic.partitions[partition.index]
            domain = call.broker.domain(ref)
            if domain.cached(ref.stream_id) is None:
                # Known before a place is taken, so that a refusal can say where the log begins.
                with suppress(StreamMissing, StoreError):
                    await domain.stream(ref.stream_id)
    return _Asked(data, topic, missing, partitions)


async def _topic(call: Call, data: Any) -> tuple[Topic | None, ErrorCode]:
    topics = call.broker.topics
    try:
        if call.version >= _BY_ID_FROM_VERSION:
            topic = topics.cached(None, data.topic_id)
            if topic is None and data.topic_id is not None:
                topic = await topics.find_id(data.topic_id)
            return topic, ErrorCode.unknown_topic_id
        topic = topics.cached(data.name, None) or await topics.find(data.name)
        return topic, ErrorCode.unknown_topic_or_partition
    except KafkaError as error:
        return None, error.code


def _refused_as_a_whole(request: Any) -> PartitionOutcome | None:
    if request.acks not in (-1, 0, 1):
        return PartitionOutcome(ErrorCode.invalid_required_acks)
    if request.transactional_id is not None:
        # Not retriable and fatal to the producer, so that it doesn't go round in circles.
        return PartitionOutcome(
            ErrorCode.transactional_id_authorization_failed,
            message="Dray has no transactions yet.",
        )
    return None


def _reserve(call: Call, topics: list[_Asked], pending: Pending) -> list[_Part]:
    parts: list[_Part] = []
    refused = _refused_as_a_whole(call.request)
    slot = -1
    for _, topic, missing, partitions in topics:
        limits = None if topic is None else call.broker.topics.limits(topic)
        for partition in partitions:
            slot += 1
            if refused is not None:
                pending.settle(slot, refused)
            elif topic is None or limits is None:
                pending.settle(slot, PartitionOutcome(missing))
            elif not 0 <= partition.index < len(topic.partitions):
                pending.settle(slot, PartitionOutcome(ErrorCode.unknown_topic_or_partition))
            else:
                ref = topic.partitions[partition.index]
                writer = call.broker.writers[ref.domain]
                ticket = writer.reserve(ref.stream_id, pending, slot)
                name = f"{topic.name}-{partition.index}"
                stream = call.broker.domain(ref).cached(ref.stream_id)
                parts.append(_Part(slot, name, stream, partition.records, writer, ticket, limits))
    return parts


def _is_heavy(part: _Part) -> bool:
    records = part.records
    if records is None or len(records) < HEADER_SIZE:
        return False
    codec = part.limits.codec
    if codec is not None and len(records) >= OFFLOAD_PACKING_FROM_BYTES:
        return parse_header(records).codec_id != codec
    return len(records) >= OFFLOAD_FROM_BYTES and parse_header(records).codec_id != 0


def _validate(call: Call, part: _Part) -> Batch:
    limits = part.limits
    accepted = validate_produce(
        part.records,
        api_version=call.version,
        timestamp_type=limits.timestamp_type,
        now_ms=call.broker.now_ms(),
        before_max_ms=limits.before_max_ms,
        after_max_ms=limits.after_max_ms,
        max_message_bytes=limits.max_message_bytes,
        require_key=limits.require_key,
        partition=part.name,
        max_decompressed_bytes=call.broker.settings.record_decompress_max_bytes,
    )
    if limits.codec is not None:
        accepted = recompressed(
            accepted,
            limits.codec,
            limits.codec_level,
            max_message_bytes=limits.max_message_bytes,
            max_decompressed_bytes=call.broker.settings.record_decompress_max_bytes,
        )
    return Batch(
        accepted.view,
        accepted.record_count,
        accepted.min_timestamp_ms,
        accepted.max_timestamp_ms,
        accepted.producer_id,
        accepted.producer_epoch,
        accepted.base_sequence,
        call.frame_bytes,
    )


def _check(
    call: Call, part: _Part, pending: Pending, errors: dict[int, tuple[RecordError, ...]]
) -> None:
    try:
        batch = _validate(call, part)
    except InvalidBatch as error:
        _refuse(part, pending, errors, error)
        return
    except Exception as error:  # noqa: BLE001 - a boundary: its siblings have their places already
        _give_up(call, part, pending, error)
        return
    _fill(part, pending, batch)


def _check_in_thread(
    call: Call, part: _Part, pending: Pending, errors: dict[int, tuple[RecordError, ...]]
) -> None:
    def checked(done: asyncio.Future[Batch]) -> None:
        error = done.exception()
        if error is None:
            _fill(part, pending, done.result())
        elif isinstance(error, InvalidBatch):
            _refuse(part, pending, errors, error)
        else:
            _give_up(call, part, pending, error)

    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, _validate, call, part).add_done_callback(checked)


def _fill(part: _Part, pending: Pending, batch: Batch) -> None:
    if part.limits.timestamp_type == "LogAppendTime":
        pending.append_ms[part.slot] = batch.max_timestamp_ms
    part.writer.fill(part.ticket, batch)


def _refuse(
    part: _Part,
    pending: Pending,
    errors: dict[int, tuple[RecordError, ...]],
    error: InvalidBatch,
) -> None:
    part.writer.drop(part.ticket)
    errors[part.slot] = error.record_errors
    known = part.stream is not None and not error.before_log
    log_start = part.stream.head.log_start if part.stream is not None and known else -1
    outcome = PartitionOutcome(error.code, log_start=log_start, message=error.client_message)
    pending.settle(part.slot, outcome)


def _give_up(call: Call, part: _Part, pending: Pending, error: BaseException) -> None:
    """The check itself has failed. A place that nobody fills would hold up its partition."""
    log.exception("a batch could not be checked", error, client_id=call.head.client_id)
    part.writer.drop(part.ticket)
    pending.settle(part.slot, PartitionOutcome(ErrorCode.unknown_server_error))


def _when_done(
    call: Call,
    topics: list[_Asked],
    pending: Pending,
    errors: dict[int, tuple[RecordError, ...]],
) -> Result:
    loop = asyncio.get_running_loop()
    started = loop.time()
    if call.request.acks == 0:
        settled: asyncio.Future[bool] = loop.create_future()

        def ended(_: asyncio.Future[None]) -> None:
            _count(call, pending, loop.time() - started)
            ok = all(outcome and outcome.code is ErrorCode.none for outcome in pending.outcomes)
            settled.set_result(ok)

        pending.done.add_done_callback(ended)
        return Unanswered(settled)
    if pending.done.done():
        _count(call, pending, 0.0)
        return _response(call, topics, pending, errors)
    answer: asyncio.Future[Any] = loop.create_future()
    # The deadline is for replicas: acks=1 has none.
    timer = None
    if call.request.acks != 1:
        seconds = max(call.request.timeout / timedelta(seconds=1), 0.001)
        timer = loop.call_later(seconds, pending.expire)

    def finished(_: asyncio.Future[None]) -> None:
        if timer is not None:
            timer.cancel()
        _count(call, pending, loop.time() - started)
        if not answer.done():
            answer.set_result(_response(call, topics, pending, errors))

    pending.done.add_done_callback(finished)
    return answer


def _count(call: Call, pending: Pending, seconds: float) -> None:
    metrics = call.broker.metrics
    metrics.produce_seconds.observe(seconds)
    for outcome in pending.outcomes:
        if outcome is not None and outcome.code is not ErrorCode.none:
            metrics.produce_rejected[outcome.code.name].inc()


def _response(
    call: Call,
    topics: list[_Asked],
    pending: Pending,
    errors: dict[int, tuple[RecordError, ...]],
) -> Any:
    topic_class = call.item_class("responses")
    partition_class = nested(topic_class, "partition_responses")
    outcomes = iter(enumerate(pending.outcomes))
    responses = []
    for data, _, _, asked in topics:
        partitions = []
        for partition in asked:
            slot, outcome = next(outcomes)
            assert outcome is not None
            partitions.append(
                make(
                    partition_class,
                    index=partition.index,
                    error_code=outcome.code,
                    base_offset=outcome.base_offset,
                    log_append_time=outcome.log_append_ms,
                    log_start_offset=outcome.log_start,
                    record_errors=_record_errors(partition_class, errors.get(slot, ())),
                    error_message=outcome.message,
                )
            )
        responses.append(
            make(
                topic_class,
                name=getattr(data, "name", None),
                topic_id=getattr(data, "topic_id", None),
                partition_responses=tuple(partitions),
            )
        )
    return call.respond(responses=tuple(responses), throttle_time=0)


def _record_errors(partition_class: Any, errors: tuple[RecordError, ...]) -> tuple[Any, ...]:
    if not errors or not has_field(partition_class, "record_errors"):
        return ()
    item = nested(partition_class, "record_errors")
    return tuple(
        make(item, batch_index=error.batch_index, batch_index_error_message=error.message)
        for error in errors
    )
