"""A raw Kafka client for tests: requests as mappings, any version, as many in flight as wanted.

Answers must come in the order of the requests: the client fails if a correlation id is not the
one whose turn it is. A request to a connection that ends gets ConnectionError.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, Self

from protocol.batch import iter_batches
from protocol.empty import empty
from protocol.errors import ErrorCode
from protocol.messages import request_class, response_class
from protocol.reader import read_message, skip_tagged_fields
from protocol.schema import EntityClass, field_specs
from protocol.writer import Payload, Piece, write_message

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 18, 19, 20
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 22, 23

LATEST, EARLIEST = -1, -2
ANSWER_WITHIN_S = 60.0
"""No test waits longer for an answer. Generous: how fast a machine is decides nothing."""

_SIZE = Struct(">i")
_HEAD = Struct(">hhih")
_CLIENT_ID = b"tests"

Address = tuple[str, int]


def entity(cls: EntityClass, values: Mapping[str, Any]) -> Any:
    """An entity from plain values; what isn't named is zero, null or empty."""
    nested = {spec.name: spec.entity for spec in field_specs(cls)}
    return empty(cls, **{name: _filled(nested.get(name), each) for name, each in values.items()})


def _filled(cls: EntityClass | None, value: Any) -> Any:
    if cls is None or value is None:
        return tuple(value) if isinstance(value, list) else value
    if isinstance(value, Mapping):
        return entity(cls, value)
    return tuple(entity(cls, item) for item in value)


def request_bytes(key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """A whole frame."""
    request = entity(request_class(key, version), values)
    head = _HEAD.pack(key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
    pieces: list[Piece] = [head]
    if type(request).__header_schema__.__flexible__:
        pieces.append(b"\x00")
    write_message(pieces, request)
    body = b"".join(
        b"".join(piece.buffers) if isinstance(piece, Payload) else piece for piece in pieces
    )
    return _SIZE.pack(len(body)) + body


class Produced(NamedTuple):
    code: ErrorCode
    base_offset: int


class _Expected(NamedTuple):
    key: int
    version: int
    correlation_id: int
    answer: asyncio.Future[Any]


class Client:
    """One connection. Use as `async with await Client.connect(address) as client`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._next_id = 0
        self._expected: deque[_Expected] = deque()
        self._closed: Exception | None = None
        self._task = asyncio.create_task(self._receive())

    @classmethod
    async def connect(cls, address: Address) -> Self:
        reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def ended(self) -> Exception | None:
        """Waits until the broker closes the connection; the error that it ended with, if any."""
        async with asyncio.timeout(ANSWER_WITHIN_S):
            await asyncio.wait([self._task])
        return self._closed

    def send(self, key: int, version: int, values: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Sends at once; the answer comes later."""
        frame, answer = self.prepare(key, version, values)
        if frame:
            self.writer.write(frame)
        return answer

    def prepare(
        self, key: int, version: int, values: Mapping[str, Any]
    ) -> tuple[bytes, asyncio.Future[Any]]:
        """A frame that the caller writes, before the next one; and the answer to it."""
        self._next_id += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Whoever doesn't ask for an answer isn't interested in its failure either.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._closed is not None:
            answer.set_exception(self._closed)
            return b"", answer
        self._expected.append(_Expected(key, version, self._next_id, answer))
        return request_bytes(key, version, self._next_id, values), answer

    def send_unanswered(self, key: int, version: int, values: Mapping[str, Any]) -> None:
        """For acks=0."""
        self._next_id += 1
        self.writer.write(request_bytes(key, version, self._next_id, values))

    async def ask(self, key: int, version: int, values: Mapping[str, Any]) -> Any:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await self.send(key, version, values)

    async def _receive(self) -> None:
        try:
            while True:
                (size,) = _SIZE.unpack(await self.reader.readexactly(_SIZE.size))
                answer = memoryview(await self.reader.readexactly(size))
                expected = self._expected.popleft()
                try:
                    expected.answer.set_result(_decode(expected, answer))
                except AssertionError as error:
                    expected.answer.set_exception(error)
        except (OSError, asyncio.IncompleteReadError) as error:
            self._closed = ConnectionError(f"the broker closed the connection: {error!r}")
        finally:
            failure = self._closed
            if failure is None:
                failure = ConnectionError("the client closed the connection")
            for expected in self._expected:
                if not expected.answer.done():
                    expected.answer.set_exception(failure)

    # -- requests that most tests need -------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> Any:
        """The topic's id."""
        answer = await self.ask(
            CREATE_TOPICS,
            7,
            {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": partitions,
                        "replication_factor": 1,
                        "configs": [
                            {"name": key, "value": value} for key, value in (configs or {}).items()
                        ],
                    }
                ],
                "timeout": 30_000,
            },
        )
        (topic,) = answer.topics
        assert topic.error_code is ErrorCode.none, topic
        return topic.topic_id

    async def delete_topic(self, name: str) -> None:
        answer = await self.ask(
            DELETE_TOPICS, 6, {"topics": [{"name": name, "topic_id": None}], "timeout": 30_000}
        )
        assert answer.responses[0].error_code is ErrorCode.none, answer

    async def producer_id(self) -> int:
        answer = await self.ask(
            INIT_PRODUCER_ID, 4, {"producer_id": -1, "producer_epoch": -1, "transaction_timeout": 0}
        )
        assert answer.error_code is ErrorCode.none, answer
        found: int = answer.producer_id
        return found

    def send_produce(
        self, topic: str, partition: int, batch: bytes, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> asyncio.Future[Any]:
        return self.send(
            PRODUCE, 9, produce_request(topic, {partition: batch}, acks=acks, timeout_ms=timeout_ms)
        )

    async def produce(
        self, topic: str, partition: int, batch: bytes, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> Produced:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            answer = await self.send_produce(
                topic, partition, batch, acks=acks, timeout_ms=timeout_ms
            )
        return produced(answer)

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 26, wait_ms: int = 0
    ) -> Any:
        """The one partition of the answer."""
        answer = await self.ask(
            FETCH,
            12,
            fetch_request(
                {topic: {partition: offset}},
                max_bytes=max_bytes,
                partition_max_bytes=max_bytes,
                wait_ms=wait_ms,
            ),
        )
        return answer.responses[0].partitions[0]

    async def read_log(self, topic: str, partition: int, start: int = 0) -> list[StoredBatch]:
        """Every batch from `start` to the log's end; fails on anything but whole batches that
        follow each other."""
        batches: list[StoredBatch] = []
        offset = start
        while True:
            found = await self.fetch(topic, partition, offset)
            assert found.error_code is ErrorCode.none, found
            if offset == found.high_watermark:
                return batches
            part = stored_batches(found.records)
            assert part, f"nothing at {offset} though the log ends at {found.high_watermark}"
            for each in part:
                assert each.base_offset == offset, "a gap or an overlap"
                offset = each.end_offset
            batches += part

    async def offset(self, topic: str, partition: int, timestamp: int) -> int:
        answer = await self.ask(
            LIST_OFFSETS,
            7,
            {
                "replica_id": -1,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": partition,
                                "current_leader_epoch": -1,
                                "timestamp": timestamp,
                            }
                        ],
                    }
                ],
            },
        )
        found = answer.topics[0].partitions[0]
        assert found.error_code is ErrorCode.none, found
        offset: int = found.offset
        return offset


