"""Threads for blocking calls: answers, errors, cancellation, what comes after, the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from wal.threads import Threads


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(3, "test")
    yield made
    made.close()


async def test_results_and_errors(threads: Threads) -> None:
    assert await threads.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    # The thread goes on after an error.
    assert await threads.run(threading.current_thread) is not threading.current_thread()


async def test_one_after_the_other_needs_one_thread(threads: Threads) -> None:
    names = set()
    for _ in range(20):
        done = threading.Event()
        names.add(await threads.run(lambda: threading.current_thread().name, done.set))
        await asyncio.to_thread(done.wait)
    # The next job may be on its way before a thread has said that it is free.
    assert len(names) <= 2


async def test_as_many_at_a_time_as_there_may_be(threads: Threads) -> None:
    barrier = threading.Barrier(3)
    waiting = [threads.run(lambda: barrier.wait(timeout=60)) for _ in range(3)]
    more = [threads.run(lambda number=number: number) for number in range(50)]  # type: ignore[misc]  # mypy can't infer a lambda with a default
    assert sorted(await asyncio.gather(*waiting)) == [0, 1, 2]
    assert await asyncio.gather(*more) == list(range(50))


async def test_what_comes_after_doesn_t_hold_up_the_answer(threads: Threads) -> None:
    go, done = threading.Event(), threading.Event()

    def after() -> None:
        go.wait(timeout=60)
        done.set()

    assert await threads.run(lambda: "answer", after) == "answer"
    assert not done.is_set()
    go.set()
    assert await asyncio.to_thread(done.wait, 60)


async def test_a_job_that_is_cancelled_before_it_begins_is_left_out() -> None:
    threads = Threads(1, "test")
    go = threading.Event()
    ran: list[str] = []
    first = threads.run(lambda: go.wait(timeout=60))
    second = threads.run(lambda: ran.append("second"))
    second.cancel()
    go.set()
    assert await first
    await asyncio.to_thread(threads.close)
    assert ran == []


async def test_cancelled_while_it_runs(threads: Threads) -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go.wait(timeout=60)
        return "nobody hears it"

    future = threads.run(work)
    await asyncio.to_thread(begun.wait, 60)
    future.cancel()
    go.set()
    assert await threads.run(lambda: 1) == 1


async def test_close_waits_for_what_is_queued() -> None:
    threads = Threads(2, "test")
    done: list[int] = []
    futures = [threads.run(lambda n=n: done.append(n)) for n in range(100)]  # type: ignore[misc]  # as above
    await asyncio.to_thread(threads.close)
    assert sorted(done) == list(range(100))
    await asyncio.gather(*futures)
