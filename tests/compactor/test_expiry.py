"""Producers that were silent for too long are forgotten, the others are not."""

from __future__ import annotations

from compactor import expiry
from compactor.expiry import expire_producers, heads_of
from metadata import keys
from metadata.append import Accepted
from metadata.values import StreamRef
from tests.compactor.interruptions import Countdown, HookedMetadata
from tests.compactor.world import PRODUCER_EXPIRATION_MS, Broker, World


async def produce(broker: Broker, stream: int, producer_id: int, sequence: int) -> None:
    written = await broker.put({stream: "x"}, producer_id=producer_id, sequence=sequence)
    appended = await broker.commit(written)
    assert appended is not None
    assert isinstance(appended.outcomes[0][0], Accepted)


async def producers(world: World, stream: int) -> list[int]:
    return [keys.producer_id_of(key) for key in await world.keys(keys.producers(0, stream))]


async def expire(world: World, streams: list[int]) -> int:
    return await expire_producers(
        world.store,
        [StreamRef(stream, 0) for stream in streams],
        now_ms=world.clock(),
        expiration_ms=PRODUCER_EXPIRATION_MS,
    )


async def test_only_the_silent_ones_go(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t", 2)
    one, two = (ref.stream_id for ref in topic.partitions)
    await produce(broker, one, 7, 0)
    await produce(broker, two, 7, 0)
    world.clock.ms += 1
    await produce(broker, one, 8, 0)
    world.clock.ms += PRODUCER_EXPIRATION_MS
    assert await expire(world, [one, two]) == 2
    assert await producers(world, one) == [8]
    assert await producers(world, two) == []
    assert len(await world.read(one)) == 2
    # A broker that still remembers the state takes it for expired as well.
    await produce(broker, one, 7, 40)


async def test_a_producer_that_comes_back_meanwhile_stays(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    await produce(broker, stream, 7, 0)
    world.clock.ms += PRODUCER_EXPIRATION_MS + 1

    async def come_back() -> None:
        await produce(broker, stream, 7, 0)

    store = HookedMetadata(world.client(), Countdown(1, come_back))
    refs = [StreamRef(stream, 0)]
    assert (
        await expire_producers(
            store, refs, now_ms=world.clock(), expiration_ms=PRODUCER_EXPIRATION_MS
        )
        == 0
    )
    assert await producers(world, stream) == [7]
    written = await broker.put({stream: "again"}, producer_id=7, sequence=2)
    appended = await world.broker().commit(written)
    assert appended is not None and appended.entries == []


async def test_many_are_removed_in_pieces(world: World) -> None:
    broker = world.broker(range_size=200)
    topic = await broker.create("t")
    stream = topic.partitions[0].stream_id
    count = 2 * expiry.PIECE + 5
    for producer_id in range(count):
        await produce(broker, stream, producer_id, 0)
    world.clock.ms += PRODUCER_EXPIRATION_MS + 1
    assert await expire(world, [stream]) == count
    assert await producers(world, stream) == []


async def test_heads_are_read_without_their_index(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t", 3)
    await broker.produce({ref.stream_id: "x" for ref in topic.partitions})
    found = [each async for each in heads_of(world.store, 0)]
    assert [each.ref for each in found] == list(topic.partitions)
    assert [each.head.log_end for each in found] == [1, 1, 1]
