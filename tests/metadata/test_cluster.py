"""What a cluster has one of: its id, and each number of a counter."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from metadata.cluster import Numbers, cluster_id
from metadata.faults import Fault, FaultyStore
from metadata.memory import MemoryState, MemoryStore
from metadata.store import Unavailable


async def test_the_first_to_come_names_the_cluster() -> None:
    state = MemoryState()
    proposals = count()
    ids = await asyncio.gather(
        *(
            cluster_id(MemoryStore(state), lambda: f"proposal {next(proposals)}", 5)
            for _ in range(8)
        )
    )
    assert len(set(ids)) == 1
    assert await cluster_id(MemoryStore(state), lambda: "late", 6) == ids[0]


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
async def test_a_cluster_is_named_once_whatever_becomes_of_the_answer(fault: Fault) -> None:
    store = FaultyStore(MemoryStore())
    store.fail_commits(fault)
    first = await cluster_id(store, lambda: "one", 5)
    assert await cluster_id(store, lambda: "two", 5) == first == "one"


async def test_numbers_are_given_out_once_over_all_brokers() -> None:
    state = MemoryState()
    counters = [Numbers(MemoryStore(state), "n", block=7) for _ in range(4)]
    ranges = await asyncio.gather(
        *(each.take(size) for size in (1, 3, 7, 20) for each in counters for _ in range(10))
    )
    assert [len(taken) for taken in ranges[:1]] == [1]
    numbers = [number for taken in ranges for number in taken]
    assert len(numbers) == (1 + 3 + 7 + 20) * 40 == len(set(numbers))


async def test_counters_are_independent() -> None:
    store = MemoryStore()
    assert await Numbers(store, "a", 10).take() == range(1)
    assert await Numbers(store, "b", 10).take() == range(1)


async def test_a_block_is_reserved_in_one_commit() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner)
    numbers = Numbers(store, "n", block=100)
    await numbers.take(40)
    store.hold_commits()
    async with asyncio.timeout(10):
        assert await numbers.take(60) == range(40, 100)


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
async def test_a_block_of_unknown_fate_is_given_up(fault: Fault) -> None:
    state = MemoryState()
    store = FaultyStore(MemoryStore(state))
    here, there = Numbers(store, "n", 10), Numbers(MemoryStore(state), "n", 10)
    store.fail_commits(fault)
    mine = await here.take(10)
    theirs = await there.take(10)
    assert not set(mine) & set(theirs)


async def test_a_store_that_cannot_be_reached_is_reported_and_tried_again() -> None:
    store = FaultyStore(MemoryStore())
    numbers = Numbers(store, "n", 10)
    store.fail_commits(Fault.UNAVAILABLE)
    with pytest.raises(Unavailable):
        await numbers.take()
    assert len(await numbers.take()) == 1
