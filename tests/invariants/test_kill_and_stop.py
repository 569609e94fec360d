"""SIGKILL at random moments, and SIGTERM, under load from several producers."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

from tests.invariants.ledger import Ledger, check_objects, load
from tests.wire.client import Client
from tests.wire.process import broker

TOPIC = "t"
ROUNDS = 8


async def test_killed_again_and_again(tmp_path: Path) -> None:
    """Each round ends after a random number of acknowledgements; the log must stay whole over
    all of them."""
    chance = random.Random(20240607)
    data_dir = tmp_path / "data"
    settings = ("wal.marker.range=16", "wal.flush.max_bytes=16KiB")
    ledgers: list[Ledger] = []
    for _ in range(ROUNDS):
        with broker(data_dir, *settings) as process:
            async with await Client.connect(process.address) as client:
                if not ledgers:
                    await client.create_topic(TOPIC, 6)
                    ledgers = [Ledger(TOPIC, n, await client.producer_id()) for n in range(3)]
                    ledgers += [Ledger(TOPIC, n) for n in range(3, 6)]
                for ledger in ledgers:
                    await ledger.check(client)
                    if ledger.producer_id >= 0:
                        await ledger.send_again(client)
            enough = sum(len(each.acknowledged) for each in ledgers) + chance.randrange(20, 400)
            loads = [asyncio.create_task(load(process.address, each, window=5)) for each in ledgers]
            while sum(len(each.acknowledged) for each in ledgers) < enough:
                await asyncio.sleep(0.001)
            process.signal(signal.SIGKILL)
            await asyncio.gather(*loads)
            assert await process.ended() == -signal.SIGKILL
    with broker(data_dir, *settings) as process:
        async with await Client.connect(process.address) as client:
            for ledger in ledgers:
                await ledger.check(client)
                if ledger.producer_id >= 0:
                    await ledger.send_again(client)
                    await ledger.check(client)
                    assert not ledger.unknown
    assert await check_objects(data_dir) > 0


async def test_sigterm_answers_what_was_received(tmp_path: Path) -> None:
    """Whatever the broker wrote is acknowledged: what the log holds beyond that could only be
    an answer that was lost, and an orderly end loses none."""
    data_dir = tmp_path / "data"
    with broker(data_dir) as process:
        async with await Client.connect(process.address) as client:
            await client.create_topic(TOPIC, 4)
        ledgers = [Ledger(TOPIC, n) for n in range(4)]
        loads = [asyncio.create_task(load(process.address, each, window=50)) for each in ledgers]
        while sum(len(each.acknowledged) for each in ledgers) < 500:
            await asyncio.sleep(0.001)
        process.signal(signal.SIGTERM)
        await asyncio.gather(*loads)
        assert await process.ended() == 0
    log = (tmp_path / "broker.log").read_text()
    assert "not answered within" not in log
    with broker(data_dir) as process:
        async with await Client.connect(process.address) as client:
            for ledger in ledgers:
                await ledger.check(client)
                assert [each.found for each in ledger.unknown] == [None] * len(ledger.unknown)
    assert await check_objects(data_dir) > 0


async def test_sigterm_ends_idle_readers_at_once(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as process:
        async with await Client.connect(process.address) as client:
            await client.create_topic(TOPIC)
            polls = [
                asyncio.create_task(client.fetch(TOPIC, 0, 0, wait_ms=300_000)) for _ in range(3)
            ]
            async with await Client.connect(process.address) as other:
                # Answered after them, so they are waiting.
                await other.fetch(TOPIC, 0, 0)
            process.signal(signal.SIGTERM)
            for poll in polls:
                assert (await poll).high_watermark == 0
        assert await process.ended() == 0
