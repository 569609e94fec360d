"""More partitions for a topic: all of them or none, and the old ones stay what they are."""

from __future__ import annotations

import asyncio

import pytest

from metadata import keys
from metadata.faults import Fault, FaultyStore
from metadata.memory import MemoryState, MemoryStore
from metadata.store import StoreError, Unavailable
from metadata.topics import TopicChanged, TopicMissing
from metadata.values import Topic
from tests.metadata.stored import stored_head
from tests.metadata.test_topics import Registry, everything


async def test_old_partitions_keep_their_streams() -> None:
    here = Registry(MemoryStore())
    topic = await here.create(partitions=2)
    assert await here.write(topic) == 2
    grown = await here.topics.add_partitions(topic.topic_id, 2, 5)
    assert grown.partitions[:2] == topic.partitions
    assert grown.config == topic.config
    assert here.topics.by_name("t") == grown == here.topics.by_id(topic.topic_id)
    assert len({ref.stream_id for ref in grown.partitions}) == 5
    for partition, ref in enumerate(grown.partitions):
        head = await stored_head(here.store, ref.stream_id, ref.domain)
        assert head is not None and (head.topic_id, head.partition) == (topic.topic_id, partition)
        assert head.log_end == (1 if partition < 2 else 0)


async def test_another_broker_hears_of_them() -> None:
    state = MemoryState()
    here, there = Registry(MemoryStore(state)), Registry(MemoryStore(state))
    topic = await here.create(partitions=1)
    await there.topics.load()
    following = asyncio.create_task(there.topics.follow())
    await here.topics.add_partitions(topic.topic_id, 1, 3)
    async with asyncio.timeout(30):
        while len(_of(there, topic).partitions) != 3:
            await asyncio.sleep(0)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def _of(registry: Registry, topic: Topic) -> Topic:
    found = registry.topics.by_id(topic.topic_id)
    assert found is not None
    return found


async def test_a_topic_that_has_grown_meanwhile_is_left_alone() -> None:
    state = MemoryState()
    here, there = Registry(MemoryStore(state)), Registry(MemoryStore(state))
    topic = await here.create(partitions=1)
    await there.topics.add_partitions(topic.topic_id, 1, 2)
    before = await everything(here.store)
    with pytest.raises(TopicChanged):
        await here.topics.add_partitions(topic.topic_id, 1, 3)
    assert await everything(here.store) == before
    assert len(_of(here, topic).partitions) == 2


async def test_a_deleted_topic_gets_none() -> None:
    here = Registry(MemoryStore())
    topic = await here.create(partitions=1)
    await here.topics.purge(await here.topics.delete(topic.topic_id))
    with pytest.raises(TopicMissing):
        await here.topics.add_partitions(topic.topic_id, 1, 3)
    assert await everything(here.store) == []


async def test_two_that_add_at_once_make_no_half_of_each() -> None:
    state = MemoryState()
    brokers = [Registry(MemoryStore(state)) for _ in range(3)]
    topic = await brokers[0].create(partitions=1)
    results = await asyncio.gather(
        *(
            each.topics.add_partitions(topic.topic_id, 1, 2 + number)
            for number, each in enumerate(brokers)
        ),
        return_exceptions=True,
    )
    won = [each for each in results if isinstance(each, Topic)]
    assert len(won) == 1
    assert all(isinstance(each, Topic | TopicChanged) for each in results)
    heads = [key for key in await everything(brokers[0].store) if key.endswith("/head")]
    assert len(heads) == len(won[0].partitions)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
async def test_an_unknown_outcome_is_looked_up(fault: Fault) -> None:
    store = FaultyStore(MemoryStore())
    here = Registry(store)
    topic = await here.create(partitions=1)
    store.fail_commits(fault, when=lambda scope, writes: scope == keys.TOPICS_SCOPE)
    count = 2
    try:
        grown = await here.topics.add_partitions(topic.topic_id, 1, 2)
        assert len(grown.partitions) == 2
    except StoreError:
        count = 1
    assert count == (2 if fault is Fault.LOST_ANSWER else 1)
    heads = [key for key in await everything(store) if key.endswith("/head")]
    assert len(heads) == count


async def test_a_store_that_fails_leaves_nothing_visible() -> None:
    store = FaultyStore(MemoryStore())
    here = Registry(store)
    topic = await here.create(partitions=1)
    store.fail_commits(Fault.UNAVAILABLE, when=lambda scope, writes: scope == keys.TOPICS_SCOPE)
    with pytest.raises(Unavailable):
        await here.topics.add_partitions(topic.topic_id, 1, 4)
    assert _of(here, topic) == topic
    other = Registry(store)
    await other.topics.load()
    assert _of(other, topic) == topic
