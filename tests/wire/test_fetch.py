"""Fetch, byte by byte: sizes, offsets, waiting, sessions, epochs."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from protocol.errors import ErrorCode
from tests.protocol.building import batch, record
from tests.wire.client import (
    ANSWER_WITHIN_S,
    FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    Client,
    body_of,
    fetch_request,
    stored_batches,
)
from tests.wire.process import BrokerProcess


def sized(number: int, size: int, count: int = 1) -> bytes:
    return batch(
        [record(index, value=b"%d" % number + bytes(size)) for index in range(count)],
    )


def partitions(answer: Any) -> dict[int, Any]:
    return {each.partition_index: each for topic in answer.responses for each in topic.partitions}


async def fill(client: Client, topic: str, sent: dict[int, list[bytes]]) -> None:
    for partition, batches in sent.items():
        for each in batches:
            assert (await client.produce(topic, partition, each)).code is ErrorCode.none


async def test_an_offset_in_the_middle_of_a_batch_gives_the_whole_batch(
    client: Client, topic: str
) -> None:
    await client.create_topic(topic)
    sent = [sized(number, 10, count=5) for number in range(3)]
    await fill(client, topic, {0: sent})
    for offset in range(15):
        found = await client.fetch(topic, 0, offset)
        batches = stored_batches(found.records)
        assert batches[0].base_offset == offset - offset % 5
        assert [each.body for each in batches] == [body_of(each) for each in sent[offset // 5 :]]
        assert found.high_watermark == found.last_stable_offset == 15
        assert {each.leader_epoch for each in batches} == {0}


async def test_the_first_batch_is_returned_whatever_its_size(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    sent = [sized(0, 100_000), sized(1, 10)]
    await fill(client, topic, {0: sent})
    found = await client.fetch(topic, 0, 0, max_bytes=1)
    assert [each.body for each in stored_batches(found.records)] == [body_of(sent[0])]
    found = await client.fetch(topic, 0, 1, max_bytes=1)
    assert [each.body for each in stored_batches(found.records)] == [body_of(sent[1])]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
async def test_a_partition_gets_as_many_whole_batches_as_fit(
    client: Client, topic: str, count: int
) -> None:
    await client.create_topic(topic)
    sent = [sized(number, 1000) for number in range(8)]
    await fill(client, topic, {0: sent})
    limit = sum(len(each) for each in sent[:count])
    for max_bytes in (limit, limit + len(sent[0]) - 1):
        found = await client.fetch(topic, 0, 0, max_bytes=max_bytes)
        assert len(found.records) == limit


async def test_max_bytes_holds_across_partitions(client: Client, topic: str) -> None:
    await client.create_topic(topic, 4)
    size = len(sized(0, 1000))
    await fill(client, topic, {index: [sized(index, 1000)] * 4 for index in range(4)})
    request = fetch_request({topic: dict.fromkeys(range(4), 0)}, max_bytes=6 * size + 10)
    answer = partitions(await client.ask(FETCH, 12, request))
    assert [len(answer[index].records or b"") for index in range(4)] == [4 * size, 2 * size, 0, 0]
    request = fetch_request({topic: dict.fromkeys(range(4), 0)}, partition_max_bytes=size)
    answer = partitions(await client.ask(FETCH, 12, request))
    assert [len(answer[index].records or b"") for index in range(4)] == [size] * 4


async def test_only_the_first_partition_may_exceed_its_limits(client: Client, topic: str) -> None:
    """KIP-74: progress for one partition, not a large batch for each."""
    await client.create_topic(topic, 3)
    await fill(client, topic, {1: [sized(1, 5000)], 2: [sized(2, 5000)]})
    request = fetch_request({topic: {0: 0, 1: 0, 2: 0}}, partition_max_bytes=100)
    answer = partitions(await client.ask(FETCH, 12, request))
    sizes = [len(answer[index].records or b"") for index in range(3)]
    assert sizes == [0, len(sized(1, 5000)), 0]
    assert all(each.error_code is ErrorCode.none for each in answer.values())
    assert answer[2].high_watermark == 1


async def test_a_long_poll_is_woken_by_enough_bytes_from_another_connection(
    client: Client, server: BrokerProcess, topic: str
) -> None:
    await client.create_topic(topic, 2)
    sent = sized(0, 1000)
    waiting = client.send(
        FETCH,
        12,
        fetch_request({topic: {0: 0, 1: 0}}, min_bytes=2 * len(sent), wait_ms=50_000),
    )
    async with await Client.connect(server.address) as other:
        await other.produce(topic, 0, sent)
        # One batch is not enough: another connection's request is through, this one waits.
        assert (await other.fetch(topic, 0, 0)).high_watermark == 1
        assert not waiting.done()
        await other.produce(topic, 1, sent)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        found = partitions(await waiting)
    assert [bytes(found[index].records)[21:] for index in (0, 1)] == [body_of(sent)] * 2


async def test_a_long_poll_ends_at_its_time(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    found = await client.fetch(topic, 0, 0, wait_ms=50)
    assert (found.error_code, found.high_watermark) == (ErrorCode.none, 0)
    assert not found.records


async def test_outside_the_log(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    await client.produce(topic, 0, sized(0, 10, count=3))
    for offset in (-1, 4, 2**62):
        found = await client.fetch(topic, 0, offset, wait_ms=50_000)
        assert found.error_code is ErrorCode.offset_out_of_range
    assert (await client.fetch(topic, 0, 3)).error_code is ErrorCode.none


async def test_unknown_topics_and_partitions_fail_alone(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    sent = sized(0, 10)
    await client.produce(topic, 0, sent)
    request = fetch_request({topic: {5: 0, 0: 0}, "no-such-topic": {0: 0}}, wait_ms=50_000)
    answer = await client.ask(FETCH, 12, request)
    codes = {
        (each.topic, found.partition_index): found.error_code
        for each in answer.responses
        for found in each.partitions
    }
    assert codes == {
        (topic, 5): ErrorCode.unknown_topic_or_partition,
        (topic, 0): ErrorCode.none,
        ("no-such-topic", 0): ErrorCode.unknown_topic_or_partition,
    }
    assert bytes(partitions(answer)[0].records or b"")[21:] in (b"", body_of(sent))


async def test_a_deleted_topic_ends_the_poll_that_waits_on_it(
    client: Client, server: BrokerProcess, topic: str
) -> None:
    topic_id = await client.create_topic(topic)
    waiting = client.send(FETCH, 16, fetch_request({topic_id: {0: 0}}, wait_ms=50_000))
    async with await Client.connect(server.address) as other:
        await other.delete_topic(topic)
        second_id = await other.create_topic(topic)
        await other.produce(topic, 0, sized(0, 10))
        async with asyncio.timeout(ANSWER_WITHIN_S):
            found = partitions(await waiting)[0]
        assert found.error_code is ErrorCode.unknown_topic_id
        for unknown in (topic_id, uuid4()):
            answer = await other.ask(FETCH, 16, fetch_request({unknown: {0: 0}}, wait_ms=50_000))
            assert partitions(answer)[0].error_code is ErrorCode.unknown_topic_id
        answer = await other.ask(FETCH, 16, fetch_request({second_id: {0: 0}}))
        assert partitions(answer)[0].high_watermark == 1


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version(client: Client, topic: str, version: int) -> None:
    topic_id = await client.create_topic(topic)
    sent = sized(0, 10, count=2)
    await client.produce(topic, 0, sent)
    wanted = topic if version < 13 else topic_id
    answer = await client.ask(FETCH, version, fetch_request({wanted: {0: 0}}, isolation_level=1))
    found = partitions(answer)[0]
    assert found.error_code is ErrorCode.none
    assert found.high_watermark == found.last_stable_offset == 2
    assert not found.aborted_transactions
    assert [each.body for each in stored_batches(found.records)] == [body_of(sent)]


async def test_leader_epochs(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    await client.produce(topic, 0, sized(0, 10, count=4))
    for asked, code in ((-1, 0), (0, 0), (1, ErrorCode.unknown_leader_epoch)):
        request = fetch_request({topic: {0: 0}}, leader_epoch=asked)
        assert partitions(await client.ask(FETCH, 12, request))[0].error_code == code
    for asked, current, expected in (
        (0, 0, (ErrorCode.none, 0, 4)),
        (0, -1, (ErrorCode.none, 0, 4)),
        (0, 3, (ErrorCode.unknown_leader_epoch, -1, -1)),
    ):
        answer = await client.ask(
            OFFSET_FOR_LEADER_EPOCH,
            4,
            {
                "replica_id": -1,
                "topics": [
                    {
                        "topic": topic,
                        "partitions": [
                            {"partition": 0, "current_leader_epoch": current, "leader_epoch": asked}
                        ],
                    }
                ],
            },
        )
        (found,) = answer.topics[0].partitions
        assert (found.error_code, found.leader_epoch, found.end_offset) == expected


# -- incremental sessions (KIP-227) ----------------------------------------------------------


async def test_a_session_tells_only_what_has_changed(client: Client, topic: str) -> None:
    topic_id = await client.create_topic(topic, 3)
    first = await client.ask(
        FETCH, 16, fetch_request({topic_id: {0: 0, 1: 0}}, session_epoch=0, min_bytes=0)
    )
    session = first.session_id
    assert session > 0
    assert set(partitions(first)) == {0, 1}

    async def follow(epoch: int, offsets: dict[int, int], forgotten: list[int]) -> dict[int, Any]:
        answer = await client.ask(
            FETCH,
            16,
            fetch_request(
                {topic_id: offsets} if offsets else {},
                session_id=session,
                session_epoch=epoch,
                forgotten={topic_id: forgotten} if forgotten else None,
            ),
        )
        assert (answer.error_code, answer.session_id) == (ErrorCode.none, session)
        return partitions(answer)

    assert await follow(1, {}, []) == {}
    sent = sized(0, 10)
    await client.produce(topic, 1, sent)
    await client.produce(topic, 2, sent)
    found = await follow(2, {}, [])
    assert set(found) == {1}
    assert bytes(found[1].records)[21:] == body_of(sent)
    found = await follow(3, {1: 1, 2: 0}, [])
    assert set(found) == {2}
    assert await follow(4, {2: 1}, [1]) == {}
    await client.produce(topic, 1, sent)
    assert await follow(5, {}, []) == {}
    await client.produce(topic, 0, sent)
    assert set(await follow(6, {}, [])) == {0}


async def test_errors_of_sessions(client: Client, topic: str) -> None:
    topic_id = await client.create_topic(topic)
    opened = await client.ask(
        FETCH, 16, fetch_request({topic_id: {0: 0}}, session_epoch=0, min_bytes=0)
    )
    session = opened.session_id
    wrong = await client.ask(FETCH, 16, fetch_request({}, session_id=session, session_epoch=7))
    assert wrong.error_code is ErrorCode.invalid_fetch_session_epoch
    other = fetch_request({}, session_id=session ^ 1, session_epoch=1)
    unknown = await client.ask(FETCH, 16, other)
    assert unknown.error_code is ErrorCode.fetch_session_id_not_found
    by_name = await client.ask(FETCH, 12, fetch_request({}, session_id=session, session_epoch=1))
    assert by_name.error_code is ErrorCode.fetch_session_topic_id_error
    closed = await client.ask(
        FETCH, 16, fetch_request({topic_id: {0: 0}}, session_id=session, session_epoch=-1)
    )
    assert (closed.error_code, closed.session_id) == (ErrorCode.none, 0)
    gone = await client.ask(FETCH, 16, fetch_request({}, session_id=session, session_epoch=1))
    assert gone.error_code is ErrorCode.fetch_session_id_not_found
