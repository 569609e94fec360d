"""Seeded random lives of a small cluster: whatever happens in whatever order, every acknowledged
record of a living topic can be read at any time, and in the end nothing is left that nobody needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from compactor import Collector
from compactor.sweep import unnamed_objects
from drayd.topics import new_topic_id
from metadata import keys
from metadata.append import Accepted, Appended
from metadata.faults import Fault, FaultyStore
from metadata.store import StoreError
from metadata.topics import NewTopic
from metadata.values import Topic, WalObject, decode
from tests.compactor.interruptions import Countdown, Died, HookedMetadata, HookedObjects, die
from tests.compactor.world import (
    DAY_MS,
    GRACE_MS,
    HOUR_MS,
    MINUTE_MS,
    TTL_MS,
    Broker,
    World,
    Written,
)
from wal.writer import Name

DOMAINS = 2
STEPS = 120


class Life:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(domains=DOMAINS)
        self.incarnation = 0
        self.brokers = [self.new_broker(), self.new_broker()]
        self.collector = self.world.collector()
        self.topics: list[Topic] = []
        self.acknowledged: dict[tuple[int, int], list[str]] = {}
        self.stalled: list[tuple[Broker, int, dict[int, str], Written]] = []
        self.unwritten: list[tuple[Broker, int, Name]] = []
        self.number = 0

    def new_broker(self) -> Broker:
        self.incarnation += 1
        return self.world.broker(incarnation=f"broker-{self.incarnation}", range_size=3)

    # -- what can happen ---------------------------------------------------------------------

    async def step(self) -> None:
        actions: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (8, self.produce),
            (4, self.put_only),
            (4, self.commit_stalled),
            (2, self.take_name_only),
            (2, self.put_late),
            (2, self.create_topic),
            (1, self.create_half),
            (1, self.delete_topic),
            (1, self.crash_broker),
            (1, self.crash_collector),
            (4, self.wait),
            (4, self.collect),
            (2, self.collect_and_produce),
        ]
        [action] = self.random.choices([a for _, a in actions], [weight for weight, _ in actions])
        await action()

    def some_records(self) -> tuple[int, dict[int, str]] | None:
        domain = self.random.randrange(DOMAINS)
        streams = [
            ref.stream_id
            for topic in self.topics
            for ref in topic.partitions
            if ref.domain == domain
        ]
        if not streams:
            return None
        chosen = self.random.sample(streams, self.random.randint(1, len(streams)))
        self.number += 1
        return domain, {stream: f"{self.number}/{stream}" for stream in chosen}

    def note(self, domain: int, records: dict[int, str], appended: Appended) -> None:
        for stream, [outcome] in zip(sorted(records), appended.outcomes, strict=True):
            if isinstance(outcome, Accepted):
                self.acknowledged.setdefault((domain, stream), []).append(records[stream])

    async def produce(self) -> None:
        if (some := self.some_records()) is not None:
            domain, records = some
            broker = self.random.choice(self.brokers)
            self.note(domain, records, await broker.produce(records, domain=domain))

    async def put_only(self) -> None:
        if (some := self.some_records()) is not None:
            domain, records = some
            broker = self.random.choice(self.brokers)
            written = await broker.put(records, domain=domain)
            self.stalled.append((broker, domain, records, written))

    async def commit_stalled(self) -> None:
        """Also of brokers that were taken for dead."""
        if self.stalled:
            broker, domain, records, written = self.stalled.pop(
                self.random.randrange(len(self.stalled))
            )
            appended = await broker.commit(written, domain=domain)
            if appended is None:
                appended = await broker.produce(records, domain=domain)
            self.note(domain, records, appended)

    async def take_name_only(self) -> None:
        domain = self.random.randrange(DOMAINS)
        broker = self.random.choice(self.brokers)
        self.unwritten.append((broker, domain, await broker.names[domain].take()))

    async def put_late(self) -> None:
        if self.unwritten:
            broker, domain, name = self.unwritten.pop(self.random.randrange(len(self.unwritten)))
            written = await broker.put_as(name, {1: "late"}, domain)
            if self.random.random() < 0.5:
                self.stalled.append(
                    (
                        broker,
                        domain,
                        {},
                        written._replace(stored=written.stored._replace(chunks=[])),
                    )
                )

    async def create_topic(self) -> None:
        if len(self.topics) < 4:
            broker = self.random.choice(self.brokers)
            self.number += 1
            self.topics.append(await broker.create(f"t{self.number}", self.random.randint(1, 3)))

    async def create_half(self) -> None:
        store = FaultyStore(self.world.client())
        store.fail_commits(Fault.UNAVAILABLE, when=lambda scope, _: scope == keys.TOPICS_SCOPE)
        now_ms = self.world.clock()
        broker = self.world.broker(store=store)
        with pytest.raises(StoreError):
            await broker.topics.create(NewTopic("half", new_topic_id(now_ms), 2, {}, now_ms))

    async def delete_topic(self) -> None:
        if self.topics:
            topic = self.topics.pop(self.random.randrange(len(self.topics)))
            broker = self.random.choice(self.brokers)
            deleted = await broker.topics.delete(topic.topic_id)
            for ref in topic.partitions:
                self.acknowledged.pop((ref.domain, ref.stream_id), None)
            if self.random.random() < 0.5:
                await broker.topics.purge(deleted)

    async def crash_broker(self) -> None:
        self.brokers[self.random.randrange(len(self.brokers))] = self.new_broker()

    async def crash_collector(self) -> None:
        countdown = Countdown(self.random.randrange(40), die)
        dying = self.world.collector(
            store=HookedMetadata(self.world.client(), countdown),
            objects=HookedObjects(self.world.objects, countdown),
        )
        try:
            await dying.round()
            self.world.clock.ms += DAY_MS
            await dying.round()
        except Died:
            pass

    async def wait(self) -> None:
        self.world.clock.ms += self.random.choice(
            [MINUTE_MS, GRACE_MS, HOUR_MS, 5 * HOUR_MS, DAY_MS]
        )

    async def collect(self) -> None:
        if self.random.random() < 0.2:
            self.collector = self.world.collector()
        assert await self.collector.round()

    async def collect_and_produce(self) -> None:
        other = self.world.collector(store=self.world.client())
        await asyncio.gather(
            self.collector.round(), other.round(), self.produce(), return_exceptions=False
        )

    # -- what must hold ----------------------------------------------------------------------

    async def check(self) -> None:
        for topic in self.topics:
            for ref in topic.partitions:
                expected = self.acknowledged.get((ref.domain, ref.stream_id), [])
                assert await self.world.read(ref.stream_id, ref.domain) == expected

    async def check_end(self) -> None:
        """Nobody is alive any more, and the collector has all the time it needs."""
        world = self.world
        for _ in range(6):
            world.clock.ms += DAY_MS + HOUR_MS
            assert await self.collector.round()
        world.clock.ms += GRACE_MS
        assert await self.collector.round()
        await self.check()
        needed = set()
        for domain in range(DOMAINS):
            assert await world.markers(domain) == []
            assert await world.garbage(domain) == []
            prefix = keys.wal_objects(domain)
            async for item in world.store.scan(
                prefix, keys.end_of(prefix), scope=keys.domain_scope(domain)
            ):
                needed.add(decode(WalObject, item.value).path)
        assert await world.paths() == needed
        streams = {ref.stream_id for topic in self.topics for ref in topic.partitions}
        heads = [set(await world.heads(domain)) for domain in range(DOMAINS)]
        assert set().union(*heads) == streams
        assert len(await world.keys(keys.TOPIC_IDS)) == len(self.topics)


@pytest.mark.parametrize("seed", range(25))
async def test_a_random_life(seed: int) -> None:
    life = Life(seed)
    for number in range(STEPS):
        await life.step()
        if number % 10 == 0:
            await life.check()
    await life.check()
    await life.check_end()


async def test_in_a_random_life_unnamed_objects_are_young() -> None:
    """With a collector that does its rounds in time, what nothing names is never old for long."""
    life = Life(1000)
    swept: Collector = life.collector
    for _ in range(40):
        for _ in range(4):
            await life.step()
        life.world.clock.ms += DAY_MS
        assert await swept.round()
        found = unnamed_objects(
            life.world.store,
            life.world.objects,
            domains=DOMAINS,
            modified_before_ms=life.world.clock() - TTL_MS,
        )
        assert [each async for each in found] == []
    await life.check_end()
