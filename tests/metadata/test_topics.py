"""The topic registry: creation and deletion across scopes, by several brokers, with crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from metadata import keys
from metadata.append import Accepted, Refusal, Refused
from metadata.faults import Fault, FaultyStore
from metadata.memory import MemoryState, MemoryStore
from metadata.references import PIECE
from metadata.store import (
    Check,
    CommitResult,
    CommitUnknown,
    Delete,
    MetadataStore,
    Put,
    Unavailable,
    Versioned,
)
from metadata.streams import DomainLog
from metadata.topics import NewTopic, TopicExists, TopicMissing, Topics
from metadata.values import Garbage, Topic, WalObject, decode
from tests.metadata.stored import (
    GRACE_MS,
    Clock,
    batch,
    domain_log,
    keys_under,
    marked,
    stored,
    stored_entries,
    stored_head,
)

DOMAINS = 3


class Registry:
    """One broker's view."""

    def __init__(self, store: MetadataStore, domains: int = DOMAINS) -> None:
        clock = Clock()
        self.store = store
        self.domains: list[DomainLog] = [domain_log(store, clock, n) for n in range(domains)]
        self.topics = Topics(store, self.domains, now_ms=clock, garbage_grace_ms=GRACE_MS)

    async def create(self, name: str = "t", partitions: int = 4) -> Topic:
        return await self.topics.create(NewTopic(name, uuid4(), partitions, {"a": "b"}, 5))

    async def write(self, topic: Topic, objects: int = 1) -> int:
        """Appends to every partition; returns how many batches were accepted."""
        accepted = 0
        for number, domain in enumerate(self.domains):
            refs = [ref.stream_id for ref in topic.partitions if ref.domain == number]
            if not refs:
                continue
            marker = await marked(domain)
            for _ in range(objects):
                (result,) = await domain.append(
                    [stored(marker, {n: [batch(producer=(8, 0, 0))] for n in refs})]
                )
                assert result is not None
                accepted += sum(
                    isinstance(outcome, Accepted) for chunk in result.outcomes for outcome in chunk
                )
        return accepted


async def everything(store: MetadataStore, *, garbage: bool = False) -> list[str]:
    """Every key that a topic may leave behind."""
    found = []
    prefixes = [keys.TOPIC_IDS, keys.TOPIC_NAMES]
    for prefix in prefixes:
        scan = store.scan(prefix, keys.end_of(prefix), scope=keys.TOPICS_SCOPE)
        found += [item.key async for item in scan]
    for domain in range(DOMAINS):
        found += await keys_under(store, keys.wal_objects(domain), domain)
        if garbage:
            found += await keys_under(store, keys.garbage(domain), domain)
        for stream_id in range(100):
            if await stored_head(store, stream_id, domain) is not None:
                found.append(keys.stream_head(domain, stream_id))
            found += await keys_under(store, keys.index(domain, stream_id), domain)
            found += await keys_under(store, keys.producers(domain, stream_id), domain)
    return found


# -- creating ----------------------------------------------------------------------------------


async def test_a_topic_is_complete_when_it_is_visible() -> None:
    here = Registry(MemoryStore())
    topic = await here.create(partitions=20)
    assert topic.config == {"a": "b"}
    assert here.topics.by_name("t") is topic and here.topics.by_id(topic.topic_id) is topic
    assert len({ref.stream_id for ref in topic.partitions}) == 20
    assert {ref.domain for ref in topic.partitions} == {0, 1, 2}
    for partition, ref in enumerate(topic.partitions):
        head = await stored_head(here.store, ref.stream_id, ref.domain)
        assert head is not None and (head.topic_id, head.partition) == (topic.topic_id, partition)
    assert await here.write(topic) == 20


async def test_a_name_is_given_once() -> None:
    here = Registry(MemoryStore())
    await here.create()
    before = await everything(here.store)
    with pytest.raises(TopicExists):
        await here.create()
    assert await everything(here.store) == before


