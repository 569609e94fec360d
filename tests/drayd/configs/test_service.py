"""Configurations on a real store, in memory: what is set counts at once, everywhere, for good."""

from __future__ import annotations

import asyncio
import logging

import pytest

from drayd.config import Settings
from drayd.configs.brokers import Entry
from drayd.configs.changes import Change, Operation
from drayd.configs.service import ConfigService, Kind
from drayd.configs.values import Source
from drayd.topics import new_topic_id
from metadata.configs import StoredConfigs
from metadata.faults import Fault, FaultyStore
from metadata.memory import MemoryState, MemoryStore
from metadata.topics import NewTopic, Topics
from protocol.errors import ErrorCode, KafkaError
from tests.metadata.stored import GRACE_MS, Clock, domain_log


class Broker:
    def __init__(self, state: MemoryState, settings: Settings | None = None) -> None:
        self.clock = Clock(1_700_000_000_000)
        self.store = FaultyStore(MemoryStore(state))
        domains = [domain_log(self.store, self.clock, 0)]
        self.topics = Topics(self.store, domains, now_ms=self.clock, garbage_grace_ms=GRACE_MS)
        self.stored = StoredConfigs(self.store)
        self.configs = ConfigService(settings or Settings(), self.stored, self.topics)

    async def load(self) -> Broker:
        await self.configs.load()
        await self.topics.load()
        return self

    async def topic(self, name: str) -> None:
        now_ms = self.clock()
        await self.topics.create(NewTopic(name, new_topic_id(now_ms), 1, {}, now_ms))

    async def set(self, kind: Kind, name: str, **values: str | None) -> None:
        changes = [
            Change(key.replace("_", "."), Operation.DELETE if value is None else 0, value)
            for key, value in values.items()
        ]
        await self.configs.alter(kind, name, changes, replace=False, validate_only=False)

    async def entry(self, kind: Kind, name: str, key: str) -> Entry:
        (found,) = [one for one in await self.configs.describe(kind, name) if one.name == key]
        return found


@pytest.fixture
def state() -> MemoryState:
    return MemoryState()


async def refused(awaitable: object) -> KafkaError:
    assert asyncio.iscoroutine(awaitable)
    with pytest.raises(KafkaError) as raised:
        await awaitable
    return raised.value


async def test_the_strongest_source_wins(state: MemoryState) -> None:
    broker = await Broker(state, Settings(message_max_bytes=1)).load()
    await broker.topic("t")

    async def now() -> tuple[str | None, Source, int]:
        found = await broker.entry(Kind.TOPIC, "t", "max.message.bytes")
        topic = broker.topics.by_name("t")
        assert topic is not None
        return found.value, found.source, broker.configs.limits(topic.config).max_message_bytes

    assert await now() == ("1", Source.STATIC_BROKER, 1)
    await broker.set(Kind.BROKER, "", message_max_bytes="2")
    assert await now() == ("2", Source.DYNAMIC_DEFAULT_BROKER, 2)
    await broker.set(Kind.BROKER, "0", message_max_bytes="3")
    assert await now() == ("3", Source.DYNAMIC_BROKER, 3)
    await broker.set(Kind.TOPIC, "t", max_message_bytes="4")
    assert await now() == ("4", Source.TOPIC, 4)
    for kind, name, key in (
        (Kind.TOPIC, "t", "max_message_bytes"),
        (Kind.BROKER, "0", "message_max_bytes"),
        (Kind.BROKER, "", "message_max_bytes"),
    ):
        await broker.set(kind, name, **{key: None})
    assert await now() == ("1", Source.STATIC_BROKER, 1)


async def test_what_was_set_survives_a_restart(state: MemoryState) -> None:
    first = await Broker(state).load()
    await first.set(Kind.BROKER, "", log_retention_ms="5000")
    await first.set(Kind.GROUP, "any/~ group", consumer_session_timeout_ms="50000")
    again = await Broker(state).load()
    assert again.configs.group_config("any/~ group") == {"consumer.session.timeout.ms": "50000"}
    assert (await again.entry(Kind.BROKER, "", "log.retention.ms")).value == "5000"
    assert (Kind.GROUP, "any/~ group") in again.configs.resources([])


