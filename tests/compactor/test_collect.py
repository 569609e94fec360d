"""Whole rounds: what is due when, failures, deaths at every call, and two collectors at once."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from compactor.collect import FIRST_SWEEP_MS
from compactor.sweep import STAMPS
from drayd.names import MAX_AGE_MS
from metadata import keys
from metadata.faults import FaultyStore
from metadata.store import Put
from tests.compactor.interruptions import Countdown, Died, HookedMetadata, HookedObjects, die
from tests.compactor.test_sweep import stray
from tests.compactor.world import CLUSTER, DAY_MS, GRACE_MS, HOUR_MS, MINUTE_MS, TTL_MS, World
from wal.faulty import Fault, Faulty

DUE_MS = MAX_AGE_MS + TTL_MS


class Mess:
    """A log with a bit of everything that is collected, and what must be left of it."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def make(self) -> None:
        broker = self.world.broker()
        deleted = await broker.create("deleted")
        kept = await broker.create("kept")
        gone = deleted.partitions[0].stream_id
        self.stream = kept.partitions[0].stream_id
        await broker.produce({gone: "1", self.stream: "shared"})
        await broker.produce({gone: "2"})
        await broker.commit(await broker.put({self.stream: "mine"}, producer_id=3))
        await broker.put({self.stream: "never committed"})
        await stray(self.world)
        await broker.topics.delete(deleted.topic_id)

    async def check(self) -> None:
        world = self.world
        assert await world.read(self.stream) == ["shared", "mine"]
        assert len(await world.paths()) == 2
        assert await world.markers() == []
        assert await world.garbage() == []
        assert set(await world.heads()) == {self.stream}
        assert await world.keys(keys.producers(0, self.stream)) == []
        assert len(await world.keys(keys.TOPIC_IDS)) == 1


WAITS_MS = (0, DUE_MS, GRACE_MS, GRACE_MS, TTL_MS, DAY_MS, GRACE_MS)


async def test_everything_is_collected_in_the_end(world: World) -> None:
    mess = Mess(world)
    await mess.make()
    collector = world.collector()
    for wait_ms in WAITS_MS:
        world.clock.ms += wait_ms
        assert await collector.round()
    await mess.check()
    assert collector.backlog.orphans == 0
    assert collector.backlog.pending_deletes == 0


async def test_a_collector_may_die_at_any_call() -> None:
    """For each call of a whole life: a collector dies there, before or after it took effect, and
    another one goes on."""
    call = 0
    while True:
        world = World()
        mess = Mess(world)
        await mess.make()
        countdown = Countdown(call, die)
        dying = world.collector(
            store=HookedMetadata(world.client(), countdown),
            objects=HookedObjects(world.objects, countdown),
        )
        survivor = world.collector()
        for wait_ms in WAITS_MS:
            world.clock.ms += wait_ms
            if not countdown.reached:
                try:
                    await dying.round()
                    continue
                except Died:
                    pass
            assert await survivor.round()
        for _ in range(3):
            # A survivor that took over late needs the waiting times once more.
            world.clock.ms += DAY_MS
            assert await survivor.round()
        await mess.check()
        if not countdown.reached:
            break
        call += 1
    assert call > 50


async def test_two_collectors_at_once(world: World) -> None:
    mess = Mess(world)
    await mess.make()
    pair = [world.collector(store=world.client()) for _ in range(2)]
    for wait_ms in WAITS_MS:
        world.clock.ms += wait_ms
        assert all(await asyncio.gather(*(each.round() for each in pair)))
    for _ in range(2):
        world.clock.ms += DAY_MS
        assert all(await asyncio.gather(*(each.round() for each in pair)))
    await mess.check()


async def test_the_backlog_is_what_the_gauges_show(world: World) -> None:
    broker = world.broker(range_size=8)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    await broker.produce({stream: "x"})
    await broker.put({stream: "never committed"})
    await broker.topics.purge(await broker.topics.delete(topic.topic_id))
    collector = world.collector()
    await collector.round()
    assert (collector.backlog.orphans, collector.backlog.pending_deletes) == (0, 1)
    world.clock.ms += DUE_MS
    await collector.round()
    assert (collector.backlog.orphans, collector.backlog.pending_deletes) == (1, 0)
    world.clock.ms += TTL_MS
    await collector.round()
    assert (collector.backlog.orphans, collector.backlog.pending_deletes) == (0, 0)


