"""The broker is killed at each step of a flush and started again (I1–I4 of the specification)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from tests.invariants.crashing_broker import STEPS
from tests.invariants.ledger import Ledger, check_objects, load
from tests.wire.client import ANSWER_WITHIN_S, PRODUCE, Client, produce_request
from tests.wire.process import BrokerProcess, broker

COMMITTED = ("commit", "deliver")
TOPIC = "t"


def crashing(step: str, times: int) -> tuple[str, str, str]:
    return "tests.invariants.crashing_broker", step, str(times)


async def end_orderly(process: BrokerProcess) -> None:
    process.signal(signal.SIGTERM)
    assert await process.ended() == 0


@pytest.mark.parametrize("step", STEPS)
async def test_one_request_in_flight(tmp_path: Path, step: str) -> None:
    """Exactly one request is lost sight of, and the step says whether it is in the log."""
    data_dir = tmp_path / "data"
    # The first marker is placed by the first flush, later ones beside flushes.
    times = 1 if step == "marker" else 3
    with broker(data_dir, command=crashing(step, times)) as process:
        async with await Client.connect(process.address) as client:
            await client.create_topic(TOPIC, 2)
            idempotent = Ledger(TOPIC, 0, await client.producer_id())
            plain = Ledger(TOPIC, 1)
            while True:
                pair = idempotent.next(), plain.next()
                request = produce_request(TOPIC, {0: pair[0].data, 1: pair[1].data})
                try:
                    async with asyncio.timeout(ANSWER_WITHIN_S):
                        answer = await client.send(PRODUCE, 9, request)
                except ConnectionError:
                    break
                for sent, told in zip(pair, answer.responses[0].partition_responses, strict=True):
                    assert told.error_code is ErrorCode.none
                    sent.offset = told.base_offset
        assert await process.ended() == -signal.SIGKILL
    assert len(idempotent.acknowledged) in ((0,) if step == "marker" else (1, 2))
    assert len(idempotent.unknown) == len(plain.unknown) == 1
    with broker(data_dir) as process:
        async with await Client.connect(process.address) as client:
            for ledger in (idempotent, plain):
                await ledger.check(client)
                (lost,) = ledger.unknown
                assert (lost.found is not None) == (step in COMMITTED)
            first = idempotent.unknown[0].found
            await idempotent.send_again(client)
            assert first in (None, idempotent.sent[-1].offset)
            assert idempotent.sent[-1].offset == 2 * (len(idempotent.sent) - 1)
        for ledger in (idempotent, plain):
            assert await load(process.address, ledger, window=1, batches=len(ledger.sent) + 5) == 5
        async with await Client.connect(process.address) as client:
            for ledger in (idempotent, plain):
                await ledger.check(client)
        await end_orderly(process)
    assert await check_objects(data_dir) > 0


@pytest.mark.parametrize("step", STEPS)
async def test_many_requests_in_flight(tmp_path: Path, step: str) -> None:
    data_dir = tmp_path / "data"
    times = 4 if step == "marker" else 12
    settings = ("wal.marker.range=4", "wal.flush.max_bytes=4096")
    with broker(data_dir, *settings, command=crashing(step, times)) as process:
        async with await Client.connect(process.address) as client:
            await client.create_topic(TOPIC, 6)
            ledgers = [Ledger(TOPIC, index, await client.producer_id()) for index in range(3)]
            ledgers += [Ledger(TOPIC, index) for index in range(3, 6)]
        counts = await asyncio.gather(
            *(load(process.address, ledger, window=5) for ledger in ledgers)
        )
        assert await process.ended() == -signal.SIGKILL
    assert sum(counts) > 0
    with broker(data_dir) as process:
        async with await Client.connect(process.address) as client:
            for ledger in ledgers:
                await ledger.check(client)
                if ledger.producer_id >= 0:
                    await ledger.send_again(client)
                    assert not ledger.unknown
                    await ledger.check(client)
        await end_orderly(process)
    assert await check_objects(data_dir) > 0
