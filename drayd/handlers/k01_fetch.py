"""Fetch: reads partitions side by side, and waits for new records if there are too few.

What is in memory is answered at once; a request that must wait, for an object or for new
records, goes on in a task of its own.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, NamedTuple

from drayd.broker import Broker
from drayd.cache import Found
from drayd.call import Call, Result
from drayd.fetch import Wanted
from drayd.fetch_sessions import NO_SESSION, Context, PartitionKey, Position, State
from drayd.waiters import Wait
from metadata.store import StoreError
from metadata.streams import StreamMissing
from metadata.values import Lifecycle, StreamHead, StreamRef
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import make, nested
from protocol.writer import Payload
from wal.objectstore import ObjectStoreError
from wal.reader import CorruptLog

KEY = 1
NAME = "Fetch"
VERSIONS = range(4, 19)

_BY_ID_FROM_VERSION = 13
_SESSIONS_FROM_VERSION = 7
_FRAME_BYTES = 32
_PARTITION_BYTES = 48
_EMPTY = Payload((), 0)
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_NOT_HERE = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


class _Read(NamedTuple):
    """The outcome of one partition."""

    code: ErrorCode
    high_watermark: int = -1
    log_start: int = -1
    found: Found | None = None


class _Missing(NamedTuple):
    code: ErrorCode


_Place = Wanted | _Missing


async def handle(call: Call) -> Result:
    started = asyncio.get_running_loop().time()
    if getattr(call.request, "isolation_level", 0) not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        # Kafka has no code for it.
        return _refusal(call, ErrorCode.unknown_server_error)
    try:
        context = _context(call)
    except KafkaError:
        # Even that is too much for a client over its quota, as in Kafka.
        empty = Context(None, [], True)
        throttled = None if call.broker.quotas.fetch is None else _throttled(call, empty, [])
        if throttled is None:
            raise
        return throttled
    places = [await _place(call, key, position) for key, position in context.wanted]
    max_bytes = min(call.request.max_bytes, call.broker.settings.fetch_max_bytes)
    quotas = call.broker.quotas
    if quotas.fetch is not None:
        max_bytes = quotas.fetch_max_bytes(call.user, call.client_id, max_bytes)
    max_bytes = max(max_bytes, 1)
    at_once = _read_cached(call.broker, places, max_bytes)
    if at_once is not None and _enough(call, at_once, max_bytes):
        call.broker.metrics.fetch_seconds.observe(asyncio.get_running_loop().time() - started)
        return _response(call, context, at_once)
    streams = [place.ref.stream_id for place in places if isinstance(place, Wanted)]
    return asyncio.get_running_loop().create_task(
        call.timed(_read_later(call, context, streams, max_bytes, started))
    )


def _context(call: Call) -> Context:
    request = call.request
    by_id = call.version >= _BY_ID_FROM_VERSION
    # A partition that is named twice: as in Kafka, the last one counts.
    asked: dict[PartitionKey, Position] = {}
    for topic in request.topics:
        name = None if by_id else topic.topic
        topic_id = topic.topic_id if by_id else None
        for partition in topic.partitions:
            position = Position(
                partition.fetch_offset,
                partition.partition_max_bytes,
                getattr(partition, "current_leader_epoch", -1),
                getattr(partition, "last_fetched_epoch", -1),
            )
            asked[PartitionKey(name, topic_id, partition.partition)] = position
    wanted = list(asked.items())
    if call.version < _SESSIONS_FROM_VERSION:
        return Context(None, wanted, True)
    forgotten = [
        PartitionKey(None if by_id else topic.topic, topic.topic_id if by_id else None, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
    return call.broker.sessions.context(
        request.session_id,
        request.session_epoch,
        wanted,
        forgotten,
        by_id=by_id,
        now_ms=call.broker.now_ms(),
    )


async def _place(call: Call, key: PartitionKey, position: Position) -> _Place:
    """Where a partition is to be read, or why it can't be."""
    broker = call.broker
    topic = broker.topics.cached(key.topic, key.topic_id)
    if topic is None:
        try:
            if key.topic is not None:
                topic = await broker.topics.find(key.topic)
            elif key.topic_id is not None:
                topic = await broker.topics.find_id(key.topic_id)
        except KafkaError as error:
            return _Missing(error.code)
    if topic is None:
        by_name = key.topic is not None
        return _Missing(
            ErrorCode.unknown_topic_or_partition if by_name else ErrorCode.unknown_topic_id
        )
    if not 0 <= key.partition < len(topic.partitions):
        return _Missing(ErrorCode.unknown_topic_or_partition)
    if _replica_id(call.request) >= 0:
        # There are no followers.
        return _Missing(ErrorCode.not_leader_or_follower)
    if min(position.max_bytes, call.request.max_bytes) < 0:
        # Kafka has no code for it.
        return _Missing(ErrorCode.unknown_server_error)
    ref = topic.partitions[key.partition]
    stream = broker.domain(ref).cached(ref.stream_id)
    if stream is None:
        try:
            stream = await broker.domain(ref).stream(ref.stream_id)
        except StreamMissing:
            return _Missing(ErrorCode.unknown_topic_or_partition)
        except StoreError:
            return _Missing(ErrorCode.kafka_storage_error)
    return _bounds(ref, stream.head, position)


