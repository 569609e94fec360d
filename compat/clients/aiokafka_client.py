"""aiokafka: ``python -m compat.clients.aiokafka_client``."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError, for_code

from compat.clients.job import CASE_TIMEOUT_S, Case, Doer, Record, Refused, pack, serve, unpack
from compat.clients.member import HEARTBEAT_MS, POLL_MS, SESSION_TIMEOUT_MS, Member

CASE_TIMEOUT_MS = int(CASE_TIMEOUT_S * 1000)
ASSIGNORS = {"range": [RangePartitionAssignor]}


def about(_bootstrap: str, _case: Case) -> dict[str, Any]:
    return {
        "version": aiokafka.__version__,
        "compressions": ["none", "gzip", "snappy", "lz4", "zstd"],
    }


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def _create(bootstrap: str, case: Case) -> None:
    topic = NewTopic(
        case["topic"],
        num_partitions=case["partitions"],
        replication_factor=1,
        topic_configs=case["configs"],
    )
    async with _admin(bootstrap) as admin:
        answer = await admin.create_topics([topic], timeout_ms=CASE_TIMEOUT_MS)
    for name, code, *message in answer.topic_errors:
        _check(code, name, message)


async def _describe(bootstrap: str, case: Case) -> dict[str, Any] | None:
    async with _admin(bootstrap) as admin:
        # Not describe_topics: with names it asks the broker to create what isn't there.
        if case["topic"] not in await admin.list_topics():
            return None
        (topic,) = await admin.describe_topics([case["topic"]])
    _check(topic["error_code"], case["topic"])
    return {"partitions": len(topic["partitions"])}


async def _cluster(bootstrap: str, _case: Case) -> dict[str, Any]:
    async with _admin(bootstrap) as admin:
        found = await admin.describe_cluster()
    return {"ports": sorted(broker["port"] for broker in found["brokers"])}


async def _describe_configs(bootstrap: str, case: Case) -> dict[str, str | None]:
    resource = ConfigResource(ConfigResourceType.TOPIC, case["topic"])
    async with _admin(bootstrap) as admin:
        (answer,) = await admin.describe_configs([resource])
    ((code, message, _, name, entries),) = answer.resources
    _check(code, name, message)
    return {entry[0]: entry[1] for entry in entries}


async def _alter_configs(bootstrap: str, case: Case) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, case["topic"], case["configs"])
    async with _admin(bootstrap) as admin:
        (answer,) = await admin.alter_configs([resource])
    for code, message, _, name in answer.resources:
        _check(code, name, message)


async def _create_partitions(bootstrap: str, case: Case) -> None:
    async with _admin(bootstrap) as admin:
        await admin.create_partitions({case["topic"]: NewPartitions(case["partitions"])})


async def _delete_records(bootstrap: str, case: Case) -> None:
    place = TopicPartition(case["topic"], case["partition"])
    async with _admin(bootstrap) as admin:
        await admin.delete_records({place: RecordsToDelete(case["before"])})


async def _delete(bootstrap: str, case: Case) -> None:
    async with _admin(bootstrap) as admin:
        answer = await admin.delete_topics([case["topic"]], timeout_ms=CASE_TIMEOUT_MS)
    for name, code in answer.topic_error_codes:
        _check(code, name)


def _check(code: int, name: str, message: object = "") -> None:
    if code:
        raise Refused(f"{name}: {for_code(code).__name__} {message}")


async def _produce(bootstrap: str, case: Case) -> list[int | None]:
    compression = case["compression"]
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all" if case["acks"] == "all" else int(case["acks"]),
        enable_idempotence=case["idempotent"],
        compression_type=None if compression == "none" else compression,
        linger_ms=20,
        max_request_size=case["max_bytes"],
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
    wanted = sum(case["counts"])
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, check_crcs=True)
    await consumer.start()
    try:
        places = [TopicPartition(case["topic"], i) for i in range(len(case["starts"]))]
        consumer.assign(places)
        for place, start in zip(places, case["starts"], strict=True):
            consumer.seek(place, start)
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


async def _member(bootstrap: str, case: Case) -> None:
    """A member of a group, until standard input ends."""
    told = Member()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka's has no types
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            told.gained(place.partition for place in assigned)

        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            told.lost(place.partition for place in revoked)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=case["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=ASSIGNORS[case["assignor"]],
    )
    consumer.subscribe([case["topic"]], listener=Listener())
    await consumer.start()
    while not told.stopping:
        ends = {}
        for place, batch in (await consumer.getmany(timeout_ms=POLL_MS)).items():
            told.read(place.partition, [message.offset for message in batch])
            ends[place] = batch[-1].offset + 1
        if ends:
            try:
                await consumer.commit(ends)
            except KafkaError:
                continue
            told.committed({place.partition: end for place, end in ends.items()})
    # It leaves without calling the listener; all that was read is committed.
    told.lost(place.partition for place in consumer.assignment())
    await consumer.stop()
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


def _run(doer: Callable[[str, Case], Awaitable[Any]]) -> Doer:
    async def done(bootstrap: str, case: Case) -> Any:
        return await doer(bootstrap, case)

    return lambda bootstrap, case: asyncio.run(done(bootstrap, case))


if __name__ == "__main__":
    serve(
        {
            "about": about,
            "create": _run(_create),
            "describe": _run(_describe),
            "cluster": _run(_cluster),
            "describe_configs": _run(_describe_configs),
            "alter_configs": _run(_alter_configs),
            "create_partitions": _run(_create_partitions),
            "produce": _run(_produce),
            "consume": _run(_consume),
            "offsets": _run(_offsets),
            "delete_records": _run(_delete_records),
            "delete": _run(_delete),
            "member": _run(_member),
        }
    )
