"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.clients.records import READ_WITHIN_S, Received, Record

NAME = "aiokafka"
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
NULL_HEADERS = True


def produce(
    bootstrap: str,
    topic: str,
    partition: int,
    records: Sequence[Record],
    *,
    compression: str = "none",
    acks: str = "all",
    idempotent: bool = False,
    batch_bytes: int = 16_384,
) -> list[int]:
    async def run() -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all" if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            compression_type=None if compression == "none" else compression,
            linger_ms=5,
            max_batch_size=batch_bytes,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            async with asyncio.timeout(READ_WITHIN_S):
                answers = await asyncio.gather(*sent)
            return [-1 if answer is None else int(answer.offset) for answer in answers]
        finally:
            await producer.stop()

    return asyncio.run(run())


def consume(bootstrap: str, topic: str, counts: dict[int, int]) -> list[Received]:
    async def run() -> list[Received]:
        received: list[Received] = []
        async with _consumer(bootstrap) as consumer, asyncio.timeout(READ_WITHIN_S):
            places = [TopicPartition(topic, partition) for partition in counts]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
            while len(received) < sum(counts.values()):
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    received.extend(map(_received, batch))
        return received

    return asyncio.run(run())


def offset_at(bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int:
    async def run() -> int:
        async with _consumer(bootstrap) as consumer:
            place = TopicPartition(topic, partition)
            found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
            return -1 if found is None else int(found.offset)

    return asyncio.run(run())


def create(bootstrap: str, topic: str, partitions: int, config: dict[str, str]) -> None:
    async def run() -> None:
        async with _admin(bootstrap) as admin:
            new = NewTopic(
                topic, num_partitions=partitions, replication_factor=1, topic_configs=config
            )
            answer = await admin.create_topics([new])
            assert [code for _, code, *_ in answer.topic_errors] == [0]

    asyncio.run(run())


def delete(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async with _admin(bootstrap) as admin:
            answer = await admin.delete_topics([topic])
            assert [code for _, code, *_ in answer.topic_error_codes] == [0]

    asyncio.run(run())


@asynccontextmanager
async def _consumer(bootstrap: str) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, check_crcs=True)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def _received(message: Any) -> Received:
    return Received(
        message.partition,
        message.offset,
        Record(message.key, message.value, tuple(message.headers), message.timestamp),
    )