def _replica_id(request: Any) -> int:
    state = getattr(request, "replica_state", None)
    found: int = getattr(request, "replica_id", -1) if state is None else state.replica_id
    return found


def _bounds(ref: StreamRef, head: StreamHead, position: Position) -> _Place:
    if head.state != Lifecycle.ACTIVE:
        return _Missing(ErrorCode.unknown_topic_or_partition)
    if position.last_fetched_epoch > head.leader_epoch:
        return _Missing(ErrorCode.offset_out_of_range)
    if position.current_leader_epoch > head.leader_epoch:
        return _Missing(ErrorCode.unknown_leader_epoch)
    if 0 <= position.current_leader_epoch < head.leader_epoch:
        return _Missing(ErrorCode.fenced_leader_epoch)
    if not head.log_start <= position.fetch_offset <= head.log_end:
        return _Missing(ErrorCode.offset_out_of_range)
    return Wanted(ref, position.fetch_offset, head.log_end, position.max_bytes)


def _read(broker: Broker, place: Wanted, found: Found) -> _Read:
    stream = broker.domain(place.ref).cached(place.ref.stream_id)
    start = 0 if stream is None else stream.head.log_start
    # More may have been committed since its place was looked up.
    end_offset = max(place.end_offset, found.next_offset)
    return _Read(ErrorCode.none, end_offset, start, found)


def _read_cached(broker: Broker, places: list[_Place], max_bytes: int) -> list[_Read] | None:
    """Every partition from memory, or None if one of them isn't there."""
    reads = []
    left = max_bytes
    for place in places:
        if isinstance(place, _Missing):
            reads.append(_Read(place.code))
            continue
        if left <= 0 and left < max_bytes:
            found: Found | None = Found([], 0, place.offset)
        else:
            found = broker.fetcher.read_cached(place, min(place.max_bytes, left))
        if found is None:
            return None
        left -= found.size
        reads.append(_read(broker, place, found))
    return _limited(places, reads, max_bytes)


