"""Staging markers: fenced, their objects deleted twice, nothing committed ever touched."""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec
import pytest

from compactor.orphans import OrphanPolicy, Step, next_step
from drayd.names import MAX_AGE_MS
from metadata import keys
from metadata.faults import FaultyStore
from metadata.store import Check, Put
from metadata.values import Marker, decode, encode
from tests.compactor.interruptions import Countdown, HookedMetadata
from tests.compactor.world import DAY_MS, GRACE_MS, START_MS, TTL_MS, World
from wal.faulty import Fault, Faulty

DUE_MS = MAX_AGE_MS + TTL_MS
POLICY = OrphanPolicy(
    ttl_ms=TTL_MS,
    settle_ms=GRACE_MS,
    range_life_ms=MAX_AGE_MS,
    incarnation="mine",
    sole_owner=False,
)
SOLE = OrphanPolicy(
    ttl_ms=TTL_MS,
    settle_ms=GRACE_MS,
    range_life_ms=MAX_AGE_MS,
    incarnation="mine",
    sole_owner=True,
)


@pytest.mark.parametrize(
    ("policy", "incarnation", "fenced_ms", "age_ms", "step"),
    [
        (POLICY, "other", 0, DUE_MS - 1, Step.WAIT),
        (POLICY, "other", 0, DUE_MS, Step.FENCE),
        (POLICY, "mine", 0, DUE_MS - 1, Step.WAIT),
        (POLICY, "mine", 0, DUE_MS, Step.FENCE),
        (POLICY, "other", START_MS, GRACE_MS - 1, Step.WAIT),
        (POLICY, "other", START_MS, GRACE_MS, Step.DELETE),
        (POLICY, "other", START_MS, TTL_MS - 1, Step.DELETE),
        (POLICY, "other", START_MS, TTL_MS, Step.REMOVE),
        (SOLE, "other", 0, 0, Step.FENCE),
        (SOLE, "other", START_MS, 0, Step.REMOVE),
        (SOLE, "mine", 0, DUE_MS - 1, Step.WAIT),
        (SOLE, "mine", START_MS, GRACE_MS, Step.DELETE),
        # A clock that was set back doesn't keep a dead broker's markers.
        (SOLE, "other", 0, -DAY_MS, Step.FENCE),
    ],
)
def test_when_a_marker_is_due(
    policy: OrphanPolicy, incarnation: str, fenced_ms: int, age_ms: int, step: Step
) -> None:
    marker = Marker(1, incarnation, UUID(int=0), 4, "", START_MS, fenced_ms)
    assert next_step(marker, START_MS + age_ms, policy) is step


