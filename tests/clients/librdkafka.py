"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.records import READ_WITHIN_S, Deadline, Received, Record

NAME = "librdkafka"
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
    """The offsets; with acks=0 nobody knows them, and they are not to be looked at."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "enable.idempotence": idempotent,
            "compression.type": compression,
            "linger.ms": 5,
            "batch.size": batch_bytes,
        }
    )
    offsets = [-1] * len(records)
    errors: list[KafkaError] = []

    def delivered(index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        offsets[index] = -1 if message.offset() is None else int(message.offset() or 0)

    for index, record in enumerate(records):
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=partition,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=partial(delivered, index),
        )
    assert producer.flush(READ_WITHIN_S) == 0
    assert errors == []
    return offsets


def consume(bootstrap: str, topic: str, counts: dict[int, int]) -> list[Received]:
    """That many records from the start of each partition."""
    received: list[Received] = []
    deadline = Deadline()
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in counts])
        while len(received) < sum(counts.values()):
            deadline.check(len(received), sum(counts.values()))
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                received.append(_received(message))
    return received


def offset_at(bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int:
    with consumer_of(bootstrap) as consumer:
        place = TopicPartition(topic, partition, timestamp_ms)
        (found,) = consumer.offsets_for_times([place], READ_WITHIN_S)
        # It answers with the log's end (-1 as a logical offset) where there is none.
        return int(found.offset)


@contextmanager
def consumer_of(bootstrap: str) -> Iterator[Consumer]:
    # librdkafka wants a group id even from a consumer that joins no group.
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def create(bootstrap: str, topic: str, partitions: int, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    for done in admin.create_topics([new], operation_timeout=READ_WITHIN_S).values():
        done.result(READ_WITHIN_S)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_topics([topic], operation_timeout=READ_WITHIN_S).values():
        done.result(READ_WITHIN_S)


def _received(message: Message) -> Received:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers = message.headers() or []
    pairs = list(headers.items() if isinstance(headers, dict) else headers)
    return Received(
        partition,
        offset,
        Record(
            _bytes(message.key()),
            _bytes(message.value()),
            tuple((name, _bytes(value)) for name, value in pairs),
            message.timestamp()[1],
        ),
    )


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
