"""Topics that were half created or half deleted are cleared away, living ones are not."""

from __future__ import annotations

import pytest

from compactor.abandoned import AbandonedTopics, created_ms
from compactor.expiry import heads_of
from drayd.topics import new_topic_id
from metadata import keys
from metadata.faults import Fault, FaultyStore
from metadata.store import Check, Put, StoreError, Unavailable
from metadata.topics import NewTopic, TopicExists
from metadata.values import Topic, TopicName, decode, encode
from tests.compactor.interruptions import Countdown, Died, HookedMetadata, die
from tests.compactor.world import GRACE_MS, TTL_MS, World


async def mark(world: World, abandoned: AbandonedTopics) -> int:
    heads = [found async for found in heads_of(world.store, 0)]
    return await abandoned.mark(heads, now_ms=world.clock(), ttl_ms=TTL_MS)


def abandoned_topics(world: World) -> AbandonedTopics:
    return AbandonedTopics(world.store, world.broker(store=world.store).topics)


async def crash_before_registration(world: World) -> NewTopic:
    faulty = FaultyStore(world.client())
    faulty.fail_commits(Fault.UNAVAILABLE, when=lambda scope, writes: scope == keys.TOPICS_SCOPE)
    new = NewTopic("t", new_topic_id(world.clock()), 3, {}, world.clock())
    with pytest.raises(Unavailable):
        await world.broker(store=faulty).topics.create(new)
    assert len(await world.heads()) == 3
    return new


def test_the_time_in_a_topic_id() -> None:
    assert created_ms(new_topic_id(1_750_000_123_456)) == 1_750_000_123_456


async def test_heads_whose_topic_was_never_registered_go(world: World) -> None:
    new = await crash_before_registration(world)
    abandoned = abandoned_topics(world)
    world.clock.ms += TTL_MS
    assert await mark(world, abandoned) == 0
    world.clock.ms += 1
    assert await mark(world, abandoned) == 0, "seen once only"
    assert await mark(world, abandoned) == 1
    found = await world.store.get(keys.topic_id(new.topic_id), scope=keys.TOPICS_SCOPE)
    assert found is not None
    assert [ref.domain for ref in decode(Topic, found.value).partitions] == [0, 0, 0]
    assert await world.broker().topics.find_id(new.topic_id) is None
    assert await abandoned.finish_deletions() == 1
    assert await world.heads() == {}
    assert await world.keys(keys.TOPIC_IDS) == []
    assert await mark(world, abandoned) == 0