async def test_of_concurrent_creations_one_wins_and_the_losers_leave_nothing() -> None:
    state = MemoryState()
    registries = [Registry(MemoryStore(state)) for _ in range(5)]
    results = await asyncio.gather(*(each.create() for each in registries), return_exceptions=True)
    (winner,) = [result for result in results if isinstance(result, Topic)]
    assert sum(isinstance(result, TopicExists) for result in results) == 4
    for each in registries:
        assert await each.topics.find("t") == winner
    heads = [key for key in await everything(MemoryStore(state)) if key.endswith("/head")]
    assert len(heads) == len(winner.partitions)


async def test_streams_of_topics_are_never_the_same() -> None:
    state = MemoryState()
    registries = [Registry(MemoryStore(state)) for _ in range(3)]
    topics = await asyncio.gather(
        *(each.create(f"{number}-{n}") for number, each in enumerate(registries) for n in range(4))
    )
    streams = [ref.stream_id for topic in topics for ref in topic.partitions]
    assert len(set(streams)) == len(streams)


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
async def test_a_creation_of_unknown_outcome_is_whole_or_nothing(fault: Fault) -> None:
    store = FaultyStore(MemoryStore())
    here = Registry(store)
    store.fail_commits(fault, when=lambda scope, _: scope == keys.TOPICS_SCOPE)
    if fault is Fault.LOST_ANSWER:
        topic = await here.create()
        assert await here.write(topic) == 4
    else:
        with pytest.raises(CommitUnknown):
            await here.create()
        assert await everything(store) == []
        assert here.topics.all() == []
        await here.create()


# -- looking up --------------------------------------------------------------------------------


async def test_the_store_is_asked_before_a_topic_is_said_to_be_missing() -> None:
    state = MemoryState()
    here, there = Registry(MemoryStore(state)), Registry(MemoryStore(state))
    topic = await here.create()
    assert there.topics.by_name("t") is None
    assert await there.topics.find_id(topic.topic_id) == topic
    assert await there.topics.find("t") == topic
    assert await there.topics.find("other") is None
    assert await there.topics.find_id(uuid4()) is None


async def test_topics_are_loaded_in_the_order_of_their_names() -> None:
    state = MemoryState()
    here, there = Registry(MemoryStore(state)), Registry(MemoryStore(state))
    for name in ("b", "a", "c"):
        await here.create(name, 1)
    dying = await here.create("d", 1)
    await here.topics.delete(dying.topic_id)
    deleting = await there.topics.load()
    assert [topic.name for topic in there.topics.all()] == ["a", "b", "c"]
    assert [topic.topic_id for topic in deleting] == [dying.topic_id]


# -- deleting ----------------------------------------------------------------------------------


async def test_a_deleted_topic_takes_no_records_and_its_name_is_free() -> None:
    here = Registry(MemoryStore())
    old = await here.create()
    assert await here.write(old) == 4
    await here.topics.delete(old.topic_id)
    assert await here.write(old) == 0
    assert await here.topics.find("t") is None
    assert await here.topics.find_id(old.topic_id) is None
    new = await here.create()
    assert new.topic_id != old.topic_id
    assert await here.write(new) == 4
    with pytest.raises(TopicMissing):
        await here.topics.delete(old.topic_id)
    assert here.topics.by_name("t") is new


async def test_an_append_that_is_under_way_is_refused_after_the_deletion() -> None:
    state = MemoryState()
    slow = FaultyStore(MemoryStore(state))
    here, there = Registry(slow, domains=1), Registry(MemoryStore(state), domains=1)
    topic = await here.create(partitions=1)
    marker = await marked(here.domains[0])
    stream_id = topic.partitions[0].stream_id
    slow.hold_commits()
    append = asyncio.create_task(here.domains[0].append([stored(marker, {stream_id: [batch()]})]))
    while not slow.commits_held:
        await asyncio.sleep(0)
    await there.topics.delete(topic.topic_id)
    slow.release_commits()
    (result,) = await append
    assert result is not None and result.outcomes == [[Refused(Refusal.STREAM_GONE)]]


