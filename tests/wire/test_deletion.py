"""Readers while records, or the whole topic, are deleted under them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from tests.protocol.building import batch, record
from tests.wire.client import FETCH, Client, fetch_request
from tests.wire.running import LocalBroker, local_broker

DELETE_RECORDS, CREATE_PARTITIONS = 21, 37


async def delete_records(client: Client, topic: str, offset: int) -> tuple[ErrorCode, int]:
    answer = await client.ask(
        DELETE_RECORDS,
        2,
        {
            "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}],
            "timeout": 30_000,
        },
    )
    found = answer.topics[0].partitions[0]
    return found.error_code, found.low_watermark


async def waiting(broker: LocalBroker) -> None:
    """Until the broker has a fetch that waits."""
    async with asyncio.timeout(30):
        while not broker.running.broker.metrics.fetches_waiting._value.get():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("how", ["records", "topic"])
async def test_a_waiting_fetch_is_told_at_once(tmp_path: Path, how: str) -> None:
    async with (
        local_broker(tmp_path) as broker,
        await broker.connect() as client,
        await broker.connect() as reader,
    ):
        await client.create_topic("t")
        await client.produce("t", 0, batch([record(0)]))
        request = fetch_request({"t": {0: 0}}, wait_ms=600_000, min_bytes=1 << 20)
        answer = reader.send(FETCH, 12, request)
        await waiting(broker)
        if how == "records":
            assert await delete_records(client, "t", -1) == (ErrorCode.none, 1)
            expected = ErrorCode.offset_out_of_range
        else:
            await client.delete_topic("t")
            expected = ErrorCode.unknown_topic_or_partition
        async with asyncio.timeout(30):
            found = (await answer).responses[0].partitions[0]
        assert found.error_code is expected


async def test_what_is_left_is_read_after_a_restart_too(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.create_topic("t")
        for _ in range(3):
            await client.produce("t", 0, batch([record(0), record(1)]))
        assert await delete_records(client, "t", 3) == (ErrorCode.none, 3)
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        assert (await client.fetch("t", 0, 2)).error_code is ErrorCode.offset_out_of_range
        found = await client.fetch("t", 0, 3)
        assert (found.error_code, found.log_start_offset) == (ErrorCode.none, 3)
        # The batch that holds offset 3 begins at 2 and is sent as it is; clients skip.
        assert await client.read_log("t", 0, 4)
        await client.produce("t", 0, batch([record(0)]))
        assert await delete_records(client, "t", -1) == (ErrorCode.none, 7)
        assert await delete_records(client, "t", 8) == (ErrorCode.offset_out_of_range, -1)


async def test_a_read_that_a_deletion_overtakes_is_out_of_range(tmp_path: Path) -> None:
    """The index is gone between the look at the head and the read of the object."""
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.create_topic("t")
        for _ in range(3):
            await client.produce("t", 0, batch([record(0)]))
        inside = broker.running.broker
        topic = inside.topics.cached("t", None)
        assert topic is not None
        (ref,) = topic.partitions
        inside.cache.drop(ref.stream_id)
        original = inside.fetcher._load_segments

        async def overtaken(*arguments: object) -> object:
            await inside.trimmer.delete_records(ref, 2)
            return await original(*arguments)  # type: ignore[arg-type]  # passed on as they are

        inside.fetcher._load_segments = overtaken  # type: ignore[assignment,method-assign]  # hook
        found = await client.fetch("t", 0, 0)
        assert found.error_code is ErrorCode.offset_out_of_range


async def test_new_partitions_are_there_when_they_are_acknowledged(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.create_topic("t")
        await client.produce("t", 0, batch([record(0)]))
        answer = await client.ask(
            CREATE_PARTITIONS,
            3,
            {"topics": [{"name": "t", "count": 3, "assignments": None}], "timeout": 30_000},
        )
        assert answer.results[0].error_code is ErrorCode.none
        assert (await client.produce("t", 2, batch([record(0)]))).base_offset == 0
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        for partition in range(3):
            assert len(await client.read_log("t", partition)) == (partition != 1)
