"""The embedded metadata store: one SQLite file, owned by one process.

The event loop never touches the disk: commits go to the writing thread (``sqlite_writer``), reads
to the reading thread (``sqlite_reader``), and a ``get`` of a row that was written or read lately
is answered at once (``recent_rows``).

Whoever keeps the event loop busy must lower ``sys.setswitchinterval`` to about 0.1 ms. A thread
that comes back from the disk waits for the interpreter lock; a loop that gives the lock up more
often than the default interval (5 ms), but each time for a moment only, starves it: measured,
commits of a millisecond then take up to a second.

Invariant: an answered commit is seen by every later read. The file holds it before the answer is
sent, and the recent rows and the watches learn of it before the caller does.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from metadata.paging import Page, scan_pages
from metadata.recent_rows import RecentRows
from metadata.sessions import EmbeddedSession
from metadata.sqlite_batch import Write
from metadata.sqlite_file import SqliteFile
from metadata.sqlite_reader import Reader
from metadata.sqlite_writer import Writer
from metadata.store import (
    Check,
    CommitResult,
    Delete,
    KeyValue,
    Put,
    StoreError,
    Unavailable,
    Versioned,
    Watch,
    check_commit,
    check_key,
    range_depth,
)
from metadata.watches import MAX_PENDING_CHANGES, Watches

_RECENT_ROWS_BYTES = 8 * 1024 * 1024
_PAGE_BYTES = 1024 * 1024
"""A page of a scan ends with the row that reaches this size."""

_GET = "SELECT value, version FROM kv WHERE scope = ? AND depth = ? AND key = ?"
_CEILING = """SELECT key, value, version FROM kv
    WHERE scope = ? AND depth = ? AND key >= ? ORDER BY key LIMIT 1"""
_PAGE = """SELECT key, value, version FROM kv
    WHERE scope = ? AND depth = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"""
_PAGE_REVERSE = """SELECT key, value, version FROM kv
    WHERE scope = ? AND depth = ? AND key >= ? AND key < ? ORDER BY key DESC LIMIT ?"""

Observe = Callable[[str, float], None]
"""(operation, seconds): get, ceiling, scan (one page), commit or session."""


class SqliteStore:
    """Satisfies ``metadata.store.MetadataStore``. Made by ``open``, on the loop that uses it."""

    def __init__(
        self,
        file: SqliteFile,
        writer: sqlite3.Connection | None,
        last_version: int,
        observe: Observe | None,
        max_pending_changes: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._observe = observe
        self._watches = Watches(max_pending_changes)
        self._sessions: dict[str, EmbeddedSession] = {}
        self._announced_version = last_version
        self._settled = True
        self._closed = False
        self._reader = Reader(file, self._loop)
        self._writer: Writer | None = None
        # Beside another process's writer nothing may be remembered: its commits aren't heard of.
        self._recent = RecentRows(_RECENT_ROWS_BYTES if writer is not None else 0)
        if writer is not None:
            self._writer = Writer(file, writer, last_version, self._loop, self._deliver)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        read_only: bool = False,
        observe: Observe | None = None,
        max_pending_changes: int = MAX_PENDING_CHANGES,
        connection_class: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> SqliteStore:
        """Open or create the file, in a folder that exists.

        ``read_only`` works beside the owning process and neither commits, watches nor holds
        sessions. Errors: ``StoreInUse``, ``IncompatibleStore``, ``Unavailable``.
        """
        file = SqliteFile(path, connection_class)
        if not read_only:
            writer, last_version = await asyncio.to_thread(file.take)
            return cls(file, writer, last_version, observe, max_pending_changes)
        store = cls(file, None, 0, observe, max_pending_changes)
        try:
            await store._reader.read(lambda connection: None)
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def closed(self) -> bool:
        return self._closed

    async def get(self, key: str, *, scope: str) -> Versioned | None:
        started = time.perf_counter()
        self._check_readable()
        known = self._recent.get(scope, key)
        if known is not None:
            row = known.row
        else:
            check_key(key)
            as_of = self._announced_version

            def query(connection: sqlite3.Connection) -> Versioned | None:
                found = connection.execute(_GET, (scope, key.count("/"), key)).fetchone()
                return None if found is None else Versioned(*found)

            row = await self._reader.read(query)
            self._recent.read(scope, key, row, as_of)
        self._observed("get", started)
        return row

    async def ceiling(self, key: str, *, scope: str) -> KeyValue | None:
        started = time.perf_counter()
        self._check_readable()
        check_key(key)

        def query(connection: sqlite3.Connection) -> KeyValue | None:
            found = connection.execute(_CEILING, (scope, key.count("/"), key)).fetchone()
            return None if found is None else KeyValue(*found)

        row = await self._reader.read(query)
        self._observed("ceiling", started)
        return row

    async def scan(
        self,
        start: str,
        end: str,
        *,
        scope: str,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[KeyValue]:
        depth = range_depth(start, end)
        statement = _PAGE_REVERSE if reverse else _PAGE

        async def read_page(start: str, end: str, max_rows: int) -> Page:
            started = time.perf_counter()
            self._check_readable()

            def query(connection: sqlite3.Connection) -> Page:
                cursor = connection.execute(statement, (scope, depth, start, end, max_rows))
                try:
                    return _read_page(cursor, max_rows)
                finally:
                    cursor.close()

            page = await self._reader.read(query)
            self._observed("scan", started)
            return page

        async for row in scan_pages(read_page, start, end, limit, reverse):
            yield row

    async def commit(
        self, scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]
    ) -> CommitResult:
        started = time.perf_counter()
        check_commit(scope, checks, writes)
        version = await self._write(Write(scope, checks, writes, self._loop.create_future()))
        self._observed("commit", started)
        return CommitResult(version)

    def watch(self, prefix: str) -> Watch:
        self._owning_writer()
        return self._watches.open(prefix)

    async def session(self, ttl: float) -> EmbeddedSession:
        writer = self._owning_writer()
        session = EmbeddedSession(self, ttl)
        writer.open_session(session.id)
        self._sessions[session.id] = session
        return session

    async def write_ephemeral(self, session_id: str, scope: str, write: Put | Delete) -> None:
        started = time.perf_counter()
        await self._write(Write(scope, (), (write,), self._loop.create_future(), session_id))
        self._observed("session", started)

    async def end_session(self, session_id: str) -> None:
        await self._write(self._ending(session_id))
        self._sessions.pop(session_id, None)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            for session in self._sessions.values():
                ending = self._ending(session.id)
                self._writer.submit(ending)
                # A disk that can't be written keeps the rows; the next opening removes them.
                with contextlib.suppress(StoreError):
                    await ending.future
                session.lost.set()
        await self._reader.stop()
        if self._writer is not None:
            await self._writer.stop()
        self._watches.close()
        self._file.release()

    async def _write(self, write: Write) -> int:
        self._owning_writer().submit(write)
        return await write.future

    def _ending(self, session_id: str) -> Write:
        return Write("", (), (), self._loop.create_future(), session_id, ends_session=True)

    def _deliver(self, writes: list[Write], last_version: int, settled: bool) -> None:
        """What the writing thread has decided: tell watches and recent rows, then the callers."""
        if not (settled and self._settled):
            # A commit of unknown outcome may or may not have changed any row.
            self._recent.clear(as_of=last_version)
            self._watches.skip()
            self._settled = settled
        self._announced_version = last_version
        for write in writes:
            if write.error is None:
                for scope, change in write.changes:
                    self._recent.written(scope, change.key, change.value, change.version)
                self._watches.publish(change for _, change in write.changes)
            if not write.future.done():
                if write.error is None:
                    write.future.set_result(write.version)
                else:
                    write.future.set_exception(write.error)

    def _check_readable(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
        if not self._settled:
            raise Unavailable("the outcome of an earlier commit is not known yet")

    def _owning_writer(self) -> Writer:
        if self._closed:
            raise Unavailable("the store is closed")
        if self._writer is None:
            raise StoreError(f"{self._file.path} was opened read-only")
        return self._writer

    def _observed(self, operation: str, started: float) -> None:
        if self._observe is not None:
            self._observe(operation, time.perf_counter() - started)


def _read_page(cursor: sqlite3.Cursor, max_rows: int) -> Page:
    rows: list[KeyValue] = []
    size_bytes = 0
    for found in cursor:
        rows.append(KeyValue(*found))
        size_bytes += len(rows[-1].value)
        if size_bytes >= _PAGE_BYTES:
            return Page(rows, more=True)
    return Page(rows, more=len(rows) == max_rows)
