"""aiokafka: ``python -m compat.clients.aiokafka_client``."""

import asyncio
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from compat.clients.job import CASE_TIMEOUT_S, Case, Record, pack, serve, unpack

CASE_TIMEOUT_MS = int(CASE_TIMEOUT_S * 1000)


def describe(_bootstrap: str, _case: Case) -> dict[str, Any]:
    return {
        "version": aiokafka.__version__,
        "compressions": ["none", "gzip", "snappy", "lz4", "zstd"],
    }


def create(bootstrap: str, case: Case) -> None:
    asyncio.run(_create(bootstrap, case))


def produce(bootstrap: str, case: Case) -> list[int | None]:
    return asyncio.run(_produce(bootstrap, case))


def consume(bootstrap: str, case: Case) -> list[Record]:
    return asyncio.run(_consume(bootstrap, case))


def offsets(bootstrap: str, case: Case) -> dict[str, int]:
    return asyncio.run(_offsets(bootstrap, case))


async def _create(bootstrap: str, case: Case) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        topic = NewTopic(case["topic"], num_partitions=case["partitions"], replication_factor=1)
        answer = await admin.create_topics([topic], timeout_ms=CASE_TIMEOUT_MS)
        for name, code, *message in answer.topic_errors:
            if code:
                raise RuntimeError(f"{name}: code {code} {message}")
    finally:
        await admin.close()


async def _produce(bootstrap: str, case: Case) -> list[int | None]:
    compression = case["compression"]
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all" if case["acks"] == "all" else int(case["acks"]),
        enable_idempotence=case["idempotent"],
        compression_type=None if compression == "none" else compression,
        linger_ms=20,
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                case["topic"],
                value=unpack(record["value"]),
                key=unpack(record["key"]),
                headers=[(name, unpack(value)) for name, value in record["headers"]],
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
            )
            for record in case["records"]
        ]
        async with asyncio.timeout(CASE_TIMEOUT_S):
            answers = await asyncio.gather(*sent)
        # With acks=0 aiokafka has nothing to report, or offset -1.
        return [
            None if answer is None or answer.offset < 0 else answer.offset for answer in answers
        ]
    finally:
        await producer.stop()


async def _consume(bootstrap: str, case: Case) -> list[Record]:
    wanted = sum(case["ends"])
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, check_crcs=True)
    await consumer.start()
    try:
        places = [
            TopicPartition(case["topic"], partition) for partition in range(len(case["ends"]))
        ]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        records: list[Record] = []
        async with asyncio.timeout(CASE_TIMEOUT_S):
            while len(records) < wanted:
                for batch in (await consumer.getmany(timeout_ms=500)).values():
                    records.extend(map(_record, batch))
        return records
    finally:
        await consumer.stop()


async def _offsets(bootstrap: str, case: Case) -> dict[str, int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    await consumer.start()
    try:
        place = TopicPartition(case["topic"], case["partition"])
        found = (await consumer.offsets_for_times({place: case["timestamp"]}))[place]
        return {
            "earliest": (await consumer.beginning_offsets([place]))[place],
            "latest": (await consumer.end_offsets([place]))[place],
            "at": -1 if found is None else found.offset,
        }
    finally:
        await consumer.stop()


def _record(message: Any) -> Record:
    return {
        "partition": message.partition,
        "offset": message.offset,
        "key": pack(message.key),
        "value": pack(message.value),
        "headers": [[name, pack(value)] for name, value in message.headers],
        "timestamp": message.timestamp,
    }


if __name__ == "__main__":
    serve(
        {
            "describe": describe,
            "create": create,
            "produce": produce,
            "consume": consume,
            "offsets": offsets,
        }
    )
