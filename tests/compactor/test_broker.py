"""The collector inside a running broker on its embedded stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

from compactor.sweep import STAMPS
from drayd.app import now_ms, serve
from drayd.config import Settings
from drayd.kinds import HostPort
from metadata import keys
from metadata.sqlite import SqliteStore
from metadata.store import Put
from tests.compactor.world import Broker, Clock
from wal.local import LocalStore


async def test_a_broker_cleans_up_after_the_one_that_died(tmp_path: Path) -> None:
    clock = Clock()
    clock.ms = now_ms()
    settings = Settings(
        data_dir=tmp_path,
        listen=HostPort("localhost", 0),
        http_listen=None,
        wal_gc_interval_ms=10,
        wal_gc_grace_ms=0,
    )
    async with serve(settings):
        pass  # makes the folder and the stores
    store = await SqliteStore.open(tmp_path / "metadata.db")
    objects = LocalStore.open(str(tmp_path / "objects"), threads=2)
    dead = Broker(store, objects, clock, incarnation="dead", range_size=100)
    topic = await dead.create("deleted")
    kept = await dead.create("kept")
    stream, neighbour = topic.partitions[0].stream_id, kept.partitions[0].stream_id
    committed = await dead.put({neighbour: "kept"})
    await dead.commit(committed)
    await dead.produce({stream: "goes with its topic"})
    await dead.put({neighbour: "never committed"})
    # It died in the middle of deleting the topic.
    await dead.topics.delete(topic.topic_id)
    await store.close()
    await objects.close()

    wal = tmp_path / "objects" / "wal"
    assert len(list(wal.rglob("*.wo"))) == 3
    async with serve(settings) as running, asyncio.timeout(60):
        while len(list(wal.rglob("*.wo"))) > 1:
            await asyncio.sleep(0.01)
        metrics = running.broker.metrics.registry
        while metrics.get_sample_value("dray_gc_pending_deletes") != 0:
            await asyncio.sleep(0.01)
        assert metrics.get_sample_value("dray_gc_orphans") == 0
        assert running.broker.cluster_id in [
            path.name for path in (tmp_path / "objects" / STAMPS).iterdir()
        ]
    assert (tmp_path / "objects" / committed.name.path).exists()


async def test_what_waits_is_shown(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path, listen=HostPort("localhost", 0), http_listen=None, wal_gc_interval_ms=10
    )
    async with serve(settings):
        pass
    store = await SqliteStore.open(tmp_path / "metadata.db")
    clock = Clock()
    clock.ms = now_ms()
    objects = LocalStore.open(str(tmp_path / "objects"), threads=2)
    dead = Broker(store, objects, clock)
    refused = await dead.put({1: "of a stream that doesn't exist"})
    await dead.commit(refused)
    # A marker that nobody can read costs a log line, not the broker.
    await store.commit(keys.domain_scope(0), [], [Put(keys.marker(0, "00"), b"\x7f")])
    await store.close()
    await objects.close()
    async with serve(settings) as running, asyncio.timeout(60):
        metrics = running.broker.metrics.registry
        while metrics.get_sample_value("dray_gc_pending_deletes") != 1:
            await asyncio.sleep(0.01)
    assert (tmp_path / "objects" / refused.name.path).exists()