async def test_topics_that_exist_keep_their_heads(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t", 2)
    abandoned = abandoned_topics(world)
    world.clock.ms += TTL_MS + 1
    for _ in range(3):
        assert await mark(world, abandoned) == 0
    assert await abandoned.finish_deletions() == 0
    await broker.produce({topic.partitions[0].stream_id: "x"})
    assert await world.read(topic.partitions[0].stream_id) == ["x"]


async def test_a_creator_that_is_slow_fails_instead_of_making_a_broken_topic(world: World) -> None:
    """Between its heads and its record the topic is marked: the registration must not succeed."""
    abandoned = abandoned_topics(world)

    async def marked_meanwhile() -> None:
        world.clock.ms += TTL_MS + 1
        await mark(world, abandoned)
        await mark(world, abandoned)

    new = NewTopic("t", new_topic_id(world.clock()), 1, {}, world.clock())
    # The name, the counter (read, commit twice), the heads (commit twice), then the record.
    creator = world.broker(store=HookedMetadata(world.client(), Countdown(6, marked_meanwhile)))
    with pytest.raises(TopicExists):
        await creator.topics.create(new)
    await abandoned.finish_deletions()
    assert await world.heads() == {}
    assert await world.keys(keys.TOPIC_IDS) == []
    again = await creator.create("t")
    await creator.produce({again.partitions[0].stream_id: "x"})


@pytest.mark.parametrize("call", range(3))
async def test_a_registration_just_before_the_mark_wins(world: World, call: int) -> None:
    new = await crash_before_registration(world)
    heads = [found async for found in heads_of(world.store, 0)]
    refs = tuple(found.ref for found in heads)
    topic = Topic(new.topic_id, "t", refs, {}, new.created_ms)
    creator = world.broker()

    async def register() -> None:
        id_key, name_key = keys.topic_id(new.topic_id), keys.topic_name("t")
        await creator.store.commit(
            keys.TOPICS_SCOPE,
            [Check(id_key, None), Check(name_key, None)],
            [Put(id_key, encode(topic)), Put(name_key, encode(TopicName(new.topic_id)))],
        )

    # A scan in each of the two rounds, then the mark.
    store = HookedMetadata(world.client(), Countdown(call, register))
    abandoned = AbandonedTopics(store, creator.topics)
    world.clock.ms += TTL_MS + 1
    for _ in range(2):
        assert await abandoned.mark(heads, now_ms=world.clock(), ttl_ms=TTL_MS) == 0
    assert await abandoned.finish_deletions() == 0
    assert len(await world.heads()) == 3
    assert await creator.topics.find("t") == topic


async def test_a_deletion_that_nobody_finished_is_finished(world: World) -> None:
    broker = world.broker()
    topic = await broker.create("t", 2)
    other = await broker.create("other")
    streams = [ref.stream_id for ref in topic.partitions]
    kept = other.partitions[0].stream_id
    await broker.produce({streams[0]: "a", streams[1]: "b", kept: "c"})
    alone = await broker.put({streams[0]: "d"})
    await broker.commit(alone)
    faulty = FaultyStore(world.client())
    faulty.fail_commits(Fault.UNAVAILABLE, when=lambda scope, writes: scope != keys.TOPICS_SCOPE)
    with pytest.raises(StoreError):
        await world.broker(store=faulty).topics.delete(topic.topic_id)
    assert await abandoned_topics(world).finish_deletions() == 1
    assert set(await world.heads()) == {kept}
    assert await world.garbage() == [alone.name.wal_id]
    assert await world.read(kept) == ["c"]


async def test_clearing_away_may_die_anywhere(world: World) -> None:
    for call in range(100):
        await crash_before_registration(world)
        world.clock.ms += TTL_MS + 1
        countdown = Countdown(call, die)
        store = HookedMetadata(world.client(), countdown)
        dying = world.collector(store=store)
        try:
            for _ in range(3):
                await dying.check_streams()
        except Died:
            pass
        survivor = world.collector()
        for _ in range(3):
            await survivor.check_streams()
        assert await world.heads() == {}
        assert await world.keys(keys.TOPIC_IDS) == []
        world.clock.ms += GRACE_MS
        if not countdown.reached:
            return
    pytest.fail("there are more calls than expected")


# -- partitions that were never added -----------------------------------------------------------


async def remove_strays(world: World, abandoned: AbandonedTopics) -> int:
    heads = [found async for found in heads_of(world.store, 0)]
    return await abandoned.remove_strays(heads)


async def test_partitions_whose_adding_was_killed_go_and_the_topic_stays(world: World) -> None:
    """Killed between the heads and the record: nothing is visible, and nothing is left for good."""
    topic = await world.broker().create("t", 2)
    faulty = FaultyStore(world.client())
    faulty.fail_commits(Fault.UNAVAILABLE, when=lambda scope, writes: scope == keys.TOPICS_SCOPE)
    with pytest.raises(Unavailable):
        await world.broker(store=faulty).topics.add_partitions(topic.topic_id, 2, 5)
    assert len(await world.heads()) == 5
    found = await world.broker().topics.find("t")
    assert found is not None and found.partitions == topic.partitions
    abandoned = abandoned_topics(world)
    assert await remove_strays(world, abandoned) == 0, "seen once only"
    assert await remove_strays(world, abandoned) == 3
    assert set(await world.heads()) == {ref.stream_id for ref in topic.partitions}
    assert await remove_strays(world, abandoned) == 0
    grown = await world.broker().topics.add_partitions(topic.topic_id, 2, 3)
    for _ in range(3):
        assert await remove_strays(world, abandoned) == 0
    assert set(await world.heads()) == {ref.stream_id for ref in grown.partitions}


async def test_whoever_adds_partitions_slowly_starts_again(world: World) -> None:
    """Its heads are taken for abandoned before its record: the record must not name them."""
    topic = await world.broker().create("t", 1)
    abandoned = abandoned_topics(world)
    taken: list[int] = []

    async def taken_for_abandoned() -> None:
        taken.extend([await remove_strays(world, abandoned) for _ in range(2)])

    # The record, the counter (read, commit twice), the heads (commit twice), then the record.
    store = HookedMetadata(world.client(), Countdown(6, taken_for_abandoned))
    grown = await world.broker(store=store).topics.add_partitions(topic.topic_id, 1, 3)
    assert taken == [0, 2]
    assert set(await world.heads()) == {ref.stream_id for ref in grown.partitions}
