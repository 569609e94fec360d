"""The sweep gives garbage entries to what nothing names, and to nothing else."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from compactor import sweep as sweeping
from compactor.naming import marker_of
from compactor.sweep import Unnamed, foreign_stamps, leave_stamp, sweep, unnamed_objects
from metadata import keys
from metadata.faults import FaultyStore
from metadata.store import MetadataStore
from tests.compactor.interruptions import Countdown, HookedMetadata
from tests.compactor.world import CLUSTER, GRACE_MS, TTL_MS, World
from wal.faulty import Faulty
from wal.objectstore import ObjectStore
from wal.paths import wal_path


async def unnamed(world: World, store: MetadataStore | None = None) -> list[Unnamed]:
    found = unnamed_objects(
        store or world.store,
        world.objects,
        domains=1,
        modified_before_ms=world.clock() - TTL_MS,
    )
    return [each async for each in found]


async def run(
    world: World, *, store: MetadataStore | None = None, objects: ObjectStore | None = None
) -> sweeping.SweepResult:
    return await sweep(
        store or world.store,
        objects or world.objects,
        cluster_id=CLUSTER,
        domains=1,
        now_ms=world.clock(),
        ttl_ms=TTL_MS,
        grace_ms=GRACE_MS,
    )


async def stray(world: World, wal_id: UUID | None = None, domain: int = 0) -> str:
    path = wal_path("", domain, world.clock(), wal_id or uuid4())
    await world.objects.put(path, [b"nobody's"])
    return path


async def test_markers_are_found_by_the_id_of_an_object(world: World) -> None:
    """The sweep relies on it: a marker's key is the base of its range."""
    broker = world.broker(range_size=3)
    for _ in range(7):
        name = await broker.names[0].take()
        assert marker_of(0, name.wal_id) == name.marker


async def test_what_nothing_names_becomes_garbage_and_then_goes(world: World) -> None:
    path = await stray(world)
    world.clock.ms += TTL_MS + 1
    assert [each.path for each in await unnamed(world)] == [path]
    assert await run(world) == (1, ())
    assert await world.paths() == {path}
    assert await unnamed(world) == []
    collector = world.collector()
    await collector.collect_garbage()
    assert await world.paths() == {path}
    world.clock.ms += GRACE_MS
    await collector.collect_garbage()
    assert await world.paths() == set()
    assert await world.garbage() == []


async def test_what_is_young_is_left_alone(world: World) -> None:
    await stray(world)
    world.clock.ms += TTL_MS
    assert await unnamed(world) == []
    assert await run(world) == (0, ())


async def test_what_has_a_name_is_left_alone(world: World) -> None:
    broker = world.broker(range_size=6)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    await broker.produce({stream: "committed"})
    garbage = await broker.put({99: "of a stream that doesn't exist"})
    assert await broker.commit(garbage) is not None
    staged = await broker.put({stream: "not yet committed"})
    world.clock.ms += TTL_MS + 1
    assert await unnamed(world) == []
    # The same without the marker: only the one without a record has no name.
    await broker.domains[0].remove_marker(staged.name.marker)
    assert [each.path for each in await unnamed(world)] == [staged.name.path]
    assert (await run(world)).named == 1
    assert await world.read(stream) == ["committed"]
    assert set(await world.garbage()) == {garbage.name.wal_id, staged.name.wal_id}


async def test_a_fenced_marker_is_a_name_too(world: World) -> None:
    broker = world.broker()
    await broker.put({1: "x"})
    world.clock.ms += 2 * TTL_MS
    await world.collector().collect_orphans()
    assert await unnamed(world) == []


@pytest.mark.parametrize("what", ["search", "sweep"])
@pytest.mark.parametrize("call", range(6))
async def test_a_commit_during_the_sweep_is_safe(world: World, call: int, what: str) -> None:
    """The object is committed and its marker removed before each of the sweep's questions in
    turn. Whatever it has seen by then, it must not take the object for unnamed."""
    broker = world.broker(range_size=1)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    written = await broker.put({stream: "kept"})
    world.clock.ms += TTL_MS + 1

    async def commit() -> None:
        assert await broker.commit(written) is not None
        await broker.domains[0].remove_marker(written.name.marker)

    countdown = Countdown(call, commit)
    store = HookedMetadata(world.client(), countdown)
    if what == "search":
        assert await unnamed(world, store) == []
    else:
        assert (await run(world, store=store)).named == 0
    if not countdown.reached:
        await commit()
    assert await world.garbage() == []
    assert await world.read(stream) == ["kept"]


