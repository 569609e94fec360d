"""kafka-python: ``python -m compat.clients.kafka_python``."""

import time
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.codec import has_lz4, has_snappy, has_zstd

from compat.clients.job import CASE_TIMEOUT_S, Case, Record, TimedOut, pack, serve, unpack

CASE_TIMEOUT_MS = int(CASE_TIMEOUT_S * 1000)


def describe(_bootstrap: str, _case: Case) -> dict[str, Any]:
    optional = {"snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd()}
    return {
        "version": kafka.__version__,
        "compressions": ["none", "gzip", *(name for name, there in optional.items() if there)],
        "null_headers": False,
    }


def create(bootstrap: str, case: Case) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        topic = NewTopic(case["topic"], num_partitions=case["partitions"], replication_factor=1)
        admin.create_topics([topic], timeout_ms=CASE_TIMEOUT_MS)
    finally:
        admin.close()


def produce(bootstrap: str, case: Case) -> list[int | None]:
    compression = case["compression"]
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all" if case["acks"] == "all" else int(case["acks"]),
        enable_idempotence=case["idempotent"],
        compression_type=None if compression == "none" else compression,
        linger_ms=20,
    )
    try:
        sent = [
            producer.send(
                case["topic"],
                value=unpack(record["value"]),
                key=unpack(record["key"]),
                headers=[(name, unpack(value)) for name, value in record["headers"]],
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
            )
            for record in case["records"]
        ]
        producer.flush(CASE_TIMEOUT_S)
        offsets = [each.get(CASE_TIMEOUT_S).offset for each in sent]
        return [None if offset < 0 else offset for offset in offsets]
    finally:
        producer.close(CASE_TIMEOUT_S)


def consume(bootstrap: str, case: Case) -> list[Record]:
    wanted = sum(case["ends"])
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, check_crcs=True)
    try:
        places = [
            TopicPartition(case["topic"], partition) for partition in range(len(case["ends"]))
        ]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        records: list[Record] = []
        deadline = time.monotonic() + CASE_TIMEOUT_S
        while len(records) < wanted:
            if time.monotonic() > deadline:
                raise TimedOut(f"{len(records)} of {wanted} records")
            for batch in consumer.poll(timeout_ms=500).values():
                records.extend(map(_record, batch))
        return records
    finally:
        consumer.close()


def offsets(bootstrap: str, case: Case) -> dict[str, int]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    try:
        place = TopicPartition(case["topic"], case["partition"])
        found = consumer.offsets_for_times({place: case["timestamp"]})[place]
        return {
            "earliest": consumer.beginning_offsets([place])[place],
            "latest": consumer.end_offsets([place])[place],
            "at": -1 if found is None else found.offset,
        }
    finally:
        consumer.close()


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
