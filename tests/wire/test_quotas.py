"""Quotas enforced: what a client over its limit is told, and that it isn't read from meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from drayd.connection import Connection
from metadata.quotas import Alteration
from protocol.errors import ErrorCode
from tests.protocol.building import batch, record
from tests.wire.client import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
    Client,
    fetch_request,
    produce_request,
)
from tests.wire.running import LocalBroker, local_broker

NO_WAIT = timedelta(0)
# So that what is over the limit by a little costs milliseconds, not seconds.
FEW_WINDOWS = {"quota_window_num": 2, "quota_window_size_seconds": 1}


async def limit(broker: LocalBroker, **limits: float) -> None:
    """For the client id of the tests' client."""
    await broker.running.broker.quotas.alter([Alteration({"client-id": "tests"}, limits)])


def connection(broker: LocalBroker) -> Connection:
    (only,) = broker.running.server._connections
    return only


def sized(size: int) -> bytes:
    return batch([record(0, value=bytes(size))])


async def test_a_producer_over_its_rate_is_answered_and_then_muted(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path, **FEW_WINDOWS) as broker,
        await broker.connect() as client,
    ):
        await client.create_topic("t")
        await limit(broker, producer_byte_rate=50_000)
        within = await client.ask(PRODUCE, 9, produce_request("t", {0: sized(1000)}))
        assert within.throttle_time == NO_WAIT
        over = await client.ask(PRODUCE, 9, produce_request("t", {0: sized(60_000)}))
        assert over.responses[0].partition_responses[0].error_code is ErrorCode.none
        assert over.throttle_time > NO_WAIT
        began = asyncio.get_running_loop().time()
        assert connection(broker).muted
        await client.ask(API_VERSIONS, 3, {})
        waited = asyncio.get_running_loop().time() - began
        # The mute began just before the answer came.
        assert waited > 0.8 * over.throttle_time.total_seconds()
        assert not connection(broker).muted
        assert broker.running.server.budget.used == 0
        seen = broker.running.broker.metrics.registry.get_sample_value(
            "dray_throttle_seconds_count", {"quota": "produce"}
        )
        assert seen == 1


