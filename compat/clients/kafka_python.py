"""kafka-python: ``python -m compat.clients.kafka_python``."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka
from kafka import (
    ConsumerRebalanceListener,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.codec import has_lz4, has_snappy, has_zstd
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code

from compat.clients.job import CASE_TIMEOUT_S, Case, Record, Refused, TimedOut, pack, serve, unpack
from compat.clients.member import HEARTBEAT_MS, POLL_MS, SESSION_TIMEOUT_MS, Member

CASE_TIMEOUT_MS = int(CASE_TIMEOUT_S * 1000)
ASSIGNORS = {"range": [RangePartitionAssignor]}


def about(_bootstrap: str, _case: Case) -> dict[str, Any]:
    optional = {"snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd()}
    return {
        "version": kafka.__version__,
        "compressions": ["none", "gzip", *(name for name, there in optional.items() if there)],
        "null_headers": False,
    }


def create(bootstrap: str, case: Case) -> None:
    asked = {
        "num_partitions": case["partitions"],
        "replication_factor": 1,
        "configs": case["configs"],
    }
    with _admin(bootstrap) as admin:
        admin.create_topics({case["topic"]: asked}, timeout_ms=CASE_TIMEOUT_MS)


def describe(bootstrap: str, case: Case) -> dict[str, Any] | None:
    with _admin(bootstrap) as admin:
        (topic,) = admin.describe_topics([case["topic"]])
    code = topic["error_code"]
    if code == UnknownTopicOrPartitionError.errno:
        return None
    if code:
        raise for_code(code)
    return {"partitions": len(topic["partitions"])}


def cluster(bootstrap: str, _case: Case) -> dict[str, Any]:
    with _admin(bootstrap) as admin:
        return {"ports": sorted(broker["port"] for broker in admin.describe_cluster()["brokers"])}


def describe_configs(bootstrap: str, case: Case) -> dict[str, str | None]:
    resource = ConfigResource(ConfigResourceType.TOPIC, case["topic"])
    with _admin(bootstrap) as admin:
        found = admin.describe_configs([resource], config_filter="all")
    return {name: str(entry["value"]) for name, entry in found["topic"][case["topic"]].items()}


def alter_configs(bootstrap: str, case: Case) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, case["topic"], case["configs"])
    with _admin(bootstrap) as admin:
        result = admin.alter_configs([resource])["topic"][case["topic"]]
    if result != "OK":
        raise Refused(result)


def create_partitions(bootstrap: str, case: Case) -> None:
    with _admin(bootstrap) as admin:
        admin.create_partitions({case["topic"]: case["partitions"]}, timeout_ms=CASE_TIMEOUT_MS)


def delete_records(bootstrap: str, case: Case) -> None:
    place = TopicPartition(case["topic"], case["partition"])
    with _admin(bootstrap) as admin:
        admin.delete_records({place: case["before"]}, timeout_ms=CASE_TIMEOUT_MS)


def delete(bootstrap: str, case: Case) -> None:
    with _admin(bootstrap) as admin:
        admin.delete_topics([case["topic"]], timeout_ms=CASE_TIMEOUT_MS)


@contextmanager
def _admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield admin
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
        max_request_size=case["max_bytes"],
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
    wanted = sum(case["counts"])
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, check_crcs=True)
    try:
        places = [TopicPartition(case["topic"], i) for i in range(len(case["starts"]))]
        consumer.assign(places)
        for place, start in zip(places, case["starts"], strict=True):
            consumer.seek(place, start)
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


def member(bootstrap: str, case: Case) -> None:
    """A member of a group, until standard input ends."""
    told = Member()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=case["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=ASSIGNORS[case["assignor"]],
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            told.gained(place.partition for place in assigned)

        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            told.lost(place.partition for place in revoked)

    consumer.subscribe([case["topic"]], listener=Listener())
    while not told.stopping:
        ends = {}
        for place, batch in consumer.poll(timeout_ms=POLL_MS).items():
            told.read(place.partition, [message.offset for message in batch])
            ends[place] = OffsetAndMetadata(batch[-1].offset + 1, "", -1)
        if ends:
            try:
                consumer.commit(ends)
            except KafkaError:
                continue
            told.committed({place.partition: each.offset for place, each in ends.items()})
    consumer.close()
    told.left()


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
