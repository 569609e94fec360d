"""Threads for blocking calls, with as little as possible between the event loop and the call.

`concurrent.futures` costs a lock, a condition and two callbacks on the way there and back, which
shows where a call takes half a millisecond. Here a job is one entry of a queue, and its outcome is
one callback on the loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[
    Callable[[], Any], Callable[[], None] | None, asyncio.AbstractEventLoop, "asyncio.Future[Any]"
]


class Threads:
    """At most so many threads; each is started when a job finds none idle."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._free = 0
        """Idle threads that no job is on its way to."""

    def run(
        self, work: Callable[[], T], after: Callable[[], None] | None = None
    ) -> asyncio.Future[T]:
        """What `work` returns or raises. `after` is called in the same thread once that is on its
        way; it must not raise. A job that is cancelled before it has begun is left out."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._free -= 1
            starts = self._free < 0 and len(self._threads) < self._most
            if starts:
                self._free += 1
                number = len(self._threads)
                thread = threading.Thread(
                    target=self._work, name=f"{self._name}-{number}", daemon=True
                )
                self._threads.append(thread)
        self._jobs.put((work, after, loop, future))
        if starts:
            thread.start()
        return future

    def close(self) -> None:
        """Blocks until every job is done and every thread has ended."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            self._do(*job)
            # Nothing of the job may live on while the thread waits.
            del job
            with self._lock:
                self._free += 1

    @staticmethod
    def _do(
        work: Callable[[], Any],
        after: Callable[[], None] | None,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
    ) -> None:
        if not future.cancelled():
            result: Any = None
            failure: BaseException | None = None
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - the thread's boundary: callers must not hang
                failure = error
            try:
                loop.call_soon_threadsafe(_settle, future, result, failure)
            except RuntimeError:
                pass  # the loop is closed: nobody is left to answer
            finally:
                # An exception refers to its frame, and so to itself.
                failure = None
        if after is not None:
            after()


def _settle(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
