"""Long polls: nobody sleeps through what they wait for."""

from __future__ import annotations

import asyncio

from drayd.waiters import Wait, Waiters


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
