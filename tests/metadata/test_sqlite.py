"""What only the SQLite store promises: kills, restarts, one owner, formats, reading beside."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from metadata.sqlite import SqliteStore
from metadata.store import (
    Check,
    Delete,
    IncompatibleStore,
    Put,
    SessionLost,
    StoreError,
    StoreInUse,
    Unavailable,
    Versioned,
)

ROOT = Path(__file__).parents[2]
SCOPE = "domain-0"
PATIENCE_S = 60
"""Bounds a test that hangs; no outcome depends on it."""


async def child(module: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )


async def test_a_kill_loses_no_acknowledged_commit_and_leaves_no_half(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    acknowledged: set[int] = set()
    first, last_version = 0, 0
    for kill_after in (1, 2, 7, 23, 60):
        process = await child("tests.metadata.commit_loop", str(path), str(first))
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(kill_after):
                acknowledged.add(int(await process.stdout.readline()))
            process.send_signal(signal.SIGKILL)
            rest, _ = await process.communicate()
        # What was printed before the kill arrived was acknowledged as well; a last line that
        # the kill cut short is not counted.
        acknowledged |= {int(line) for line in rest.split(b"\n")[:-1]}
        assert process.returncode == -signal.SIGKILL

        store = await SqliteStore.open(path)
        assert await store.get("/alive/1", scope="loop") is None, "a dead session left its key"
        sides = []
        for side in ("left", "right"):
            rows = store.scan(f"/{side}/", f"/{side}/~", scope="loop")
            sides.append({int(row.key.rpartition("/")[2]): row async for row in rows})
        left, right = sides
        assert acknowledged <= left.keys()
        assert left.keys() == right.keys(), "half a commit"
        for number, row in left.items():
            assert row.value == right[number].value == str(number).encode() * 100
            assert row.version == right[number].version
        result = await store.commit("loop", [], [Put("/marker/1", b"")])
        assert result.version > max(row.version for row in left.values()) >= last_version
        last_version = result.version
        first = max(left) + 1
        await store.close()
    assert len(acknowledged) >= 93


async def test_a_restart_keeps_rows_and_never_uses_a_version_again(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    versions: list[int] = []
    for number in range(4):
        store = await SqliteStore.open(path)
        if versions:
            found = await store.get(f"/a/{number - 1}", scope=SCOPE)
            assert found == Versioned(b"kept", versions[-2])
        versions.append((await store.commit(SCOPE, [], [Put(f"/a/{number}", b"kept")])).version)
        # The newest version belongs to a deletion, so no row shows it after the restart.
        versions.append((await store.commit(SCOPE, [], [Delete("/a/none")])).version)
        await store.close()
    assert versions == sorted(set(versions))


async def test_a_second_opener_is_refused_with_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path)
    with pytest.raises(StoreInUse) as refused:
        await SqliteStore.open(path)
    assert str(refused.value) == (
        f"{path} is in use by another Dray broker (process {os.getpid()})"
    )
    await store.commit(SCOPE, [], [Put("/a/1", b"")])
    await store.close()
    await (await SqliteStore.open(path)).close()


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    process = await child("tests.metadata.commit_loop", str(path), "0")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        await process.stdout.readline()
        with pytest.raises(StoreInUse, match=f"process {process.pid}"):
            await SqliteStore.open(path)
        process.kill()
        await process.communicate()
    await (await SqliteStore.open(path)).close()


async def test_a_reader_beside_the_owner_sees_its_commits(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    with pytest.raises(Unavailable):
        await SqliteStore.open(path, read_only=True)
    owner = await SqliteStore.open(path)
    reader = await SqliteStore.open(path, read_only=True)
    for number in range(3):
        result = await owner.commit(SCOPE, [], [Put("/a/1", str(number).encode())])
        found = await reader.get("/a/1", scope=SCOPE)
        assert found == Versioned(str(number).encode(), result.version)
    for refused in (reader.commit(SCOPE, [], [Put("/a/1", b"")]), reader.session(5)):
        with pytest.raises(StoreError, match="read-only"):
            await refused
    with pytest.raises(StoreError, match="read-only"):
        reader.watch("/")
    await owner.close()
    assert await reader.get("/a/1", scope=SCOPE) is not None
    await reader.close()
    afterwards = await SqliteStore.open(path, read_only=True)
    assert await afterwards.get("/a/1", scope=SCOPE) is not None
    await afterwards.close()


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = await SqliteStore.open(path)
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    for read_only in (False, True):
        with pytest.raises(IncompatibleStore) as refused:
            await SqliteStore.open(path, read_only=read_only)
        assert str(refused.value) == (
            f"{path} has schema version 2, but this version of Dray knows only 1:"
            " use the Dray that wrote it, or a newer one"
        )
    # A refused opening holds no lock.
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    await (await SqliteStore.open(path)).close()


async def test_files_that_are_not_ours_are_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE other (id INTEGER)")
    connection.close()
    with pytest.raises(IncompatibleStore, match="another application"):
        await SqliteStore.open(foreign)
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to be one. " * 100)
    with pytest.raises(IncompatibleStore, match="not a SQLite database"):
        await SqliteStore.open(text)
    with pytest.raises(FileNotFoundError):
        await SqliteStore.open(tmp_path / "absent" / "metadata.db")


async def test_commits_are_synced_in_full(tmp_path: Path) -> None:
    """The settings that power loss depends on, as SQLite itself reports them."""
    seen: list[tuple[int, str]] = []

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            (synchronous,) = self.execute("PRAGMA synchronous").fetchone()
            (journal_mode,) = self.execute("PRAGMA journal_mode").fetchone()
            seen.append((synchronous, journal_mode))
            super().close()

    store = await SqliteStore.open(tmp_path / "metadata.db", connection_class=Watched)
    await store.commit(SCOPE, [], [Put("/a/1", b"")])
    await store.close()
    assert seen == [(2, "wal")]


async def test_a_cancelled_caller_leaves_the_store_in_order(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "metadata.db")
    tasks = [
        asyncio.create_task(store.commit(SCOPE, [], [Put(f"/a/{number}", b"")]))
        for number in range(10)
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False] * 5
    # Later commits come after earlier ones, so by now each is decided.
    await store.commit(SCOPE, [], [Put("/b/1", b"")])
    rows = [row.key async for row in store.scan("/a/", "/a/~", scope=SCOPE)]
    assert rows == [f"/a/{number}" for number in range(10)]
    await store.close()


async def test_a_session_has_ended_even_if_nobody_waited_for_it(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "metadata.db")
    session = await store.session(10)
    await session.put("/alive/1", b"", scope=SCOPE)
    closing = asyncio.create_task(session.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await store.commit(SCOPE, [], [Put("/a/1", b"")])  # later, so the end is decided by now
    assert await store.get("/alive/1", scope=SCOPE) is None
    with pytest.raises(SessionLost):
        await session.put("/alive/1", b"", scope=SCOPE)
    await session.close()
    assert session.lost.is_set()
    await store.close()


async def test_commits_that_share_a_transaction_see_one_another(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "metadata.db")
    base = (await store.commit(SCOPE, [], [Put("/a/1", b"0")])).version
    # All are queued before the first is answered. The second builds on the version that the
    # first will get; the third on what the first has replaced.
    results = await asyncio.gather(
        store.commit(SCOPE, [Check("/a/1", base)], [Put("/a/1", b"1")]),
        store.commit(SCOPE, [Check("/a/1", base + 1)], [Put("/a/1", b"2"), Put("/a/2", b"2")]),
        store.commit(SCOPE, [Check("/a/1", base)], [Put("/a/1", b"3"), Put("/a/3", b"3")]),
        store.commit(SCOPE, [Check("/a/3", None)], [Delete("/a/2")]),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == [
        "CommitResult",
        "CommitResult",
        "Conflict",
        "CommitResult",
    ]
    rows = [tuple(row) async for row in store.scan("/a/", "/a/~", scope=SCOPE)]
    assert rows == [("/a/1", b"2", base + 2)]
    await store.close()


async def test_operations_are_observed(tmp_path: Path) -> None:
    seen: list[str] = []

    def observe(operation: str, seconds: float) -> None:
        assert seconds >= 0
        seen.append(operation)

    store = await SqliteStore.open(tmp_path / "metadata.db", observe=observe)
    await store.commit(SCOPE, [], [Put("/a/1", b"")])
    await store.get("/a/1", scope=SCOPE)
    await store.get("/a/2", scope=SCOPE)
    await store.ceiling("/a/1", scope=SCOPE)
    assert [row.key async for row in store.scan("/a/", "/a/~", scope=SCOPE)] == ["/a/1"]
    await store.close()
    assert seen == ["commit", "get", "get", "ceiling", "scan"]
