"""Produce, byte by byte: order, isolation of partitions, acknowledgements."""

from __future__ import annotations

import asyncio
import time
from uuid import uuid4

import pytest

from protocol.errors import ErrorCode
from tests.protocol.building import batch, record
from tests.wire.client import (
    ANSWER_WITHIN_S,
    EARLIEST,
    FETCH,
    LATEST,
    PRODUCE,
    Client,
    body_of,
    fetch_request,
    produce_request,
    produced,
)
from tests.wire.process import BrokerProcess

PLAIN, GZIP, SNAPPY, LZ4, ZSTD = range(5)


def numbered(number: int, *, size: int = 0, codec: int = PLAIN, count: int = 1) -> bytes:
    """A batch that is unlike any other; incompressible if it has a size."""
    filler = b"".join(uuid4().bytes for _ in range(size // 16))
    return batch(
        [record(index, value=b"%d/%d " % (number, index) + filler) for index in range(count)],
        codec=codec,
    )


async def test_pipelined_produces_keep_their_order_though_some_are_checked_in_threads(
    client: Client, topic: str
) -> None:
    await client.create_topic(topic)
    sent = []
    for number in range(120):
        heavy = number % 3 == 0
        codec = (GZIP, ZSTD, LZ4, SNAPPY)[number // 3 % 4] if heavy else PLAIN
        sent.append(numbered(number, size=100_000 if heavy else 100, codec=codec))
    answers = [client.send_produce(topic, 0, each) for each in sent]
    async with asyncio.timeout(ANSWER_WITHIN_S):
        results = [produced(await answer) for answer in answers]
    assert results == [(ErrorCode.none, number) for number in range(len(sent))]
    log = await client.read_log(topic, 0)
    assert [each.body for each in log] == [body_of(each) for each in sent]


async def test_a_waiting_fetch_is_answered_in_its_turn_and_holds_up_no_other_connection(
    client: Client, server: BrokerProcess, topic: str
) -> None:
    await client.create_topic(topic, 2)
    fetch = client.send(FETCH, 12, fetch_request({topic: {0: 0}}, wait_ms=50_000))
    produce = client.send_produce(topic, 1, numbered(1))
    async with await Client.connect(server.address) as other:
        # The produce after the fetch was processed, though its answer must wait for its turn.
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while await other.offset(topic, 1, LATEST) == 0:
                await asyncio.sleep(0.01)
        assert not produce.done()
        assert not fetch.done()
        sent = numbered(2)
        assert await other.produce(topic, 0, sent) == (ErrorCode.none, 0)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        found = (await fetch).responses[0].partitions[0]
        assert bytes(found.records)[21:] == body_of(sent)
        assert produced(await produce) == (ErrorCode.none, 0)


async def test_acks_0_gets_no_answer_and_keeps_its_place(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    sent = [numbered(number) for number in range(21)]
    for each in sent[:20]:
        client.send_unanswered(PRODUCE, 9, produce_request(topic, {0: each}, acks=0))
    assert await client.produce(topic, 0, sent[20], acks=1) == (ErrorCode.none, 20)
    log = await client.read_log(topic, 0)
    assert [each.body for each in log] == [body_of(each) for each in sent]


async def test_acks_0_that_fails_closes_the_connection(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    client.send_unanswered(PRODUCE, 9, produce_request(topic, {7: numbered(0)}, acks=0))
    assert isinstance(await client.ended(), ConnectionError)


async def test_one_bad_partition_of_a_hundred_fails_alone(client: Client, topic: str) -> None:
    await client.create_topic(topic, 100)
    sent: dict[int, bytes | None] = {index: numbered(index) for index in range(100)}
    sent[13] = batch([record()], crc=1)
    sent[14] = None
    sent[99] = numbered(0)[:-1]
    sent[100] = numbered(100)
    answer = await client.ask(PRODUCE, 9, produce_request(topic, sent))
    codes = {each.index: each.error_code for each in answer.responses[0].partition_responses}
    assert codes.pop(13) is ErrorCode.corrupt_message
    assert codes.pop(14) is ErrorCode.invalid_record
    assert codes.pop(99) is not ErrorCode.none
    assert codes.pop(100) is ErrorCode.unknown_topic_or_partition
    assert len(codes) == 97
    assert set(codes.values()) == {ErrorCode.none}
    for index, batch_sent in sent.items():
        if index in codes and batch_sent is not None:
            (stored,) = await client.read_log(topic, index)
            assert stored.body == body_of(batch_sent)
    for index in (13, 14, 99):
        assert await client.offset(topic, index, LATEST) == 0


@pytest.mark.parametrize("version", range(3, 13))
async def test_every_version_by_name(client: Client, topic: str, version: int) -> None:
    await client.create_topic(topic)
    sent = numbered(0, count=3)
    for round_number in range(2):
        answer = await client.ask(PRODUCE, version, produce_request(topic, {0: sent}))
        assert produced(answer) == (ErrorCode.none, 3 * round_number)
        assert answer.responses[0].name == topic
    log = await client.read_log(topic, 0)
    assert [each.body for each in log] == [body_of(sent)] * 2


async def test_by_id_and_after_the_topic_was_made_again(client: Client, topic: str) -> None:
    first_id = await client.create_topic(topic)

    def by_id(topic_id: object) -> dict[str, object]:
        request = produce_request(topic, {0: numbered(0)})
        request["topic_data"][0]["topic_id"] = topic_id
        return request

    assert produced(await client.ask(PRODUCE, 13, by_id(first_id))) == (ErrorCode.none, 0)
    await client.delete_topic(topic)
    second_id = await client.create_topic(topic)
    assert second_id != first_id
    late = produced(await client.ask(PRODUCE, 13, by_id(first_id)))
    assert late.code is ErrorCode.unknown_topic_id
    assert await client.offset(topic, 0, LATEST) == 0
    assert produced(await client.ask(PRODUCE, 13, by_id(second_id))) == (ErrorCode.none, 0)
    unknown = produced(await client.ask(PRODUCE, 13, by_id(uuid4())))
    assert unknown.code is ErrorCode.unknown_topic_id


async def test_refused_as_a_whole(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    answer = await client.ask(PRODUCE, 9, produce_request(topic, {0: numbered(0)}, acks=2))
    assert produced(answer).code is ErrorCode.invalid_required_acks
    request = produce_request(topic, {0: numbered(0)})
    answer = await client.ask(PRODUCE, 9, {**request, "transactional_id": "transfers"})
    assert produced(answer).code is ErrorCode.transactional_id_authorization_failed
    assert await client.offset(topic, 0, LATEST) == 0
    answer = await client.ask(PRODUCE, 9, {**request, "topic_data": []})
    assert answer.responses == ()


async def test_idempotence_over_the_last_five_batches(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    producer_id = await client.producer_id()

    def sequenced(base_sequence: int, epoch: int = 0) -> bytes:
        return batch(
            [record(0), record(1)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=base_sequence,
        )

    for number in range(7):
        assert await client.produce(topic, 0, sequenced(2 * number)) == (0, 2 * number)
    for number in range(2, 7):
        assert await client.produce(topic, 0, sequenced(2 * number)) == (0, 2 * number)
    too_old = await client.produce(topic, 0, sequenced(2))
    assert too_old.code is ErrorCode.out_of_order_sequence_number
    gap = await client.produce(topic, 0, sequenced(16))
    assert gap.code is ErrorCode.out_of_order_sequence_number
    assert await client.produce(topic, 0, sequenced(14)) == (ErrorCode.none, 14)
    not_zero = await client.produce(topic, 0, sequenced(16, epoch=1))
    assert not_zero.code is ErrorCode.out_of_order_sequence_number
    assert await client.produce(topic, 0, sequenced(0, epoch=1)) == (ErrorCode.none, 16)
    old = await client.produce(topic, 0, sequenced(16))
    assert old.code is ErrorCode.invalid_producer_epoch
    log = await client.read_log(topic, 0)
    assert [each.base_sequence for each in log] == [0, 2, 4, 6, 8, 10, 12, 14, 0]


async def test_sequence_numbers_wrap(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    producer_id = await client.producer_id()

    def sequenced(base_sequence: int) -> bytes:
        records = [record(index) for index in range(3)]
        return batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=base_sequence
        )

    last = 2**31 - 1
    assert await client.produce(topic, 0, sequenced(last - 1)) == (ErrorCode.none, 0)
    assert await client.produce(topic, 0, sequenced(1)) == (ErrorCode.none, 3)
    assert await client.produce(topic, 0, sequenced(last - 1)) == (ErrorCode.none, 0)


async def test_log_append_time_is_stamped_and_answered(client: Client, topic: str) -> None:
    await client.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    before_ms = time.time_ns() // 1_000_000
    answer = await client.ask(PRODUCE, 9, produce_request(topic, {0: numbered(0, count=2)}))
    after_ms = time.time_ns() // 1_000_000
    stamped = answer.responses[0].partition_responses[0].log_append_time
    stamped_ms = int(stamped.timestamp() * 1000 + 0.5)
    assert before_ms <= stamped_ms <= after_ms
    # Both records have that time, so the first is the first at it, and there is none after.
    assert await client.offset(topic, 0, stamped_ms) == 0
    assert await client.offset(topic, 0, stamped_ms + 1) == -1


async def test_the_ends_of_an_empty_and_of_a_full_log(client: Client, topic: str) -> None:
    await client.create_topic(topic)
    assert await client.offset(topic, 0, EARLIEST) == 0
    assert await client.offset(topic, 0, LATEST) == 0
    await client.produce(topic, 0, numbered(0, count=5))
    assert await client.offset(topic, 0, EARLIEST) == 0
    assert await client.offset(topic, 0, LATEST) == 5
