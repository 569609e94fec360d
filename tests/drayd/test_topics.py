"""Topics as clients know them: names, shapes, codes, and what happens behind them."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drayd.cache import Cache
from drayd.config import Settings
from drayd.configs.service import ConfigService
from drayd.topic_names import check_name
from drayd.topics import TopicService, new_topic_id
from drayd.waiters import Wait, Waiters
from metadata import keys
from metadata.configs import StoredConfigs
from metadata.faults import Fault, FaultyStore
from metadata.memory import MemoryState, MemoryStore
from metadata.topics import Topics
from protocol.errors import ErrorCode, KafkaError
from tests.metadata.stored import GRACE_MS, Clock, batch, domain_log, marked, stored, stored_head
from tests.protocol.building import batch as record_batch
from wal.buffer import Batch


class Service:
    def __init__(self, state: MemoryState | None = None) -> None:
        self.clock = Clock(1_700_000_000_000)
        self.store = FaultyStore(MemoryStore(state))
        self.domains = [domain_log(self.store, self.clock, number) for number in range(2)]
        self.cache = Cache(hot_max_bytes=10**6, cold_max_bytes=10**6)
        self.waiters = Waiters()
        registry = Topics(self.store, self.domains, now_ms=self.clock, garbage_grace_ms=GRACE_MS)
        settings = Settings(num_partitions=3)
        self.configs = ConfigService(settings, StoredConfigs(self.store), registry)
        self.topics = TopicService(
            registry, settings, self.cache, self.waiters, self.clock, self.configs
        )


async def code_of(awaitable: object) -> ErrorCode:
    assert asyncio.iscoroutine(awaitable)
    with pytest.raises(KafkaError) as raised:
        await awaitable
    return raised.value.code


# -- names and shapes --------------------------------------------------------------------------


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda n: n.strip(".")))
def test_legal_names_are_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "a\n", "x" * 250, "a:b", "a,b", "\0"]
)
def test_illegal_names_are_refused(name: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_name(name)
    assert raised.value.code is ErrorCode.invalid_topic_exception


def test_an_id_begins_with_its_time_and_is_like_no_other() -> None:
    ids = {new_topic_id(1_700_000_000_000) for _ in range(100)}
    assert len(ids) == 100
    assert {each.bytes[:6] for each in ids} == {(1_700_000_000_000).to_bytes(6, "big")}
    assert new_topic_id(1) < new_topic_id(2)


async def test_a_configuration_that_cannot_be_is_refused() -> None:
    here = Service()
    with pytest.raises(KafkaError) as raised:
        here.topics.check_config({"no.such": "1"})
    assert raised.value.code is ErrorCode.invalid_config


@pytest.mark.parametrize(
    ("existing", "name", "collides"),
    [
        ("a.b", "a_b", True),
        ("a_b.c", "a.b_c", True),
        ("a.b", "a-b", False),
        ("ab", "a.b", False),
        ("a.b", "a.b", False),
        ("._" * 6, "_." * 6, True),
        ("._" * 6, "_." * 7, False),
    ],
)
async def test_names_that_differ_only_in_dots_and_underscores_collide(
    existing: str, name: str, collides: bool
) -> None:
    here = Service()
    await here.topics.create(existing, 1, {})
    assert here.topics.collision(name) == (existing if collides else None)


# -- creating and finding ----------------------------------------------------------------------


async def test_a_topic_is_there_for_every_broker_when_it_was_created() -> None:
    state = MemoryState()
    here, there = Service(state), Service(state)
    topic = await here.topics.create("t", 2, {"retention.ms": "5"})
    assert here.topics.cached("t", None) is here.topics.cached(None, topic.topic_id) is topic
    assert await there.topics.find("t") == topic == await there.topics.find_id(topic.topic_id)
    assert await code_of(there.topics.create("t", 2, {})) is ErrorCode.topic_already_exists


async def test_a_topic_that_is_created_by_many_at_once_is_one() -> None:
    state = MemoryState()
    brokers = [Service(state) for _ in range(3)]
    topics = await asyncio.gather(
        *(each.topics.auto_create("t") for each in brokers for _ in range(5))
    )
    assert len({topic.topic_id for topic in topics}) == 1
    assert len(topics[0].partitions) == 3
    assert all(not each.topics._creating for each in brokers)


async def test_auto_creation_refuses_an_illegal_name_each_time() -> None:
    here = Service()
    for _ in range(2):
        assert await code_of(here.topics.auto_create("a b")) is ErrorCode.invalid_topic_exception
    assert not here.topics._creating


async def test_a_store_that_is_down_gives_codes_that_clients_retry() -> None:
    here = Service()
    here.store.fail_reads()
    assert await code_of(here.topics.find("t")) is ErrorCode.kafka_storage_error
    here.store.fail_reads()
    assert await code_of(here.topics.find_id(UUID(int=1))) is ErrorCode.kafka_storage_error
    here.store.fail_commits(Fault.UNAVAILABLE)
    assert await code_of(here.topics.create("t", 1, {})) is ErrorCode.request_timed_out
    topic = await here.topics.create("t", 1, {})
    here.store.fail_commits(Fault.UNAVAILABLE)
    assert await code_of(here.topics.delete(topic)) is ErrorCode.request_timed_out
    await here.topics.delete(topic)


async def test_limits_follow_the_topic_as_it_is_now() -> None:
    here = Service()
    first = await here.topics.create("t", 1, {"max.message.bytes": "77"})
    assert here.topics.limits(first).max_message_bytes == 77
    assert here.topics.limits(first) is here.topics.limits(first)
    await here.topics.delete(first)
    second = await here.topics.create("t", 1, {"max.message.bytes": "88"})
    assert here.topics.limits(second).max_message_bytes == 88
    assert len(here.topics._limits) == 1


# -- deleting ----------------------------------------------------------------------------------


async def test_a_deletion_drops_the_cache_and_wakes_readers() -> None:
    here = Service()
    topic = await here.topics.create("t", 2, {})
    stream_id = topic.partitions[1].stream_id
    data = record_batch()
    item = Batch(memoryview(bytearray(data)), 1, 0, 0, -1, -1, -1, len(data))
    here.cache.append(stream_id, item, 0, 0)
    wait = Wait([stream_id], 10**6)
    here.waiters.add(wait)
    await here.topics.delete(topic)
    assert here.cache.hot_bytes == 0
    async with asyncio.timeout(10):
        await wait.until(asyncio.get_running_loop().time() + 60)
    unknown = ErrorCode.unknown_topic_or_partition
    assert await code_of(here.topics.delete(topic)) is unknown


async def test_what_a_topic_leaves_is_removed_in_the_background_though_the_store_stumbles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drayd.topics.PURGE_RETRY_S", 0.001)
    here = Service()
    topic = await here.topics.create("t", 2, {})
    for ref in topic.partitions:
        log = here.domains[ref.domain]
        await log.append([stored(await marked(log), {ref.stream_id: [batch()]})])
    task = asyncio.create_task(here.topics.purge_deleted())
    await here.topics.delete(topic)
    here.store.fail_commits(Fault.UNAVAILABLE, 3)
    here.store.fail_commits(Fault.LOST_ANSWER, 2)
    key = keys.topic_id(topic.topic_id)
    async with asyncio.timeout(20):
        while await here.store.get(key, scope=keys.TOPICS_SCOPE) is not None:
            await asyncio.sleep(0)
    for ref in topic.partitions:
        assert await stored_head(here.store, ref.stream_id, ref.domain) is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_deletion_that_was_broken_off_is_finished_after_the_next_start() -> None:
    state = MemoryState()
    here = Service(state)
    topic = await here.topics.create("t", 2, {})
    await here.topics.delete(topic)
    heir = Service(state)
    await heir.topics.load()
    task = asyncio.create_task(heir.topics.purge_deleted())
    key = keys.topic_id(topic.topic_id)
    async with asyncio.timeout(20):
        while await heir.store.get(key, scope=keys.TOPICS_SCOPE) is not None:
            await asyncio.sleep(0)
    assert heir.topics.all() == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
