"""What isn't a well-formed request, and what isn't known: the connection may end, others don't."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from drayd.dispatch import APIS
from protocol.errors import ErrorCode
from protocol.messages import response_class
from protocol.reader import read_message
from tests.protocol.building import batch, record
from tests.wire.client import (
    ANSWER_WITHIN_S,
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    Address,
    Client,
    body_of,
    fetch_request,
    produce_request,
    produced,
    request_bytes,
)
from tests.wire.process import BrokerProcess
from tests.wire.running import local_broker

ASK_VERSIONS = request_bytes(API_VERSIONS, 0, 77, {})


async def exchange(address: Address, data: bytes) -> bytes:
    """Sends bytes, and reads until the broker closes the connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(data)
        received = b""
        async with asyncio.timeout(ANSWER_WITHIN_S):
            with suppress(ConnectionResetError):
                while piece := await reader.read(65536):
                    received += piece
        return received
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def answer_to(address: Address, data: bytes) -> bytes:
    """Sends bytes, and reads one frame."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(data)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            return await reader.readexactly(size)
    finally:
        writer.close()
        await writer.wait_closed()


def framed(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


UNANSWERABLE = {
    "a negative size": struct.pack(">i", -1),
    "the smallest size": struct.pack(">i", -(2**31)),
    "no size": struct.pack(">i", 0),
    "a size beyond the limit": struct.pack(">i", 104_857_601),
    "the largest size": struct.pack(">i", 2**31 - 1),
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a frame without a header": framed(b"\x00\x12"),
    "a frame that ends in its header": framed(struct.pack(">hhih", 3, 1, 1, 100), b"abc"),
    "a frame that ends in its body": framed(struct.pack(">hhih", 3, 1, 1, -1), b"\x00\x00"),
    "an array longer than the frame": framed(
        struct.pack(">hhih", 3, 12, 1, -1), b"\x00\xff\xff\xff\xff\x0f"
    ),
    "an unknown API": framed(struct.pack(">hhih", 999, 0, 1, -1)),
    "a negative API": framed(struct.pack(">hhih", -1, 0, 1, -1)),
    "an unknown version of Produce": framed(struct.pack(">hhih", 0, 99, 1, -1)),
    "a version of Produce that is too old": framed(struct.pack(">hhih", 0, 2, 1, -1), bytes(10)),
    "a version of Fetch that is too old": framed(struct.pack(">hhih", 1, 3, 1, -1), bytes(20)),
}


@pytest.mark.parametrize("what", UNANSWERABLE)
async def test_what_can_t_be_answered_closes_its_connection_and_no_other(
    server: BrokerProcess, client: Client, what: str
) -> None:
    assert (await client.ask(API_VERSIONS, 0, {})).error_code is ErrorCode.none
    assert await exchange(server.address, UNANSWERABLE[what]) == b""
    assert (await client.ask(API_VERSIONS, 0, {})).error_code is ErrorCode.none


async def test_requests_before_garbage_are_answered(server: BrokerProcess) -> None:
    received = await exchange(server.address, ASK_VERSIONS + UNANSWERABLE["a negative size"])
    if received:  # the answer may have been overtaken by the end of the connection
        assert received[4:8] == struct.pack(">i", 77)


async def test_a_client_that_vanishes_in_a_frame(server: BrokerProcess, client: Client) -> None:
    for cut in (1, 3, 4, 5, 11, len(ASK_VERSIONS) - 1):
        _, writer = await asyncio.open_connection(*server.address)
        writer.write(ASK_VERSIONS[:cut])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    assert (await client.ask(API_VERSIONS, 0, {})).error_code is ErrorCode.none


async def test_frames_in_any_pieces(server: BrokerProcess, topic: str) -> None:
    """Three requests, one byte at a time and all at once."""
    frames = b"".join(request_bytes(API_VERSIONS, 0, number, {}) for number in (1, 2, 3))
    for step in (1, 3, 7, len(frames)):
        reader, writer = await asyncio.open_connection(*server.address)
        for at in range(0, len(frames), step):
            writer.write(frames[at : at + step])
            await writer.drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(ANSWER_WITHIN_S):
            for number in (1, 2, 3):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                assert (await reader.readexactly(size))[:4] == struct.pack(">i", number)
        writer.close()
        await writer.wait_closed()


async def test_an_unknown_version_of_api_versions_is_told_the_table(server: BrokerProcess) -> None:
    frame = framed(struct.pack(">hhih", API_VERSIONS, 99, 5, 3), b"abc", b"\x00whatever")
    answer = memoryview(await answer_to(server.address, frame))
    assert struct.unpack_from(">i", answer) == (5,)
    decoded, end = read_message(response_class(API_VERSIONS, 0), answer, 4)
    assert end == len(answer)
    assert decoded.error_code is ErrorCode.unsupported_version
    table = {each.api_key: (each.min_version, each.max_version) for each in decoded.api_keys}
    assert table == {API_VERSIONS: (0, 4)}


@pytest.mark.parametrize("version", range(5))
async def test_api_versions(client: Client, version: int) -> None:
    answer = await client.ask(
        API_VERSIONS,
        version,
        {"client_software_name": "tests", "client_software_version": "1.0"},
    )
    assert answer.error_code is ErrorCode.none
    table = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert set(table) == {api.key for api in APIS}
    assert table[1] == (4, 18)


async def test_what_isn_t_advertised_is_answered_with_its_error_field(client: Client) -> None:
    sasl_authenticate = await client.ask(36, 2, {"auth_bytes": b"x"})
    assert sasl_authenticate.error_code is ErrorCode.unsupported_version


async def test_unknown_tagged_fields_are_skipped(server: BrokerProcess, topic: str) -> None:
    """Of the header, of the request and of a struct in it."""
    tags = b"\x02\x05\x03abc\xc8\x01\x02de"
    body = b"\x02" + bytes(16) + bytes([len(topic) + 1]) + topic.encode() + tags
    body += b"\x00\x00" + tags
    frame = framed(struct.pack(">hhih", METADATA, 12, 9, 1), b"x", tags, body)
    answer = memoryview(await answer_to(server.address, frame))
    decoded, _ = read_message(response_class(METADATA, 12), answer, 5)
    assert [(each.name, each.error_code) for each in decoded.topics] == [
        (topic, ErrorCode.unknown_topic_or_partition)
    ]


# -- limits ----------------------------------------------------------------------------------


async def test_many_large_requests_share_little_memory(tmp_path: Path) -> None:
    """Forty clients announce 200 kB each where 500 kB may be in flight; all are answered, and
    small requests among them too."""
    async with local_broker(
        tmp_path / "data",
        queued_max_request_bytes=500_000,
        socket_request_max_bytes=500_000,
    ) as broker:
        async with await broker.connect() as admin:
            await admin.create_topic("t", 40)
        sent = [batch([record(value=b"%d " % number + bytes(200_000))]) for number in range(40)]
        clients = [await broker.connect() for _ in range(40)]
        small = [await broker.connect() for _ in range(10)]
        try:
            prepared = [
                client.prepare(PRODUCE, 9, produce_request("t", {number: sent[number]}))
                for number, client in enumerate(clients)
            ]
            # Every connection announces its frame and sends half of it.
            for client, (frame, _) in zip(clients, prepared, strict=True):
                client.writer.write(frame[:100_000])
            asked = []
            for number, (frame, _) in enumerate(prepared):
                clients[number].writer.write(frame[100_000:])
                if number % 4 == 0:
                    asked.append(small[number // 4].send(METADATA, 9, {"topics": []}))
            async with asyncio.timeout(ANSWER_WITHIN_S):
                for _, answer in prepared:
                    assert produced(await answer) == (ErrorCode.none, 0)
                for answer in asked:
                    assert (await answer).topics == ()
            for number, client in enumerate(clients):
                (stored,) = await client.read_log("t", number)
                assert stored.body == body_of(sent[number])
            assert broker.running.server.budget.used == 0
        finally:
            for client in (*clients, *small):
                await client.close()


async def test_a_request_that_fills_the_memory_is_not_starved_by_small_ones(
    tmp_path: Path,
) -> None:
    async with local_broker(
        tmp_path / "data",
        queued_max_request_bytes=300_000,
        socket_request_max_bytes=300_000,
    ) as broker:
        async with await broker.connect() as admin:
            await admin.create_topic("t", 2)
        small = batch([record(value=bytes(20_000))])
        stop = asyncio.Event()

        async def load() -> int:
            count = 0
            async with await broker.connect() as client:
                while not stop.is_set():
                    # Two in flight, so that the memory is never free.
                    answers = [client.send_produce("t", 0, small) for _ in range(2)]
                    for answer in answers:
                        assert produced(await answer).code is ErrorCode.none
                        count += 1
            return count

        async with asyncio.TaskGroup() as tasks:
            loads = [tasks.create_task(load()) for _ in range(4)]
            async with await broker.connect() as client:
                large = batch([record(value=bytes(290_000))])
                assert await client.produce("t", 1, large) == (ErrorCode.none, 0)
            stop.set()
        assert sum(each.result() for each in loads) > 0


async def test_idle_connections_are_closed_but_not_those_that_wait(tmp_path: Path) -> None:
    async with local_broker(tmp_path / "data", connections_max_idle_ms=1000) as broker:
        async with await broker.connect() as admin:
            await admin.create_topic("t")
        async with await broker.connect() as waiting:
            poll = waiting.send(FETCH, 12, fetch_request({"t": {0: 0}}, wait_ms=50_000))
            async with await broker.connect() as idle:
                # It came last, so the other one has said nothing for even longer.
                assert isinstance(await idle.ended(), ConnectionError)
            async with await broker.connect() as producer:
                await producer.produce("t", 0, batch([record()]))
            async with asyncio.timeout(ANSWER_WITHIN_S):
                assert (await poll).responses[0].partitions[0].high_watermark == 1


async def test_too_many_connections(tmp_path: Path) -> None:
    async with (
        local_broker(tmp_path / "data", max_connections=2) as broker,
        await broker.connect() as first,
        await broker.connect() as second,
    ):
        for client in (first, second):
            assert (await client.ask(API_VERSIONS, 0, {})).error_code is ErrorCode.none
        async with await broker.connect() as third:
            # As in Kafka it isn't refused: it waits until another one goes.
            answer = third.send(API_VERSIONS, 0, {})
            assert (await first.ask(API_VERSIONS, 0, {})).error_code is ErrorCode.none
            assert not answer.done()
            await second.close()
            async with asyncio.timeout(ANSWER_WITHIN_S):
                assert (await answer).error_code is ErrorCode.none
