"""The real writer against the collector: a fenced object is written again, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drayd.cache import Cache
from drayd.metrics import Metrics
from drayd.names import MAX_AGE_MS
from drayd.produce import DomainSink, DomainWriter, Pending
from drayd.waiters import Waiters
from metadata.faults import FaultyStore
from protocol.errors import ErrorCode
from tests.compactor.world import GRACE_MS, TTL_MS, Broker, World
from wal.buffer import Batch, Buffer
from wal.faulty import Faulty
from wal.objectstore import ObjectStore
from wal.writer import Policy

DUE_MS = MAX_AGE_MS + TTL_MS


@asynccontextmanager
async def running(broker: Broker, objects: ObjectStore) -> AsyncIterator[DomainWriter]:
    sink = DomainSink(
        broker.domains[0], Cache(hot_max_bytes=0, cold_max_bytes=0), Waiters(), Metrics()
    )
    policy = Policy(
        linger_ms=0, min_linger_ms=0, max_in_flight=4, put_timeout_s=60.0, hedge_after_s=None
    )
    buffer = Buffer(max_bytes=1 << 20, max_commit_bytes=1 << 20)
    writer = DomainWriter(0, buffer, objects, broker.names[0], sink, policy, now_ms=broker.clock)
    task = asyncio.create_task(writer.run())
    await asyncio.sleep(0)
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def produce(writer: DomainWriter, stream_id: int, text: str) -> Pending:
    pending = Pending(1)
    data = memoryview(text.encode())
    writer.fill(writer.reserve(stream_id, pending, 0), Batch(data, 1, 0, 0, -1, -1, -1, len(data)))
    return pending


async def test_a_commit_that_stands_still_until_it_is_fenced(world: World) -> None:
    store = FaultyStore(world.client())
    # A large range, so that the only commit to be held is the one of the object.
    broker = world.broker(store=store, range_size=100)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    async with running(broker, world.objects) as writer:
        first = produce(writer, stream, "first")
        await first.done
        store.hold_commits()
        second = produce(writer, stream, "second")
        while not store.commits_held:
            await asyncio.sleep(0)
        before = await world.paths()
        collector = world.collector()
        world.clock.ms += DUE_MS
        await collector.collect_orphans()
        world.clock.ms += GRACE_MS
        await collector.collect_orphans()
        assert len(await world.paths()) == len(before) - 1
        assert not second.done.done()
        store.release_commits()
        await second.done
        await writer.drain()
    assert [each.outcomes[0] and each.outcomes[0].code for each in (first, second)] == [
        ErrorCode.none,
        ErrorCode.none,
    ]
    world.clock.ms += TTL_MS
    await collector.collect_orphans()
    assert await world.read(stream) == ["first", "second"]


async def test_a_put_that_stands_still_until_it_is_fenced(world: World) -> None:
    slow = Faulty(world.objects)
    broker = world.broker(objects=slow)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    collector = world.collector()
    async with running(broker, slow) as writer:
        gate = slow.hold("put")
        pending = produce(writer, stream, "late")
        await gate.reached.wait()
        world.clock.ms += DUE_MS
        await collector.collect_orphans()
        gate.open()
        await pending.done
        await writer.drain()
    assert await world.read(stream) == ["late"]
    assert len(await world.paths()) == 2
    for wait_ms in (GRACE_MS, TTL_MS):
        world.clock.ms += wait_ms
        await collector.collect_orphans()
    assert await world.read(stream) == ["late"]
    assert len(await world.paths()) == 1