class StoredBatch(NamedTuple):
    """A batch as it was fetched. `body` is all that the CRC covers: what a producer sent."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    producer_id: int
    base_sequence: int
    crc: int
    body: bytes


def stored_batches(records: Any) -> list[StoredBatch]:
    data = bytes(records or b"")
    return [
        StoredBatch(
            header.base_offset,
            header.end_offset,
            header.partition_leader_epoch,
            header.producer_id,
            header.base_sequence,
            header.crc,
            data[at + 21 : at + header.size],
        )
        for at, header in iter_batches(data)
    ]


def body_of(batch: bytes) -> bytes:
    """What stays the same of a batch between producer and consumer."""
    return batch[21:]


def produced(answer: Any) -> Produced:
    (topic,) = answer.responses
    (partition,) = topic.partition_responses
    return Produced(partition.error_code, partition.base_offset)


def produce_request(
    topic: str, batches: Mapping[int, bytes | None], *, acks: int = -1, timeout_ms: int = 30_000
) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": timeout_ms,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [
                    {"index": index, "records": records} for index, records in batches.items()
                ],
            }
        ],
    }


def fetch_request(
    offsets: Mapping[Any, Mapping[int, int]],
    *,
    max_bytes: int = 1 << 26,
    partition_max_bytes: int = 1 << 26,
    min_bytes: int = 1,
    wait_ms: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    leader_epoch: int = -1,
    isolation_level: int = 0,
    forgotten: Mapping[Any, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """For a topic's name or its id, whichever the version takes."""
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": [
            {
                "topic": topic,
                "topic_id": topic,
                "partitions": [
                    {
                        "partition": partition,
                        "current_leader_epoch": leader_epoch,
                        "fetch_offset": offset,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": partition_max_bytes,
                    }
                    for partition, offset in partitions.items()
                ],
            }
            for topic, partitions in offsets.items()
        ],
        "forgotten_topics_data": [
            {"topic": topic, "topic_id": topic, "partitions": list(partitions)}
            for topic, partitions in (forgotten or {}).items()
        ],
        "rack_id": "",
    }


def _decode(expected: _Expected, answer: memoryview) -> Any:
    (correlation_id,) = _SIZE.unpack_from(answer)
    assert correlation_id == expected.correlation_id, (
        f"answer {correlation_id} where {expected.correlation_id} was due"
    )
    cls = response_class(expected.key, expected.version)
    at = _SIZE.size
    if cls.__header_schema__.__flexible__:
        at = skip_tagged_fields(answer, at)
    decoded, end = read_message(cls, answer, at)
    assert end == len(answer), "bytes after the answer"
    return decoded