async def test_other_brokers_hear_of_it(state: MemoryState) -> None:
    one, other = await Broker(state).load(), await Broker(state, Settings(broker_id=1)).load()
    heard = asyncio.Event()
    other.configs.on_broker_change(heard.set)
    following = asyncio.create_task(other.configs.follow())
    await one.set(Kind.BROKER, "", max_connections="7")
    async with asyncio.timeout(10):
        await heard.wait()
    assert other.configs.value("max.connections") == 7
    heard.clear()
    await one.set(Kind.BROKER, "0", max_connections="8")
    await one.set(Kind.BROKER, "", max_connections="9")
    async with asyncio.timeout(10):
        await heard.wait()
    # What was set for one broker is no concern of another.
    assert (one.configs.value("max.connections"), other.configs.value("max.connections")) == (8, 9)
    following.cancel()


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
async def test_an_unknown_outcome_is_resolved(state: MemoryState, fault: Fault) -> None:
    broker = await Broker(state).load()
    await broker.topic("t")
    broker.store.fail_commits(fault)
    await broker.set(Kind.GROUP, "g", consumer_session_timeout_ms="50000")
    assert broker.configs.group_config("g") == {"consumer.session.timeout.ms": "50000"}
    broker.store.fail_commits(fault)
    await broker.set(Kind.TOPIC, "t", flush_ms="7")
    assert (await broker.entry(Kind.TOPIC, "t", "flush.ms")).value == "7"


async def test_changes_side_by_side_are_all_kept(state: MemoryState) -> None:
    one, other = await Broker(state).load(), await Broker(state).load()
    await one.topic("t")
    await asyncio.gather(
        one.set(Kind.TOPIC, "t", flush_ms="7"),
        other.set(Kind.TOPIC, "t", segment_ms="8"),
        one.set(Kind.GROUP, "g", consumer_session_timeout_ms="50000"),
        other.set(Kind.GROUP, "g", consumer_heartbeat_interval_ms="6000"),
    )
    again = await Broker(state).load()
    topic = again.topics.by_name("t")
    assert topic is not None
    assert topic.config == {"flush.ms": "7", "segment.ms": "8"}
    assert len(again.configs.group_config("g")) == 2


async def test_a_refused_change_leaves_nothing(state: MemoryState) -> None:
    broker = await Broker(state).load()
    await broker.topic("t")
    error = await refused(broker.set(Kind.TOPIC, "t", flush_ms="7", segment_ms="0"))
    assert error.code is ErrorCode.invalid_config
    assert (await broker.entry(Kind.TOPIC, "t", "flush.ms")).source is Source.DEFAULT
    error = await refused(broker.set(Kind.BROKER, "", num_partitions="7"))
    assert error.code is ErrorCode.invalid_request


async def test_no_value_reaches_the_log(
    state: MemoryState, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await Broker(state).load()
    with caplog.at_level(logging.INFO):
        await broker.set(Kind.BROKER, "", some_password="opensesame")
    logged = str([vars(record) for record in caplog.records])
    assert "some.password" in logged
    assert "opensesame" not in logged
    assert (await broker.entry(Kind.BROKER, "", "some.password")).value is None


async def test_the_level_of_the_logs_can_be_changed(state: MemoryState) -> None:
    broker = await Broker(state).load()
    before = logging.getLogger().level
    try:
        await broker.set(Kind.BROKER_LOGGER, "0", root="ERROR")
        assert logging.getLogger().level == logging.ERROR
        assert (await broker.entry(Kind.BROKER_LOGGER, "0", "root")).value == "ERROR"
    finally:
        logging.getLogger().setLevel(before)