@pytest.mark.parametrize("call", range(6))
async def test_a_deletion_during_the_search_is_not_mistaken(world: World, call: int) -> None:
    """A record that turns into garbage between the questions is named all the time."""
    broker = world.broker(range_size=1)
    topic = await broker.create("t")
    await broker.produce({topic.partitions[0].stream_id: "x"})
    for marker in await world.markers():
        await broker.domains[0].remove_marker(marker)
    world.clock.ms += TTL_MS + 1

    async def delete() -> None:
        await broker.topics.purge(await broker.topics.delete(topic.topic_id))

    countdown = Countdown(call, delete)
    assert await unnamed(world, HookedMetadata(world.client(), countdown)) == []


async def test_the_transaction_decides(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the search were wrong about an object, it would get no garbage entry."""
    broker = world.broker(range_size=3)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    staged = await broker.put({stream: "staged"})
    committed = await broker.put({stream: "committed"})
    await broker.commit(committed)

    async def everything(store: MetadataStore, group: list[Unnamed]) -> list[Unnamed]:
        return group

    monkeypatch.setattr(sweeping, "_without_name", everything)
    world.clock.ms += TTL_MS + 1
    assert len(await unnamed(world)) == 2
    assert (await run(world)).named == 0
    await broker.domains[0].remove_marker(staged.name.marker)
    assert (await run(world)).named == 1
    assert await world.garbage() == [staged.name.wal_id]


async def test_strangers_are_left_alone(world: World) -> None:
    await world.objects.put("wal/v1/zone=none/domain=0/README", [b"hello"])
    await world.objects.put("wal/v10/zone=none/domain=0/x.wo", [b"hello"])
    await stray(world, domain=5)
    world.clock.ms += TTL_MS + 1
    assert await unnamed(world) == []


async def test_ids_at_the_end_of_the_numbers(world: World) -> None:
    paths = {await stray(world, UUID(int=(1 << 128) - 1 - number)) for number in range(3)}
    world.clock.ms += TTL_MS + 1
    assert {each.path for each in await unnamed(world)} == paths


async def test_many_ranges_and_large_ones(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "GROUP", 3)
    broker = world.broker(range_size=8)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    lost = []
    for number in range(30):
        written = await broker.put({stream: str(number)})
        if number % 3:
            await broker.domains[0].append([written.stored])
        else:
            lost.append(written.name.path)
    for marker in await world.markers():
        await broker.domains[0].remove_marker(marker)
    world.clock.ms += TTL_MS + 1
    assert sorted(each.path for each in await unnamed(world)) == sorted(lost)
    assert (await run(world)).named == len(lost)
    assert len(await world.read(stream)) == 20


async def test_one_sweep_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "MAX_NAMED", 2)
    for _ in range(3):
        await stray(world)
    world.clock.ms += TTL_MS + 1
    assert (await run(world)).named == 2
    assert (await run(world)).named == 1


async def test_a_store_that_another_cluster_uses_is_never_swept(world: World) -> None:
    await leave_stamp(world.objects, CLUSTER)
    await leave_stamp(world.objects, CLUSTER)
    assert await foreign_stamps(world.objects, CLUSTER) == ()
    path = await stray(world)
    world.clock.ms += TTL_MS + 1
    await leave_stamp(world.objects, "another")
    assert await run(world) == (0, ("another",))
    assert await world.garbage() == []
    assert await world.paths() == {path}
    await world.objects.delete(f"{sweeping.STAMPS}/another")
    assert await run(world) == (1, ())


async def test_a_cluster_that_begins_during_the_sweep_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "RECHECK_EVERY", 2)
    for _ in range(6):
        await stray(world)
    world.clock.ms += TTL_MS + 1

    async def begin() -> None:
        await leave_stamp(world.objects, "another")

    # Each object takes a marker's look-up, two scans and a commit, which ticks twice.
    store = HookedMetadata(world.client(), Countdown(5, begin))
    assert await run(world, store=store) == (2, ("another",))


async def test_the_search_changes_nothing(world: World) -> None:
    await stray(world)
    world.clock.ms += TTL_MS + 1
    faulty = FaultyStore(world.client())
    faulty.hold_commits()
    counted = Faulty(world.objects)
    found = unnamed_objects(faulty, counted, domains=1, modified_before_ms=world.clock())
    assert len([each async for each in found]) == 1
    assert set(counted.calls) == {"list"}
    assert await world.keys(keys.garbage(0)) == []