async def test_only_one_of_two_deletions_counts() -> None:
    state = MemoryState()
    here, there = Registry(MemoryStore(state)), Registry(MemoryStore(state))
    topic = await here.create()
    results = await asyncio.gather(
        *(each.topics.delete(topic.topic_id) for each in (here, there)), return_exceptions=True
    )
    assert sorted(type(result) is TopicMissing for result in results) == [False, True]


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
async def test_a_deletion_of_unknown_outcome_is_carried_through(fault: Fault) -> None:
    store = FaultyStore(MemoryStore())
    here = Registry(store)
    topic = await here.create()
    store.fail_commits(fault, when=lambda scope, _: scope == keys.TOPICS_SCOPE)
    deleted = await here.topics.delete(topic.topic_id)
    assert deleted.topic_id == topic.topic_id
    assert await here.write(topic) == 0
    await here.topics.purge(deleted)
    assert await everything(store) == []


async def test_a_purge_leaves_nothing_but_garbage() -> None:
    here = Registry(MemoryStore())
    topic = await here.create()
    kept = await here.create("kept")
    await here.write(topic)
    await here.write(kept)
    before = set(await everything(here.store))
    deleted = await here.topics.delete(topic.topic_id)
    await here.topics.purge(deleted)
    left = set(await everything(here.store))
    assert left < before
    for ref in topic.partitions:
        assert not any(f"/{ref.stream_id:020d}/" in key for key in left)
    for ref in kept.partitions:
        assert len(await stored_entries(here.store, ref.stream_id, ref.domain)) == 1


async def test_references_shrink_and_the_last_one_hands_the_object_to_collection() -> None:
    store = MemoryStore()
    here = Registry(store, domains=1)
    log = here.domains[0]
    topics = [await here.create(name, 1) for name in ("a", "b")]
    streams = [topic.partitions[0].stream_id for topic in topics]
    item = stored(await marked(log), {n: [batch()] for n in streams})
    await log.append([item])
    key, scope = keys.wal_object(0, item.wal_id), keys.domain_scope(0)

    await here.topics.purge(await here.topics.delete(topics[0].topic_id))
    found = await store.get(key, scope=scope)
    assert found is not None and decode(WalObject, found.value).streams == (streams[1],)

    await here.topics.purge(await here.topics.delete(topics[1].topic_id))
    assert await store.get(key, scope=scope) is None
    found = await store.get(keys.garbage_object(0, item.wal_id), scope=scope)
    assert found is not None
    assert decode(Garbage, found.value) == Garbage(item.path, Clock().now_ms + GRACE_MS)


async def test_a_long_topic_is_purged_in_small_pieces() -> None:
    sizes: list[int] = []

    class Counting(FaultyStore):
        async def commit(
            self, scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]
        ) -> CommitResult:
            sizes.append(len(writes))
            return await super().commit(scope, checks, writes)

    store = Counting(MemoryStore())
    here = Registry(store, domains=1)
    log = here.domains[0]
    topic = await here.create(partitions=1)
    stream_id = topic.partitions[0].stream_id
    marker = await marked(log)
    await log.append([stored(marker, {stream_id: [batch()]}) for _ in range(3 * PIECE)])
    await log.append(
        [stored(marker, {stream_id: [batch(producer=(n, 0, 0)) for n in range(3 * PIECE)]})]
    )
    deleted = await here.topics.delete(topic.topic_id)
    sizes.clear()
    await here.topics.purge(deleted)
    assert await everything(store) == []
    assert max(sizes) <= 3 * PIECE


async def test_a_purge_that_crashed_anywhere_is_finished_by_the_next() -> None:
    """Each commit of the purge fails once, before or after it was applied."""
    for fault in (Fault.UNAVAILABLE, Fault.LOST_ANSWER):
        for failing in range(100):
            state = MemoryState()
            here = Registry(MemoryStore(state))
            topic = await here.create(partitions=3)
            shared = await here.create("shared", 1)
            await here.write(topic)
            await here.write(shared)
            deleted = await here.topics.delete(topic.topic_id)
            store = FaultyStore(MemoryStore(state))
            seen = iter(range(100))
            store.fail_commits(fault, when=lambda *_, at=failing, seen=seen: next(seen) == at)
            crashing = Registry(store)
            try:
                await crashing.topics.purge(deleted)
                crashed = False
            except (Unavailable, CommitUnknown):
                crashed = True
            heir = Registry(MemoryStore(state))
            for left in await heir.topics.load():
                await heir.topics.purge(left)
            assert [each.name for each in heir.topics.all()] == ["shared"]
            await heir.topics.purge(await heir.topics.delete(shared.topic_id))
            assert await everything(heir.store) == []
            if not crashed:
                break
        assert failing > 6


