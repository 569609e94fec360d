"""What each client writes, each client reads: every offset, key, value, header and timestamp."""

from __future__ import annotations

import asyncio
import time
from types import ModuleType

import pytest

from protocol.errors import ErrorCode
from tests.clients import aiokafka_client, kafka_python, librdkafka
from tests.clients.records import BASE_MS, Received, Record, corner_cases, simple
from tests.wire.client import LATEST, PRODUCE, Address, Client, produce_request, produced
from tests.wire.test_produce import numbered

CLIENTS = (librdkafka, kafka_python, aiokafka_client)
each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.NAME)


def check(received: list[Received], sent: dict[int, list[Record]]) -> None:
    """Each partition holds exactly what was sent to it, in order and from offset 0."""
    for partition, records in sent.items():
        found = [each for each in received if each.partition == partition]
        assert [each.offset for each in found] == list(range(len(records)))
        assert [each.record for each in found] == records


@each_client
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_each_codec_is_read_by_all(
    bootstrap: str, topic: str, client: ModuleType, idempotent: bool
) -> None:
    """A codec for each partition; two rounds, so that the second one follows on."""
    librdkafka.create(bootstrap, topic, len(client.COMPRESSIONS), {})
    sent: dict[int, list[Record]] = {}
    for partition, compression in enumerate(client.COMPRESSIONS):
        records = corner_cases(null_headers=client.NULL_HEADERS)
        for start in (0, len(records)):
            offsets = client.produce(
                bootstrap,
                topic,
                partition,
                records,
                compression=compression,
                idempotent=idempotent,
            )
            assert offsets == list(range(start, start + len(records)))
        sent[partition] = records * 2
    for reader in CLIENTS:
        readable = {
            partition: records
            for partition, records in sent.items()
            if client.COMPRESSIONS[partition] in reader.COMPRESSIONS
        }
        counts = {partition: len(records) for partition, records in readable.items()}
        check(reader.consume(bootstrap, topic, counts), readable)


@each_client
def test_acknowledgements(bootstrap: str, topic: str, client: ModuleType) -> None:
    client.create(bootstrap, topic, 3, {})
    sent = {}
    for partition, acks in enumerate(("0", "1", "all")):
        sent[partition] = simple(50, f"acks {acks}")
        offsets = client.produce(bootstrap, topic, partition, sent[partition], acks=acks)
        if acks != "0":
            assert offsets == list(range(50))
    check(client.consume(bootstrap, topic, dict.fromkeys(sent, 50)), sent)


@each_client
def test_large_records(bootstrap: str, topic: str, client: ModuleType) -> None:
    client.create(bootstrap, topic, 1, {})
    sent = [Record(b"key", bytes([number]) * 900_000, (), BASE_MS + number) for number in range(4)]
    assert client.produce(bootstrap, topic, 0, sent) == [0, 1, 2, 3]
    for reader in CLIENTS:
        check(reader.consume(bootstrap, topic, {0: 4}), {0: sent})


@each_client
def test_log_append_time(bootstrap: str, topic: str, client: ModuleType) -> None:
    client.create(bootstrap, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    sent = simple(20)
    before_ms = time.time_ns() // 1_000_000
    for compression in ("none", "gzip"):
        client.produce(bootstrap, topic, 0, sent, compression=compression)
    after_ms = time.time_ns() // 1_000_000
    for reader in CLIENTS:
        received = reader.consume(bootstrap, topic, {0: 40})
        times = [each.record.timestamp_ms for each in received]
        assert all(before_ms <= each <= after_ms for each in times)
        assert times == sorted(times)
        values = [each.record._replace(timestamp_ms=0) for each in received]
        assert values == [each._replace(timestamp_ms=0) for each in sent] * 2


@each_client
def test_offsets_by_time(bootstrap: str, topic: str, client: ModuleType) -> None:
    client.create(bootstrap, topic, 1, {})
    for compression in ("none", "gzip"):
        client.produce(bootstrap, topic, 0, simple(10), compression=compression)
    for asked_ms, offset in (
        (0, 0),
        (BASE_MS, 0),
        (BASE_MS + 1, 1),
        (BASE_MS + 4000, 4),
        (BASE_MS + 4500, 5),
        (BASE_MS + 9000, 9),
        (BASE_MS + 9001, -1),
    ):
        assert client.offset_at(bootstrap, topic, 0, asked_ms) == offset, asked_ms - BASE_MS


@each_client
async def test_a_topic_that_is_made_again_is_another(
    address: Address, bootstrap: str, topic: str, client: ModuleType
) -> None:
    async with await Client.connect(address) as wire:
        await asyncio.to_thread(client.create, bootstrap, topic, 1, {})
        first_id = await topic_id(wire, topic)
        assert await asyncio.to_thread(client.produce, bootstrap, topic, 0, simple(3)) == [0, 1, 2]
        await asyncio.to_thread(client.delete, bootstrap, topic)
        await asyncio.to_thread(client.create, bootstrap, topic, 1, {})
        assert await topic_id(wire, topic) != first_id
        assert await wire.offset(topic, 0, LATEST) == 0
        late = produce_request(topic, {0: numbered(0)})
        late["topic_data"][0]["topic_id"] = first_id
        assert produced(await wire.ask(PRODUCE, 13, late)).code is ErrorCode.unknown_topic_id
        sent = simple(5, "again")
        offsets = await asyncio.to_thread(client.produce, bootstrap, topic, 0, sent)
        assert offsets == [0, 1, 2, 3, 4]
        received = await asyncio.to_thread(client.consume, bootstrap, topic, {0: 5})
        check(received, {0: sent})


async def topic_id(wire: Client, topic: str) -> object:
    (found,) = (await wire.ask(3, 12, {"topics": [{"name": topic}]})).topics
    assert found.error_code is ErrorCode.none
    return found.topic_id


CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
async def test_the_topic_chooses_the_codec(
    address: Address, bootstrap: str, topic: str, codec: str
) -> None:
    """Small batches and ones that are packed in a thread, from plain and from gzip producers."""
    config = {"compression.type": codec}
    await asyncio.to_thread(librdkafka.create, bootstrap, topic, 2, config)
    large = [Record(b"key", b"%d " % number * 4000, (), BASE_MS) for number in range(20)]
    sent = corner_cases(null_headers=True) + large
    for partition, compression in enumerate(("none", "gzip")):
        offsets = await asyncio.to_thread(
            librdkafka.produce, bootstrap, topic, partition, sent, compression=compression
        )
        assert offsets == list(range(len(sent)))
    async with await Client.connect(address) as wire:
        stored = await wire.read_log(topic, 0)
    # The codec is in the lowest bits of the attributes, with which the body begins.
    assert {batch.body[1] & 7 for batch in stored} == {CODECS.index(codec)}
    counts = {0: len(sent), 1: len(sent)}
    for reader in CLIENTS:
        if codec in ("uncompressed", *reader.COMPRESSIONS):
            received = await asyncio.to_thread(reader.consume, bootstrap, topic, counts)
            check(received, {0: sent, 1: sent})
