"""The session of a store that lives in this process.

Such a session needs no keep-alive: whoever holds it and the store die together, so it lasts until
it is closed, or the store is. ``ttl`` is only checked. Invariant: once ``lost`` is set, no key of
the session exists and none can be written.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Protocol

from metadata.store import Delete, Put, SessionLost, check_key


class EphemeralKeys(Protocol):
    """The side of a store that sessions write through."""

    async def write_ephemeral(self, session_id: str, scope: str, write: Put | Delete) -> None: ...

    async def end_session(self, session_id: str) -> None:
        """Remove the session's keys and refuse any later write of it."""


class EmbeddedSession:
    """Satisfies ``metadata.store.Session``."""

    def __init__(self, keys: EphemeralKeys, ttl: float) -> None:
        if not ttl > 0:
            raise ValueError(f"a session's ttl must be more than 0 seconds, got {ttl}")
        self.id = uuid.uuid4().hex
        self.lost = asyncio.Event()
        self._closing = False
        self._keys = keys

    @property
    def valid(self) -> bool:
        return not self._closing

    async def put(self, key: str, value: bytes, *, scope: str) -> None:
        await self._write(scope, Put(key, value))

    async def delete(self, key: str, *, scope: str) -> None:
        await self._write(scope, Delete(key))

    async def close(self) -> None:
        self._closing = True
        if not self.lost.is_set():
            await self._keys.end_session(self.id)
            self.lost.set()

    async def _write(self, scope: str, write: Put | Delete) -> None:
        if self.lost.is_set():
            raise SessionLost(f"session {self.id} has ended")
        check_key(scope)
        check_key(write.key)
        await self._keys.write_ephemeral(self.id, scope, write)
