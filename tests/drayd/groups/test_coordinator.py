"""The coordinator's runtime: leases, failover, lost answers, order, expiry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence

import pytest

from drayd.coordinator import candidate
from drayd.groups.machine import Committer
from metadata import keys
from metadata.faults import Fault
from metadata.store import Delete, Put
from protocol.errors import ErrorCode, KafkaError
from tests.drayd.groups.coordinators import (
    NOW_MS,
    OTHER,
    RETENTION_MS,
    TOPIC,
    Node,
    World,
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.close()


@pytest.fixture
async def one(world: World) -> Node:
    return await world.node(1)


def of_group(scope: str, writes: Sequence[Put | Delete]) -> bool:
    return scope.startswith("group/") and not any(
        write.key == keys.group_lease("g") for write in writes
    )


async def code_of(waiting: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await waiting
    return refused.value.code


async def test_commits_are_seen_and_share_a_write(one: Node) -> None:
    assert await one.offset() is None
    results = await asyncio.gather(*(one.commit(n, partition=n % 4) for n in range(40)))
    assert set(results) == {ErrorCode.none}
    assert [await one.offset(partition=n) for n in range(4)] == [36, 37, 38, 39]


async def test_what_was_only_looked_at_leaves_nothing_behind(world: World, one: Node) -> None:
    assert await one.offset("ghost") is None
    assert await one.beat("nobody", 1, "ghost") is ErrorCode.unknown_member_id
    assert await one.store.get(keys.group_lease("ghost"), scope=keys.group_scope("ghost")) is None
    assert not one.coordinator._groups


async def test_another_broker_answers_only_after_a_failover(world: World, one: Node) -> None:
    two = await world.node(2)
    member, generation = await one.stable()
    committer = Committer(member, None, generation, 9)
    assert await one.commit(5, committer=committer) is ErrorCode.none
    assert await two.beat(member, generation) is ErrorCode.not_coordinator
    assert (await two.coordinator.find("g")).broker_id == 1
    await one.membership.close()
    # The old one can't answer from its memory any more.
    assert await one.beat(member, generation) is ErrorCode.not_coordinator
    # The new one throws nobody out, and no generation changes.
    assert await two.beat(member, generation) is ErrorCode.none
    assert await two.offset() == 5
    assert await two.commit(6, committer=committer) is ErrorCode.none
    assert (await two.coordinator.find("g")).broker_id == 2


async def test_a_stale_holder_neither_writes_nor_answers(world: World, one: Node) -> None:
    two = await world.node(2)
    member, generation = await one.stable()
    await one.commit(5, committer=Committer(member, None, generation, 9))
    # Its session ends without its knowledge: a commit of it is on its way meanwhile.
    one.store.hold_commits()
    late = asyncio.ensure_future(
        one.coordinator.commit("g", Committer(member, None, generation, 9), {})
    )
    written = asyncio.ensure_future(one.commit(1, committer=Committer(member, None, generation, 9)))
    while not one.store.commits_held:
        await asyncio.sleep(0)
    await one.store.lose_sessions()
    assert await two.offset() == 5
    one.store.release_commits()
    assert await code_of(written) is ErrorCode.not_coordinator
    await asyncio.gather(late, return_exceptions=True)
    assert await two.offset() == 5
    assert await one.beat(member, generation) is ErrorCode.not_coordinator


async def test_who_registers_again_reads_its_groups_again(world: World, one: Node) -> None:
    member, generation = await one.stable()
    running = asyncio.ensure_future(one.membership.run())
    before = one.membership.holder
    await one.store.lose_sessions()
    while one.membership.holder in (None, before):
        await asyncio.sleep(0)
    assert await one.beat(member, generation) is ErrorCode.none
    lease = await one.coordinator._stored.lease("g")
    assert lease is not None and one.membership.holder is not None
    assert lease.registration == one.membership.holder.registration
    running.cancel()


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
async def test_an_unknown_commit_is_looked_up(one: Node, fault: Fault) -> None:
    await one.commit(1)
    one.store.fail_commits(fault, when=of_group)
    with pytest.raises(KafkaError) as refused:
        await one.commit(2)
    assert refused.value.code is ErrorCode.not_coordinator
    assert await one.offset() == (2 if fault is Fault.LOST_ANSWER else 1)
    assert await one.commit(3) is ErrorCode.none
    assert await one.offset() == 3


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_join_whose_write_fails_can_be_repeated(one: Node, fault: Fault) -> None:
    member, generation = await one.stable()
    one.store.fail_commits(fault, when=of_group)
    first = one.join("")
    # A member that rejoins completes the rebalance, which is what is stored.
    second = one.join(member)
    failed = await asyncio.gather(first, second, return_exceptions=True)
    assert any(isinstance(each, KafkaError) for each in failed)
    assert await one.beat(member, generation) in (
        ErrorCode.none,
        ErrorCode.rebalance_in_progress,
        ErrorCode.illegal_generation,
    )
    again = await one.join(member)
    assert again.error is ErrorCode.none
    assert again.generation > generation


async def test_an_outage_changes_nothing(one: Node) -> None:
    member, generation = await one.stable()
    one.store.fail_commits(Fault.UNAVAILABLE)
    with pytest.raises(KafkaError) as refused:
        await one.commit(2, committer=Committer(member, None, generation, 9))
    assert refused.value.code is ErrorCode.coordinator_not_available
    assert await one.offset() is None
    assert await one.beat(member, generation) is ErrorCode.none


async def test_heartbeats_write_nothing(one: Node) -> None:
    member, generation = await one.stable()
    before = one.store._inner
    one.store.fail_commits(Fault.UNAVAILABLE, times=1)
    for _ in range(10):
        assert await one.beat(member, generation) is ErrorCode.none
    assert len(one.store._commit_faults) == 1
    assert one.store._inner is before
    one.store._commit_faults.clear()


async def test_a_silent_member_is_removed_by_the_timer(world: World, one: Node) -> None:
    member, generation = await one.stable()
    group = one.coordinator._groups["g"]
    assert group._timer is not None
    world.clock.ms += 10_001
    group._timer.cancel()
    group._timer_ms = world.clock.ms
    group._woken()
    assert await one.coordinator.look("g", lambda live: live.summary().state) == "Empty"
    assert await one.beat(member, generation) is ErrorCode.unknown_member_id


async def test_after_standing_still_members_are_heard_first(world: World, one: Node) -> None:
    member, generation = await one.stable()
    group = one.coordinator._groups["g"]
    world.clock.ms += 60_000
    assert group._timer is not None
    group._timer.cancel()
    group._woken()
    assert await one.beat(member, generation) is ErrorCode.none


async def test_closing_tells_whoever_waits(one: Node) -> None:
    member, _ = await one.stable()
    waiting = one.join("")
    await one.coordinator.look("g", lambda live: None)
    assert not waiting.done()
    await one.coordinator.close()
    assert await code_of(waiting) is ErrorCode.not_coordinator
    assert await one.beat(member, 1) is ErrorCode.not_coordinator


async def test_groups_without_a_broker_are_adopted(world: World, one: Node) -> None:
    two = await world.node(2)
    for number in range(20):
        await one.commit(number, group=f"g{number}")
    await one.membership.close()
    await two.coordinator.adopt()
    two.coordinator._adopted = True
    found = [group.group_id for group in await two.coordinator.groups()]
    assert found == sorted(f"g{number}" for number in range(20))


async def test_deleting(one: Node) -> None:
    with pytest.raises(KafkaError) as missing:
        await one.coordinator.delete("g")
    assert missing.value.code is ErrorCode.group_id_not_found
    await one.commit(1)
    await one.stable("h")
    with pytest.raises(KafkaError) as busy:
        await one.coordinator.delete("h")
    assert busy.value.code is ErrorCode.non_empty_group
    await one.coordinator.delete("g")
    assert await one.offset() is None
    assert await one.coordinator._stored.names() == ["h"]
    assert await one.commit(2) is ErrorCode.none
    assert await one.offset() == 2


async def test_offsets_expire_and_their_group_with_them(world: World, one: Node) -> None:
    await one.commit(1)
    world.now_ms = NOW_MS + RETENTION_MS - 1
    await one.coordinator.sweep()
    assert await one.offset() == 1
    world.now_ms += 1
    await one.coordinator.sweep()
    assert await one.offset() is None
    assert await one.coordinator._stored.names() == []


async def test_a_deleted_topic_takes_its_offsets_along(world: World, one: Node) -> None:
    await one.commit(1)
    del world.topics.topics[TOPIC]
    one.coordinator.topic_deleted(OTHER)
    assert await one.offset() == 1
    one.coordinator.topic_deleted(TOPIC)
    await asyncio.gather(*one.coordinator._tasks)
    assert await one.offset() is None
    assert (await one.coordinator._stored.read("g")).offsets == {}


async def test_the_sweep_finds_offsets_of_topics_that_are_gone(world: World, one: Node) -> None:
    await one.commit(1)
    del world.topics.topics[TOPIC]
    await one.coordinator.sweep()
    assert (await one.coordinator._stored.read("g")).offsets == {}


def test_a_broker_that_comes_moves_few_groups() -> None:
    names = [f"group-{number}" for number in range(1_000)]
    before = {name: candidate(name, [1, 2, 3]) for name in names}
    after = {name: candidate(name, [3, 4, 1, 2]) for name in names}
    moved = [name for name in names if before[name] != after[name]]
    assert all(after[name] == 4 for name in moved)
    assert 150 < len(moved) < 350
