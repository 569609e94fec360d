"""Stored consumer groups over every store: leases, offsets, the directory, lost answers."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from metadata import groups, keys
from metadata.faults import Fault, FaultyStore
from metadata.group_values import ClassicRecord, CommittedOffset, ConsumerRecord
from metadata.groups import Groups, Held, HeldElsewhere, Holder, LeaseLost
from metadata.store import CommitUnknown, Delete, MetadataStore, Put, Session
from metadata.values import Broker, encode
from tests.contract.stores import StoreUnderTest

NOW_MS = 1_700_000_000_000
TOPIC = UUID(int=7)
GROUP = "gruppe/1~%"


def offset(number: int, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(number, 0, metadata, NOW_MS)


@pytest.fixture
def stored(store: MetadataStore) -> Groups:
    return Groups(store, now_ms=lambda: NOW_MS)


async def register(store: MetadataStore, holder: Holder) -> Session:
    session = await store.session(10.0)
    broker = Broker(holder.broker_id, "h", 1, "", "i", NOW_MS, "v", holder.registration)
    await session.put(keys.broker(holder.broker_id), encode(broker), scope=keys.CLUSTER_SCOPE)
    return session


async def test_a_group_is_read_as_it_was_stored(stored: Groups) -> None:
    held, nothing = await stored.open(GROUP, Holder(1, "a"))
    assert not nothing.exists
    await stored.save(held, ConsumerRecord(epoch=3))
    await stored.save_offsets(held, {(TOPIC, 0): offset(5, "m"), (TOPIC, 12): offset(6)})
    await stored.save_offsets(held, {(TOPIC, 12): None, (TOPIC, 3): offset(8)})
    found = await stored.read(GROUP)
    assert found.group is not None
    assert (found.group.record, found.group.written_ms) == (ConsumerRecord(epoch=3), NOW_MS)
    assert found.offsets == {(TOPIC, 0): offset(5, "m"), (TOPIC, 3): offset(8)}
    assert await stored.names() == [GROUP]
    await stored.drop_record(held)
    assert (await stored.read(GROUP)).group is None
    assert (await stored.read(GROUP)).exists


async def test_groups_do_not_mix(stored: Groups) -> None:
    for number, name in enumerate(["", "/", "a", "a/b", "a~"]):
        held, before = await stored.open(name, Holder(1, "a"))
        assert not before.exists
        await stored.save_offsets(held, {(TOPIC, 0): offset(number)})
    assert sorted(await stored.names()) == ["", "/", "a", "a/b", "a~"]
    assert (await stored.read("a")).offsets == {(TOPIC, 0): offset(2)}


async def test_a_large_change_goes_in_pieces(stored: Groups) -> None:
    held, _ = await stored.open(GROUP, Holder(1, "a"))
    many = {(TOPIC, number): offset(number, "x" * 1000) for number in range(2_500)}
    await stored.save_offsets(held, many)
    assert (await stored.read(GROUP)).offsets == many
    await stored.delete(held, many)
    assert not (await stored.read(GROUP)).exists


async def test_the_lease_of_a_living_broker_is_not_taken(
    under_test: StoreUnderTest, stored: Groups
) -> None:
    store = await under_test.client()
    session = await register(store, Holder(1, "a"))
    first = await stored.take(GROUP, Holder(1, "a"))
    with pytest.raises(HeldElsewhere) as refused:
        await stored.take(GROUP, Holder(2, "b"))
    assert refused.value.lease == first.lease == await stored.lease(GROUP)
    await session.close()
    second = await stored.take(GROUP, Holder(2, "b"))
    assert second.lease.epoch == first.lease.epoch + 1


async def test_another_registration_of_the_same_broker_is_another_holder(
    under_test: StoreUnderTest, stored: Groups
) -> None:
    store = await under_test.client()
    await stored.take(GROUP, Holder(1, "a"))
    await register(store, Holder(1, "later"))
    taken = await stored.take(GROUP, Holder(2, "b"))
    assert taken.lease.broker_id == 2


async def test_a_stale_holder_writes_nothing(stored: Groups) -> None:
    old, _ = await stored.open(GROUP, Holder(1, "a"))
    await stored.save(old, ClassicRecord(1))
    await stored.save_offsets(old, {(TOPIC, 0): offset(5)})
    new, found = await stored.open(GROUP, Holder(2, "b"))
    assert new.entered and found.offsets == {(TOPIC, 0): offset(5)}
    with pytest.raises(LeaseLost):
        await stored.save(old, ClassicRecord(2))
    with pytest.raises(LeaseLost):
        await stored.save_offsets(old, {(TOPIC, 0): offset(1)})
    with pytest.raises(LeaseLost):
        await stored.delete(old, [(TOPIC, 0)])
    assert await stored.read(GROUP) == found
    assert await stored.names() == [GROUP]


async def test_one_of_many_gets_the_lease_at_a_time(stored: Groups) -> None:
    taken = await asyncio.gather(*(stored.take(GROUP, Holder(n, "x")) for n in range(8)))
    assert sorted(held.lease.epoch for held in taken) == list(range(1, 9))
    written = 0
    for held in taken:
        try:
            await stored.save(held, ClassicRecord(held.lease.epoch))
            written += 1
        except LeaseLost:
            pass
    assert written == 1


async def test_a_deleted_group_is_gone_and_may_come_back(stored: Groups) -> None:
    held, _ = await stored.open(GROUP, Holder(1, "a"))
    await stored.save_offsets(held, {(TOPIC, 0): offset(5)})
    await stored.delete(held, [(TOPIC, 0)])
    assert not (await stored.read(GROUP)).exists
    assert await stored.lease(GROUP) is None
    assert await stored.names() == []
    with pytest.raises(LeaseLost):
        await stored.save_offsets(held, {(TOPIC, 0): offset(9)})
    again, nothing = await stored.open(GROUP, Holder(2, "b"))
    assert not nothing.exists
    await stored.save_offsets(again, {(TOPIC, 0): offset(1)})
    assert await stored.names() == [GROUP]


async def test_a_slow_deletion_does_not_hide_a_group_that_has_begun_anew(
    store: MetadataStore,
) -> None:
    faulty = FaultyStore(store)
    slow, quick = Groups(faulty, now_ms=lambda: NOW_MS), Groups(store, now_ms=lambda: NOW_MS)
    held, _ = await slow.open(GROUP, Holder(1, "a"))
    await slow.save_offsets(held, {(TOPIC, 0): offset(5)})

    deletion = asyncio.ensure_future(_delete_but_stop_before_the_entry(slow, faulty, held))
    while not faulty.commits_held:
        await asyncio.sleep(0)
    again, _ = await quick.open(GROUP, Holder(2, "b"))
    await quick.save_offsets(again, {(TOPIC, 0): offset(1)})
    faulty.release_commits()
    await deletion
    assert await quick.names() == [GROUP]
    assert (await quick.read(GROUP)).offsets == {(TOPIC, 0): offset(1)}


async def _delete_but_stop_before_the_entry(
    stored: Groups, faulty: FaultyStore, held: Held
) -> None:
    def lease_goes(scope: str, writes: object) -> bool:
        assert isinstance(writes, list)
        if Delete(keys.group_lease(GROUP)) in writes:
            # The next commit is the one that removes the entry.
            asyncio.get_running_loop().call_soon(faulty.hold_commits)
        return False

    faulty.fail_commits(Fault.UNAVAILABLE, when=lease_goes)
    await stored.delete(held, [(TOPIC, 0)])


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
async def test_after_a_lost_answer_the_lease_is_taken_once(
    store: MetadataStore, fault: Fault
) -> None:
    faulty = FaultyStore(store)
    stored = Groups(faulty, now_ms=lambda: NOW_MS)
    faulty.fail_commits(fault)
    held = await stored.take(GROUP, Holder(1, "a"))
    assert await stored.lease(GROUP) == held.lease
    await stored.save(held, ClassicRecord(1))


async def test_a_commit_that_was_on_its_way_is_fenced_by_taking_the_lease_again(
    store: MetadataStore,
) -> None:
    faulty = FaultyStore(store)
    stored = Groups(faulty, now_ms=lambda: NOW_MS)
    held, _ = await stored.open(GROUP, Holder(1, "a"))
    await stored.save(held, ClassicRecord(1))
    faulty.fail_commits(Fault.LOST_REQUEST)
    with pytest.raises(CommitUnknown):
        await stored.save(held, ClassicRecord(2))
    _, found = await stored.open(GROUP, Holder(1, "a"))
    assert found.group is not None and found.group.record == ClassicRecord(1)
    with pytest.raises(LeaseLost):
        await stored.save(held, ClassicRecord(2))


async def test_an_entry_without_a_group_does_no_harm(store: MetadataStore, stored: Groups) -> None:
    await store.commit(keys.GROUP_NAMES_SCOPE, [], [Put(keys.group_name("ghost"), b"")])
    assert await stored.names() == ["ghost"]
    assert not (await stored.read("ghost")).exists


def test_pieces_are_bounded() -> None:
    pieces = list(groups._pieces("g", {(TOPIC, n): None for n in range(4_001)}))
    assert [len(piece) for piece in pieces] == [2_000, 2_000, 1]
