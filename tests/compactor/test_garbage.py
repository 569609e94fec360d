"""Garbage: the object goes after its grace, and the entry when nobody needs a witness."""

from __future__ import annotations

from uuid import UUID

import pytest

from compactor.deletes import SIDE_BY_SIDE
from compactor.garbage import PIECE, GarbageCollector
from metadata import keys
from metadata.faults import Fault as StoreFault
from metadata.faults import FaultyStore
from metadata.store import Put, StoreError, Versioned
from metadata.values import Garbage, encode
from tests.compactor.world import GRACE_MS, World
from wal.faulty import Fault, Faulty
from wal.paths import wal_path

SCOPE = keys.domain_scope(0)


async def make_garbage(world: World, count: int = 1) -> list[str]:
    """Objects with garbage entries whose markers are gone."""
    paths = []
    for number in range(count):
        wal_id = UUID(int=(number + 1) << 32)
        path = wal_path("", 0, world.clock(), wal_id)
        await world.objects.put(path, [b"x"])
        entry = Garbage(path, world.clock() + GRACE_MS)
        await world.store.commit(SCOPE, [], [Put(keys.garbage_object(0, wal_id), encode(entry))])
        paths.append(path)
    return paths


def collector(world: World) -> GarbageCollector:
    return GarbageCollector(world.store, world.objects, 0)


async def test_the_object_goes_after_the_grace_and_then_its_entry(world: World) -> None:
    paths = await make_garbage(world, 2)
    world.clock.ms += GRACE_MS - 1
    assert await collector(world).collect(world.clock()) == (0, 2)
    assert await world.paths() == set(paths)
    world.clock.ms += 1
    assert await collector(world).collect(world.clock()) == (2, 0)
    assert await world.paths() == set()
    assert await world.garbage() == []


async def test_more_than_one_piece(world: World) -> None:
    await make_garbage(world, 2 * PIECE + 3)
    world.clock.ms += GRACE_MS
    assert await collector(world).collect(world.clock()) == (2 * PIECE + 3, 0)
    assert await world.paths() == set()
    assert await world.garbage() == []


async def test_an_object_with_a_record_is_never_deleted(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    written = await broker.put({stream: "kept"})
    await broker.commit(written)
    wrong = Garbage(written.name.path, 0)
    key = keys.garbage_object(0, written.name.wal_id)
    await world.store.commit(SCOPE, [], [Put(key, encode(wrong))])
    assert await collector(world).collect(world.clock()) == (0, 1)
    assert await world.read(stream) == ["kept"]


class CollectsBeforeLookUp(FaultyStore):
    """The broker's store: between a lost answer and the look-up of its outcome, collection runs."""

    def __init__(self, world: World, garbage: GarbageCollector) -> None:
        super().__init__(world.client())
        self._world = world
        self._garbage = garbage

    async def get(self, key: str, *, scope: str) -> Versioned | None:
        if "/wal/garbage/" in key or "/wal/objects/" in key:
            self._world.clock.ms += GRACE_MS
            await self._garbage.collect(self._world.clock())
        return await super().get(key, scope=scope)


async def test_the_entry_is_a_witness_while_the_marker_is_open(world: World) -> None:
    """A broker that doesn't know whether its commit happened finds out by the entry, however late
    it asks. Were the entry gone, the object would be committed after its bytes were deleted."""
    garbage = collector(world)
    faulty = CollectsBeforeLookUp(world, garbage)
    broker = world.broker(store=faulty)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    # Sequence 5 after sequence 0 is refused, so the object is garbage at once.
    await broker.commit(await broker.put({stream: "first"}, producer_id=7, sequence=0))
    refused = await broker.put({stream: "refused"}, producer_id=7, sequence=5)
    faulty.fail_commits(StoreFault.LOST_ANSWER)
    appended = await broker.commit(refused)
    assert appended is not None
    assert appended.entries == []
    assert refused.name.path not in await world.paths()
    assert await world.garbage() == [refused.name.wal_id]
    # The object is deleted once, and the entry goes with the marker.
    assert await garbage.collect(world.clock()) == (0, 0)
    await broker.domains[0].remove_marker(refused.name.marker)
    assert await garbage.collect(world.clock()) == (0, 0)
    assert await world.garbage() == []


async def test_what_cannot_be_deleted_waits_and_holds_nothing_up(world: World) -> None:
    paths = await make_garbage(world, 5)
    world.clock.ms += GRACE_MS
    faulty = Faulty(world.objects)
    faulty.plan("delete", Fault.FAIL, times=2)
    garbage = GarbageCollector(world.store, faulty, 0)
    assert await garbage.collect(world.clock()) == (3, 2)
    assert await world.paths() == set(paths[:2])
    assert len(await world.garbage()) == 2
    assert await garbage.collect(world.clock()) == (2, 0)
    assert await world.garbage() == []


async def test_a_lost_answer_to_a_delete_is_repeated(world: World) -> None:
    await make_garbage(world)
    world.clock.ms += GRACE_MS
    faulty = Faulty(world.objects)
    faulty.plan("delete", Fault.LOSE_ANSWER)
    garbage = GarbageCollector(world.store, faulty, 0)
    assert await garbage.collect(world.clock()) == (0, 1)
    assert await world.paths() == set()
    assert await garbage.collect(world.clock()) == (1, 0)
    assert await world.garbage() == []


async def test_a_store_that_is_down_is_given_up_for_the_round(world: World) -> None:
    await make_garbage(world, 3 * PIECE)
    world.clock.ms += GRACE_MS
    faulty = Faulty(world.objects)
    faulty.plan("delete", Fault.FAIL, times=1000)
    assert await GarbageCollector(world.store, faulty, 0).collect(world.clock()) == (0, 3 * PIECE)
    assert faulty.calls["delete"] == SIDE_BY_SIDE


@pytest.mark.parametrize("fault", list(StoreFault))
async def test_an_entry_whose_removal_is_unknown_is_looked_at_again(
    world: World, fault: StoreFault
) -> None:
    await make_garbage(world)
    world.clock.ms += GRACE_MS
    faulty = FaultyStore(world.client())
    faulty.fail_commits(fault)
    garbage = GarbageCollector(faulty, world.objects, 0)
    with pytest.raises(StoreError):
        await garbage.collect(world.clock())
    await garbage.collect(world.clock())
    assert await world.garbage() == []
    assert await world.paths() == set()
