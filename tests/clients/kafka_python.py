"""kafka-python. It brings no codec but gzip of its own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from tests.clients.records import READ_WITHIN_S, Deadline, Received, Record

with warnings.catch_warnings():
    # It reads its own schemas in a way that Python 3.11 calls old.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.codec import has_lz4, has_snappy, has_zstd

NAME = "kafka-python"
COMPRESSIONS = (
    "none",
    "gzip",
    *(("snappy",) if has_snappy() else ()),
    *(("lz4",) if has_lz4() else ()),
    *(("zstd",) if has_zstd() else ()),
)
NULL_HEADERS = False


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
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all" if acks == "all" else int(acks),
        enable_idempotence=idempotent,
        compression_type=None if compression == "none" else compression,
        linger_ms=5,
        batch_size=batch_bytes,
    )
    with closing(producer):
        sent = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(READ_WITHIN_S)
        return [int(each.get(READ_WITHIN_S).offset) for each in sent]


def consume(bootstrap: str, topic: str, counts: dict[int, int]) -> list[Received]:
    received: list[Received] = []
    deadline = Deadline()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, check_crcs=True)
    with closing(consumer):
        places = [TopicPartition(topic, partition) for partition in counts]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        while len(received) < sum(counts.values()):
            deadline.check(len(received), sum(counts.values()))
            for batch in consumer.poll(timeout_ms=200).values():
                received.extend(map(_received, batch))
    return received


def offset_at(bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    with closing(consumer):
        place = TopicPartition(topic, partition)
        found = consumer.offsets_for_times({place: timestamp_ms})[place]
        return -1 if found is None else int(found.offset)


def create(bootstrap: str, topic: str, partitions: int, config: dict[str, str]) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=config)
        admin.create_topics([new])


def delete(bootstrap: str, topic: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.delete_topics([topic])


def _received(message: Any) -> Received:
    return Received(
        message.partition,
        message.offset,
        Record(message.key, message.value, tuple(message.headers), message.timestamp),
    )
