"""Metadata commits and reads that fail, and commits that nobody knows about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from metadata import keys
from metadata.faults import Fault
from metadata.store import Delete, Put
from metadata.values import Topic, TopicName, decode, encode
from protocol.errors import ErrorCode
from tests.invariants.ledger import Ledger, check_objects
from tests.wire.client import (
    ANSWER_WITHIN_S,
    CREATE_TOPICS,
    INIT_PRODUCER_ID,
    LATEST,
    METADATA,
    Client,
    Produced,
    produced,
)
from tests.wire.running import local_broker
from wal.faulty import Fault as ObjectFault

TOPIC = "t"


def is_append(scope: str, writes: Sequence[Put | Delete]) -> bool:
    return any("/index/" in write.key for write in writes)


def places_marker(scope: str, writes: Sequence[Put | Delete]) -> bool:
    return any("/wal/staging/" in write.key and isinstance(write, Put) for write in writes)


async def ledgers_of(client: Client) -> tuple[Ledger, Ledger]:
    await client.create_topic(TOPIC, 2)
    return Ledger(TOPIC, 0, await client.producer_id()), Ledger(TOPIC, 1)


async def send(client: Client, ledger: Ledger) -> None:
    each = ledger.next()
    ledger.told(each, await client.produce(TOPIC, ledger.partition, each.data))


async def both(client: Client, ledgers: Sequence[Ledger]) -> list[Produced]:
    answers = []
    for ledger in ledgers:
        each = ledger.next()
        answers.append(await client.produce(TOPIC, ledger.partition, each.data))
    return answers


async def test_a_commit_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        idempotent, plain = ledgers = await ledgers_of(client)
        for ledger in ledgers:
            await send(client, ledger)
        local.metadata.fail_commits(Fault.UNAVAILABLE, 2, is_append)
        for answer in await both(client, ledgers):
            assert answer.code is ErrorCode.kafka_storage_error
        for ledger in ledgers:
            assert await client.offset(TOPIC, ledger.partition, LATEST) == 2
        await idempotent.send_again(client)
        await send(client, plain)
        for ledger in ledgers:
            await ledger.check(client)
        assert not idempotent.unknown
    assert await check_objects(tmp_path / "data") == 4


async def test_no_marker_can_be_placed_for_a_while(tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        ledgers = await ledgers_of(client)
        local.metadata.fail_commits(Fault.UNAVAILABLE, 2, places_marker)
        local.metadata.fail_commits(Fault.LOST_ANSWER, 1, places_marker)
        local.metadata.fail_commits(Fault.LOST_REQUEST, 1, places_marker)
        for ledger in ledgers:
            await send(client, ledger)
            await ledger.check(client)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
@pytest.mark.parametrize("failing_reads", [0, 2])
async def test_an_unknown_commit_is_resolved_before_anybody_hears_of_it(
    tmp_path: Path, fault: Fault, failing_reads: int
) -> None:
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        ledgers = await ledgers_of(client)
        for ledger in ledgers:
            await send(client, ledger)
            local.metadata.fail_commits(fault, 1, is_append)
            local.metadata.fail_reads(failing_reads)
            await send(client, ledger)
            await send(client, ledger)
            await ledger.check(client)
            assert [each.offset for each in ledger.sent] == [0, 2, 4]
    assert await check_objects(tmp_path / "data") == 6


async def test_unknown_commits_under_load(tmp_path: Path) -> None:
    """Every third commit is unknown, half of those were applied; nothing is lost or doubled."""
    async with (
        local_broker(tmp_path / "data", wal_flush_max_bytes=4096) as local,
        await local.connect() as client,
    ):
        ledgers = await ledgers_of(client)
        turn = 0

        def every_third(scope: str, writes: Sequence[Put | Delete]) -> bool:
            nonlocal turn
            turn += is_append(scope, writes)
            return is_append(scope, writes) and turn % 3 == 0

        for fault in (Fault.LOST_ANSWER, Fault.LOST_REQUEST) * 10:
            local.metadata.fail_commits(fault, 1, every_third)
        flying = []
        for _ in range(60):
            for ledger in ledgers:
                each = ledger.next(size=1000)
                answer = client.send_produce(TOPIC, ledger.partition, each.data)
                flying.append((ledger, each, answer))
            await asyncio.sleep(0.001)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            for ledger, each, answer in flying:
                ledger.told(each, produced(await answer))
        for ledger in ledgers:
            await ledger.check(client)
            assert [each.offset for each in ledger.sent] == list(range(0, 120, 2))
    assert turn >= 3


async def test_nothing_is_answered_while_a_commit_hangs(tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        ledger, _ = await ledgers_of(client)
        await send(client, ledger)
        local.metadata.hold_commits()
        each = ledger.next()
        answer = await client.produce(TOPIC, 0, each.data, timeout_ms=100)
        assert answer.code is ErrorCode.request_timed_out
        assert (await client.fetch(TOPIC, 0, 0)).high_watermark == 2
        local.metadata.release_commits()
        # It was under way all the time: the repetition finds it.
        await ledger.send_again(client)
        await ledger.check(client)
        assert each.offset == 2


async def test_a_store_that_is_down_gives_codes_that_clients_retry(tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        _, plain = await ledgers_of(client)
        await send(client, plain)
        local.metadata.down = True
        new = {
            "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}],
            "timeout": 30_000,
        }
        created = await client.ask(CREATE_TOPICS, 7, new)
        assert created.topics[0].error_code is ErrorCode.kafka_storage_error
        (missing,) = (await client.ask(METADATA, 9, {"topics": [{"name": "unknown"}]})).topics
        assert missing.error_code is ErrorCode.leader_not_available
        (found,) = (await client.ask(METADATA, 9, {"topics": [{"name": TOPIC}]})).topics
        assert found.error_code is ErrorCode.none
        answer = await client.produce("unknown", 0, plain.next().data)
        assert answer.code is ErrorCode.kafka_storage_error
        plain.sent.pop()
        fetched = await client.fetch("unknown", 0, 0)
        assert fetched.error_code is ErrorCode.kafka_storage_error
        # What is in memory can still be read.
        await plain.check(client)
        local.metadata.down = False
        await client.create_topic("new")
        await send(client, plain)
        await plain.check(client)


async def test_producer_ids_are_not_given_out_twice_after_unknown_commits(tmp_path: Path) -> None:
    def counts(scope: str, writes: Sequence[Put | Delete]) -> bool:
        return any("/counters/" in write.key for write in writes)

    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        local.metadata.fail_commits(Fault.LOST_ANSWER, 1, counts)
        local.metadata.fail_commits(Fault.LOST_REQUEST, 1, counts)
        ids = [await client.producer_id() for _ in range(5)]
        assert len(set(ids)) == 5
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        local.metadata.fail_commits(Fault.UNAVAILABLE, 1, counts)
        asked = {"producer_id": -1, "producer_epoch": -1, "transaction_timeout": 0}
        refused = await client.ask(INIT_PRODUCER_ID, 4, asked)
        assert refused.error_code is ErrorCode.coordinator_load_in_progress
        more = [await client.producer_id() for _ in range(5)]
        assert len({*ids, *more}) == 10


async def test_a_topic_of_another_broker_can_t_be_read_at_once(tmp_path: Path) -> None:
    """The store tells of it, and fails when the broker wants to read it. The broker lives, and
    knows the topic before long."""
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        await client.create_topic("first")
        prefix = keys.TOPIC_IDS
        rows = local.metadata.scan(prefix, keys.end_of(prefix), scope=keys.TOPICS_SCOPE)
        (first,) = [decode(Topic, row.value) async for row in rows]
        second = msgspec.structs.replace(first, topic_id=uuid4(), name="second")
        local.metadata.fail_reads(3)
        await local.metadata.commit(
            keys.TOPICS_SCOPE,
            [],
            [
                Put(keys.topic_id(second.topic_id), encode(second)),
                Put(keys.topic_name("second"), encode(TopicName(second.topic_id))),
            ],
        )
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while True:
                # All topics: this alone doesn't make the broker look for one.
                answer = await client.ask(METADATA, 9, {"topics": None})
                if [each.name for each in answer.topics] == ["first", "second"]:
                    break
                await asyncio.sleep(0.01)


async def test_what_runs_in_the_background_outlives_an_outage(tmp_path: Path) -> None:
    """Collection and the removal of deleted topics meet a store that is down, again and again."""
    async with (
        local_broker(
            tmp_path / "data",
            wal_gc_interval_ms=1,
            wal_sweep_interval_ms=1,
            producer_id_expiration_check_interval_ms=1,
        ) as local,
        await local.connect() as client,
    ):
        ledgers = await ledgers_of(client)
        for ledger in ledgers:
            await send(client, ledger)
        await client.create_topic("gone")
        await client.delete_topic("gone")
        local.metadata.down = True
        local.objects.plan("list", ObjectFault.FAIL, times=20)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while local.metadata.refused < 10:
                await asyncio.sleep(0.01)
        local.metadata.down = False
        for ledger in ledgers:
            await send(client, ledger)
            await ledger.check(client)