async def _read_all(broker: Broker, places: list[_Place], max_bytes: int) -> list[_Read]:
    """Every partition side by side. What a partition may take is decided before the reads
    start, in the order of the request."""
    jobs = []
    passed_over = []
    left = max_bytes
    for slot, place in enumerate(places):
        if isinstance(place, _Missing):
            jobs.append(_settled(_Read(place.code)))
        elif left <= 0 and left < max_bytes:
            passed_over.append(slot)
            jobs.append(_settled(_read(broker, place, Found([], 0, place.offset))))
        else:
            allowed = min(place.max_bytes, left)
            found = broker.fetcher.read_cached(place, allowed)
            if found is not None:
                left -= found.size
                jobs.append(_settled(_read(broker, place, found)))
            else:
                left -= max(allowed, 1)
                jobs.append(_read_one(broker, place, allowed))
    reads = list(await asyncio.gather(*jobs))
    if passed_over and not _size(reads):
        # Those before them have failed: a damaged partition must not starve the others.
        rest = await _read_all(broker, [places[slot] for slot in passed_over], max_bytes)
        for slot, read in zip(passed_over, rest, strict=True):
            reads[slot] = read
    return _limited(places, reads, max_bytes)


def _limited(places: list[_Place], reads: list[_Read], max_bytes: int) -> list[_Read]:
    """A batch that is larger than its limits is for the first partition that has records, so
    that every reader gets on; the others wait for their turn (KIP-74)."""
    left = max_bytes
    some = False
    for slot, (place, read) in enumerate(zip(places, reads, strict=True)):
        size = 0 if read.found is None else read.found.size
        if size and isinstance(place, Wanted):
            if some and size > min(place.max_bytes, left):
                reads[slot] = read._replace(found=Found([], 0, place.offset))
            else:
                some = True
                left -= size
    return reads


async def _settled(read: _Read) -> _Read:
    return read


async def _read_one(broker: Broker, place: Wanted, max_bytes: int) -> _Read:
    try:
        return _read(broker, place, await broker.fetcher.read(place, max_bytes))
    except CorruptLog:
        return _Read(await _gone(broker, place) or ErrorCode.corrupt_message)
    except (ObjectStoreError, StreamMissing):
        return _Read(await _gone(broker, place) or ErrorCode.kafka_storage_error)
    except StoreError:
        return _Read(ErrorCode.kafka_storage_error)


async def _gone(broker: Broker, place: Wanted) -> ErrorCode | None:
    """Why what was there when the request came can't be found any more, if it was deleted."""
    try:
        head = (await broker.domain(place.ref).refresh(place.ref.stream_id)).head
    except StreamMissing:
        return ErrorCode.unknown_topic_or_partition
    except StoreError:
        return None
    if head.state != Lifecycle.ACTIVE:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.offset_out_of_range if place.offset < head.log_start else None


def _size(reads: list[_Read]) -> int:
    return sum(read.found.size for read in reads if read.found is not None)


def _enough(call: Call, reads: list[_Read], max_bytes: int) -> bool:
    return (
        not reads
        or call.request.max_wait <= timedelta(0)
        or any(read.code is not ErrorCode.none for read in reads)
        or _size(reads) >= min(call.request.min_bytes, max_bytes)
    )


async def _read_later(
    call: Call, context: Context, streams: list[int], max_bytes: int, started: float
) -> Any:
    broker = call.broker
    loop = asyncio.get_running_loop()
    deadline = loop.time() + call.request.max_wait / timedelta(seconds=1)
    waited = 0.0
    wait = Wait(streams, max(call.request.min_bytes, 1))
    broker.waiters.add(wait)
    broker.metrics.fetches_waiting.inc()
    try:
        while True:
            # After the wait was registered: what comes while one is looked up wakes it.
            places = [await _place(call, key, position) for key, position in context.wanted]
            reads = _read_cached(broker, places, max_bytes)
            if reads is None:
                reads = await _read_all(broker, places, max_bytes)
            if _enough(call, reads, max_bytes) or wait.ended or loop.time() >= deadline:
                broker.metrics.fetch_seconds.observe(loop.time() - started - waited)
                return _response(call, context, reads)
            wait.min_bytes = max(min(call.request.min_bytes, max_bytes) - _size(reads), 1)
            before = loop.time()
            await wait.until(deadline)
            waited += loop.time() - before
    finally:
        broker.metrics.fetches_waiting.dec()
        broker.waiters.remove(wait)


