"""PUTs and GETs that fail, are lost or find something else than was written."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import Any

from metadata import keys
from metadata.store import Put
from metadata.values import Marker, decode, encode
from protocol.errors import ErrorCode
from tests.invariants.ledger import Ledger, check_objects, load
from tests.wire.client import ANSWER_WITHIN_S, FETCH, LATEST, Client, fetch_request, produced
from tests.wire.process import broker
from tests.wire.running import LocalBroker, local_broker
from wal.faulty import Fault

TOPIC = "t"
SOON_S = 0.15
LATE_S = 60.0


async def ledgers_of(client: Client) -> tuple[Ledger, Ledger]:
    """An idempotent producer and a plain one."""
    await client.create_topic(TOPIC, 2)
    return Ledger(TOPIC, 0, await client.producer_id()), Ledger(TOPIC, 1)


async def send(client: Client, ledger: Ledger) -> None:
    each = ledger.next()
    ledger.told(each, await client.produce(TOPIC, ledger.partition, each.data))


async def test_a_put_that_fails_is_repeated(tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        for ledger in await ledgers_of(client):
            await send(client, ledger)
            local.objects.plan("put", Fault.FAIL, times=2)
            await send(client, ledger)
            local.objects.plan("put", Fault.LOSE_ANSWER)
            await send(client, ledger)
            await send(client, ledger)
            await ledger.check(client)
            assert [each.offset for each in ledger.sent] == [0, 2, 4, 6]
    assert await check_objects(tmp_path / "data") == 8


async def test_after_the_deadline_producers_are_told_and_the_queue_moves_on(
    tmp_path: Path,
) -> None:
    async with (
        local_broker(tmp_path / "data") as local,
        await local.connect() as client,
    ):
        idempotent, plain = await ledgers_of(client)
        await send(client, idempotent)
        gate = local.objects.hold("put")
        local.set_put_timeout(SOON_S)
        # In flight together: the first is lost, its successors are stored in other objects.
        flying = []
        for _ in range(3):
            each = idempotent.next()
            flying.append((each, client.send_produce(TOPIC, 0, each.data)))
            await gate.reached.wait()
            local.set_put_timeout(LATE_S)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            answers = [produced(await answer) for _, answer in flying]
        assert answers[0].code is ErrorCode.kafka_storage_error
        assert {answer.code for answer in answers[1:]} == {ErrorCode.out_of_order_sequence_number}
        gate.open()
        assert await client.offset(TOPIC, 0, LATEST) == 2
        await idempotent.send_again(client)
        await send(client, plain)
        for ledger in (idempotent, plain):
            await ledger.check(client)
            assert not ledger.unknown


async def test_successors_of_a_new_producer_s_lost_first_batch_wait_for_it(tmp_path: Path) -> None:
    """The log knows nothing of the producer yet, so any sequence number would do for it; but a
    batch that overtook its lost predecessor could never be put right."""
    async with (
        local_broker(tmp_path / "data") as local,
        await local.connect() as client,
    ):
        ledger, _ = await ledgers_of(client)
        gate = local.objects.hold("put")
        local.set_put_timeout(SOON_S)
        flying = []
        for _ in range(4):
            each = ledger.next()
            flying.append((each, client.send_produce(TOPIC, 0, each.data)))
            await gate.reached.wait()
            local.set_put_timeout(LATE_S)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            answers = [produced(await answer) for _, answer in flying]
        gate.open()
        assert answers[0].code is ErrorCode.kafka_storage_error
        assert {answer.code for answer in answers[1:]} == {ErrorCode.out_of_order_sequence_number}
        assert await client.offset(TOPIC, 0, LATEST) == 0
        await ledger.send_again(client)
        await ledger.check(client)
        assert [each.offset for each in ledger.sent] == [0, 2, 4, 6]


async def test_a_slow_put_holds_up_only_its_own_streams(tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        first, second = await ledgers_of(client)
        gate = local.objects.hold("put")
        slow = first.next()
        answer = client.send_produce(TOPIC, 0, slow.data)
        await gate.reached.wait()
        async with await local.connect() as other:
            for _ in range(3):
                await send(other, second)
        assert not answer.done()
        gate.open()
        first.told(slow, produced(await answer))
        for ledger in (first, second):
            await ledger.check(client)


async def test_a_store_that_is_down_for_a_while(tmp_path: Path) -> None:
    """As on a full disk: errors that clients repeat, and no need to restart."""
    async with (
        local_broker(tmp_path / "data") as local,
        await local.connect() as client,
    ):
        idempotent, plain = await ledgers_of(client)
        await send(client, plain)
        local.objects.plan("put", Fault.FAIL, times=1000)
        local.set_put_timeout(SOON_S)
        for _ in range(3):
            for ledger in (idempotent, plain):
                each = ledger.next()
                answer = await client.produce(TOPIC, ledger.partition, each.data)
                assert answer.code in (
                    ErrorCode.kafka_storage_error,
                    ErrorCode.out_of_order_sequence_number,
                )
        assert await client.offset(TOPIC, 0, LATEST) == 0
        assert await client.offset(TOPIC, 1, LATEST) == 2
        local.objects.clear()
        local.set_put_timeout(LATE_S)
        await idempotent.send_again(client)
        await send(client, plain)
        for ledger in (idempotent, plain):
            await ledger.check(client)
        assert not idempotent.unknown


async def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    """No file of the process may grow: neither objects nor the metadata can be written."""
    with broker(tmp_path / "data", "wal.put.timeout_ms=1500") as process:
        async with await Client.connect(process.address) as client:
            idempotent, plain = await ledgers_of(client)
            await send(client, idempotent)
            await send(client, plain)
            _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (64, hard))
            for ledger in (idempotent, plain, idempotent):
                each = ledger.next()
                answer = await client.produce(TOPIC, ledger.partition, each.data)
                assert answer.code in (
                    ErrorCode.kafka_storage_error,
                    ErrorCode.out_of_order_sequence_number,
                )
            # What is stored can be read all the while.
            for ledger in (idempotent, plain):
                await ledger.check(client)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
            await idempotent.send_again(client)
            await send(client, plain)
            await client.create_topic("after")
            for ledger in (idempotent, plain):
                await ledger.check(client)
        assert process.running


# -- markers ---------------------------------------------------------------------------------


async def fence_markers(local: LocalBroker) -> int:
    """What the collector does to markers that it takes for abandoned."""
    scope = keys.domain_scope(0)
    prefix = keys.staging(0)
    found = [row async for row in local.metadata.scan(prefix, keys.end_of(prefix), scope=scope)]
    for row in found:
        marker = decode(Marker, row.value)
        fenced = Marker(
            marker.broker_id,
            marker.incarnation,
            marker.base,
            marker.count,
            marker.zone,
            marker.created_ms,
            fenced_ms=marker.created_ms + 1,
        )
        await local.metadata.commit(scope, [], [Put(row.key, encode(fenced))])
    return len(found)


async def test_what_was_written_under_a_fenced_marker_is_written_again(tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data") as local, await local.connect() as client:
        for ledger in await ledgers_of(client):
            await send(client, ledger)
            assert await fence_markers(local) >= 1
            before = local.objects.calls["put"]
            await send(client, ledger)
            # Once in vain, once under a marker that holds.
            assert local.objects.calls["put"] - before == 2
            await send(client, ledger)
            await ledger.check(client)
            assert [each.offset for each in ledger.sent] == [0, 2, 4]
    assert await check_objects(tmp_path / "data") == 6


# -- damage ----------------------------------------------------------------------------------


def objects_in(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "objects" / "wal").rglob("*.wo"), key=lambda path: path.stat().st_ino)


async def damaged_log(data_dir: Path) -> dict[int, Path]:
    """Two partitions with three batches each; the object of each one's second batch."""
    middle: dict[int, Path] = {}
    with broker(data_dir) as process:
        async with await Client.connect(process.address) as client:
            ledgers = await ledgers_of(client)
            for number in range(3):
                for ledger in ledgers:
                    before = set(objects_in(data_dir))
                    await send(client, ledger)
                    (path,) = set(objects_in(data_dir)) - before
                    if number == 1:
                        middle[ledger.partition] = path
    return middle