async def test_a_producer_without_acknowledgement_is_muted_too(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.create_topic("t")
        await limit(broker, producer_byte_rate=1)
        client.send_unanswered(PRODUCE, 9, produce_request("t", {0: sized(1000)}, acks=0))
        async with asyncio.timeout(30):
            while not connection(broker).muted:
                await asyncio.sleep(0.001)


async def test_a_muted_client_does_not_disturb_others_or_the_end(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.create_topic("t")
        await limit(broker, producer_byte_rate=1)
        over = await client.ask(PRODUCE, 9, produce_request("t", {0: sized(5000)}))
        assert over.throttle_time > timedelta(seconds=60)
        never = client.send(API_VERSIONS, 3, {})
        async with await broker.connect() as other:
            # Another connection of the same client is only told for itself.
            await other.ask(API_VERSIONS, 3, {})
            assert (await other.fetch("t", 0, 0)).high_watermark == 1
        assert not never.done()
        assert broker.running.server.budget.used == 0


async def test_a_frame_that_has_begun_is_received_and_handled(tmp_path: Path) -> None:
    """A muted connection holds no memory of half a request."""
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.create_topic("t")
        await limit(broker, producer_byte_rate=1)
        first, answer = client.prepare(PRODUCE, 9, produce_request("t", {0: sized(5000)}))
        second, later = client.prepare(PRODUCE, 9, produce_request("t", {0: sized(500_000)}))
        third, never = client.prepare(API_VERSIONS, 3, {})
        client.writer.write(first + second[:1000])
        await answer
        client.writer.write(second[1000:])
        await later
        client.writer.write(third)
        async with await broker.connect() as other:
            await other.ask(API_VERSIONS, 3, {})
        assert not never.done()
        assert broker.running.server.budget.used == 0


async def test_a_consumer_over_its_rate_gets_nothing_and_waits(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path, **FEW_WINDOWS) as broker,
        await broker.connect() as client,
    ):
        await client.create_topic("t")
        for _ in range(4):
            await client.produce("t", 0, sized(40_000))
        await limit(broker, consumer_byte_rate=50_000)

        async def fetch(session_id: int = 0, epoch: int = 0) -> Any:
            asked = fetch_request({"t": {0: 0}}, max_bytes=1 << 20, partition_max_bytes=1 << 20)
            return await client.ask(
                FETCH, 12, {**asked, "session_id": session_id, "session_epoch": epoch}
            )

        first = await fetch()
        # One window's worth at most: more could never be within the limit.
        assert 40_000 < len(first.responses[0].partitions[0].records) <= 50_000
        assert first.throttle_time == NO_WAIT
        assert first.session_id
        over = await fetch(first.session_id, 1)
        assert over.throttle_time > NO_WAIT
        assert over.responses == ()
        assert over.session_id == first.session_id
        # What wasn't sent doesn't count: after the wait there is room again, in the same session.
        async with asyncio.timeout(30):
            epoch = 2
            while not (again := await fetch(first.session_id, epoch)).responses:
                epoch += 1
        assert again.throttle_time == NO_WAIT
        # A new session doesn't begin with an answer that says nothing.
        sessions = len(broker.running.broker.sessions)
        new = await fetch()
        assert new.responses == ()
        assert new.session_id == 0
        assert len(broker.running.broker.sessions) == sessions


async def test_requests_are_throttled_by_the_time_they_take(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await limit(broker, request_percentage=0.000_001)
        over = await client.ask(METADATA, 9, {"topics": None})
        # Never for longer than a window.
        assert NO_WAIT < over.throttle_time <= timedelta(seconds=1)


async def test_requests_within_their_time_pass(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.create_topic("t")
        await limit(broker, request_percentage=10_000)
        assert (await client.produce("t", 0, sized(10))).code is ErrorCode.none
        assert (await client.fetch("t", 0, 1, wait_ms=1)).error_code is ErrorCode.none
        assert (await client.ask(METADATA, 9, {"topics": None})).throttle_time == NO_WAIT


def create(name: str, partitions: int) -> dict[str, Any]:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    return {"topics": [topic], "timeout": 30_000}


async def test_topics_beyond_the_mutation_rate_are_refused(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await limit(broker, controller_mutation_rate=0.01)
        first = await client.ask(CREATE_TOPICS, 7, create("first", 3))
        assert first.topics[0].error_code is ErrorCode.none
        refused = await client.ask(CREATE_TOPICS, 7, create("second", 1))
        assert refused.topics[0].error_code is ErrorCode.throttling_quota_exceeded
        assert refused.throttle_time > timedelta(seconds=60)
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.ask(CREATE_TOPICS, 7, create("third", 3))
        # A client that doesn't know the code gets its topic deleted, and waits.
        done = await client.ask(DELETE_TOPICS, 4, {"topic_names": ["first"], "timeout": 30_000})
        assert done.responses[0].error_code is ErrorCode.none
        assert done.throttle_time > timedelta(seconds=60)


async def test_quotas_outlive_the_broker(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        await limit(broker, producer_byte_rate=5, consumer_byte_rate=6)
    async with local_broker(tmp_path) as broker:
        (stored,) = broker.running.broker.quotas.stored()
        assert stored.entity == {"client-id": "tests"}
        assert stored.limits == {"producer_byte_rate": 5, "consumer_byte_rate": 6}


async def test_what_could_not_be_stored_is_said(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        client: Client
        async with await broker.connect() as client:
            broker.metadata.down = True
            answer = await client.ask(
                49,
                1,
                {
                    "entries": [
                        {
                            "entity": [{"entity_type": "user", "entity_name": "u"}],
                            "ops": [{"key": "request_percentage", "value": 5.0, "remove": False}],
                        }
                    ]
                },
            )
            broker.metadata.down = False
            assert answer.entries[0].error_code is ErrorCode.request_timed_out
        assert broker.running.broker.quotas.stored() == []
