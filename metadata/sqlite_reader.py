"""The reading thread of the embedded store: one read-only connection, answers in batches.

Each query is one statement, hence one consistent and short read. What queues up while a query
runs is answered together, with one wake-up of the event loop.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from metadata.sqlite_file import SqliteFile
from metadata.store import Unavailable

_MAX_BATCH = 64

T = TypeVar("T")


class _Query(NamedTuple):
    run: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]


class _Answer(NamedTuple):
    future: asyncio.Future[Any]
    value: Any
    error: Exception | None


class Reader:
    def __init__(self, file: SqliteFile, loop: asyncio.AbstractEventLoop) -> None:
        self._file = file
        self._loop = loop
        self._connection: sqlite3.Connection | None = None
        self._queries: queue.SimpleQueue[_Query | None] = queue.SimpleQueue()
        self._stopped: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._run, name="metadata-reader", daemon=True)
        self._thread.start()

    async def read(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in the reading thread; Unavailable if the file can't be read."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._queries.put(_Query(run, future))
        return await future

    async def stop(self) -> None:
        """Answer what is queued, then close the connection."""
        self._queries.put(None)
        await self._stopped
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            queries = [self._queries.get()]
            while len(queries) < _MAX_BATCH and not self._queries.empty():
                queries.append(self._queries.get())
            answers = [self._answer(query) for query in queries if query is not None]
            stopping = None in queries
            if stopping:
                self._disconnect()
            try:
                self._loop.call_soon_threadsafe(self._deliver, answers, stopping)
            except RuntimeError:  # the loop is closed: nobody is left to answer
                return

    def _answer(self, query: _Query) -> _Answer:
        try:
            if self._connection is None:
                self._connection = self._file.connect_reader()
            return _Answer(query.future, query.run(self._connection), None)
        except sqlite3.Error as error:
            self._disconnect()
            return _Answer(query.future, None, Unavailable(f"metadata can't be read: {error}"))
        except Exception as error:  # noqa: BLE001 - the thread's boundary: callers must not hang
            return _Answer(query.future, None, error)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _deliver(self, answers: list[_Answer], stopped: bool) -> None:
        for answer in answers:
            if answer.future.done():
                continue
            if answer.error is not None:
                answer.future.set_exception(answer.error)
            else:
                answer.future.set_result(answer.value)
        if stopped:
            self._stopped.set_result(None)
