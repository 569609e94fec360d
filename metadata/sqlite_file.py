"""The SQLite file under the embedded store: who may open it, what is in it, how it is synced.

Invariants:

- One process at a time owns the file, by a lock on ``<file>.lock`` that ends with the process.
  Anyone may read it beside the owner.
- WAL mode with ``synchronous=FULL``: a commit that returned survives a power failure.
- Only the owner's writing connection ever checkpoints; every other one is read-only. SQLite
  before 3.51.3 can corrupt a database in which two connections checkpoint or write at once.
- Nothing else in this process opens the database file: closing any descriptor of it would drop
  SQLite's own locks (POSIX).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from metadata.store import IncompatibleStore, StoreInUse, Unavailable

SCHEMA_VERSION = 1
_APPLICATION_ID = 0x44524159  # "DRAY"
_BUSY_TIMEOUT_S = 5.0
_WAL_FILE_MAX_BYTES = 32 * 1024 * 1024

# A row belongs to a scope; within it keys are ordered by depth first (see metadata/store.py).
# The partial index holds ephemeral rows only, so that opening finds them without a full scan.
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE kv (
    scope TEXT NOT NULL,
    depth INTEGER NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,
    session TEXT,
    PRIMARY KEY (scope, depth, key)
) WITHOUT ROWID;
CREATE INDEX kv_session ON kv (session) WHERE session IS NOT NULL;
CREATE TABLE last_commit (id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER NOT NULL);
INSERT INTO last_commit VALUES (0, 0);
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


class SqliteFile:
    """A path, the lock on it if we own it, and its connections."""

    def __init__(self, path: str | Path, connection_class: type[sqlite3.Connection]) -> None:
        self.path = Path(path).absolute()
        self._connection_class = connection_class
        self._lock_fd: int | None = None

    def take(self) -> tuple[sqlite3.Connection, int]:
        """Become the owner: the writing connection, and the last version that was used."""
        self._lock()
        try:
            writer = self.connect_writer()
            try:
                # Whoever held ephemeral keys died with the last owner.
                writer.execute("DELETE FROM kv WHERE session IS NOT NULL")
                last_version = read_last_version(writer)
                sync_folder(self.path.parent)
            except BaseException:
                writer.close()
                raise
        except sqlite3.Error as error:
            self.release()
            raise Unavailable(f"{self.path} can't be opened: {error}") from error
        except BaseException:
            self.release()
            raise
        return writer, last_version

    def release(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def connect_writer(self) -> sqlite3.Connection:
        connection = self._connect("rwc")
        try:
            if self._is_empty(connection):
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_SCHEMA)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = OFF")
            # The writer checkpoints between commits, never inside one.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_FILE_MAX_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_reader(self) -> sqlite3.Connection:
        connection = self._connect("ro")
        try:
            if self._is_empty(connection):
                raise IncompatibleStore(f"{self.path} is not a Dray metadata store: it is empty")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            isolation_level=None,
            timeout=_BUSY_TIMEOUT_S,
            check_same_thread=False,  # opened in one thread, then used by one other
            factory=self._connection_class,
        )

    def _is_empty(self, connection: sqlite3.Connection) -> bool:
        """Whether there is no schema yet; IncompatibleStore if there is one that isn't ours."""
        try:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                message = f"{self.path} is not a Dray metadata store: it is not a SQLite database"
                raise IncompatibleStore(message) from error
            raise
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (schema_version,) = connection.execute("PRAGMA user_version").fetchone()
        if tables == 0:
            return True
        if application_id != _APPLICATION_ID:
            raise IncompatibleStore(f"{self.path} is another application's SQLite database")
        if schema_version != SCHEMA_VERSION:
            raise IncompatibleStore(
                f"{self.path} has schema version {schema_version}, but this version of Dray"
                f" knows only {SCHEMA_VERSION}: use the Dray that wrote it, or a newer one"
            )
        return False

    def _lock(self) -> None:
        lock_path = f"{self.path}.lock"
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            os.close(fd)
            process = f" (process {owner})" if owner else ""
            message = f"{self.path} is in use by another Dray broker{process}"
            raise StoreInUse(message) from None
        # Only a hint for that sentence, so a disk too full to hold it doesn't matter.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock_fd = fd


def read_last_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("SELECT version FROM last_commit").fetchone()
    return int(version)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
