"""A metadata store in memory: the same promises as the durable ones, until the process ends.

Several ``MemoryStore`` objects over one ``MemoryState`` are several clients of one store, as
brokers are of a cluster's; sessions and watches belong to the client that opened them.

Invariant: a commit runs without an ``await`` between its first check and its last write, so on
the one event loop that owns the state it is atomic.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from metadata.paging import Page, scan_pages
from metadata.sessions import EmbeddedSession
from metadata.store import (
    Change,
    Check,
    CommitResult,
    Conflict,
    Delete,
    KeyValue,
    Put,
    SessionLost,
    Unavailable,
    Versioned,
    Watch,
    check_commit,
    check_key,
    range_depth,
)
from metadata.watches import MAX_PENDING_CHANGES, Watches


class _Row(NamedTuple):
    value: bytes
    version: int
    session_id: str | None


class _Shelf:
    """The keys of one scope and depth, sorted."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.rows: dict[str, _Row] = {}

    def put(self, key: str, row: _Row) -> None:
        if key not in self.rows:
            insort(self.keys, key)
        self.rows[key] = row

    def delete(self, key: str) -> None:
        if self.rows.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def page(self, start: str, end: str, max_rows: int, reverse: bool) -> list[KeyValue]:
        low, high = bisect_left(self.keys, start), bisect_left(self.keys, end)
        if reverse:
            keys = self.keys[max(low, high - max_rows) : high][::-1]
        else:
            keys = self.keys[low : min(high, low + max_rows)]
        return [KeyValue(key, self.rows[key].value, self.rows[key].version) for key in keys]


class MemoryState:
    """What the clients of one in-memory store share."""

    def __init__(self) -> None:
        self.version = 0
        self.session_ids: set[str] = set()
        self.clients: list[Watches] = []
        self._shelves: dict[tuple[str, int], _Shelf] = {}

    def shelf(self, scope: str, depth: int) -> _Shelf:
        return self._shelves.setdefault((scope, depth), _Shelf())

    def row(self, scope: str, key: str) -> _Row | None:
        shelf = self._shelves.get((scope, key.count("/")))
        return shelf.rows.get(key) if shelf else None

    def apply(
        self, scope: str, writes: Sequence[Put | Delete], session_id: str | None = None
    ) -> int:
        """Write under the next version and announce it."""
        self.version += 1
        changes: list[Change] = []
        for write in writes:
            shelf = self.shelf(scope, write.key.count("/"))
            if isinstance(write, Put):
                shelf.put(write.key, _Row(write.value, self.version, session_id))
                changes.append(Change(write.key, write.value, self.version))
            else:
                shelf.delete(write.key)
                changes.append(Change(write.key, None, self.version))
        for client in self.clients:
            client.publish(changes)
        return self.version

    def keys_of_session(self, session_id: str) -> list[tuple[str, str]]:
        return [
            (scope, key)
            for (scope, _), shelf in self._shelves.items()
            for key, row in shelf.rows.items()
            if row.session_id == session_id
        ]


class MemoryStore:
    """Satisfies ``metadata.store.MetadataStore``."""

    def __init__(
        self, state: MemoryState | None = None, *, max_pending_changes: int = MAX_PENDING_CHANGES
    ) -> None:
        self._state = state or MemoryState()
        self._watches = Watches(max_pending_changes)
        self._state.clients.append(self._watches)
        self._sessions: list[EmbeddedSession] = []
        self._closed = False

    async def get(self, key: str, *, scope: str) -> Versioned | None:
        await self._turn()
        check_key(key)
        row = self._state.row(scope, key)
        return Versioned(row.value, row.version) if row else None

    async def ceiling(self, key: str, *, scope: str) -> KeyValue | None:
        await self._turn()
        check_key(key)
        shelf = self._state.shelf(scope, key.count("/"))
        index = bisect_left(shelf.keys, key)
        if index == len(shelf.keys):
            return None
        found = shelf.keys[index]
        return KeyValue(found, shelf.rows[found].value, shelf.rows[found].version)

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

        async def read_page(start: str, end: str, max_rows: int) -> Page:
            await self._turn()
            rows = self._state.shelf(scope, depth).page(start, end, max_rows, reverse)
            return Page(rows, more=len(rows) == max_rows)

        async for row in scan_pages(read_page, start, end, limit, reverse):
            yield row

    async def commit(
        self, scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]
    ) -> CommitResult:
        check_commit(scope, checks, writes)
        await self._turn()
        for key in [*(check.key for check in checks), *(write.key for write in writes)]:
            row = self._state.row(scope, key)
            if row and row.session_id:
                raise ValueError(f"{key!r} is ephemeral and can't stand in a commit")
        for check in checks:
            row = self._state.row(scope, check.key)
            version = row.version if row else None
            if version != check.version:
                raise Conflict(f"{check.key!r} has version {version}, not {check.version}")
        return CommitResult(self._state.apply(scope, writes) if writes else self._state.version)

    def watch(self, prefix: str) -> Watch:
        if self._closed:
            raise Unavailable("the store is closed")
        return self._watches.open(prefix)

    async def session(self, ttl: float) -> EmbeddedSession:
        await self._turn()
        session = EmbeddedSession(self, ttl)
        self._state.session_ids.add(session.id)
        self._sessions.append(session)
        return session

    async def write_ephemeral(self, session_id: str, scope: str, write: Put | Delete) -> None:
        await self._turn()
        if session_id not in self._state.session_ids:
            raise SessionLost(f"session {session_id} has ended")
        row = self._state.row(scope, write.key)
        if row and row.session_id != session_id:
            raise Conflict(f"{write.key!r} exists and is not of session {session_id}")
        if row or isinstance(write, Put):
            self._state.apply(scope, [write], session_id)

    async def end_session(self, session_id: str) -> None:
        self._state.session_ids.discard(session_id)
        self._sessions = [session for session in self._sessions if session.id != session_id]
        for scope, key in self._state.keys_of_session(session_id):
            self._state.apply(scope, [Delete(key)])

    async def close(self) -> None:
        if not self._closed:
            for session in list(self._sessions):
                await session.close()
            self._closed = True
            self._watches.close()
            self._state.clients.remove(self._watches)

    async def _turn(self) -> None:
        """Let others run, as any store with real I/O does, so that races show in tests too."""
        await asyncio.sleep(0)
        if self._closed:
            raise Unavailable("the store is closed")