async def test_a_failing_step_leaves_the_others_alone(world: World) -> None:
    broker = world.broker()
    await broker.commit(await broker.put({1: "of no stream"}))
    await broker.put({1: "never committed"})
    store = FaultyStore(world.client())
    collector = world.collector(store=store, sole_owner=True)
    world.clock.ms += GRACE_MS
    store.fail_reads(1)
    assert not await collector.round()
    assert await world.markers() == []
    assert await world.paths() == set()


async def test_what_cannot_be_read_stands_in_nobodys_way(world: World) -> None:
    """A value of a newer version costs a log line a round."""
    broker = world.broker()
    refused = await broker.put({1: "of no stream"})
    await broker.commit(refused)
    lost = await broker.put({1: "never committed"})
    newer = [keys.marker(0, "00"), keys.garbage_object(0, UUID(int=0))]
    await world.store.commit(keys.domain_scope(0), [], [Put(key, b"\x7f") for key in newer])
    world.clock.ms += GRACE_MS
    collector = world.collector(sole_owner=True)
    assert await collector.round()
    assert await world.paths() == set()
    assert await world.markers() == newer[:1]
    assert await world.keys(keys.garbage(0)) == newer[1:]
    assert lost.name.marker not in newer


async def test_stores_that_are_down_are_tried_again(world: World) -> None:
    path = await stray(world)
    down = Faulty(world.objects)
    store = FaultyStore(world.client())
    collector = world.collector(store=store, objects=down)
    down.plan("put", Fault.FAIL)
    assert not await collector.round()
    assert await collector.round()
    world.clock.ms += 2 * TTL_MS
    down.plan("list", Fault.FAIL)
    assert not await collector.round()
    assert await collector.round()
    assert await world.garbage() == []
    # A sweep that failed isn't put off for a whole day.
    world.clock.ms += HOUR_MS
    assert await collector.round()
    assert len(await world.garbage()) == 1
    world.clock.ms += GRACE_MS
    store.fail_reads(3)
    assert not await collector.round()
    assert await world.paths() == {path}
    assert await collector.round()
    assert await world.paths() == set()


async def test_a_bug_is_not_hidden(world: World) -> None:
    countdown = Countdown(3, die)
    with pytest.raises(Died):
        await world.collector(store=HookedMetadata(world.client(), countdown)).round()


async def test_the_sweep_is_seldom_and_the_stamp_is_left_at_once(world: World) -> None:
    counted = Faulty(world.objects)
    collector = world.collector(objects=counted)
    await collector.round()
    assert [info.path async for info in world.objects.list(STAMPS)] == [f"{STAMPS}/{CLUSTER}"]
    world.clock.ms += FIRST_SWEEP_MS - 1
    await collector.round()
    assert counted.calls["list"] == 0
    world.clock.ms += 1
    await collector.round()
    await collector.round()
    assert counted.calls["list"] == 1
    world.clock.ms += DAY_MS - MINUTE_MS
    await collector.round()
    assert counted.calls["list"] == 1
    world.clock.ms += MINUTE_MS
    await collector.round()
    assert counted.calls["list"] == 2
    # A clock that was set back a year doesn't put the next sweep off by one.
    world.clock.ms -= 365 * DAY_MS
    await collector.round()
    world.clock.ms += DAY_MS
    await collector.round()
    assert counted.calls["list"] == 3


async def test_hours_pass_without_work(world: World) -> None:
    """Nothing is lost from a log that is simply used."""
    broker = world.broker()
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    collector = world.collector()
    expected = []
    for hour in range(60):
        await broker.produce({stream: str(hour)})
        expected.append(str(hour))
        world.clock.ms += HOUR_MS
        assert await collector.round()
    assert await world.read(stream) == expected