def _answer_bytes(reads: list[_Read]) -> int:
    """About what the answer has, as the byte rate of consumers counts it."""
    return _FRAME_BYTES + len(reads) * _PARTITION_BYTES + _size(reads)


def _throttled(call: Call, context: Context, reads: list[_Read]) -> Any:
    """The answer to a client over its quota, which is empty; None if it isn't over."""
    quotas = call.broker.quotas
    call.counted = True
    size = _answer_bytes(reads)
    call.throttle("fetch", quotas.record_fetch(call.user, call.client_id, size))
    if call.work is not None:
        call.throttle(
            "request", quotas.record_request(call.user, call.client_id, call.work.seconds)
        )
    if not call.throttle_ms:
        return None
    quotas.take_back_fetch(call.user, call.client_id, size)
    session_id = context.session_id
    if context.full and context.session is not None:
        # As in Kafka a session begins with the first answer that says something.
        call.broker.sessions.forget(session_id)
        session_id = NO_SESSION
    return call.respond(
        throttle_time=0, error_code=ErrorCode.none, session_id=session_id, responses=()
    )


def _aborted(call: Call, code: ErrorCode) -> tuple[Any, ...] | None:
    """Without transactions there are none; but who reads committed records gets a list."""
    committed = call.request.isolation_level == _READ_COMMITTED and code is ErrorCode.none
    return () if committed or code in _NOT_HERE else None


def _refusal(call: Call, code: ErrorCode) -> Any:
    """The whole request fails. Who names topics by name has the code in each partition, too."""
    topic_class = call.item_class("responses")
    partition_class = nested(topic_class, "partitions")
    by_name = call.version < _BY_ID_FROM_VERSION
    return call.respond(
        throttle_time=0,
        error_code=code,
        session_id=getattr(call.request, "session_id", 0),
        responses=tuple(
            make(
                topic_class,
                topic=topic.topic,
                partitions=tuple(
                    make(
                        partition_class,
                        partition_index=partition.partition,
                        error_code=code,
                        high_watermark=-1,
                        last_stable_offset=-1,
                        log_start_offset=-1,
                        aborted_transactions=(),
                        records=_EMPTY,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in call.request.topics
        )
        if by_name
        else (),
    )


def _response(call: Call, context: Context, reads: list[_Read]) -> Any:
    if call.broker.quotas.fetch is not None or call.work is not None:
        throttled = _throttled(call, context, reads)
        if throttled is not None:
            return throttled
    metrics = call.broker.metrics
    topic_class = call.item_class("responses")
    partition_class = nested(topic_class, "partitions")
    topics: dict[tuple[Any, Any], list[Any]] = {}
    for (key, _), read in zip(context.wanted, reads, strict=True):
        found = read.found
        failed = read.code is not ErrorCode.none
        if failed:
            metrics.fetch_failed[read.code.name].inc()
        if context.session is not None:
            state = State(
                read.high_watermark, read.log_start, bool(found and found.buffers), failed
            )
            if not context.session.answer(key, state, full=context.full):
                continue
        topics.setdefault((key.topic, key.topic_id), []).append(
            make(
                partition_class,
                partition_index=key.partition,
                error_code=read.code,
                high_watermark=read.high_watermark,
                last_stable_offset=read.high_watermark,
                log_start_offset=read.log_start,
                aborted_transactions=_aborted(call, read.code),
                records=_EMPTY if found is None else Payload(found.buffers, found.size),
            )
        )
    metrics.fetched_bytes.inc(_size(reads))
    return call.respond(
        throttle_time=0,
        error_code=ErrorCode.none,
        session_id=context.session_id,
        responses=tuple(
            make(topic_class, topic=name, topic_id=topic_id, partitions=tuple(partitions))
            for (name, topic_id), partitions in topics.items()
        ),
    )
