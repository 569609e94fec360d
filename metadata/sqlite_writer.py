"""The writing thread of the embedded store: all commits, in the order they came.

Writes that arrive while a transaction runs go into the next one together and share its sync; the
event loop is woken once for all of them. Checkpoints run between batches, after the answers.

When SQLite reports an error:

- before COMMIT, or from COMMIT because a page could not be written: the commit record is not
  whole, nothing is applied, the callers get ``Unavailable``, and the next batch starts afresh.
- otherwise from COMMIT (say, its sync failed): the record may be in the WAL file although this
  process does not see it, and a later recovery could bring it back. So the file is opened anew and
  the last commit's version read. If it is ours, it is applied. If not, a fence (a commit of
  its own) overwrites the record; once that is durable, it is not applied. Until one of the two
  is certain the callers have ``CommitUnknown``, and nothing is read or written.

Versions of failed batches are not used again, so the stored one always tells batch from fence.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from itertools import chain

from metadata.sqlite_batch import Batch, Place, Write
from metadata.sqlite_file import SqliteFile, read_last_version
from metadata.store import CommitUnknown, Conflict, SessionLost, Unavailable

_MAX_BATCH = 256
_MAX_KNOWN_VERSIONS = 10_000
_PAGE_BYTES = 4096
_CHECKPOINT_PAGES = 4096
"""A checkpoint is due after about this many pages of WAL (16 MiB)."""
_IDLE_CHECKPOINT_S = 0.5
"""... and when nothing came for so long after a commit, so that an idle file is compact."""
_SETTLE_RETRY_S = 0.5

_PUT = "INSERT OR REPLACE INTO kv VALUES "
_PUT_ROW = "(?, ?, ?, ?, ?, ?)"
_PUT_ROWS = 8
"""Rows of one statement. Between statements the thread waits for the interpreter."""
_DELETE = "DELETE FROM kv WHERE scope = ? AND depth = ? AND key = ?"
_VERSION = "SELECT version FROM kv WHERE scope = ? AND depth = ? AND key = ?"
_EPHEMERAL = "SELECT scope, key, session FROM kv WHERE session IS NOT NULL"
_SET_LAST_COMMIT = "UPDATE last_commit SET version = ?"

Deliver = Callable[[list[Write], int, bool], None]
"""(answered writes, last version used, whether every outcome is known): called on the loop."""


class Writer:
    def __init__(
        self,
        file: SqliteFile,
        connection: sqlite3.Connection,
        last_version: int,
        loop: asyncio.AbstractEventLoop,
        deliver: Deliver,
    ) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = connection
        self._loop = loop
        self._deliver = deliver
        self._last_version = last_version
        self._known_versions: dict[Place, int | None] = {}
        self._ephemeral: dict[Place, str] = {}
        self._session_ids: set[str] = set()
        self._wal_pages = 0
        self._doubtful_version: int | None = None
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._stopped: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._run, name="metadata-writer", daemon=True)
        self._thread.start()

    def submit(self, write: Write) -> None:
        self._queue.put(write)

    def open_session(self, session_id: str) -> None:
        # Before the session's first write is queued, so the thread sees it by then.
        self._session_ids.add(session_id)

    async def stop(self) -> None:
        """Answer what is queued, then close the connection."""
        self._queue.put(None)
        await self._stopped
        self._thread.join()

    # All below runs in the writing thread.

    def _run(self) -> None:
        stopping = False
        while not stopping:
            batch = self._take()
            writes = [write for write in batch if write is not None]
            stopping = None in batch
            self._process(writes)
            if stopping:
                self._disconnect()
            try:
                self._loop.call_soon_threadsafe(
                    self._answer,
                    writes,
                    self._last_version,
                    self._doubtful_version is None,
                    stopping,
                )
            except RuntimeError:  # the loop is closed: nobody is left to answer
                self._disconnect()
                return
            if self._wal_pages >= _CHECKPOINT_PAGES:
                self._checkpoint()

    def _answer(self, writes: list[Write], last_version: int, settled: bool, stopped: bool) -> None:
        self._deliver(writes, last_version, settled)
        if stopped:
            self._stopped.set_result(None)

    def _take(self) -> list[Write | None]:
        """What has queued up; empty when an earlier outcome should be settled now."""
        try:
            if self._doubtful_version is not None:
                batch = [self._queue.get(timeout=_SETTLE_RETRY_S)]
            elif self._wal_pages:
                batch = [self._queue.get(timeout=_IDLE_CHECKPOINT_S)]
            else:
                batch = [self._queue.get()]
        except queue.Empty:
            if self._doubtful_version is not None:
                return []
            self._checkpoint()
            return [self._queue.get()]
        while len(batch) < _MAX_BATCH and not self._queue.empty():
            batch.append(self._queue.get())
        return batch

    def _process(self, writes: list[Write]) -> None:
        try:
            self._commit(writes)
        except Exception as error:  # noqa: BLE001 - the thread's boundary: callers must not hang
            self._doubtful_version = self._last_version
            self._fail(writes, CommitUnknown(f"the metadata commit broke off: {error!r}"))

    def _commit(self, writes: list[Write]) -> None:
        if self._doubtful_version is not None and self._settle() is None:
            self._fail(writes, Unavailable("the outcome of an earlier commit is not known yet"))
            return
        batch = Batch(self._last_version, self._stored_version, self._ephemeral, self._session_ids)
        try:
            for write in writes:
                try:
                    batch.admit(write)
                except (Conflict, SessionLost, ValueError) as error:
                    write.error = error
            # Counted even if the batch fails, so that its versions are not used again.
            self._last_version = batch.last_version
            if batch.rows:
                self._write_rows(batch)
        except sqlite3.Error as error:
            self._roll_back()
            self._fail(writes, Unavailable(f"metadata can't be written: {error}"))
            return
        if batch.rows and not self._finish(batch, writes):
            return
        self._remember(batch)

    def _write_rows(self, batch: Batch) -> None:
        puts, deletes = [], []
        for (scope, key), row in batch.rows.items():
            depth = key.count("/")
            if row.value is None:
                deletes.append((scope, depth, key))
                self._wal_pages += 1
            else:
                puts.append((scope, depth, key, row.value, row.version, row.session_id))
                self._wal_pages += 1 + len(row.value) // _PAGE_BYTES
        self._wal_pages += 2
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE")
        for at in range(0, len(puts), _PUT_ROWS):
            some = puts[at : at + _PUT_ROWS]
            connection.execute(
                _PUT + ", ".join([_PUT_ROW] * len(some)), list(chain.from_iterable(some))
            )
        if deletes:
            connection.executemany(_DELETE, deletes)
        connection.execute(_SET_LAST_COMMIT, (batch.last_version,))

    def _finish(self, batch: Batch, writes: list[Write]) -> bool:
        """COMMIT; whether it is applied."""
        try:
            self._connect().execute("COMMIT")
            return True
        except sqlite3.Error as error:
            # SQLITE_FULL: no space; IOERR_WRITE: any other failed write. Only the last page
            # that a commit writes makes it one, and a sync comes after all writes.
            whole_record_impossible = error.sqlite_errorcode in (
                sqlite3.SQLITE_FULL,
                sqlite3.SQLITE_IOERR_WRITE,
            )
            self._roll_back()
            applied: bool | None = False
            if not whole_record_impossible:
                self._doubtful_version = batch.last_version
                applied = self._settle()
            if applied:
                return True
            if applied is None:
                self._fail(writes, CommitUnknown(f"a metadata commit may be lost: {error}"))
            else:
                self._fail(writes, Unavailable(f"metadata can't be written: {error}"))
            return False

    def _settle(self) -> bool | None:
        """Whether the doubtful batch is applied, for good; None while that is not certain."""
        doubtful = self._doubtful_version
        fence_version = self._last_version + 1
        try:
            self._disconnect()
            connection = self._connect()
            stored = read_last_version(connection)
            if stored == doubtful:
                _, wal_frames, copied = connection.execute(
                    "PRAGMA wal_checkpoint(PASSIVE)"
                ).fetchone()
                if wal_frames != copied:
                    return None
            else:
                self._last_version = fence_version
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_SET_LAST_COMMIT, (fence_version,))
                connection.execute("COMMIT")
            ephemeral = connection.execute(_EPHEMERAL).fetchall()
        except sqlite3.Error:
            self._roll_back()
            return None
        self._doubtful_version = None
        self._known_versions.clear()
        self._ephemeral = {(scope, key): session_id for scope, key, session_id in ephemeral}
        return stored == doubtful

    def _remember(self, batch: Batch) -> None:
        if len(self._known_versions) + len(batch.rows) > _MAX_KNOWN_VERSIONS:
            self._known_versions.clear()
        for place, row in batch.rows.items():
            self._known_versions[place] = None if row.value is None else row.version
            if row.session_id is not None:
                self._ephemeral[place] = row.session_id
            else:
                self._ephemeral.pop(place, None)
        self._session_ids -= batch.ended_session_ids

    def _stored_version(self, place: Place) -> int | None:
        if place in self._known_versions:
            return self._known_versions[place]
        scope, key = place
        found = self._connect().execute(_VERSION, (scope, key.count("/"), key)).fetchone()
        version = None if found is None else int(found[0])
        if len(self._known_versions) < _MAX_KNOWN_VERSIONS:
            self._known_versions[place] = version
        return version

    def _checkpoint(self) -> None:
        # A failure here costs nothing: the WAL stays, and the next one tries again.
        self._wal_pages = 0
        with contextlib.suppress(sqlite3.Error):
            self._connect().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _fail(self, writes: list[Write], error: Exception) -> None:
        for write in writes:
            if write.error is None:
                write.error = error

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._file.connect_writer()
        return self._connection

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
