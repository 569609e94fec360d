"""confluent-kafka, which is librdkafka: ``python -m compat.clients.librdkafka``."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache, partial
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from compat.clients.job import CASE_TIMEOUT_S, Case, Record, TimedOut, pack, serve, unpack
from compat.clients.member import HEARTBEAT_MS, POLL_MS, SESSION_TIMEOUT_MS, Member


def about(_bootstrap: str, _case: Case) -> dict[str, Any]:
    return {
        "version": f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})",
        "compressions": ["none", "gzip", "snappy", "lz4", "zstd"],
    }


def create(bootstrap: str, case: Case) -> None:
    topic = NewTopic(
        case["topic"],
        num_partitions=case["partitions"],
        replication_factor=1,
        config=case["configs"],
    )
    _wait(_admin(bootstrap).create_topics([topic], operation_timeout=CASE_TIMEOUT_S))


def describe(bootstrap: str, case: Case) -> dict[str, Any] | None:
    asked = TopicCollection([case["topic"]])
    try:
        (topic,) = _wait(_admin(bootstrap).describe_topics(asked, request_timeout=CASE_TIMEOUT_S))
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    return {"partitions": len(topic.partitions)}


def cluster(bootstrap: str, _case: Case) -> dict[str, Any]:
    found = _admin(bootstrap).describe_cluster(request_timeout=CASE_TIMEOUT_S)
    return {"ports": sorted(node.port for node in found.result(CASE_TIMEOUT_S).nodes)}


def describe_configs(bootstrap: str, case: Case) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, case["topic"])
    (entries,) = _wait(_admin(bootstrap).describe_configs([resource]))
    return {name: entry.value for name, entry in entries.items()}


def alter_configs(bootstrap: str, case: Case) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in case["configs"].items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, case["topic"], incremental_configs=entries)
    _wait(_admin(bootstrap).incremental_alter_configs([resource]))


def create_partitions(bootstrap: str, case: Case) -> None:
    _wait(_admin(bootstrap).create_partitions([NewPartitions(case["topic"], case["partitions"])]))


def delete_records(bootstrap: str, case: Case) -> None:
    place = TopicPartition(case["topic"], case["partition"], case["before"])
    _wait(_admin(bootstrap).delete_records([place]))


def delete(bootstrap: str, case: Case) -> None:
    _wait(_admin(bootstrap).delete_topics([case["topic"]], operation_timeout=CASE_TIMEOUT_S))


@cache
def _admin(bootstrap: str) -> AdminClient:
    # Kept: a client that nobody holds ends, and its answers with it.
    return AdminClient({"bootstrap.servers": bootstrap})


def _wait(futures: Mapping[Any, Future[Any]]) -> list[Any]:
    return [future.result(CASE_TIMEOUT_S) for future in futures.values()]


def produce(bootstrap: str, case: Case) -> list[int | None]:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": case["acks"],
            "enable.idempotence": case["idempotent"],
            "compression.type": case["compression"],
            "message.timeout.ms": int(CASE_TIMEOUT_S * 1000),
            "message.max.bytes": case["max_bytes"],
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
    wanted = sum(case["counts"])
    try:
        consumer.assign(
            [
                TopicPartition(case["topic"], partition, start)
                for partition, start in enumerate(case["starts"])
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


def member(bootstrap: str, case: Case) -> None:
    """A member of a group, until standard input ends."""
    told = Member()
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": case["group"],
        "group.protocol": case["protocol"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if case["protocol"] == "classic":
        settings |= {
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": case["assignor"],
        }
    consumer = Consumer(settings)

    def gained(_: Consumer, places: list[TopicPartition]) -> None:
        told.gained(place.partition for place in places)

    def lost(_: Consumer, places: list[TopicPartition]) -> None:
        told.lost(place.partition for place in places)

    consumer.subscribe([case["topic"]], on_assign=gained, on_revoke=lost, on_lost=lost)
    while not told.stopping:
        batches: dict[int, list[int]] = {}
        for message in consumer.consume(200, POLL_MS / 1000):
            partition, offset = message.partition(), message.offset()
            if message.error() is None and partition is not None and offset is not None:
                batches.setdefault(partition, []).append(offset)
        for partition, found in batches.items():
            told.read(partition, found)
        ends = {partition: found[-1] + 1 for partition, found in batches.items()}
        if ends:
            places = [TopicPartition(case["topic"], place, end) for place, end in ends.items()]
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException:
                continue
            told.committed(ends)
    consumer.close()
    told.left()


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
            "about": about,
            "create": create,
            "describe": describe,
            "cluster": cluster,
            "describe_configs": describe_configs,
            "alter_configs": alter_configs,
            "create_partitions": create_partitions,
            "produce": produce,
            "consume": consume,
            "offsets": offsets,
            "delete_records": delete_records,
            "delete": delete,
            "member": member,
        }
    )
