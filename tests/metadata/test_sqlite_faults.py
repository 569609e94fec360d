"""The SQLite store when the disk fails it: full disks, and commits of which nobody knows."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metadata.sqlite import SqliteStore
from metadata.store import Check, CommitUnknown, Gap, Put, Unavailable, Versioned
from tests.metadata.test_sqlite import PATIENCE_S, SCOPE, child


async def test_a_file_that_cannot_grow_recovers_by_itself(tmp_path: Path) -> None:
    process = await child("tests.metadata.full_disk", str(tmp_path / "metadata.db"))
    async with asyncio.timeout(PATIENCE_S):
        output, _ = await process.communicate()
    assert output == b"recovered\n"


class Disk:
    """What the connections of one test do. A failure is used up when it happens."""

    def __init__(self) -> None:
        self.max_pages: int | None = None
        self.fail_commit: str | None = None
        self.fail_statement = False
        self.refuse_opens = 0
        self.opens = 0


class FlakyConnection(sqlite3.Connection):
    """A real connection on a disk that fails as told."""

    disk: Disk

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.disk.opens += 1
        if self.disk.refuse_opens > 0:
            self.disk.refuse_opens -= 1
            raise sqlite3.OperationalError("injected: unable to open database file")
        super().__init__(*args, **kwargs)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE" and self.disk.max_pages is not None:
            super().execute(f"PRAGMA max_page_count = {self.disk.max_pages}")
        if sql == "COMMIT" and self.disk.fail_commit is not None:
            super().execute("COMMIT" if self.disk.fail_commit == "after" else "ROLLBACK")
            self.disk.fail_commit = None
            error = sqlite3.OperationalError("injected: disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        cursor = super().execute(sql, parameters)
        if self.disk.fail_statement and sql.startswith("INSERT"):
            self.disk.fail_statement = False
            raise sqlite3.OperationalError("injected: disk I/O error")
        return cursor


@pytest.fixture
def disk() -> Iterator[Disk]:
    FlakyConnection.disk = Disk()
    yield FlakyConnection.disk


async def open_on(disk: Disk, tmp_path: Path) -> SqliteStore:
    return await SqliteStore.open(tmp_path / "metadata.db", connection_class=FlakyConnection)


async def test_a_full_database_refuses_whole_commits_and_recovers(
    disk: Disk, tmp_path: Path
) -> None:
    store = await open_on(disk, tmp_path)
    before = await store.commit(SCOPE, [], [Put("/a/1", b"before")])
    watch = store.watch("/")
    disk.max_pages = 20
    # Large enough to fail on its own, and so small that it would fit alone: both are refused,
    # because they share a transaction, and both may be retried.
    results = await asyncio.gather(
        store.commit(SCOPE, [], [Put("/a/1", b"changed"), Put("/a/2", bytes(1_000_000))]),
        store.commit(SCOPE, [], [Put("/a/3", b"")]),
        return_exceptions=True,
    )
    assert isinstance(results[0], Unavailable)
    assert "full" in str(results[0])
    assert await store.get("/a/1", scope=SCOPE) == Versioned(b"before", before.version)
    assert await store.get("/a/2", scope=SCOPE) is None
    after = await store.commit(SCOPE, [], [Put("/a/4", b"fits")])
    assert after.version > before.version
    disk.max_pages = 1_000_000
    await store.commit(SCOPE, [], [Put("/a/2", bytes(1_000_000))])
    announced = [(await anext(watch)) for _ in range(2)]
    assert all(not isinstance(item, Gap) for item in announced)
    await store.close()


async def test_a_failed_statement_takes_back_its_whole_transaction(
    disk: Disk, tmp_path: Path
) -> None:
    store = await open_on(disk, tmp_path)
    disk.fail_statement = True
    with pytest.raises(Unavailable):
        await store.commit(SCOPE, [], [Put("/a/1", b"")])
    await store.commit(SCOPE, [], [Put("/a/2", b"")])
    assert [row.key async for row in store.scan("/a/", "/a/~", scope=SCOPE)] == ["/a/2"]
    await store.close()


async def test_a_commit_that_failed_after_it_was_applied_is_found_applied(
    disk: Disk, tmp_path: Path
) -> None:
    store = await open_on(disk, tmp_path)
    opens = disk.opens
    disk.fail_commit = "after"
    result = await store.commit(SCOPE, [], [Put("/a/1", b"there")])
    assert disk.opens > opens, "the outcome was not looked up in a fresh connection"
    assert await store.get("/a/1", scope=SCOPE) == Versioned(b"there", result.version)
    await store.close()


async def test_a_commit_that_failed_before_it_was_applied_is_fenced_and_refused(
    disk: Disk, tmp_path: Path
) -> None:
    store = await open_on(disk, tmp_path)
    first = await store.commit(SCOPE, [], [Put("/a/1", b"old")])
    disk.fail_commit = "before"
    with pytest.raises(Unavailable):
        await store.commit(SCOPE, [], [Put("/a/1", b"new")])
    assert await store.get("/a/1", scope=SCOPE) == Versioned(b"old", first.version)
    # The fence is in the file, so no record of the failed commit can follow what came before.
    beside = sqlite3.connect(tmp_path / "metadata.db")
    fence = beside.execute("SELECT version FROM last_commit").fetchone()
    beside.close()
    assert fence == (first.version + 2,)
    again = await store.commit(SCOPE, [], [Put("/a/1", b"new")])
    # The failed commit's version and the fence's are never given out again.
    assert again.version == first.version + 3
    await store.close()


@pytest.mark.parametrize("outcome", ["before", "after"])
async def test_while_an_outcome_is_unknown_nothing_is_served(
    disk: Disk, tmp_path: Path, outcome: str
) -> None:
    store = await open_on(disk, tmp_path)
    session = await store.session(10)
    await session.put("/alive/1", b"", scope=SCOPE)
    old = await store.commit(SCOPE, [], [Put("/a/1", b"old")])
    assert await store.get("/a/0", scope=SCOPE) is None  # so that a reader is connected
    watch = store.watch("/a/")
    disk.fail_commit = outcome
    disk.refuse_opens = 10_000
    with pytest.raises(CommitUnknown):
        await store.commit(SCOPE, [], [Put("/a/1", b"new")])
    # A read that answered now could be contradicted by what a recovery finds.
    with pytest.raises(Unavailable):
        await store.get("/a/1", scope=SCOPE)
    with pytest.raises(Unavailable):
        await store.commit(SCOPE, [], [Put("/a/2", b"")])
    disk.refuse_opens = 0
    # The store settles it by itself, and tells the watch that something may have been missed.
    async with asyncio.timeout(PATIENCE_S):
        assert await anext(watch) == Gap()
        while True:
            try:
                found = await store.get("/a/1", scope=SCOPE)
                break
            except Unavailable:
                await anext(watch)
    assert found is not None
    assert found.value == (b"new" if outcome == "after" else b"old")
    assert (found.version == old.version) == (outcome == "before")
    newest = await store.commit(SCOPE, [Check("/a/1", found.version)], [Put("/a/2", b"")])
    assert newest.version > max(found.version, old.version + 1)
    await session.close()
    assert await store.get("/alive/1", scope=SCOPE) is None
    await store.close()


async def test_a_failed_read_is_unavailable_and_the_next_one_works(
    disk: Disk, tmp_path: Path
) -> None:
    store = await open_on(disk, tmp_path)
    disk.refuse_opens = 1
    with pytest.raises(Unavailable):
        await store.get("/a/1", scope=SCOPE)
    assert await store.get("/a/1", scope=SCOPE) is None
    await store.close()