async def read_all(client: Client) -> dict[int, Any]:
    answer = await client.ask(
        FETCH, 12, fetch_request({TOPIC: {0: 2, 1: 2}}, partition_max_bytes=1000)
    )
    return {each.partition_index: each for each in answer.responses[0].partitions}


async def test_a_damaged_object_fails_its_partition_alone(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    path = (await damaged_log(data_dir))[0]
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    with broker(data_dir, "cache.hot.max_bytes=0") as process:
        async with await Client.connect(process.address) as client:
            found = await read_all(client)
            assert found[0].error_code is ErrorCode.corrupt_message
            assert not found[0].records
            assert found[1].error_code is ErrorCode.none
            assert 'dray_object_reads_failed_total{reason="corrupt"}' in await process.metrics()
            # Also where the damaged partition might have taken all that the answer may hold.
            wanted = fetch_request({TOPIC: {0: 2, 1: 2}})
            (_, other) = (await client.ask(FETCH, 12, wanted)).responses[0].partitions
            assert (other.error_code, bool(other.records)) == (ErrorCode.none, True)
            # Before and after the damage all is well, and the partition takes records.
            for offset in (0, 4):
                whole = await client.fetch(TOPIC, 0, offset)
                assert (whole.error_code, bool(whole.records)) == (ErrorCode.none, True)
            more = Ledger(TOPIC, 0)
            assert await load(process.address, more, window=1, batches=2) == 2
        assert process.running


async def test_a_missing_object_fails_its_partition_alone(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    (await damaged_log(data_dir))[1].unlink()
    with broker(data_dir, "cache.hot.max_bytes=0") as process:
        async with await Client.connect(process.address) as client:
            found = await read_all(client)
            assert found[1].error_code is ErrorCode.kafka_storage_error
            assert not found[1].records
            assert found[0].error_code is ErrorCode.none
            assert 'dray_object_reads_failed_total{reason="missing"}' in await process.metrics()
            for offset in (0, 4):
                whole = await client.fetch(TOPIC, 1, offset)
                assert (whole.error_code, bool(whole.records)) == (ErrorCode.none, True)
        assert process.running


async def test_a_missing_object_is_met_while_its_stream_is_written(tmp_path: Path) -> None:
    """A reader that finds an object gone has the stream read anew; a commit that is under way
    for that stream must not mind."""
    data_dir = tmp_path / "data"
    (await damaged_log(data_dir))[1].unlink()
    async with (
        local_broker(data_dir, cache_hot_max_bytes=0) as local,
        await local.connect() as client,
        await local.connect() as reader,
    ):
        before = await client.offset(TOPIC, 1, LATEST)
        gate = local.objects.hold("get")
        fetch = asyncio.create_task(reader.fetch(TOPIC, 1, 2))
        await gate.reached.wait()
        local.metadata.hold_commits()
        each = Ledger(TOPIC, 1).next()
        answer = client.send_produce(TOPIC, 1, each.data)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while not local.metadata.commits_held:
                await asyncio.sleep(0.001)
        local.metadata.fail_reads()
        gate.open()
        assert (await fetch).error_code is ErrorCode.kafka_storage_error
        local.metadata.release_commits()
        async with asyncio.timeout(ANSWER_WITHIN_S):
            assert produced(await answer) == (ErrorCode.none, before)
        assert (await reader.fetch(TOPIC, 1, before)).high_watermark == before + 2


async def test_reads_that_fail_for_a_while(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", cache_hot_max_bytes=0) as local,
        await local.connect() as client,
    ):
        ledger, _ = await ledgers_of(client)
        await send(client, ledger)
        local.objects.plan("get", Fault.FAIL)
        failed = await client.fetch(TOPIC, 0, 0)
        assert failed.error_code is ErrorCode.kafka_storage_error
        await ledger.check(client)
