"""Long polls: nobody sleeps through what they wait for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from drayd.waiters import Wait, Waiters
from metadata import keys
from metadata.store import Versioned
from protocol.errors import ErrorCode
from tests.protocol.building import batch
from tests.wire.client import FETCH, fetch_request
from tests.wire.running import local_broker


def deadline(seconds: float = 20.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def woken(task: asyncio.Task[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


async def test_a_wait_ends_when_enough_has_come_over_all_its_streams() -> None:
    waiters = Waiters()
    wait = Wait([1, 2], 100)
    waiters.add(wait)
    task = asyncio.create_task(wait.until(deadline()))
    await asyncio.sleep(0)
    waiters.grew(1, 60)
    waiters.grew(3, 1000)
    assert not await woken(task)
    waiters.grew(2, 40)
    assert await woken(task)


async def test_what_came_before_the_wait_counts() -> None:
    waiters = Waiters()
    wait = Wait([1], 10)
    waiters.add(wait)
    waiters.grew(1, 10)
    async with asyncio.timeout(10):
        await wait.until(deadline())


async def test_after_a_wait_it_counts_anew() -> None:
    waiters = Waiters()
    wait = Wait([1], 10)
    waiters.add(wait)
    waiters.grew(1, 10)
    await wait.until(deadline())
    task = asyncio.create_task(wait.until(deadline()))
    await asyncio.sleep(0)
    waiters.grew(1, 9)
    assert not await woken(task)
    waiters.grew(1, 1)
    assert await woken(task)


async def test_what_comes_between_waking_and_running_is_part_of_the_next_look() -> None:
    """The waiter looks at its streams after it was woken, so this growth is seen by then."""
    waiters = Waiters()
    wait = Wait([1], 10)
    waiters.add(wait)
    task = asyncio.create_task(wait.until(deadline()))
    await asyncio.sleep(0)
    waiters.grew(1, 10)
    waiters.grew(1, 1000)
    await task
    again = asyncio.create_task(wait.until(deadline()))
    assert not await woken(again)
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def test_a_change_wakes_at_once() -> None:
    waiters = Waiters()
    wait = Wait([1], 10**9)
    waiters.add(wait)
    task = asyncio.create_task(wait.until(deadline()))
    await asyncio.sleep(0)
    waiters.changed(2)
    assert not await woken(task)
    waiters.changed(1)
    assert await woken(task)


async def test_the_deadline_ends_it() -> None:
    wait = Wait([1], 10)
    async with asyncio.timeout(10):
        await wait.until(deadline(0.001))
        await wait.until(deadline(-1))


async def test_closing_ends_those_who_wait_and_those_who_come() -> None:
    waiters = Waiters()
    early = Wait([1], 10)
    waiters.add(early)
    task = asyncio.create_task(early.until(deadline()))
    await asyncio.sleep(0)
    waiters.close()
    assert await woken(task) and early.ended
    late = Wait([1], 10)
    waiters.add(late)
    assert late.ended
    async with asyncio.timeout(10):
        await late.until(deadline())


async def test_nothing_is_left_of_a_wait_that_was_removed() -> None:
    waiters = Waiters()
    waits = [Wait([1, 2, 2], 10) for _ in range(3)]
    for wait in waits:
        waiters.add(wait)
    for wait in waits:
        waiters.remove(wait)
        waiters.remove(wait)
    assert waiters._by_stream == {}
    waiters.grew(1, 5)


async def test_a_cancelled_wait_can_be_used_again() -> None:
    waiters = Waiters()
    wait = Wait([1], 10)
    waiters.add(wait)
    task = asyncio.create_task(wait.until(deadline()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    waiters.grew(1, 10)
    async with asyncio.timeout(10):
        await wait.until(deadline())


async def test_what_is_produced_while_a_fetch_looks_up_its_partitions_wakes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head of the second partition must be read again just when the fetch begins to wait."""
    async with local_broker(tmp_path) as broker, await broker.connect() as client:
        await client.create_topic("t", 2)
        await client.produce("t", 0, batch())
        topic = broker.running.broker.topics.cached("t", None)
        assert topic is not None
        second = topic.partitions[1]
        domain = broker.running.broker.domain(second)
        looking, release = asyncio.Event(), asyncio.Event()
        read = broker.metadata.get
        reads = 0

        async def get(key: str, *, scope: str) -> Versioned | None:
            nonlocal reads
            found = await read(key, scope=scope)
            if key == keys.stream_head(second.domain, second.stream_id):
                reads += 1
                if reads == 1:
                    asyncio.get_running_loop().call_soon(domain.forget, [second.stream_id])
                else:
                    looking.set()
                    await release.wait()
            return found

        monkeypatch.setattr(broker.metadata, "get", get)
        domain.forget([second.stream_id])
        request = fetch_request({"t": {0: 1, 1: 0}}, wait_ms=600_000)
        async with asyncio.timeout(30):
            answer = client.send(FETCH, 12, request)
            await looking.wait()
            async with await broker.connect() as producer:
                assert (await producer.produce("t", 0, batch())).code is ErrorCode.none
            release.set()
            found = (await answer).responses[0].partitions[0]
        assert found.high_watermark == 2 and len(found.records) == len(batch())
