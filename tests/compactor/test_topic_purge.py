"""A topic's life to the end: produce, delete, purge, and its bytes leave the disk."""

from __future__ import annotations

from pathlib import Path

from metadata import keys
from metadata.sqlite import SqliteStore
from tests.compactor.world import DAY_MS, GRACE_MS, START_MS, Broker, Clock, Dated, World
from wal.local import LocalStore


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*.wo")}


async def test_a_deleted_topic_leaves_the_disk_and_its_neighbours_stay(tmp_path: Path) -> None:
    world = World(LocalStore.open(str(tmp_path), threads=2))
    broker = world.broker()
    deleted = await broker.create("deleted", 2)
    kept = await broker.create("kept")
    one, two = (ref.stream_id for ref in deleted.partitions)
    neighbour = kept.partitions[0].stream_id
    shared = await broker.put({one: "a", two: "b", neighbour: "c"})
    alone = [await broker.put({one: "d"}), await broker.put({one: "e", two: "f"})]
    for written in (shared, *alone):
        await broker.commit(written)
    collector = world.collector()
    marked = await broker.topics.delete(deleted.topic_id)
    late = await broker.put({one: "after the deletion", neighbour: "g"})
    assert await broker.commit(late) is not None
    await broker.topics.purge(marked)
    await collector.round()
    assert files(tmp_path) == {each.name.path for each in (shared, late, *alone)}
    world.clock.ms += GRACE_MS
    await collector.round()
    assert files(tmp_path) == {shared.name.path, late.name.path}
    assert await world.read(neighbour) == ["c", "g"]
    assert set(await world.heads()) == {neighbour}
    marked = await broker.topics.delete(kept.topic_id)
    await broker.topics.purge(marked)
    world.clock.ms += GRACE_MS
    await collector.round()
    assert files(tmp_path) == set()
    # The entries are kept as witnesses only until their markers go.
    world.clock.ms += 4 * DAY_MS
    await collector.round()
    await collector.round()
    world.clock.ms += DAY_MS
    await collector.round()
    assert await world.garbage() == []
    assert await world.records() == []
    assert await world.markers() == []
    await world.objects.close()


async def test_the_same_on_sqlite_across_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    world = World(LocalStore.open(str(tmp_path / "objects"), threads=2))
    world.clock = clock
    world.objects = Dated(world.objects.inner, clock)
    store = await SqliteStore.open(tmp_path / "metadata.db")
    broker = Broker(store, world.objects, clock, incarnation="first")
    topic = await broker.create("t")
    kept = await broker.create("kept")
    stream, neighbour = topic.partitions[0].stream_id, kept.partitions[0].stream_id
    await broker.produce({stream: "x", neighbour: "y"})
    await broker.produce({stream: "z"})
    await broker.put({neighbour: "never committed"})
    await broker.topics.delete(topic.topic_id)
    await store.close()

    store = await SqliteStore.open(tmp_path / "metadata.db")
    collector = world.collector(store=store, sole_owner=True, incarnation="second")
    assert await collector.round()
    assert len(files(tmp_path / "objects")) == 2, "the orphan is gone, the topic has its grace"
    clock.ms += GRACE_MS
    assert await collector.round()
    assert len(files(tmp_path / "objects")) == 1
    broker = Broker(store, world.objects, clock, incarnation="second")
    await broker.topics.load()
    await broker.produce({neighbour: "w"})
    stream_now = await broker.domains[0].stream(neighbour)
    assert (stream_now.head.log_start, stream_now.head.log_end) == (0, 2)
    scope = keys.domain_scope(0)
    staging = keys.staging(0)
    markers = [item.key async for item in store.scan(staging, keys.end_of(staging), scope=scope)]
    assert len(markers) == 1
    assert clock.ms > START_MS
    await store.close()
    await world.objects.close()