async def test_a_deletion_that_crashed_after_its_first_step_is_finished() -> None:
    state = MemoryState()
    store = FaultyStore(MemoryStore(state))
    here = Registry(store)
    topic = await here.create()
    await here.write(topic)
    store.fail_commits(Fault.UNAVAILABLE, when=lambda scope, _: scope != keys.TOPICS_SCOPE)
    with pytest.raises(Unavailable):
        await here.topics.delete(topic.topic_id)
    assert here.topics.by_name("t") is None
    heir = Registry(MemoryStore(state))
    (left,) = await heir.topics.load()
    await heir.topics.purge(left)
    assert await everything(heir.store) == []


# -- following others --------------------------------------------------------------------------


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_what_others_do_is_followed() -> None:
    state = MemoryState()
    here, there = Registry(MemoryStore(state)), Registry(MemoryStore(state))
    await here.topics.load()
    task = asyncio.create_task(here.topics.follow())
    first = await there.create("first")
    await until(lambda: here.topics.by_name("first") == first)
    await there.topics.delete(first.topic_id)
    await until(lambda: here.topics.by_name("first") is None)
    again = await there.create("first")
    await until(lambda: here.topics.by_name("first") == again)
    assert here.topics.by_id(first.topic_id) is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_others_did_between_loading_and_following_is_seen() -> None:
    state = MemoryState()
    here, there = Registry(MemoryStore(state)), Registry(MemoryStore(state))
    gone = await there.create("gone")
    await here.topics.load()
    await there.topics.delete(gone.topic_id)
    new = await there.create("new")
    task = asyncio.create_task(here.topics.follow())
    await until(lambda: here.topics.all() == [new])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_after_a_gap_everything_is_read_again() -> None:
    state = MemoryState()
    here = Registry(MemoryStore(state, max_pending_changes=2))
    there = Registry(MemoryStore(state))
    kept = await here.create("kept")
    gone = await here.create("gone")
    await here.topics.load()
    for n in range(5):
        await there.create(f"new-{n}", 1)
    await there.topics.delete(gone.topic_id)
    names = {"kept", *(f"new-{n}" for n in range(5))}
    task = asyncio.create_task(here.topics.follow())
    async with asyncio.timeout(10):
        while {topic.name for topic in here.topics.all()} != names:
            # A reload must not show an empty cluster in between.
            assert here.topics.by_name("kept") == kept
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_following_ends_with_the_store() -> None:
    store = MemoryStore()
    here = Registry(store)
    await here.topics.load()
    task = asyncio.create_task(here.topics.follow())
    await asyncio.sleep(0)
    await store.close()
    async with asyncio.timeout(10):
        await task


class SlowReads(FaultyStore):
    """The answers to gets wait at the gate, if there is one, after they were read."""

    gate: asyncio.Event | None = None
    held = 0

    async def get(self, key: str, *, scope: str) -> Versioned | None:
        found = await super().get(key, scope=scope)
        if self.gate is not None:
            self.held += 1
            await self.gate.wait()
        return found


async def test_an_old_answer_does_not_bring_a_deleted_topic_back() -> None:
    state = MemoryState()
    store = SlowReads(MemoryStore(state))
    here = Registry(store)
    topic = await Registry(MemoryStore(state)).create()
    store.gate = gate = asyncio.Event()
    looking = asyncio.create_task(here.topics.find_id(topic.topic_id))
    await until(lambda: store.held)
    store.gate = None
    await here.topics.delete(topic.topic_id)
    gate.set()
    assert await looking is None
    assert here.topics.by_name("t") is None and here.topics.by_id(topic.topic_id) is None
    new = await here.create()
    assert await here.topics.find("t") is new


async def test_ids_of_strangers_are_no_topics() -> None:
    here = Registry(MemoryStore())
    with pytest.raises(TopicMissing):
        await here.topics.delete(UUID(int=1))