async def test_a_broker_that_stalls_between_put_and_commit_writes_again(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    stalled = await broker.put({stream: "late"})
    collector = world.collector()
    world.clock.ms += DUE_MS
    await collector.collect_orphans()
    assert collector.backlog.orphans == 1
    assert await broker.commit(stalled) is None
    await broker.produce({stream: "late"})
    world.clock.ms += GRACE_MS
    await collector.collect_orphans()
    assert stalled.name.path not in await world.paths()
    world.clock.ms += TTL_MS
    await collector.collect_orphans()
    assert await world.read(stream) == ["late"]
    assert len(await world.paths()) == 1
    assert stalled.name.marker not in await world.markers()
    assert collector.backlog.orphans == 0


async def test_a_commit_just_before_the_fence_counts(world: World) -> None:
    """The fence is decided on what was read, then held; meanwhile the object is committed. The
    marker's version hasn't changed by that, so the fence succeeds: only the records tell."""
    broker = world.broker()
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    written = await broker.put({stream: "kept"})
    unwritten = await broker.put({stream: "lost"})
    faulty = FaultyStore(world.client())
    collector = world.collector(store=faulty)
    world.clock.ms += DUE_MS
    faulty.hold_commits()
    collecting = asyncio.create_task(collector.collect_orphans())
    while not faulty.commits_held:
        await asyncio.sleep(0)
    assert await broker.commit(written) is not None
    faulty.release_commits()
    await collecting
    assert await broker.commit(unwritten) is None
    world.clock.ms += TTL_MS
    await collector.collect_orphans()
    assert await world.markers() == []
    assert await world.paths() == {written.name.path}
    assert await world.read(stream) == ["kept"]


@pytest.mark.parametrize("call", range(12))
async def test_a_commit_at_any_moment_is_safe(world: World, call: int) -> None:
    """The broker commits before each of the collector's calls in turn: the record is acknowledged
    and its object exists, or the commit was refused."""
    broker = world.broker()
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    written = await broker.put({stream: "x"})
    outcome = []

    async def commit() -> None:
        outcome.append(await broker.commit(written))

    countdown = Countdown(call, commit)
    collector = world.collector(store=HookedMetadata(world.client(), countdown))
    for wait_ms in (DUE_MS, GRACE_MS, TTL_MS):
        world.clock.ms += wait_ms
        await collector.collect_orphans()
    if not countdown.reached:
        await commit()
    assert await world.markers() == []
    if outcome[0] is None:
        assert await world.read(stream) == []
        assert await world.paths() == set()
    else:
        assert await world.read(stream) == ["x"]


async def test_where_everything_was_committed_only_the_marker_goes(world: World) -> None:
    broker = world.broker(range_size=2)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    [one, two] = [await broker.put({stream: text}) for text in ("one", "two")]
    await broker.domains[0].append([one.stored, two.stored])
    collector = world.collector()
    world.clock.ms += DUE_MS
    await collector.collect_orphans()
    world.clock.ms += GRACE_MS
    await collector.collect_orphans()
    # What is left is the marker of the next range, which was reserved ahead.
    assert one.name.marker not in await world.markers()
    assert await world.read(stream) == ["one", "two"]


async def test_a_put_that_lands_after_the_fence_is_deleted_too(world: World) -> None:
    slow = Faulty(world.objects)
    broker = world.broker(objects=slow)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    gate = slow.hold("put")
    putting = asyncio.create_task(broker.put({stream: "late"}))
    await gate.reached.wait()
    collector = world.collector()
    world.clock.ms += DUE_MS
    await collector.collect_orphans()
    world.clock.ms += GRACE_MS
    await collector.collect_orphans()
    gate.open()
    written = await putting
    assert await world.paths() == {written.name.path}
    assert await broker.commit(written) is None
    world.clock.ms += TTL_MS
    await collector.collect_orphans()
    assert await world.paths() == set()
    assert await world.markers() == []


async def test_the_first_deletion_is_done_once(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t")
    await broker.put({topic.partitions[0].stream_id: "x"})
    counted = Faulty(world.objects)
    collector = world.collector(objects=counted)
    world.clock.ms += DUE_MS
    await collector.collect_orphans()
    assert counted.calls["delete"] == 0
    world.clock.ms += GRACE_MS
    for _ in range(3):
        await collector.collect_orphans()
    assert counted.calls["delete"] == 4
    world.clock.ms += TTL_MS
    await collector.collect_orphans()
    assert counted.calls["delete"] == 8


async def test_a_dead_process_on_embedded_stores_is_cleaned_up_at_once(world: World) -> None:
    dead = world.broker(incarnation="dead")
    topic = await dead.create("t")
    stream = topic.partitions[0].stream_id
    await dead.produce({stream: "kept"})
    lost = await dead.put({stream: "never acknowledged"})
    alive = world.broker(incarnation="alive")
    waiting = await alive.put({stream: "still on its way"})
    collector = world.collector(sole_owner=True, incarnation="alive")
    await collector.collect_orphans()
    assert lost.name.path not in await world.paths()
    assert await world.markers() == [waiting.name.marker]
    assert await alive.commit(waiting) is not None
    assert await world.read(stream) == ["kept", "still on its way"]


async def test_a_marker_stays_until_its_objects_could_be_deleted(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t")
    written = await broker.put({topic.partitions[0].stream_id: "x"})
    down = Faulty(world.objects)
    collector = world.collector(objects=down, sole_owner=True)
    down.plan("delete", Fault.FAIL)
    await collector.collect_orphans()
    assert await world.markers() == [written.name.marker]
    assert await world.paths() == {written.name.path}
    assert collector.backlog.orphans == 1
    await collector.collect_orphans()
    assert await world.markers() == []
    assert await world.paths() == set()


async def test_a_store_that_is_down_is_not_asked_for_every_object(world: World) -> None:
    broker = world.broker(range_size=100)
    topic = await broker.create("t")
    await broker.put({topic.partitions[0].stream_id: "x"})
    down = Faulty(world.objects)
    down.plan("delete", Fault.FAIL, times=100)
    await world.collector(objects=down, sole_owner=True).collect_orphans()
    assert down.calls["delete"] < 10


async def test_a_marker_that_moved_is_left_for_the_next_round(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t")
    written = await broker.put({topic.partitions[0].stream_id: "x"})
    key = written.name.marker

    async def fence() -> None:
        found = await world.store.get(key, scope=keys.domain_scope(0))
        assert found is not None
        marker = msgspec.structs.replace(decode(Marker, found.value), fenced_ms=world.clock())
        await world.store.commit(
            keys.domain_scope(0), [Check(key, found.version)], [Put(key, encode(marker))]
        )

    world.clock.ms += DUE_MS
    collector = world.collector(store=HookedMetadata(world.client(), Countdown(1, fence)))
    await collector.collect_orphans()
    assert await world.markers() == [key]
    world.clock.ms += TTL_MS
    await collector.collect_orphans()
    assert await world.markers() == []


async def test_a_marker_whose_zone_is_no_path_just_goes(world: World) -> None:
    broker = world.broker()
    marker = Marker(1, "dead", UUID(int=1 << 32), 4, "no/zone", START_MS)
    await broker.domains[0].place_marker(marker.base.hex, marker)
    await world.collector(sole_owner=True).collect_orphans()
    assert await world.markers() == []
