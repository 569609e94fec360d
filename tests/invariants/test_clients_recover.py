"""Idempotent clients meet a broker that loses what they send, and get every record in, once and
in order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from tests.clients import aiokafka_client, kafka_python, librdkafka
from tests.clients.records import Record, simple
from tests.wire.running import local_broker

TOPIC = "t"


@pytest.mark.parametrize(
    "client", (librdkafka, kafka_python, aiokafka_client), ids=lambda client: client.NAME
)
async def test_lost_batches_come_again_in_order(tmp_path: Path, client: ModuleType) -> None:
    async with local_broker(tmp_path / "data", wal_put_timeout_ms=150) as local:
        bootstrap = f"{local.address[0]}:{local.address[1]}"
        await asyncio.to_thread(client.create, bootstrap, TOPIC, 1, {})
        sent: list[Record] = []
        for number in range(3):
            # The first batch of a new producer is lost, then some of its later ones.
            for _ in range(3):
                local.objects.hold("put")  # until its deadline
                local.objects.plan("put", None, times=3)
            more = simple(60, f"round {number}")
            # Small batches, so that some are on their way when one before them is lost.
            offsets = await asyncio.to_thread(
                client.produce, bootstrap, TOPIC, 0, more, idempotent=True, batch_bytes=200
            )
            assert offsets == list(range(len(sent), len(sent) + len(more)))
            sent += more
        received = await asyncio.to_thread(client.consume, bootstrap, TOPIC, {0: len(sent)})
        assert [each.record for each in received] == sent
