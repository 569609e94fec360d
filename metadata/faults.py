"""A store that fails on request: what tests use to lose answers, requests and sessions.

It wraps any store and changes nothing until told to, so every failure that a remote store can
show (metadata.md) can be shown over the embedded ones as well.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from metadata.store import (
    Check,
    CommitResult,
    CommitUnknown,
    Delete,
    KeyValue,
    MetadataStore,
    Put,
    Session,
    Unavailable,
    Versioned,
    Watch,
)

When = Callable[[str, Sequence[Put | Delete]], bool]
"""(scope, writes): whether a fault is meant for this commit."""


class Fault(enum.Enum):
    UNAVAILABLE = "refused before it is applied: Unavailable"
    LOST_REQUEST = "never applied, but the caller can't know: CommitUnknown"
    LOST_ANSWER = "applied, but the caller can't know: CommitUnknown"


class FaultyStore:
    """Satisfies ``metadata.store.MetadataStore``; closing it closes the store inside."""

    def __init__(self, inner: MetadataStore) -> None:
        self._inner = inner
        self._commit_faults: deque[tuple[Fault, When]] = deque()
        self._read_faults_left = 0
        self._sessions: list[Session] = []
        self._commits_run = asyncio.Event()
        self._commits_run.set()
        self.commits_held = 0

    def fail_commits(
        self, fault: Fault, times: int = 1, when: When = lambda scope, writes: True
    ) -> None:
        """Fail the next ``times`` commits for which ``when`` holds."""
        self._commit_faults.extend([(fault, when)] * times)

    def fail_reads(self, times: int = 1) -> None:
        """Make the next gets, ceilings and scans raise Unavailable."""
        self._read_faults_left += times

    def hold_commits(self) -> None:
        """Keep commits waiting, unapplied, until ``release_commits``; see ``commits_held``."""
        self._commits_run.clear()

    def release_commits(self) -> None:
        self._commits_run.set()

    async def lose_sessions(self) -> None:
        """End every session, as a store does whose client fell silent."""
        for session in self._sessions:
            await session.close()
        self._sessions.clear()

    async def get(self, key: str, *, scope: str) -> Versioned | None:
        self._before_read()
        return await self._inner.get(key, scope=scope)

    async def ceiling(self, key: str, *, scope: str) -> KeyValue | None:
        self._before_read()
        return await self._inner.ceiling(key, scope=scope)

    async def scan(
        self,
        start: str,
        end: str,
        *,
        scope: str,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[KeyValue]:
        self._before_read()
        async for row in self._inner.scan(start, end, scope=scope, limit=limit, reverse=reverse):
            yield row

    async def commit(
        self, scope: str, checks: Sequence[Check], writes: Sequence[Put | Delete]
    ) -> CommitResult:
        if not self._commits_run.is_set():
            self.commits_held += 1
            try:
                await self._commits_run.wait()
            finally:
                self.commits_held -= 1
        fault = self._take_fault(scope, writes)
        if fault is Fault.UNAVAILABLE:
            raise Unavailable("injected: refused")
        if fault is Fault.LOST_REQUEST:
            raise CommitUnknown("injected: the request was lost")
        result = await self._inner.commit(scope, checks, writes)
        if fault is Fault.LOST_ANSWER:
            raise CommitUnknown("injected: the answer was lost")
        return result

    def watch(self, prefix: str) -> Watch:
        return self._inner.watch(prefix)

    async def session(self, ttl: float) -> Session:
        session = await self._inner.session(ttl)
        self._sessions.append(session)
        return session

    async def close(self) -> None:
        await self._inner.close()

    def _before_read(self) -> None:
        if self._read_faults_left > 0:
            self._read_faults_left -= 1
            raise Unavailable("injected: no answer")

    def _take_fault(self, scope: str, writes: Sequence[Put | Delete]) -> Fault | None:
        for position, (fault, when) in enumerate(self._commit_faults):
            if when(scope, writes):
                del self._commit_faults[position]
                return fault
        return None
