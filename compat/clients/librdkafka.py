"""confluent-kafka, which is librdkafka: ``python -m compat.clients.librdkafka``."""

import time
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compat.clients.job import CASE_TIMEOUT_S, Case, Record, TimedOut, pack, serve, unpack

EARLIEST = 0


def describe(_bootstrap: str, _case: Case) -> dict[str, Any]:
    return {
        "version": confluent_kafka.libversion()[0],
        "compressions": ["none", "gzip", "snappy", "lz4", "zstd"],
    }


def create(bootstrap: str, case: Case) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(case["topic"], num_partitions=case["partitions"], replication_factor=1)
    for done in admin.create_topics([topic], operation_timeout=CASE_TIMEOUT_S).values():
        done.result(CASE_TIMEOUT_S)


def produce(bootstrap: str, case: Case) -> list[int | None]:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": case["acks"],
            "enable.idempotence": case["idempotent"],
            "compression.type": case["compression"],
            "message.timeout.ms": int(CASE_TIMEOUT_S * 1000),
            "linger.ms": 20,
        }
    )
    offsets: list[int | None] = [None] * len(case["records"])
    errors: list[KafkaError] = []

    def delivered(index: int, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            errors.append(error)
        elif case["acks"] != "0" and offset is not None:
            offsets[index] = offset

    for index, record in enumerate(case["records"]):
        producer.produce(
            case["topic"],
            value=unpack(record["value"]),
            key=unpack(record["key"]),
            partition=record["partition"],
            headers=[(name, unpack(value)) for name, value in record["headers"]],
            timestamp=record["timestamp"],
            on_delivery=partial(delivered, index),
        )
        producer.poll(0)
    left = producer.flush(CASE_TIMEOUT_S)
    if errors or left:
        raise TimedOut(f"{left} records left; {errors[:3]}")
    return offsets


def consume(bootstrap: str, case: Case) -> list[Record]:
    consumer = _consumer(bootstrap)
    wanted = sum(case["ends"])
    try:
        consumer.assign(
            [
                TopicPartition(case["topic"], partition, EARLIEST)
                for partition in range(len(case["ends"]))
            ]
        )
        records: list[Record] = []
        deadline = time.monotonic() + CASE_TIMEOUT_S
        while len(records) < wanted:
            if time.monotonic() > deadline:
                raise TimedOut(f"{len(records)} of {wanted} records")
            for message in consumer.consume(500, 0.5):
                if message.error() is not None:
                    raise TimedOut(str(message.error()))
                records.append(_record(message))
        return records
    finally:
        consumer.close()


def offsets(bootstrap: str, case: Case) -> dict[str, int]:
    consumer = _consumer(bootstrap)
    try:
        place = TopicPartition(case["topic"], case["partition"], case["timestamp"])
        found = consumer.offsets_for_times([place], CASE_TIMEOUT_S)
        earliest, latest = consumer.get_watermark_offsets(place, CASE_TIMEOUT_S)
        return {"earliest": earliest, "latest": latest, "at": found[0].offset}
    finally:
        consumer.close()


def _consumer(bootstrap: str) -> Consumer:
    # librdkafka wants a group id even from a consumer that joins no group.
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )


def _record(message: Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return {
        "partition": partition,
        "offset": offset,
        "key": pack(_bytes(message.key())),
        "value": pack(_bytes(message.value())),
        "headers": [[name, pack(_bytes(value))] for name, value in pairs],
        "timestamp": message.timestamp()[1],
    }


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


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
